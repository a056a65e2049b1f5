package probe

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

// LabellerFindingsFile is where the findings of a store of questions lie in its run
// directory, and LabellerProbe the classifier, which --labeller probe:FILE asks.
const (
	LabellerFindingsFile = "labeller.json"
	LabellerProbe        = "labeller.probe.safetensors"
)

// LabellerFindingsSchema is the version of LabellerFindings as JSON.
const LabellerFindingsSchema = 1

// LabellerFindings say how well linear classifiers of the states at the ends of the
// labeller's questions give the recorded stages of turns of scenario contexts that they
// were not fitted to.
type LabellerFindings struct {
	// ContentHash is the checksum of the file, while it is read.
	ContentHash string         `json:"content_sha256,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Schema      int            `json:"schema"` // LabellerFindingsSchema
	N           int            `json:"n"`      // labelled turns
	Dialogues   int            `json:"dialogues"`
	Contexts    int            `json:"contexts"`
	PerClass    map[string]int `json:"per_class"` // turns by stage
	// Outside are turns left out by stage: it occurs in fewer scenario contexts than there
	// are folds, and the classifier never gives it.
	Outside map[string]int `json:"outside,omitempty"`
	Folds   int            `json:"folds"`
	Samples string         `json:"samples_sha256" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Layers  []string       `json:"layers"` // in the order of the lists below
	// Kappa is the quadratic-weighted agreement with the recorded stages, by scenario
	// context; LogLoss, in nats, that on inner parts, which chooses the layer.
	Kappa    []stats.Estimate `json:"kappa"`
	Accuracy []float64        `json:"accuracy"`
	LogLoss  []float64        `json:"inner_log_loss"`
	At       string           `json:"at"` // the chosen layer
	Words    *LabellerWords   `json:"words,omitempty"`
	Majority float64          `json:"majority"` // share of the most frequent stage
}

// LabellerWords are the same of words and pairs of words of the turn alone.
type LabellerWords struct {
	Kappa    stats.Estimate `json:"kappa"`
	Accuracy float64        `json:"accuracy"`
}

// LabellerCard is what the card of a labeller's classifier says beside its classes and
// layer.
type LabellerCard struct {
	Store  string         `json:"store_samples_sha256"` // of the store it was fitted to
	Model  string         `json:"model"`                // as the extraction was told it: a name of the server, or a GGUF file
	Groups []string       `json:"groups"`               // scenario contexts that it was fitted to
	C      float64        `json:"c"`
	Kappa  stats.Estimate `json:"kappa"` // cross-validated; not of these weights on their own rows
}

// questionStore is an opened store of questions.
type questionStore struct {
	file   *activation.File
	states map[string]TurnStates
	rows   []int
	texts  []string
	stages []dmis.Stage
	groups []string
	items  map[string]bool
}

func openQuestions(dir *run.Dir) (s *questionStore, err error) {
	s = &questionStore{items: map[string]bool{}}
	if s.states, err = readTurnStates(dir); err != nil {
		return nil, err
	}
	index, err := activation.ReadIndex(dir.All())
	if err != nil {
		return nil, err
	}
	if s.file, err = activation.Open(filepath.Join(dir.Path(), questionCell.File())); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.file.Close())
		}
	}()
	entries, err := index.For(s.file)
	if err != nil {
		return s, err
	}
	for _, e := range entries {
		there, err := s.file.Holds(e.Place)
		if err != nil {
			return s, err
		}
		st := s.states[e.Item]
		at := slices.IndexFunc(st.Turns, func(t TurnState) bool { return t.Row == e.Row })
		if at < 0 {
			return s, fmt.Errorf("row %d of %s is none of dialogue %s; extract into a new run", e.Row, s.file.Path(), e.Item)
		}
		stage, err := dmis.ParseStage(st.Turns[at].Label)
		if !there || err != nil {
			continue
		}
		s.rows, s.texts, s.stages = append(s.rows, e.Row), append(s.texts, st.Turns[at].Text), append(s.stages, stage)
		s.groups, s.items[e.Item] = append(s.groups, st.Context), true
	}
	return s, nil
}

