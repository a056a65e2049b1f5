package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/linear"
)

// TurnFindingsFile is where the findings of a store of turns lie in its run
// directory.
const TurnFindingsFile = "turns.json"

// TurnFindingsSchema is the version of TurnFindings as JSON.
const TurnFindingsSchema = 2

// Kinds of TurnRow, beside the names of edits.
const (
	KindScripted   = "scripted"   // the conflict turn
	KindUnscripted = "unscripted" // a later own turn of the same speaker
)

// turnClasses are the stages that conflicts are scripted with.
const turnClasses = int(dmis.Minimization) + 1

// TurnRow says what a row of states at TurnEnd is.
type TurnRow struct {
	Item   string // dialogue
	Kind   string // KindScripted, KindUnscripted or the name of an edit
	Group  string // scenario context
	Label  int    // stage of the turn, 0..2; of an edit that of the turn as it was
	Script int    // stage of the dialogue's conflict turn, 0..2
	To     int    // stage of the phrase that EditSwap put in
	Text   string // the turn alone; of EditStrip the turn before
}

// TurnFindings are what probes trained on scripted conflict turns make of other
// turns, layer by layer. Folds are of whole scenario contexts: no probe is tested
// on a context that it was trained on.
type TurnFindings struct {
	// ContentHash is the checksum of the file, while it is read.
	ContentHash string   `json:"content_sha256,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Schema      int      `json:"schema"`   // TurnFindingsSchema
	N           int      `json:"n"`        // scripted turns
	Left        int      `json:"left_out"` // dialogues without the state of theirs
	Contexts    int      `json:"contexts"`
	Classes     int      `json:"classes"`
	Folds       int      `json:"folds"`
	Seeds       int      `json:"seeds"`
	Samples     string   `json:"samples_sha256" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Layers      []string `json:"layers"` // in the order of every list below
	At          string   `json:"at"`     // the last block
	// Scripted is the accuracy on the conflict turns themselves, Words that of a bag
	// of words, trained and tested on the same turns.
	Scripted   []stats.Estimate    `json:"scripted"`
	Shuffled   []float64           `json:"shuffled"` // with shuffled labels
	Words      *stats.Estimate     `json:"words,omitempty"`
	Majority   float64             `json:"majority"`
	Unscripted *UnscriptedFindings `json:"unscripted,omitempty"`
	Swap       *SwapFindings       `json:"swap,omitempty"`
	Edits      []EditFindings      `json:"edits,omitempty"`
	Notes      []string            `json:"notes,omitempty"`
}

// UnscriptedFindings are how well probes of scripted turns read the stage of turns
// that nobody scripted.
type UnscriptedFindings struct {
	N        int            `json:"n"`
	Contexts int            `json:"contexts"`
	PerClass map[string]int `json:"per_class"` // turns by label
	Outside  map[string]int `json:"outside"`   // turns left out by label: the probe has no such class
	// Chance is the highest balanced accuracy of a guess without information, Majority
	// the accuracy of the most frequent label.
	Chance   float64 `json:"chance"`
	Majority float64 `json:"majority"`
	// Balanced is the mean recall of the labels that occur.
	Balanced []stats.Estimate     `json:"balanced_accuracy"`
	MacroF1  []stats.Estimate     `json:"macro_f1"`
	Accuracy []float64            `json:"accuracy"`
	Recall   []map[string]float64 `json:"recall"`   // by label
	Shuffled []float64            `json:"shuffled"` // balanced accuracy of probes of shuffled labels
	// Beyond is the balanced accuracy minus that of the bag of words; the adjusted p
	// values are over all layers together, of Beyond and of the difference from chance.
	Beyond         []Effect      `json:"beyond_words,omitempty"`
	BeyondAdjusted []float64     `json:"beyond_words_p,omitempty"`
	ChanceAdjusted []float64     `json:"chance_p"`
	Words          *WordFindings `json:"words,omitempty"`
	// Repeats is the share of predictions that name the stage of the dialogue's
	// conflict turn, RepeatedLabels that of the labels: a state at a later turn may
	// hold what was read before.
	Repeats        []stats.Estimate `json:"repeats"`
	RepeatedLabels float64          `json:"repeated_labels"`
}

