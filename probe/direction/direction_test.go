package direction

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

const width = 24

// layers are states in memory.
type layers map[string][][]float32

func (l layers) Names() []string { return nil }

func (l layers) Layer(_ context.Context, k int) (*linear.Dense32, error) {
	var data []float32
	rows := l[fmt.Sprintf("block.%d", 2*k+2)]
	for _, r := range rows {
		data = append(data, r...)
	}
	return linear.NewDense32(len(rows), width, data)
}

// plant makes states of 120 dialogues of that many contexts in block.2 and block.4: value c
// of those of class c is greater by 4.
func plant(groups int) (*probe.CellStates, layers) {
	rng := rand.New(rand.NewPCG(3, 4))
	s := &probe.CellStates{Classes: []string{"Denial", "Defense", "Minimization"},
		Spec: activation.Spec{Model: activation.Model{Name: "planted", Digest: "sha256:aa", Architecture: "llama"}, Width: width,
			Cell: activation.Cell{Context: "ND", Text: "prompt", Position: "prompt_end"}}}
	l := layers{}
	s.Samples.Classes = 3
	for i := range 120 {
		s.Y, s.Groups, s.Items = append(s.Y, i%3), append(s.Groups, fmt.Sprint("context ", i%groups)), append(s.Items, fmt.Sprint(i))
		for _, name := range []string{"block.2", "block.4"} {
			x := make([]float32, width)
			for j := range x {
				x[j] = float32(rng.NormFloat64())
			}
			x[i%3] += 4
			l[name] = append(l[name], x)
		}
	}
	s.Layers = l
	return s, l
}

func mustLearn(t *testing.T, kind string) (*File, *probe.CellStates, layers) {
	t.Helper()
	states, l := plant(60)
	f, err := learn(t.Context(), states, "sha256:bb", Options{Kind: kind, Layers: []string{"block.2", "block.4"}, Seed: 1,
		Design: probe.Design{Seeds: []uint64{1}, Inner: 2, CPath: []float64{0.01, 0.1}}})
	if err != nil {
		t.Fatal(err)
	}
	return f, states, l
}

func norm(v []float32) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

// add is what a class adds after block.2 at the end of the prompt.
func add(t *testing.T, f *File, class string, dose float64) []float32 {
	t.Helper()
	es, err := f.Edits(class, dose)
	if err != nil {
		t.Fatal(err)
	}
	if len(es) != 4 || es[0].Block != 2 || es[3].Block != 4 || es[0].Scope != infer.ScopePromptEnd || es[1].Scope != infer.ScopeGenerated {
		t.Fatalf("%d edits, the first after block %d at %s", len(es), es[0].Block, es[0].Scope)
	}
	return es[0].Add
}

func TestMeanDirections(t *testing.T) {
	t.Parallel()
	f, states, l := mustLearn(t, Mean)
	for c, name := range states.Classes {
		var class, grand [width]float64
		n := 0.0
		for i, row := range l["block.2"] {
			for j, v := range row {
				grand[j] += float64(v) / 120
				if i%3 == c {
					class[j] += float64(v)
				}
			}
			if i%3 == c {
				n++
			}
		}
		v := add(t, f, name, 1)
		for j := range v {
			if want := class[j]/n - grand[j]; math.Abs(float64(v[j])-want) > 1e-6 {
				t.Errorf("%s: value %d is %g, want %g", name, j, v[j], want)
			}
		}
		if double := add(t, f, name, 2); math.Abs(norm(double)-2*norm(v)) > 1e-5 {
			t.Errorf("%s: a dose of 2 has the length %g, one of 1 has %g", name, norm(double), norm(v))
		}
		for _, control := range controlsOf(name) {
			w := add(t, f, control, 1)
			if math.Abs(norm(w)/norm(v)-1) > 1e-5 {
				t.Errorf("%s has the length %g, its class %g", control, norm(w), norm(v))
			}
			if cos := cosine(v, w); strings.HasSuffix(control, "negated") != (cos < -0.99) || cos > 0.8 {
				t.Errorf("%s has the cosine %g with its class", control, cos)
			}
		}
	}
	if want := 3 * (1 + 1 + 10 + 5); len(f.Classes) != want {
		t.Errorf("%d classes, want %d", len(f.Classes), want)
	}
	if norm(add(t, f, "Denial", 0)) != 0 {
		t.Error("a dose of 0 adds something")
	}
}

