package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

// FindingsFile is where the findings of a store lie in its run directory.
const FindingsFile = "probe.json"

// FindingsSchema is the version of Findings as JSON.
const FindingsSchema = 4

// What keeps folds apart: rows that share it are never in training and held out
// at once, and intervals are clustered by it.
const (
	GroupContext  = "context"  // the scene that both speakers share
	GroupTemplate = "template" // what they disagree about
	GroupCountry  = "country"  // the country of the conflict's speaker
)

// FindOptions steer Find.
type FindOptions struct {
	Design     Design
	Resampling Resampling
	Layers     []string // of the store; nil means all
	Grouping   string   // GroupContext (also ""), GroupTemplate or GroupCountry
	// Dialogues are those that the states were read in. Without them there are no
	// control tasks, no matched attribute, and no baselines of the prompt's text.
	Dialogues []dialogue.Dialogue
	Controls  int // control tasks by type; 0 means 3, negative none
	// Embed embeds utterances for the content probe; nil means TF-IDF and a singular
	// value decomposition, fitted on training folds. Embedder is its name.
	Embed    func(context.Context, []string) ([][]float32, error)
	Embedder string
	// Margin is what accuracies may differ by and still count as equal, Cosine the
	// same for the content probe; chosen before looking. 0 means 0.05 and 0.02.
	Margin, Cosine float64
	// Least is how many dialogues a collapse needs; 0 means 600.
	Least    int
	Progress func(what string) // called before each part; may be nil
}