// WordFindings are the same of a bag of words of the turn alone.
type WordFindings struct {
	Balanced stats.Estimate     `json:"balanced_accuracy"`
	MacroF1  stats.Estimate     `json:"macro_f1"`
	Accuracy float64            `json:"accuracy"`
	Recall   map[string]float64 `json:"recall"`
}

// SwapFindings are what probes of unedited turns make of turns of stage a with a
// phrase of stage b: shares of predictions that follow b, stay at a or go to the
// third stage.
type SwapFindings struct {
	N      int              `json:"n"`
	Follow []stats.Estimate `json:"follow"`
	Stay   []stats.Estimate `json:"stay"`
	Third  []stats.Estimate `json:"third"`
	// Moved is Follow minus the share that was predicted as b with the turn as it
	// was, MovedAdjusted its p values over all layers together.
	Moved         []Effect    `json:"moved"`
	MovedAdjusted []float64   `json:"moved_p"`
	Words         *SwapShares `json:"words,omitempty"` // of a bag of words
}

// SwapShares are the shares of SwapFindings of one classifier.
type SwapShares struct {
	Follow stats.Estimate `json:"follow"`
	Stay   stats.Estimate `json:"stay"`
	Third  stats.Estimate `json:"third"`
}

// EditFindings are accuracies on turns with an edit, for the stage that the turn
// was scripted with.
type EditFindings struct {
	Edit string `json:"edit"`
	N    int    `json:"n"`
	// Applied is that of probes of unedited turns, Retrained of probes that were
	// trained on edited ones; the words are a bag of words of the same texts.
	Applied        []stats.Estimate `json:"applied"`
	Retrained      []stats.Estimate `json:"retrained,omitempty"`
	AppliedWords   *stats.Estimate  `json:"applied_words,omitempty"`
	RetrainedWords *stats.Estimate  `json:"retrained_words,omitempty"`
}

// turnFinder holds what the parts of FindTurnsIn share.
type turnFinder struct {
	*TurnFindings
	layers Layers
	rows   []TurnRow
	at     map[string][]int // rows by kind
	all    Samples          // of all rows
	base   []Split          // of the scripted turns, as rows
	width  float64          // correction of intervals
	design Design
	r      Resampling
}

// FindTurnsIn trains probes on the scripted rows of layers and evaluates them on
// all rows of held-out contexts. An error is that of CrossValidate.
func FindTurnsIn(ctx context.Context, layers Layers, rows []TurnRow, d Design, r Resampling) (*TurnFindings, error) {
	f := &turnFinder{layers: layers, rows: rows, design: d.withDefaults(), r: r, at: map[string][]int{},
		TurnFindings: &TurnFindings{Schema: TurnFindingsSchema, Classes: turnClasses, Layers: layers.Names()}}
	f.all.Classes = turnClasses
	for i, row := range rows {
		f.at[row.Kind] = append(f.at[row.Kind], i)
		f.all.Y, f.all.Groups = append(f.all.Y, row.Label), append(f.all.Groups, row.Group)
	}
	if len(f.Layers) == 0 {
		return nil, fmt.Errorf("%w: there are no layers", ErrDesign)
	}
	if err := f.all.check(); err != nil {
		return nil, err
	}
	scripted := f.at[KindScripted]
	s := Samples{linear.At(f.all.Y, scripted), turnClasses, linear.At(f.all.Groups, scripted)}
	splits, err := f.design.Splits(s)
	if err != nil {
		return nil, err
	}
	f.width = refitWidth(splits, splits[len(splits)-1].Round+1)
	for _, sp := range splits {
		f.base = append(f.base, Split{sp.Round, linear.At(scripted, sp.Train), linear.At(scripted, sp.Test), linear.At(scripted, sp.Fit), linear.At(scripted, sp.Tune)})
	}
	contexts := map[string]bool{}
	for _, g := range s.Groups {
		contexts[g] = true
	}
	f.N, f.Contexts, f.Folds, f.Seeds = len(scripted), len(contexts), f.design.Folds, len(f.design.Seeds)
	f.At = f.Layers[max(0, lastBlock(f.Layers))]
	_, most := stats.MajorityShare(s.Y)
	f.Majority = most
	if err := f.apply(ctx); err != nil {
		return nil, err
	}
	return f.TurnFindings, f.retrain(ctx)
}

