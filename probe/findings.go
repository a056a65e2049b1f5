package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

// FindingsFile is where the findings of a store lie in its run directory.
const FindingsFile = "probe.json"

// FindOptions steer Find.
type FindOptions struct {
	Design     Design
	Resampling Resampling
	Layers     []string // of the store; nil means all
}

// Findings are what linear probes found in a store, layer by layer. All cells
// have the same rows, groups and splits, so that they can be compared.
type Findings struct {
	N        int    `json:"n"`        // dialogues in every cell
	Left     int    `json:"left_out"` // dialogues that miss a text or a state
	Contexts int    `json:"contexts"` // scenario contexts: the groups of folds and intervals
	Classes  int    `json:"classes"`
	Folds    int    `json:"folds"`
	Seeds    int    `json:"seeds"`
	Samples  string `json:"samples_sha256"`
	// Layers are the names of the layers, in the order of every list below.
	Layers []string       `json:"layers"`
	Cells  []CellFindings `json:"cells"`
	// Texts holds, by own text, how well a bag of words of the text alone gives
	// the stage away.
	Texts map[string]TextFindings `json:"texts"`
	// Decomposition is by layer, at utterance_end.
	Decomposition []Decomposition `json:"decomposition,omitempty"`
	// Transfers train on one cell and test on another.
	Transfers []TransferFindings `json:"transfers,omitempty"`
	// At is the layer on which the verdict rests: the last block.
	At      string   `json:"at"`
	Verdict *Verdict `json:"verdict,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// CellFindings are one cell's accuracies by layer, beside what shuffled labels
// and the majority class reach.
type CellFindings struct {
	Cell     activation.Cell `json:"cell"`
	Layers   []*LayerResult  `json:"layers"`
	Shuffled []float64       `json:"shuffled"` // accuracy by layer
	Majority float64         `json:"majority"`
	// Peak is the accuracy at the layer that inner folds choose, DeltaLate the
	// mean of peak minus last third of the blocks.
	Peak      float64 `json:"peak"`
	DeltaLate float64 `json:"delta_late"`
}

// TextFindings is a text-only classifier, on the splits of the probes.
type TextFindings struct {
	Accuracy float64 `json:"accuracy"`
	Terms    int     `json:"terms"` // median over splits
}

// TransferFindings is a probe of From's states on To's, by layer.
type TransferFindings struct {
	From activation.Cell `json:"from"`
	To   activation.Cell `json:"to"`
	// Accuracy by layer, and the accuracy of To's own probes.
	Accuracy []float64 `json:"accuracy"`
	Own      []float64 `json:"own"`
}

// storeLayers are some rows and layers of a cell's file.
type storeLayers struct {
	file  *activation.File
	names []string
	rows  []int
}

func (s storeLayers) Names() []string { return s.names }

// Layer reads one layer; rows are copied out, since a layer is read once a call.
func (s storeLayers) Layer(_ context.Context, k int) (*linear.Dense32, error) {
	all, err := s.file.Rows(s.names[k])
	if err != nil {
		return nil, err
	}
	data := make([]float32, 0, len(s.rows)*all.Width)
	for _, r := range s.rows {
		data = append(data, all.Row(r)...)
	}
	return linear.NewDense32(len(s.rows), all.Width, data)
}

// store is an opened extraction run.
type store struct {
	files  map[activation.Cell]*activation.File
	states map[string]States // by item
	items  []string          // rows that every cell has, by row
	rows   []int
	left   int
}

func (s *store) close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func openStore(dir *run.Dir) (s *store, err error) {
	s = &store{files: map[activation.Cell]*activation.File{}, states: map[string]States{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	index, err := activation.ReadIndex(dir.All())
	if err != nil {
		return s, err
	}
	for sample, err := range dir.All() {
		if err != nil {
			return s, err
		}
		if sample.Step != StepStates || sample.Unscored != "" {
			continue
		}
		var st States
		if err := json.Unmarshal(sample.Data, &st); err != nil {
			return s, fmt.Errorf("states of item %s: %w", sample.Item, err)
		}
		s.states[sample.Item] = st
	}
	cells := index.Cells()
	if len(cells) == 0 {
		return s, fmt.Errorf("%s holds no hidden states; make some with `ccmed probe extract`", dir.Path())
	}
	in := map[string]int{}
	row := map[string]int{}
	for _, c := range cells {
		f, err := activation.Open(filepath.Join(dir.Path(), c.File()))
		if err != nil {
			return s, err
		}
		s.files[c] = f
		entries, err := index.For(f)
		if err != nil {
			return s, err
		}
		for _, e := range entries {
			there, err := f.Has(e.Row)
			if err != nil {
				return s, err
			}
			if there {
				in[e.Item]++
				row[e.Item] = e.Row
			}
		}
	}
	for item := range s.states {
		if in[item] == len(cells) {
			s.items = append(s.items, item)
		} else {
			s.left++
		}
	}
	slices.SortFunc(s.items, func(a, b string) int { return row[a] - row[b] })
	for _, item := range s.items {
		s.rows = append(s.rows, row[item])
	}
	return s, nil
}

// cells lists the cells at a position, sorted.
func (s *store) cells(position string) []activation.Cell {
	var out []activation.Cell
	for c := range s.files {
		if c.Position == position {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b activation.Cell) int {
		if a.File() < b.File() {
			return -1
		}
		return 1
	})
	return out
}

// Find trains probes on every cell of an extraction run and puts together what
// they show.
func Find(ctx context.Context, dir *run.Dir, o FindOptions) (found *Findings, err error) {
	s, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	f := &Findings{N: len(s.items), Left: s.left, Classes: 3, Texts: map[string]TextFindings{}}
	if f.Samples, err = dir.SamplesHash(); err != nil {
		return nil, err
	}
	samples, err := s.samples(f)
	if err != nil {
		return nil, err
	}
	design := o.Design.withDefaults()
	f.Folds, f.Seeds = design.Folds, len(design.Seeds)
	names, err := s.layerNames(o.Layers)
	if err != nil {
		return nil, err
	}
	f.Layers = names
	at := func(c activation.Cell) storeLayers { return storeLayers{s.files[c], names, s.rows} }
	validations := map[activation.Cell]*Validation{}
	for _, c := range append(s.cells(PromptEnd), s.cells(UtteranceEnd)...) {
		v, err := CrossValidate(ctx, at(c), samples, design)
		if err != nil {
			return nil, fmt.Errorf("probe %s: %w", c, err)
		}
		validations[c] = v
		cf, err := cellFindings(c, v)
		if err != nil {
			return nil, fmt.Errorf("probe %s: %w", c, err)
		}
		f.Cells = append(f.Cells, cf)
	}
	if err := f.decompose(validations, o.Resampling); err != nil {
		return nil, err
	}
	if err := f.transfers(ctx, s, at, samples, design, validations); err != nil {
		return nil, err
	}
	return f, f.judge(ctx, s, samples, validations, o.Resampling)
}

func (s *store) samples(f *Findings) (Samples, error) {
	out := Samples{Classes: f.Classes}
	contexts := map[string]bool{}
	for _, item := range s.items {
		st := s.states[item]
		stage, err := dmis.ParseStage(st.Stage)
		if err != nil {
			return out, fmt.Errorf("item %s: %w", item, err)
		}
		out.Y, out.Groups = append(out.Y, int(stage)), append(out.Groups, st.Context)
		contexts[st.Context] = true
	}
	f.Contexts = len(contexts)
	return out, nil
}

func (s *store) layerNames(asked []string) ([]string, error) {
	for _, f := range s.files {
		all := f.Spec().Layers
		if asked == nil {
			return all, nil
		}
		for _, l := range asked {
			if !slices.Contains(all, l) {
				return nil, fmt.Errorf("the store has no layer %q; it has %s to %s", l, all[0], all[len(all)-1])
			}
		}
	}
	return asked, nil
}

func cellFindings(c activation.Cell, v *Validation) (CellFindings, error) {
	out := CellFindings{Cell: c, Layers: v.Layers, Majority: v.Majority.Accuracy}
	for k := range v.Layers {
		sum := 0.0
		for _, shuffled := range v.Shuffled {
			sum += shuffled[k].Accuracy
		}
		out.Shuffled = append(out.Shuffled, sum/float64(max(1, len(v.Shuffled))))
	}
	late, err := v.Late()
	if err != nil {
		return out, fmt.Errorf("compare layers: %w", err)
	}
	out.Peak = late.Peak.Accuracy
	out.DeltaLate = late.Delta.Mean()
	return out, nil
}

// decompose takes Δelic apart in every layer for which the cells are there.
func (f *Findings) decompose(vs map[activation.Cell]*Validation, r Resampling) error {
	for k := range f.Layers {
		values := map[Pair]Outcomes{}
		for c, v := range vs {
			if c.Position == UtteranceEnd {
				values[Pair{c.Context, c.Text}] = v.Layers[k].RoundHits()
			}
		}
		d, err := Decompose(values, r)
		if err != nil {
			return fmt.Errorf("decompose the difference in %s: %w", f.Layers[k], err)
		}
		f.Decomposition = append(f.Decomposition, d)
	}
	return nil
}

// transfers asks whether the same direction is used from the prompt's end to the
// utterance's, and from D to ND.
func (f *Findings) transfers(ctx context.Context, s *store, at func(activation.Cell) storeLayers, samples Samples, d Design, vs map[activation.Cell]*Validation) error {
	var pairs [][2]activation.Cell
	cell := func(c, t, p string) activation.Cell {
		for x := range s.files {
			if x.Context == c && x.Text == t && x.Position == p {
				return x
			}
		}
		return activation.Cell{}
	}
	for _, c := range []string{ContextD, ContextND} {
		pairs = append(pairs, [2]activation.Cell{cell(c, TextPrompt, PromptEnd), cell(c, "own-"+c, UtteranceEnd)})
	}
	pairs = append(pairs, [2]activation.Cell{cell(ContextD, TextOwnD, UtteranceEnd), cell(ContextND, TextOwnND, UtteranceEnd)},
		[2]activation.Cell{cell(ContextD, TextPrompt, PromptEnd), cell(ContextND, TextPrompt, PromptEnd)})
	for _, p := range pairs {
		if vs[p[0]] == nil || vs[p[1]] == nil {
			continue
		}
		ls, err := Transfer(ctx, at(p[0]), at(p[1]), samples, d)
		if err != nil {
			return fmt.Errorf("transfer from %s to %s: %w", p[0], p[1], err)
		}
		t := TransferFindings{From: p[0], To: p[1]}
		for k, l := range ls {
			t.Accuracy, t.Own = append(t.Accuracy, l.Accuracy), append(t.Own, vs[p[1]].Layers[k].Accuracy)
		}
		f.Transfers = append(f.Transfers, t)
	}
	return nil
}

// judge fills the gates from the last block and says what they allow.
func (f *Findings) judge(ctx context.Context, s *store, samples Samples, vs map[activation.Cell]*Validation, r Resampling) error {
	at := slices.Index(f.Layers, FinalNorm) - 1
	if at < 0 {
		at = len(f.Layers) - 1
	}
	f.At = f.Layers[at]
	d := f.Decomposition[at]
	g := Gates{N: f.N, Elic: d.Elic, Text: d.Text, Excess: d.Excess}
	var probes *Validation // of any cell: all have the same splits
	for _, v := range vs {
		probes = v
	}
	outcomes := map[string]Outcomes{}
	for _, t := range []string{TextOwnD, TextOwnND} {
		var texts []string
		for _, item := range s.items {
			if line := s.states[item].Texts[t]; line != "" {
				texts = append(texts, line)
			}
		}
		if len(texts) != len(s.items) {
			continue
		}
		o, tf, err := textOnly(ctx, texts, samples, probes)
		if errors.Is(err, linear.ErrNoTerms) {
			f.Notes = append(f.Notes, fmt.Sprintf("the %s texts share no word: no text-only classifier", t))
			continue
		}
		if err != nil {
			return fmt.Errorf("text-only classifier of %s: %w", t, err)
		}
		outcomes[t], f.Texts[t] = o, tf
	}
	if d, ok := outcomes[TextOwnD]; ok {
		if nd, ok := outcomes[TextOwnND]; ok {
			diff, err := d.Minus(nd)
			if err != nil {
				return fmt.Errorf("compare the texts: %w", err)
			}
			e, err := diff.Test(r)
			if err != nil {
				return fmt.Errorf("compare the texts: %w", err)
			}
			g.TextFit = &e
		}
	}
	f.Notes = append(f.Notes, "gate (d), a matched attribute, is not measured by this version: \"collapse\" cannot be the sentence")
	v := g.Judge()
	f.Verdict = &v
	return nil
}

// textOnly cross-validates a bag-of-words classifier of texts on the probes' own
// splits; its outcomes are those of the same rows and rounds.
func textOnly(ctx context.Context, texts []string, s Samples, probes *Validation) (Outcomes, TextFindings, error) {
	like := probes.Layers[0]
	out := like.RoundHits() // for its groups, rounds and width
	at := map[int]int{}     // sample to tested row
	for i, row := range like.Tested() {
		at[row] = i
	}
	rounds := make([][]float64, len(out.Rounds))
	for i := range rounds {
		rounds[i] = make([]float64, len(out.Groups))
	}
	var terms []int
	found := TextFindings{}
	for _, sp := range probes.Splits {
		train := linear.At(texts, sp.Train)
		v, err := linear.FitVectorizer(train, linear.VectorizerOptions{Bigrams: true, MinDocs: 2, Binary: true})
		if err != nil {
			return out, found, err
		}
		terms = append(terms, len(v.Terms()))
		m, err := linear.Fit(ctx, v.Transform(train), linear.At(s.Y, sp.Train), s.Classes, linear.Options{C: 1})
		if err != nil {
			return out, found, err
		}
		p, err := m.Predict(v.Transform(linear.At(texts, sp.Test)))
		if err != nil {
			return out, found, err
		}
		for i, row := range sp.Test {
			if k, ok := at[row]; ok && p.Argmax(i) == s.Y[row] {
				rounds[sp.Round][k] = 1
				found.Accuracy += 1 / float64(len(rounds)*len(out.Groups))
			}
		}
	}
	out.Rounds = rounds
	slices.Sort(terms)
	found.Terms = terms[len(terms)/2]
	return out, found, nil
}