// labellerFit is what FindLabeller works with.
type labellerFit struct {
	*LabellerFindings
	design  Design
	r       Resampling
	layers  Layers
	samples Samples
	classes []dmis.Stage // of the samples' labels
	texts   []string
}

// FindLabeller cross-validates a classifier of every layer of a store of questions, with
// folds of whole scenario contexts, and fits the one of the layer that inner parts choose
// to all rows. It saves the classifier into the store; model is how the extraction was
// told its model. Of the options it takes Design, Resampling, Layers and Progress.
func FindLabeller(ctx context.Context, dir *run.Dir, model string, o FindOptions) (findings *LabellerFindings, err error) {
	o = o.withDefaults()
	if o.Grouping != GroupContext {
		return nil, fmt.Errorf("folds of questions are of whole scenario contexts; %q is for the states of prompts and utterances", o.Grouping)
	}
	s, err := openQuestions(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.file.Close()) }()
	o.Design.Shuffles = -1
	f := &labellerFit{LabellerFindings: &LabellerFindings{Schema: LabellerFindingsSchema, PerClass: map[string]int{}, Outside: map[string]int{}, Dialogues: len(s.items)},
		design: o.Design.withDefaults(), r: o.Resampling}
	f.Folds = f.design.Folds
	rows := f.take(s)
	names, err := ChosenLayers(s.file.Spec().Layers, o.Layers)
	if err != nil {
		return nil, err
	}
	f.Layers, f.layers = names, storeLayers{s.file, names, rows}
	o.Progress(fmt.Sprintf("fitting %d labelled turns in %d layers", f.N, len(names)))
	at, err := f.crossValidate(ctx)
	if err != nil {
		return nil, err
	}
	if f.Samples, err = dir.SamplesHash(); err != nil {
		return nil, err
	}
	return f.LabellerFindings, f.save(ctx, filepath.Join(dir.Path(), LabellerProbe), s.file.Spec().Model, model, at)
}

// take keeps the rows of stages that every fold can hold, and returns them.
func (f *labellerFit) take(s *questionStore) (rows []int) {
	contexts := map[dmis.Stage]map[string]bool{}
	for i, stage := range s.stages {
		if contexts[stage] == nil {
			contexts[stage] = map[string]bool{}
		}
		contexts[stage][s.groups[i]] = true
	}
	for stage := dmis.Denial; int(stage) < dmis.NumStages; stage++ {
		if len(contexts[stage]) >= f.Folds {
			f.classes = append(f.classes, stage)
		}
	}
	f.samples.Classes = len(f.classes)
	groups := map[string]bool{}
	for i, stage := range s.stages {
		label := slices.Index(f.classes, stage)
		if label < 0 {
			f.Outside[stage.String()]++
			continue
		}
		f.PerClass[stage.String()]++
		rows, f.texts = append(rows, s.rows[i]), append(f.texts, s.texts[i])
		f.samples.Y, f.samples.Groups = append(f.samples.Y, label), append(f.samples.Groups, s.groups[i])
		groups[s.groups[i]] = true
	}
	f.N, f.Contexts = len(rows), len(groups)
	return rows
}

// crossValidate fills the findings and returns the index of the chosen layer.
func (f *labellerFit) crossValidate(ctx context.Context) (chosen int, err error) {
	v, err := CrossValidate(ctx, f.layers, f.samples, f.design)
	if err != nil {
		return 0, err
	}
	_, f.Majority = stats.MajorityShare(f.samples.Y)
	for k, l := range v.Layers {
		kappa, err := f.kappa(l)
		if err != nil {
			return 0, err
		}
		loss := 0.0
		for _, score := range l.Inner {
			loss += score.LogLoss / float64(len(l.Inner))
		}
		f.Kappa, f.Accuracy, f.LogLoss = append(f.Kappa, kappa), append(f.Accuracy, l.Accuracy), append(f.LogLoss, loss)
		if loss < f.LogLoss[chosen] {
			chosen = k
		}
	}
	f.At = f.Layers[chosen]
	return chosen, f.words(ctx, v.Splits)
}