// lastBlock is the index of the last block, or of the last layer where there is
// none.
func lastBlock(layers []string) int {
	if at := slices.Index(layers, FinalNorm); at > 0 {
		return at - 1
	}
	return len(layers) - 1
}

// splitsOf returns the splits with other rows: those to train on, of one kind,
// and those to test on, by the contexts of the scripted turns there.
func (f *turnFinder) splitsOf(train []int, test []int) []Split {
	out := make([]Split, len(f.base))
	for k, sp := range f.base {
		pick := func(from, scripted []int) []int {
			in := map[string]bool{}
			for _, i := range scripted {
				in[f.rows[i].Group] = true
			}
			var rows []int
			for _, i := range from {
				if in[f.rows[i].Group] {
					rows = append(rows, i)
				}
			}
			return rows
		}
		out[k] = Split{sp.Round, pick(train, sp.Train), pick(test, sp.Test), pick(train, sp.Fit), pick(train, sp.Tune)}
	}
	return out
}

// part returns the result on some rows.
func (f *turnFinder) part(r *LayerResult, rows []int) (*LayerResult, error) {
	in := map[int]bool{}
	for _, i := range rows {
		in[i] = true
	}
	return f.on(r, slices.DeleteFunc(slices.Clone(r.tested), func(i int) bool { return !in[i] }))
}

// on returns the result on rows that were all tested.
func (f *turnFinder) on(r *LayerResult, rows []int) (*LayerResult, error) {
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: no row to test on", ErrDesign)
	}
	out := *r
	out.width, out.tested, out.Score = f.width, rows, linear.Score{}
	return &out, out.score()
}

// words predicts rows by a bag of words of the turn alone; nil where the texts of
// a training part share no words.
func (f *turnFinder) words(ctx context.Context, splits []Split) (*LayerResult, error) {
	texts := make([]string, len(f.rows))
	for i, row := range f.rows {
		texts[i] = row.Text
	}
	r := newLayerResult(f.all, splits)
	r.Layer = "words"
	for _, sp := range splits {
		p, err := wordPredictions(ctx, texts, f.all, sp)
		if errors.Is(err, linear.ErrNoTerms) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		r.keep(sp, p)
	}
	return r, nil
}

// wordPredictions are those of a bag of words and pairs of words for the rows that a split
// holds out. The error wraps linear.ErrNoTerms where the training texts share no words.
func wordPredictions(ctx context.Context, texts []string, s Samples, sp Split) (*linear.Predictions, error) {
	train := linear.At(texts, sp.Train)
	v, err := linear.FitVectorizer(train, linear.VectorizerOptions{Bigrams: true, MinDocs: 2, Binary: true})
	if err != nil {
		return nil, fmt.Errorf("bag of words: %w", err)
	}
	m, err := linear.Fit(ctx, v.Transform(train), linear.At(s.Y, sp.Train), s.Classes, linear.Options{C: 1, Tol: 1e-6})
	if err != nil {
		return nil, fmt.Errorf("bag of words: %w", err)
	}
	p, err := m.Predict(v.Transform(linear.At(texts, sp.Test)))
	if err != nil {
		return nil, fmt.Errorf("bag of words: %w", err)
	}
	return p, nil
}

// apply evaluates probes of unedited conflict turns on all rows.
func (f *turnFinder) apply(ctx context.Context) error {
	scripted := f.at[KindScripted]
	every := make([]int, len(f.rows))
	for i := range every {
		every[i] = i
	}
	splits := f.splitsOf(scripted, every)
	sets := []labelled{{y: f.all.Y}}
	for k := range max(0, f.design.Shuffles) {
		sets = append(sets, labelled{y: f.shuffled(uint64(k))})
	}
	results, err := f.design.train(ctx, f.layers, f.all, sets, splits)
	if err != nil {
		return err
	}
	words, err := f.words(ctx, splits)
	if err != nil {
		return err
	}
	if words == nil {
		f.Notes = append(f.Notes, "the conflict turns share no words: there is no bag of words beside the probes")
	}
	if f.Scripted, err = f.accuracies(results[0], scripted); err != nil {
		return err
	}
	if f.Words, err = f.accuracy(words, scripted); err != nil {
		return err
	}
	// The shuffled sets carry the labels that they were trained on: of scripted
	// turns these are what they are scored by.
	if f.Shuffled, err = f.meanOver(results[1:], scripted, func(r *LayerResult) float64 { return r.Accuracy }); err != nil {
		return err
	}
	if rows := f.at[KindUnscripted]; len(rows) > 0 {
		if err := f.unscripted(rows, results, words); err != nil {
			return fmt.Errorf("unscripted turns: %w", err)
		}
	}
	if rows := f.at[EditSwap]; len(rows) > 0 {
		if err := f.swap(rows, results[0], words); err != nil {
			return fmt.Errorf("marker swap: %w", err)
		}
	}
	for _, edit := range []string{EditMask, EditStrip} {
		rows := f.at[edit]
		if len(rows) == 0 {
			continue
		}
		e := EditFindings{Edit: edit}
		if e.Applied, err = f.accuracies(results[0], rows); err != nil {
			return fmt.Errorf("edit %s: %w", edit, err)
		}
		if e.AppliedWords, err = f.accuracy(words, rows); err != nil {
			return fmt.Errorf("edit %s: %w", edit, err)
		}
		e.N = e.Applied[0].N
		f.Edits = append(f.Edits, e)
	}
	return nil
}