func controlsOf(class string) (out []string) {
	out = append(out, class+":negated")
	for k := range 10 {
		out = append(out, fmt.Sprintf("%s:shuffled-%d", class, k+1))
	}
	for k := range 5 {
		out = append(out, fmt.Sprintf("%s:isotropic-%d", class, k+1))
	}
	return out
}

func cosine(v, w []float32) float64 {
	dot := 0.0
	for j := range v {
		dot += float64(v[j]) * float64(w[j])
	}
	return dot / norm(v) / norm(w)
}

// TestWeightsPointToTheirClass: in the planted states a class is the one value that it
// raises.
func TestWeightsPointToTheirClass(t *testing.T) {
	t.Parallel()
	f, states, _ := mustLearn(t, Weights)
	mean, _, _ := mustLearn(t, Mean)
	for c, name := range states.Classes {
		v := add(t, f, name, 1)
		for j := range v {
			if j != c && v[j] >= v[c] {
				t.Errorf("%s: value %d is %g, its own %g", name, j, v[j], v[c])
			}
		}
		if got, want := norm(v), norm(add(t, mean, name, 1)); math.Abs(got/want-1) > 1e-5 {
			t.Errorf("%s has the length %g, the mean %g", name, got, want)
		}
	}
}

// TestErasureOfTheFile: what the file holds in single precision makes class means equal; the
// controls do not.
func TestErasureOfTheFile(t *testing.T) {
	t.Parallel()
	f, _, l := mustLearn(t, LEACE)
	apart := func(class string, dose float64) float64 {
		es, err := f.Edits(class, dose)
		if err != nil {
			t.Fatal(err)
		}
		e := es[0].Erase
		if len(e.U) != 2 || len(e.V) != 2 {
			t.Fatalf("%s has the rank %d", class, len(e.U))
		}
		var means [3][width]float64
		for i, row := range l["block.2"] {
			for j := range row {
				v := float64(row[j])
				for r := range e.U {
					along := 0.0
					for k := range row {
						along += float64(e.V[r][k]) * (float64(row[k]) - float64(e.Mean[k]))
					}
					v -= float64(e.U[r][j]) * along
				}
				means[i%3][j] += v / 40
			}
		}
		most := 0.0
		for j := range means[0] {
			most = max(most, math.Abs(means[0][j]-means[1][j]), math.Abs(means[0][j]-means[2][j]))
		}
		return most
	}
	if got := apart(Erased, 1); got > 1e-5 {
		t.Errorf("class means differ by %g", got)
	}
	if got := apart(Erased, 0); got < 3.5 {
		t.Errorf("a dose of 0 leaves a difference of %g, of 4", got)
	}
	for _, control := range []string{"stage:shuffled-1", "stage:isotropic-5"} {
		if got := apart(control, 1); got < 2 {
			t.Errorf("%s leaves a difference of %g, of 4", control, got)
		}
	}
}

func TestFileComesBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{Mean, LEACE} {
		f, _, _ := mustLearn(t, kind)
		path := filepath.Join(t.TempDir(), "stage.edit")
		if err := f.Save(path); err != nil {
			t.Fatal(err)
		}
		g, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(g.Card) != fmt.Sprint(f.Card) {
			t.Errorf("%s: the card comes back as %+v", kind, g.Card)
		}
		class := f.Classes[len(f.Classes)-1]
		before, err := f.Edits(class, 0.5)
		if err != nil {
			t.Fatal(err)
		}
		after, err := g.Edits(class, 0.5)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(before[3].Add, before[3].Erase) != fmt.Sprint(after[3].Add, after[3].Erase) {
			t.Errorf("%s: the edits come back changed", kind)
		}
	}
}