// kappa is the agreement of held-out predictions of the first partition into folds.
func (f *labellerFit) kappa(l *LayerResult) (stats.Estimate, error) {
	var recorded, given []int
	for _, i := range l.tested {
		recorded, given = append(recorded, int(f.classes[f.samples.Y[i]])), append(given, int(f.classes[l.Rounds[0].Argmax(i)]))
	}
	e, err := f.r.bootstrap().Kappa(recorded, given, dmis.NumStages, l.TestedGroups())
	if err != nil {
		return e, fmt.Errorf("kappa of %s: %w", l.Layer, err)
	}
	return e, nil
}

// words does the same with the words of the turn alone, where texts share some.
func (f *labellerFit) words(ctx context.Context, splits []Split) error {
	r := newLayerResult(f.samples, splits)
	r.Layer = "words"
	for _, sp := range splits {
		p, err := wordPredictions(ctx, f.texts, f.samples, sp)
		if errors.Is(err, linear.ErrNoTerms) {
			return nil
		}
		if err != nil {
			return err
		}
		r.keep(sp, p)
	}
	if err := r.score(); err != nil {
		return err
	}
	kappa, err := f.kappa(r)
	f.Words = &LabellerWords{kappa, r.Accuracy}
	return err
}

// save fits the chosen layer to all rows and writes the classifier.
func (f *labellerFit) save(ctx context.Context, path string, m activation.Model, model string, at int) error {
	var all []int
	card := LabellerCard{Store: f.Samples, Model: model, Kappa: f.Kappa[at]}
	for i, g := range f.samples.Groups {
		all = append(all, i)
		if !slices.Contains(card.Groups, g) {
			card.Groups = append(card.Groups, g)
		}
	}
	split := Split{Train: all, Test: all[:1]} // nothing is held out; a part wants a row
	if err := f.design.inner(f.samples, &split, f.design.Seeds[0]); err != nil {
		return err
	}
	x, err := f.layers.Layer(ctx, at)
	if err != nil {
		return err
	}
	fits, _, err := f.design.trainSplit(ctx, x, []linear.Labels{{Y: f.samples.Y}}, f.samples.Classes, split)
	if err != nil {
		return fmt.Errorf("fit %s to all rows: %w", f.At, err)
	}
	w, scale := fits[0].Standardised()
	card.C = fits[0].C
	p := &activation.Probe{Model: m, Cell: questionCell, Layers: []activation.LayerProbe{{Layer: f.At, W: w.W, B: w.B, Mean: scale.Mean, Scale: scale.Scale}}}
	for _, c := range f.classes {
		p.Classes = append(p.Classes, c.String())
	}
	return activation.SaveProbe(path, p, card)
}

// Labeller is a saved classifier of the states at the ends of the labeller's questions.
type Labeller struct {
	Model   activation.Model // whose states it reads
	Named   string           // how the extraction was told it
	Digest  string           // of the classifier's file
	Layer   string
	weights *linear.Model
	classes []dmis.Stage
}