// shuffled returns the labels with those of scripted turns shuffled among them.
func (f *turnFinder) shuffled(k uint64) []int {
	y := slices.Clone(f.all.Y)
	rows := f.at[KindScripted]
	rng := rand.New(rand.NewPCG(f.design.Seeds[0], shuffleStream+k))
	rng.Shuffle(len(rows), func(i, j int) { y[rows[i]], y[rows[j]] = y[rows[j]], y[rows[i]] })
	return y
}

// retrain evaluates probes of edited turns on edited turns.
func (f *turnFinder) retrain(ctx context.Context) error {
	for k := range f.Edits {
		e := &f.Edits[k]
		rows := f.at[e.Edit]
		splits := f.splitsOf(rows, rows)
		results, err := f.design.train(ctx, f.layers, f.all, []labelled{{y: f.all.Y}}, splits)
		if err != nil {
			return fmt.Errorf("edit %s, probes of edited turns: %w", e.Edit, err)
		}
		if e.Retrained, err = f.accuracies(results[0], rows); err != nil {
			return fmt.Errorf("edit %s, probes of edited turns: %w", e.Edit, err)
		}
		words, err := f.words(ctx, splits)
		if err != nil {
			return fmt.Errorf("edit %s: %w", e.Edit, err)
		}
		if e.RetrainedWords, err = f.accuracy(words, rows); err != nil {
			return fmt.Errorf("edit %s: %w", e.Edit, err)
		}
	}
	return nil
}

// accuracies returns the accuracy on rows in every layer.
func (f *turnFinder) accuracies(layers []*LayerResult, rows []int) ([]stats.Estimate, error) {
	var out []stats.Estimate
	for _, r := range layers {
		e, err := f.accuracy(r, rows)
		if err != nil {
			return nil, err
		}
		out = append(out, *e)
	}
	return out, nil
}

// accuracy is nil for no result.
func (f *turnFinder) accuracy(r *LayerResult, rows []int) (*stats.Estimate, error) {
	if r == nil {
		return nil, nil
	}
	part, err := f.part(r, rows)
	if err != nil {
		return nil, err
	}
	e, err := shareOf(part.RoundHits(), f.r)
	return &e, err
}

// shareOf is the mean of outcomes that are 0 or 1; the correction of its interval
// does not reach beyond them.
func shareOf(o Outcomes, r Resampling) (stats.Estimate, error) {
	e, err := o.joined(r.bootstrap().Share)
	return bounded(e), err
}

func bounded(e stats.Estimate) stats.Estimate {
	e.Lo, e.Hi = max(0, e.Lo), min(1, e.Hi)
	return e
}

// meanOver averages a figure of every layer over label sets.
func (f *turnFinder) meanOver(sets [][]*LayerResult, rows []int, of func(*LayerResult) float64) ([]float64, error) {
	if len(sets) == 0 {
		return nil, nil
	}
	out := make([]float64, len(f.Layers))
	for _, layers := range sets {
		for k, r := range layers {
			part, err := f.part(r, rows)
			if err != nil {
				return nil, err
			}
			out[k] += of(part)
		}
	}
	floats.Scale(1/float64(len(sets)), out)
	return out, nil
}
