package folder

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/schema"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/sft"
)

// Verdict is what verification found in a folder.
type Verdict struct {
	Path   string   `json:"path"`
	Kind   string   `json:"kind"`
	Faults []string `json:"faults"`
	Notes  []string `json:"notes,omitempty"` // what could not be checked

	agrees string // what was checked, for people
	forms  map[string]*schema.Form
}

func (v *Verdict) fault(format string, a ...any) {
	v.Faults = append(v.Faults, fmt.Sprintf(format, a...))
}

// take adds the sentences of a joined error, one fault each.
func (v *Verdict) take(err error) {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			v.take(e)
		}
		return
	}
	if err != nil {
		v.Faults = append(v.Faults, err.Error())
	}
}

// mostFaults is how many faults of a folder are printed; JSON has all.
const mostFaults = 30

// Print writes the verdict for people.
func (v *Verdict) Print(w io.Writer) {
	if len(v.Faults) == 0 {
		fmt.Fprintf(w, "%s: %s agree\n", v.Path, v.agrees)
	} else {
		fmt.Fprintf(w, "%s: %d faults\n", v.Path, len(v.Faults))
		for _, f := range v.Faults[:min(len(v.Faults), mostFaults)] {
			fmt.Fprintf(w, "  %s\n", f)
		}
		if n := len(v.Faults) - mostFaults; n > 0 {
			fmt.Fprintf(w, "  and %d more; --json lists all\n", n)
		}
	}
	for _, n := range v.Notes {
		fmt.Fprintf(w, "  not checked: %s\n", n)
	}
}

// Verify checks a folder, of a suite also those in it. An error is none about the folder.
func Verify(ctx context.Context, a *task.Archive, path string) ([]Verdict, error) {
	return verify(ctx, a, Forms(a.Benches, nil), path)
}

func verify(ctx context.Context, a *task.Archive, forms map[string]*schema.Form, path string) ([]Verdict, error) {
	v := Verdict{Path: path, Kind: KindOf(path), Faults: []string{}, forms: forms}
	var err error
	switch v.Kind {
	case KindRun:
		err = v.run(ctx, a, path)
	case KindTraining:
		v.agrees = "description, curve and result"
		v.training()
	case KindPackage:
		v.agrees = "card, weights, head and proofs"
		err = v.pack(ctx)
	case KindExport:
		v.agrees = "description and files"
		v.form("export", sft.ExportFile)
		_, e := sft.ReadExport(path)
		v.take(e)
	case KindSuite:
		return verifySuite(ctx, a, forms, path)
	default:
		v.Faults = append(v.Faults, unknown(path).Error())
	}
	return []Verdict{v}, err
}

// unknown is the error of a folder that the program did not make.
func unknown(path string) error {
	return fmt.Errorf("%s is no folder that ccmed made; ccmed runs ls lists those that are", path)
}

func verifySuite(ctx context.Context, a *task.Archive, forms map[string]*schema.Form, path string) ([]Verdict, error) {
	v := Verdict{Path: path, Kind: KindSuite, Faults: []string{}, agrees: "steps and marks"}
	r, err := ReadSuite(path)
	v.take(err)
	all := []Verdict{v}
	for _, s := range r.Steps {
		dir := filepath.Join(path, s.Name)
		if KindOf(dir) == "" {
			continue // not begun, or it makes no folder
		}
		vs, err := verify(ctx, a, forms, dir)
		if err != nil {
			return nil, err
		}
		all = append(all, vs...)
	}
	return all, nil
}

// form checks a file of the folder against a schema.
func (v *Verdict) form(name, file string) { v.take(v.checkForm(name, file)) }