// LoadLabeller reads the classifier of a store of questions: path is the store or the file.
func LoadLabeller(path string) (*Labeller, error) {
	if filepath.Ext(path) != ".safetensors" {
		path = filepath.Join(path, LabellerProbe)
	}
	var card LabellerCard
	p, err := activation.LoadProbe(path, &card)
	if err != nil {
		return nil, fmt.Errorf("%w; `ccmed probe train` makes one of a store of `ccmed probe extract --questions`", err)
	}
	if p.Cell != questionCell || len(p.Layers) != 1 || card.Model == "" {
		return nil, fmt.Errorf("%s is a probe of %s and no labeller; `ccmed probe train` makes one of a store of `ccmed probe extract --questions`", path, p.Cell)
	}
	l := &Labeller{Model: p.Model, Named: card.Model, Digest: p.Weights, Layer: p.Layers[0].Layer}
	for _, name := range p.Classes {
		stage, err := dmis.ParseStage(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		l.classes = append(l.classes, stage)
	}
	layer := p.Layers[0]
	l.weights, err = (&linear.Standardiser{Mean: layer.Mean, Scale: layer.Scale}).Raw(&linear.Model{Classes: len(p.Classes), W: layer.W, B: layer.B})
	return l, err
}

// Answers are the digits of all stages.
func (l *Labeller) Answers() []string {
	var out []string
	for k := range dmis.NumStages {
		out = append(out, strconv.Itoa(k+1))
	}
	return out
}

// Predict gives the probabilities of Answers; of a stage that it was not fitted to it is 0.
func (l *Labeller) Predict(state []float32) ([]float64, error) {
	x, err := linear.NewDense32(1, len(state), state)
	if err != nil {
		return nil, err
	}
	p, err := l.weights.Predict(x)
	if err != nil {
		return nil, err
	}
	out := make([]float64, dmis.NumStages)
	for c, stage := range l.classes {
		out[stage] = p.Row(0)[c]
	}
	return out, nil
}

// LabellerSections renders the findings of a store of questions.
func LabellerSections(model string, f *LabellerFindings) []report.Section {
	t := report.Table{Title: "Agreement with recorded stages, by layer", Columns: report.Columns("layer",
		"quadratic kappa [95 %]>", "accuracy>", "log-loss inside>")}
	for k, l := range f.Layers {
		name := l
		if l == f.At {
			name += " (chosen)"
		}
		t.Add(name, estimate(f.Kappa[k]), report.Num(f.Accuracy[k], 3), report.Num(f.LogLoss[k], 3))
	}
	if w := f.Words; w != nil {
		t.Add("words of the turn", estimate(w.Kappa), report.Num(w.Accuracy, 3), "")
	}
	t.Add("most frequent stage", "0", report.Num(f.Majority, 3), "")
	s := report.Section{Title: "A labeller fitted to recorded stages: " + model, Tables: []report.Table{t}, Notes: []string{
		fmt.Sprintf("%d labelled turns of %d dialogues in %d scenario contexts: %s", f.N, f.Dialogues, f.Contexts, counts(f.PerClass)),
		fmt.Sprintf("%d folds of whole contexts: no classifier is tested on a context that it was fitted to; the layer is chosen by the log-loss on parts of the training folds", f.Folds),
		"the classifier of the chosen layer is fitted to all rows; what its labels are worth says the labeller card of a mediation run"}}
	if len(f.Outside) > 0 {
		s.Notes = append(s.Notes, "left out, because they occur in fewer contexts than there are folds: "+counts(f.Outside))
	}
	return []report.Section{s}
}

// WriteLabellerCSV writes the agreement by layer, and that of words without a layer.
func WriteLabellerCSV(w io.Writer, f *LabellerFindings) error {
	lines := [][]string{{"layer", "measure", "n", "value", "lower", "upper"}}
	add := func(layer string, kappa stats.Estimate, accuracy float64) {
		lo, hi := kappa.Bounds()
		lines = append(lines, []string{layer, "quadratic kappa", strconv.Itoa(kappa.N), number(kappa.Value), number(lo), number(hi)},
			[]string{layer, "accuracy", strconv.Itoa(f.N), number(accuracy), "", ""})
	}
	for k, l := range f.Layers {
		add(l, f.Kappa[k], f.Accuracy[k])
	}
	if f.Words != nil {
		add("", f.Words.Kappa, f.Words.Accuracy)
	}
	c := csv.NewWriter(w)
	if err := c.WriteAll(lines); err != nil {
		return fmt.Errorf("write the findings as CSV: %w", err)
	}
	return nil
}