func (o FindOptions) withDefaults() FindOptions {
	if o.Grouping == "" {
		o.Grouping = GroupContext
	}
	if o.Controls == 0 {
		o.Controls = 3
	}
	if o.Margin == 0 {
		o.Margin = 0.05
	}
	if o.Cosine == 0 {
		o.Cosine = 0.02
	}
	if o.Least == 0 {
		o.Least = gateSamples
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// Findings are what linear probes found in a store, layer by layer. All cells
// have the same rows, groups and splits, so that they can be compared.
type Findings struct {
	// ContentHash is the checksum of the file, while it is read.
	ContentHash string `json:"content_sha256,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Schema      int    `json:"schema"`   // FindingsSchema
	N           int    `json:"n"`        // dialogues in every cell
	Left        int    `json:"left_out"` // dialogues that miss a text or a state
	Grouping    string `json:"grouping"`
	Groups      int    `json:"groups"` // of folds and intervals
	Classes     int    `json:"classes"`
	Folds       int    `json:"folds"`
	Seeds       int    `json:"seeds"`
	Samples     string `json:"samples_sha256" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	// Cut counts, by text, the lines that end at their cap of tokens: the end of the turn
	// was put in behind half a sentence.
	Cut map[string]int `json:"cut,omitempty"`
	// Layers are the names of the layers, in the order of every list below.
	Layers []string       `json:"layers"`
	Cells  []CellFindings `json:"cells"`
	// Texts holds, by TextPrompt (the dialogue up to its conflict) and own text, how
	// well a bag of words of it alone gives the stage away.
	Texts map[string]TextFindings `json:"texts"`
	// Decomposition is by layer, at utterance_end; Pooled the same with one probe
	// for all cells. Adjusted holds p values over all layers together.
	Decomposition []Decomposition      `json:"decomposition,omitempty"`
	Pooled        []Decomposition      `json:"pooled,omitempty"`
	Adjusted      map[string][]float64 `json:"adjusted,omitempty"`
	// Lengths are mean tokens of the model's own ND lines and of the fixed lines
	// that stand beside them in the excess loss.
	Lengths *Lengths `json:"lengths,omitempty"`
	// Transfers train on one cell and test on another.
	Transfers []TransferFindings `json:"transfers,omitempty"`
	// Follow says whose stage a probe reads where the prompt names a wrong one.
	Follow   []FollowFindings  `json:"follow,omitempty"`
	Controls []ControlFindings `json:"controls,omitempty"`
	Content  *ContentFindings  `json:"content,omitempty"`
	// At is the layer on which the verdict rests: the last block.
	At string `json:"at"`
	// Gap is the equivalence test of Δelic at that layer.
	Gap     *stats.Equivalence `json:"gap,omitempty"`
	Matched []MatchedFindings  `json:"matched,omitempty"`
	Verdict *Verdict           `json:"verdict,omitempty"`
	Notes   []string           `json:"notes,omitempty"`
}

// CellFindings are one cell's accuracies by layer, beside what shuffled labels
// and the majority class reach.
type CellFindings struct {
	Cell     activation.Cell  `json:"cell"`
	Layers   []*LayerResult   `json:"layers"`
	Accuracy []stats.Estimate `json:"accuracy"` // with its interval, by layer
	Shuffled []float64        `json:"shuffled"` // accuracy by layer
	Majority float64          `json:"majority"`
	// Peak is the accuracy at the layer that inner folds choose, DeltaLate the peak
	// minus the mean of the last third of the blocks.
	Peak      float64 `json:"peak"`
	DeltaLate Effect  `json:"delta_late"`
}

// TransferFindings is a probe of From's states on To's, by layer.
type TransferFindings struct {
	From activation.Cell `json:"from"`
	To   activation.Cell `json:"to"`
	// Accuracy by layer, and the accuracy of To's own probes.
	Accuracy []stats.Estimate `json:"accuracy"`
	Own      []float64        `json:"own"`
	// Recentred is Accuracy with To's states moved so that both cells have the same mean
	// over training rows. TopShare and RecentredTopShare are the shares of the most
	// frequent prediction: near 1, the accuracy says nothing of the direction.
	Recentred         []stats.Estimate `json:"recentred"`
	TopShare          []float64        `json:"top_share"`
	RecentredTopShare []float64        `json:"recentred_top_share"`
}

// finder holds what the parts of Find share.
type finder struct {
	FindOptions
	*Findings
	store   *store
	samples Samples
	design  Design
	names   []string
	of      map[string]dialogue.Dialogue // by item; nil without dialogues
	results map[activation.Cell]*Validation
	textFit Evidence // gate (a)
}

// Find trains probes on every cell of an extraction run and puts together what
// they show.
func Find(ctx context.Context, dir *run.Dir, o FindOptions) (results *Findings, err error) {
	s, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	f := &finder{FindOptions: o.withDefaults(), store: s, design: o.Design.withDefaults(), results: map[activation.Cell]*Validation{},
		Findings: &Findings{Schema: FindingsSchema, N: len(s.items), Left: s.left, Classes: 3, Texts: map[string]TextFindings{}}}
	f.Findings.Grouping = f.FindOptions.Grouping
	if f.Samples, err = dir.SamplesHash(); err != nil {
		return nil, err
	}
	if err := f.prepare(); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{f.cells, f.decompose, f.transfers, f.follow, f.texts, f.controls, f.content, f.judge} {
		err := step(ctx)
		if errors.Is(err, linear.ErrClasses) || errors.Is(err, linear.ErrFolds) {
			return nil, fmt.Errorf("%d dialogues are too few for %d folds: a training part lacks a stage, in the true, shuffled or control labels; ask for fewer folds, or extract more dialogues: %w", f.N, f.Folds, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return f.Findings, nil
}

// prepare looks up what the rows are and checks that they can be divided.
func (f *finder) prepare() (err error) {
	if f.names, err = f.store.layerNames(f.FindOptions.Layers); err != nil {
		return err
	}
	if f.Dialogues != nil {
		f.of = map[string]dialogue.Dialogue{}
		for _, d := range f.Dialogues {
			f.of[d.Key()] = d
		}
	}
	f.samples = Samples{Classes: f.Classes}
	groups := map[string]bool{}
	inStage := map[dmis.Stage]map[string]bool{}
	f.countCut()
	for _, item := range f.store.items {
		st := f.store.states[item]
		stage, err := dmis.ParseStage(st.Stage)
		if err != nil {
			return fmt.Errorf("item %s: %w", item, err)
		}
		group := st.Context
		if f.of != nil {
			d, ok := f.of[item]
			switch {
			case !ok:
				return fmt.Errorf("the data given have no dialogue %s, which the store has states of; give the data of the extraction", item)
			case d.ContextKey() != st.Context || d.Stage != stage:
				return fmt.Errorf("dialogue %s of the data given is not the one that the store has states of; give the data of the extraction", item)
			}
		}
		if f.FindOptions.Grouping != GroupContext {
			if f.of == nil {
				return fmt.Errorf("folds of whole %s groups need the dialogues: give the data of the extraction", f.FindOptions.Grouping)
			}
			if group = f.group(f.of[item]); group == "" {
				return fmt.Errorf("dialogue %s has no %s to divide folds by; divide them by %s", item, f.FindOptions.Grouping, GroupContext)
			}
		}
		f.samples.Y, f.samples.Groups = append(f.samples.Y, int(stage)), append(f.samples.Groups, group)
		groups[group] = true
		if inStage[stage] == nil {
			inStage[stage] = map[string]bool{}
		}
		inStage[stage][group] = true
	}
	f.Groups = len(groups)
	f.Folds, f.Seeds = f.design.Folds, len(f.design.Seeds)
	for st := range dmis.Minimization + 1 {
		gs := inStage[st]
		switch {
		case len(gs) > 0 && len(inStage) == 1:
			return fmt.Errorf("all %d dialogues have the stage %s; there is nothing to tell apart", f.N, st)
		case len(gs) > 0 && len(gs) < f.Folds:
			return fmt.Errorf("the stage %s has dialogues of %d different values of %s, and %d folds need one each; ask for fewer folds, or extract more dialogues", st, len(gs), f.FindOptions.Grouping, f.Folds)
		}
	}
	f.Findings.Layers = f.names
	f.At = f.names[f.last()]
	if f.of == nil {
		f.Notes = append(f.Notes, "the dialogues were not at hand: no control tasks, no matched attribute, no baseline of the prompt's words")
	}
	return nil
}

// countCut fills Cut, and notes what it means.
func (f *finder) countCut() {
	f.Cut = map[string]int{}
	for _, item := range f.store.items {
		for text, stop := range f.store.states[item].Stop {
			if stop == infer.StopLength {
				f.Cut[text]++
			}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(f.Cut)) {
		f.Notes = append(f.Notes, fmt.Sprintf("%d of %d %s lines end at their cap of tokens: the end of the turn was put in behind half a sentence", f.Cut[text], f.N, text))
	}
}

func (f *finder) group(d dialogue.Dialogue) string {
	switch f.FindOptions.Grouping {
	case GroupTemplate:
		return d.Template()
	case GroupCountry:
		return d.Country(d.ConflictAgent)
	}
	return d.ContextKey()
}

// last is the index of the last block, or of the last layer where there is none.
func (f *finder) last() int {
	if at := slices.Index(f.names, FinalNorm); at > 0 {
		return at - 1
	}
	return len(f.names) - 1
}

// at gives a cell's states, of all layers or of one.
func (f *finder) at(c activation.Cell) storeLayers {
	return storeLayers{f.store.files[c], f.names, f.store.rows}
}

func (f *finder) only(c activation.Cell, layer int) storeLayers {
	return storeLayers{f.store.files[c], f.names[layer : layer+1], f.store.rows}
}

// cell returns the store's cell of that name, and whether there is one.
func (f *finder) cell(contextName, text, position string) (activation.Cell, bool) {
	for c := range f.results {
		if c.Context == contextName && c.Text == text && c.Position == position {
			return c, true
		}
	}
	return activation.Cell{}, false
}

func (f *finder) cells(ctx context.Context) error {
	all := append(f.store.cells(PromptEnd), f.store.cells(UtteranceEnd)...)
	for i, c := range all {
		f.Progress(fmt.Sprintf("probing %s, %s (%d of %d cells)", c.Context, c.Text, i+1, len(all)))
		v, err := CrossValidate(ctx, f.at(c), f.samples, f.design)
		if err != nil {
			return fmt.Errorf("probe %s: %w", c, err)
		}
		f.results[c] = v
		cf, err := f.cellFindings(c, v)
		if err != nil {
			return fmt.Errorf("probe %s: %w", c, err)
		}
		f.Cells = append(f.Cells, cf)
	}
	return nil
}

func (f *finder) cellFindings(c activation.Cell, v *Validation) (CellFindings, error) {
	out := CellFindings{Cell: c, Layers: v.Layers, Majority: v.Majority.Accuracy}
	for k, l := range v.Layers {
		sum := 0.0
		for _, shuffled := range v.Shuffled {
			sum += shuffled[k].Accuracy
		}
		out.Shuffled = append(out.Shuffled, sum/float64(max(1, len(v.Shuffled))))
		e, err := shareOf(l.RoundHits(), f.Resampling)
		if err != nil {
			return out, err
		}
		out.Accuracy = append(out.Accuracy, e)
	}
	late, err := v.Late()
	if err != nil {
		return out, fmt.Errorf("compare layers: %w", err)
	}
	out.Peak = late.Peak.Accuracy
	out.DeltaLate, err = late.Delta.Test(f.Resampling)
	return out, err
}

// transfers asks whether the same direction is used from the prompt's end to the
// utterance's, and from D to ND.
func (f *finder) transfers(ctx context.Context) error {
	for _, p := range [][2][3]string{
		{{ContextD, TextPrompt, PromptEnd}, {ContextD, TextOwnD, UtteranceEnd}},
		{{ContextND, TextPrompt, PromptEnd}, {ContextND, TextOwnND, UtteranceEnd}},
		{{ContextD, TextOwnD, UtteranceEnd}, {ContextND, TextOwnND, UtteranceEnd}},
		{{ContextD, TextPrompt, PromptEnd}, {ContextND, TextPrompt, PromptEnd}},
	} {
		from, ok := f.cell(p[0][0], p[0][1], p[0][2])
		to, okTo := f.cell(p[1][0], p[1][1], p[1][2])
		if !ok || !okTo {
			continue
		}
		f.Progress(fmt.Sprintf("transfer from %s to %s", from, to))
		t := TransferFindings{From: from, To: to}
		for _, x := range []struct {
			recentred bool
			accuracy  *[]stats.Estimate
			top       *[]float64
		}{{false, &t.Accuracy, &t.TopShare}, {true, &t.Recentred, &t.RecentredTopShare}} {
			ls, err := Transfer(ctx, f.at(from), f.at(to), f.samples, f.design, x.recentred)
			if err != nil {
				return fmt.Errorf("transfer from %s to %s: %w", from, to, err)
			}
			for _, l := range ls {
				e, err := shareOf(l.RoundHits(), f.Resampling)
				if err != nil {
					return fmt.Errorf("transfer from %s to %s: %w", from, to, err)
				}
				*x.accuracy, *x.top = append(*x.accuracy, e), append(*x.top, l.TopShare)
			}
		}
		for _, l := range f.results[to].Layers {
			t.Own = append(t.Own, l.Accuracy)
		}
		f.Transfers = append(f.Transfers, t)
	}
	return nil
}

// FollowFindings is where the probes of From, whose prompts name no wrong stage,
// put the states of To, whose prompts do: shares by layer.
type FollowFindings struct {
	From  activation.Cell  `json:"from"`
	To    activation.Cell  `json:"to"`
	Named []stats.Estimate `json:"named"` // the wrong stage that the prompt names
	True  []stats.Estimate `json:"true"`  // the stage of the conflict
}

// follow asks whose stage is read after a prompt that names a wrong one.
func (f *finder) follow(ctx context.Context) error {
	for _, to := range slices.SortedFunc(maps.Keys(f.results), cmpCells) {
		if to.Context != ContextWrong {
			continue
		}
		for _, contextName := range []string{ContextD, ContextND} {
			from, ok := f.cell(contextName, to.Text, to.Position)
			if !ok {
				continue
			}
			ls, err := Transfer(ctx, f.at(from), f.at(to), f.samples, f.design, false)
			if err != nil {
				return fmt.Errorf("apply the probes of %s to %s: %w", from, to, err)
			}
			out := FollowFindings{From: from, To: to}
			for _, l := range ls {
				named, err := shareOf(l.predicted(func(y int) int { return int(wrongStage(dmis.Stage(y))) }), f.Resampling)
				if err != nil {
					return err
				}
				kept, err := shareOf(l.RoundHits(), f.Resampling)
				if err != nil {
					return err
				}
				out.Named, out.True = append(out.Named, named), append(out.True, kept)
			}
			f.Follow = append(f.Follow, out)
		}
	}
	return nil
}

// predicted returns 1 for each row that a round predicted as the class that of
// makes of its label.
func (r *LayerResult) predicted(of func(label int) int) Outcomes {
	return r.outcomes(func(one *LayerResult) []float64 {
		return one.perRow(func(p *linear.Predictions, i int) float64 {
			if p.Argmax(i) == of(one.samples.Y[i]) {
				return 1
			}
			return 0
		})
	})
}

func cmpCells(a, b activation.Cell) int { return strings.Compare(a.File(), b.File()) }