func (v *Verdict) checkForm(name, file string) error {
	path := filepath.Join(v.Path, file)
	text, err := disk.ReadEntry(path, disk.MaxText)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing", path)
	}
	if err == nil {
		err = v.forms[name].Validate(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (v *Verdict) run(ctx context.Context, a *task.Archive, path string) error {
	v.agrees = "manifest, samples and metrics"
	var manifest struct {
		Identity struct {
			Task string `json:"task"`
		} `json:"identity"`
	}
	v.take(run.Verify(path, run.VerifyOptions{Form: func(file string, text []byte) error {
		if file == run.ManifestFile { // which is the first
			if err := json.Unmarshal(text, &manifest); err != nil {
				return err
			}
		}
		f, ok := v.forms[map[string]string{run.ManifestFile: "manifest", run.SamplesFile: manifest.Identity.Task + "-sample", run.PromptsFile: "prompt", run.ErrorsFile: "failure"}[file]]
		if !ok {
			return fmt.Errorf("it is of a %s run, and this version knows no such task", manifest.Identity.Task)
		}
		return f.Validate(text)
	}}))
	r, err := a.Open(path)
	if err != nil {
		if len(v.Faults) == 0 {
			v.take(err)
		}
		return nil
	}
	if r.Bench != nil {
		v.Kind = cmp.Or(r.Bench.About().Folder, KindRun)
	}
	if b, ok := r.Bench.(task.Verifier); ok {
		v.take(b.Verify(r, v.checkForm))
	}
	if len(v.Faults) > 0 {
		v.Notes = append(v.Notes, "metrics: they cannot be trusted before the faults are mended")
		return nil
	}
	return v.metrics(ctx, r)
}

// metrics scores a run again and compares with what it keeps.
func (v *Verdict) metrics(ctx context.Context, r *task.Run) error {
	file := filepath.Join(r.Path(), run.MetricsFile)
	stored, err := r.Dir.Metrics()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.Notes = append(v.Notes, "metrics: the run was not scored; ccmed score "+r.Path())
		return nil
	case errors.Is(err, checksum.ErrChanged): // where is told below
		v.take(err)
	case err != nil:
		v.take(err)
		return nil
	case stored.Schema != run.MetricsSchema:
		v.fault("%s: its schema is %d and this version writes %d; make it again with: ccmed score %s", file, stored.Schema, run.MetricsSchema, r.Path())
		return nil
	}
	v.form(r.Identity().Task+"-metrics", run.MetricsFile)
	note := r.Archive.Note
	r.Archive.Note = func(string, ...any) {} // what cannot be computed is said below
	res, err := r.Result(ctx, task.ScoreOptions{Seed: stored.Seed, Anew: true})
	r.Archive.Note = note
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		v.fault("the metrics of %s cannot be computed again: %v", r.Path(), err)
		return nil
	}
	computed, err := r.Metrics(res, stored.Seed)
	if err != nil {
		return err
	}
	again, err := json.Marshal(computed)
	if err != nil {
		return fmt.Errorf("encode the metrics of %s: %w", r.Path(), err)
	}
	text, err := disk.ReadEntry(file, disk.MaxText)
	if err != nil {
		return fmt.Errorf("read the metrics: %w", err)
	}
	var x, y any
	if err := errors.Join(json.Unmarshal(text, &x), json.Unmarshal(again, &y)); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, name := range []string{checksum.Key, "version"} { // of another version the numbers count
		forget(x, name)
		forget(y, name)
	}
	if l, ok := res.(task.Lacking); ok {
		for name, why := range l.Lacks() {
			if forget(x, "metrics", name) {
				forget(y, "metrics", name)
				v.Notes = append(v.Notes, "metrics."+name+": "+why)
			}
		}
	}
	for _, f := range differentValues("", x, y) {
		v.fault("%s: %s", file, f)
	}
	return nil
}

// forget takes a value out of a decoded record, and says whether it held anything.
func forget(v any, names ...string) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	if len(names) > 1 {
		return forget(m[names[0]], names[1:]...)
	}
	held := m[names[0]]
	delete(m, names[0])
	return held != nil
}

// differentValues lists where two decoded JSON values differ, with both values.
// Numbers may differ by rounding, which is not the same on all machines.
func differentValues(at string, stored, again any) []string {
	join := func(name string) string {
		if at == "" {
			return name
		}
		return at + "." + name
	}
	switch x := stored.(type) {
	case map[string]any:
		y, ok := again.(map[string]any)
		if !ok {
			break
		}
		names := maps.Clone(x)
		maps.Copy(names, y)
		var out []string
		for _, name := range slices.Sorted(maps.Keys(names)) {
			a, inX := x[name]
			b, inY := y[name]
			switch {
			case !inX:
				out = append(out, fmt.Sprintf("%s is missing and comes to %s", join(name), briefValue(b)))
			case !inY:
				out = append(out, fmt.Sprintf("%s is stored as %s and comes to nothing", join(name), briefValue(a)))
			default:
				out = append(out, differentValues(join(name), a, b)...)
			}
		}
		return out
	case []any:
		y, ok := again.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		var out []string
		for i := range x {
			out = append(out, differentValues(join(strconv.Itoa(i)), x[i], y[i])...)
		}
		return out
	case float64:
		const rounding = 1e-9
		if y, ok := again.(float64); ok && math.Abs(x-y) <= rounding*max(1, math.Abs(x), math.Abs(y)) {
			return nil
		}
	}
	if reflect.DeepEqual(stored, again) {
		return nil
	}
	return []string{fmt.Sprintf("%s is stored as %s and comes to %s", at, briefValue(stored), briefValue(again))}
}

// briefValue writes a JSON value so that it fits a sentence.
func briefValue(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if r := []rune(string(b)); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return string(b)
}