func TestOnlyOneLayerAtADose(t *testing.T) {
	t.Parallel()
	f, _, _ := mustLearn(t, Mean)
	one, err := f.Only("block.4", 4, "stage.edit")
	if err != nil {
		t.Fatal(err)
	}
	es, err := one.Edits("Defense", 1)
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.Edits("Defense", 4)
	if err != nil {
		t.Fatal(err)
	}
	if len(es) != 2 || es[0].Block != 4 || cosine(es[0].Add, all[2].Add) < 0.999999 || math.Abs(norm(es[0].Add)/norm(all[2].Add)-1) > 1e-6 {
		t.Errorf("%d edits after block %d", len(es), es[0].Block)
	}
}

// TestSpeak: the planted gold turns have 4 more in value 1 than the turns before.
func TestSpeak(t *testing.T) {
	t.Parallel()
	states, l := plant(60)
	states.Samples.Classes = 2
	for i, row := range l["block.2"] {
		states.Items[i], states.Groups[i], states.Y[i] = fmt.Sprint("dialogue ", i/2), fmt.Sprint("context ", i/2), i%2
		row[i%3] -= 4
		if i%2 == probe.Gold {
			row[1] += 4
		}
	}
	f, err := learn(t.Context(), states, "", Options{Kind: Speak, Layers: []string{"block.2"}})
	if err != nil {
		t.Fatal(err)
	}
	es, err := f.Edits(Speak, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(es) != 1 || es[0].Scope != infer.ScopePromptEnd || f.Items != 60 {
		t.Errorf("%d edits at %s, from %d dialogues", len(es), es[0].Scope, f.Items)
	}
	for j, v := range es[0].Add {
		want := map[int]float64{1: 4}[j]
		if math.Abs(float64(v)-want) > 0.8 {
			t.Errorf("value %d is %g, want about %g", j, v, want)
		}
	}
	shuffled, err := f.Edits("speak:shuffled-2", 1)
	if err != nil {
		t.Fatal(err)
	}
	if cos := cosine(es[0].Add, shuffled[0].Add); math.Abs(cos) > 0.9 {
		t.Errorf("shuffled within dialogues: cosine %g", cos)
	}
}

func TestWidest(t *testing.T) {
	t.Parallel()
	f, _, l := mustLearn(t, Mean)
	sum := 0.0
	for _, row := range l["block.2"] {
		sum += norm(row) / 120
	}
	if math.Abs(f.StateNorms[0]-sum) > 1e-6 {
		t.Errorf("states are %g long, want %g", f.StateNorms[0], sum)
	}
	one := norm(add(t, f, "Denial", 1)) / sum
	if got := f.Widest("Denial", -4); got < 4*one-1e-6 || got > 4.5*one {
		t.Errorf("a dose of −4 is %g times the states, one of 1 is %g in the first layer", got, one)
	}
}

func TestLearnRefuses(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*probe.CellStates, layers, *Options)
		groups int
	}{
		"at least 60": {func(*probe.CellStates, layers, *Options) {}, 59},
		"column 3 is NaN": {func(_ *probe.CellStates, l layers, _ *Options) {
			l["block.2"][7][3] = float32(math.NaN())
		}, 60},
		"is no block":    {func(_ *probe.CellStates, _ layers, o *Options) { o.Layers = []string{"final_norm"} }, 60},
		"unknown kind":   {func(_ *probe.CellStates, _ layers, o *Options) { o.Kind = "median" }, 60},
		"no layer named": {func(_ *probe.CellStates, _ layers, o *Options) { o.Layers = nil }, 60},
	} {
		states, l := plant(c.groups)
		o := Options{Kind: Mean, Layers: []string{"block.2"}}
		c.change(states, l, &o)
		if _, err := learn(t.Context(), states, "", o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
}

func TestEditsRefuse(t *testing.T) {
	t.Parallel()
	f, _, _ := mustLearn(t, Mean)
	var unknown *UnknownClassError
	if _, err := f.Edits("Acceptance", 1); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "Denial") {
		t.Errorf("an unknown class: %v", err)
	}
	if _, err := f.Edits("Denial", math.NaN()); err == nil {
		t.Error("a dose of NaN is taken")
	}
	e, _, _ := mustLearn(t, LEACE)
	if _, err := e.Edits(Erased, 2); err == nil {
		t.Error("an erasure is made twice")
	}
	if err := e.SaveControlVector(filepath.Join(t.TempDir(), "x.gguf"), Erased); err == nil {
		t.Error("an erasure becomes a control vector")
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, _, _ := mustLearn(t, Mean)
	f.tensors["block.2/Denial/add"].Values[5] = math.NaN()
	if err := f.Save(filepath.Join(dir, "nan.edit")); err == nil || !strings.Contains(err.Error(), "NaN") {
		t.Errorf("NaN: %v", err)
	}
	other := filepath.Join(dir, "other.safetensors")
	if err := activation.WriteTensors(other, map[string]activation.Tensor{"x": {Shape: []int64{1}, Values: []float64{1}}}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(other); err == nil || !strings.Contains(err.Error(), "not an edit file") {
		t.Errorf("another file: %v", err)
	}
	torn := filepath.Join(dir, "torn.edit")
	if err := os.WriteFile(torn, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(torn); !errors.Is(err, activation.ErrDamaged) {
		t.Errorf("a torn file: %v", err)
	}
}

// reader stands in for a model of one block.
type reader struct{}

func (reader) Tokenize(string) ([]int32, error) { return nil, nil }
func (reader) Layers() []string                 { return infer.LayerNames(1) }
func (reader) Width() int                       { return 3 }
func (reader) States(_ context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	for i, s := range seqs {
		for _, at := range s.At {
			for l := range layers {
				if err := row(i, at, l, []float32{float32(l), float32(at), float32(len(s.Tokens))}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// storeOf makes a store of the sample with a fixed line after the contexts.
func storeOf(t *testing.T, contextName, split string) *run.Dir {
	t.Helper()
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	x := &probe.Extraction{Reader: reader{}, EndOfTurn: 1, Prompts: set, Pairs: []probe.Pair{{Context: contextName, Text: "placebo-1"}}, DType: activation.F32,
		Model: infer.Model{Name: "bytes", Digest: "sha256:00"},
		Tokens: func(_ context.Context, p infer.Prompt, said string) (out []int32, err error) {
			for _, b := range []byte(p.Messages[1].Content + said) {
				out = append(out, int32(b))
			}
			return out, nil
		}}
	dir, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: "extract", Options: map[string]any{"split": split}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x.Use(dialogue.Sample())
	if err := x.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := run.Execute(t.Context(), dir, x.Task(), run.Options{}); err != nil {
		t.Fatal(err)
	}
	out, err := run.Open(dir.Path())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestStoresThatNoDirectionIsLearntFrom(t *testing.T) {
	t.Parallel()
	o := Options{Kind: Mean, Layers: []string{"block.1"}}
	if _, err := Learn(t.Context(), storeOf(t, "D", "training"), o); !errors.Is(err, probe.ErrNoCell) {
		t.Errorf("no ND prompt: %v", err)
	}
	if _, err := Learn(t.Context(), storeOf(t, "ND", "evaluate"), o); err == nil || !strings.Contains(err.Error(), "--split training") {
		t.Errorf("the evaluation split: %v", err)
	}
	if _, err := Learn(t.Context(), storeOf(t, "ND", "training"), o); err == nil || !strings.Contains(err.Error(), "at least 60") {
		t.Errorf("few contexts: %v", err)
	}
}

// TestPythonReadsTheFiles: safetensors opens the edit file, and llama.cpp's own package the
// control vector.
func TestPythonReadsTheFiles(t *testing.T) {
	t.Parallel()
	python := os.Getenv("CCMED_TEST_PYTHON")
	if python == "" {
		t.Skip("CCMED_TEST_PYTHON names no Python with safetensors and gguf (scripts/test_python.sh)")
	}
	f, _, _ := mustLearn(t, Mean)
	dir := t.TempDir()
	if err := f.Save(filepath.Join(dir, "stage.edit")); err != nil {
		t.Fatal(err)
	}
	if err := f.SaveControlVector(filepath.Join(dir, "stage.gguf"), "Defense"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", `
import json, safetensors, gguf, numpy as np
f = safetensors.safe_open("stage.edit", "numpy")
card = json.loads(f.metadata()["card"])
r = gguf.GGUFReader("stage.gguf")
text = lambda k: bytes(r.fields[k].parts[-1]).decode()
print(card["kind"], card["model"]["digest"], len(card["groups"]), text("general.architecture"), text("controlvector.model_hint"), int(r.fields["controlvector.layer_count"].parts[-1][0]))
for t, layer in zip(r.tensors, card["layers"]):
    v = f.get_tensor(layer + "/Defense/add")
    print(t.name, t.shape.tolist(), t.tensor_type.name, bool(np.array_equal(t.data, v)))`)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := "mean sha256:aa 60 controlvector llama 2\ndirection.1 [24] F32 True\ndirection.3 [24] F32 True\n"
	if string(out) != want {
		t.Errorf("Python reads\n%swant\n%s", out, want)
	}
}

// TestStatesOfAStore: the states of a store come back by the hash of their prompt, in their
// own block or in the last one, and controls are other dialogues'.
func TestStatesOfAStore(t *testing.T) {
	t.Parallel()
	hash := func(item string) (string, error) { return "hash of " + item, nil }
	f, err := LearnStates(t.Context(), storeOf(t, "D", "evaluate"), Options{Kind: Patch, Layers: []string{"block.1"}}, hash)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]map[string][]float32{}
	for _, class := range f.Classes {
		es, err := f.Edits(class, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(es) != 1 || es[0].Block != 1 || es[0].Scope != infer.ScopePromptEnd || len(es[0].Replace) != len(dialogue.Sample()) {
			t.Fatalf("%s: %d edits of block %d with %d states", class, len(es), es[0].Block, len(es[0].Replace))
		}
		rows[class] = es[0].Replace
	}
	stage := map[string]string{}
	for _, d := range dialogue.Sample() {
		stage["hash of "+d.Key()] = d.Stage.String()
	}
	// The reader's states hold the length of the prompt, by which their dialogue is known.
	of := map[float32]string{}
	for h, row := range rows[Own] {
		of[row[1]] = h
	}
	for h := range rows[Own] {
		same, other := of[rows[sameStage][h][1]], of[rows[otherStage][h][1]]
		if len(of) == len(rows[Own]) && (same == h || stage[same] != stage[h] || stage[other] == stage[h]) {
			t.Errorf("%s (%s) gets %s and %s", h, stage[h], stage[same], stage[other])
		}
	}
	if _, err := f.Edits(Own, 2); err == nil {
		t.Error("a state is replaced twice over")
	}
	lens, err := LearnStates(t.Context(), storeOf(t, "ND", "evaluate"), Options{Kind: Lens, Layers: []string{"block.1"}}, hash)
	if err != nil {
		t.Fatal(err)
	}
	if es, err := lens.Edits("block.1", 1); err != nil || len(es) != 1 || es[0].Block != 1 {
		t.Errorf("lens: %+v, %v", es, err)
	}
	if _, err := LearnStates(t.Context(), storeOf(t, "ND", "evaluate"), Options{Kind: Patch, Layers: []string{"block.1"}}, hash); !errors.Is(err, probe.ErrNoCell) {
		t.Errorf("a patch without D prompts: %v", err)
	}
}