// training checks a training run: its form, and what it says against its own files
// and against the export, where that is still there.
func (v *Verdict) training() {
	v.form("train", sft.ManifestFile)
	m, err := sft.ReadTraining(v.Path)
	if err != nil {
		v.take(err)
		return
	}
	file := filepath.Join(v.Path, sft.ManifestFile)
	if m.Export != nil {
		if got := m.Export.Digest(); got != m.ExportDigest {
			v.fault("%s: export_digest is stored as %s and comes to %s", file, m.ExportDigest, got)
		}
		switch x, err := sft.ReadExport(m.Config.Data); {
		case errors.Is(err, fs.ErrNotExist), err != nil && !exists(m.Config.Data):
			v.Notes = append(v.Notes, "the export in "+m.Config.Data+": it is not there")
		case err != nil:
			v.take(err)
		case x.Digest() != m.ExportDigest:
			v.fault("%s: it trained on the export %s, and %s holds %s", file, m.ExportDigest, m.Config.Data, x.Digest())
		}
	}
	v.config(m)
	v.curve(m)
	if head := filepath.Join(v.Path, sft.FinalDir, sft.HeadFile); m.Result != nil && !exists(head) {
		v.fault("%s is missing", head)
	}
}

// config compares the settings with what the trainer was told.
func (v *Verdict) config(m *sft.Manifest) {
	var trained, kept map[string]any
	path := filepath.Join(v.Path, sft.ConfigFile)
	if err := readJSON(path, &trained); err != nil {
		v.take(err)
		return
	}
	b, err := json.Marshal(m.Config)
	if err == nil {
		err = json.Unmarshal(b, &kept)
	}
	v.take(err)
	for _, name := range []string{"out", "resume"} { // a folder may move, and a session go on
		delete(trained, name)
		delete(kept, name)
	}
	for _, f := range differentValues("config", kept, trained) {
		v.fault("%s: %s in %s", filepath.Join(v.Path, sft.ManifestFile), f, sft.ConfigFile)
	}
}

// curve compares the result and the curve with what the trainer told.
func (v *Verdict) curve(m *sft.Manifest) {
	points, err := sft.ReadCurve(v.Path)
	if err != nil {
		v.take(err)
		return
	}
	if m.Result != nil {
		last := 0
		var valid *sft.Event
		for _, p := range points {
			last = max(last, p.Step)
			if p.Valid != nil {
				valid = p.Valid
			}
		}
		if m.Result.Steps != last {
			v.fault("%s: result.steps is stored as %d, and %s ends at step %d", filepath.Join(v.Path, sft.ManifestFile), m.Result.Steps, sft.EventsFile, last)
		}
		if r := m.Result.Validation; r != nil && valid != nil && (r.TurnAcc != valid.TurnAcc || r.LM != valid.LM || r.BCE != valid.BCE || r.N != valid.N) {
			v.fault("%s: result.validation is stored as TurnAcc %g, LM %g, BCE %g of %d, and %s says %g, %g, %g of %d", filepath.Join(v.Path, sft.ManifestFile),
				r.TurnAcc, r.LM, r.BCE, r.N, sft.EventsFile, valid.TurnAcc, valid.LM, valid.BCE, valid.N)
		}
	}
	path := filepath.Join(v.Path, sft.LossFile)
	f, err := disk.OpenEntry(path)
	if errors.Is(err, fs.ErrNotExist) {
		return // it is written when a session ends
	}
	if err != nil {
		v.take(fmt.Errorf("read the loss curve: %w", err))
		return
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		v.fault("%s: %v", path, err)
		return
	}
	if len(rows)-1 != len(points) {
		v.fault("%s has %d steps and %s %d", path, len(rows)-1, sft.EventsFile, len(points))
		return
	}
	for i, p := range points {
		step, loss := rows[i+1][0], rows[i+1][1]
		want := ""
		if p.Train != nil {
			want = strconv.FormatFloat(p.Train.Loss, 'g', -1, 64)
		}
		if step != strconv.Itoa(p.Step) || loss != want {
			v.fault("%s:%d: step %s with loss %s, and %s says step %d with loss %s", path, i+2, step, loss, sft.EventsFile, p.Step, want)
		}
	}
}

// pack checks a package of a tuned model.
func (v *Verdict) pack(ctx context.Context) error {
	v.form("card", sft.CardFile)
	c, err := sft.ReadCard(v.Path)
	if err != nil {
		v.take(err)
		return nil
	}
	if exists(filepath.Join(v.Path, sft.ModelFile)) {
		err := c.CheckModel(ctx, v.Path)
		if ctx.Err() != nil {
			return err
		}
		v.take(err)
	} else {
		v.Notes = append(v.Notes, "the weights: "+sft.ModelFile+" is not there; Ollama has them by their digest")
	}
	h, err := sft.ReadHead(filepath.Join(v.Path, sft.HeadFile))
	switch {
	case err != nil:
		v.take(err)
	default:
		v.take(c.CheckHead(filepath.Join(v.Path, sft.HeadFile), h))
	}
	v.take(sft.Failed(c.Proofs))
	return nil
}
