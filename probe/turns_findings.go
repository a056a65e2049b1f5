package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/activation"
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
	found, err := f.design.train(ctx, f.layers, f.all, sets, splits)
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
	if f.Scripted, err = f.accuracies(found[0], scripted); err != nil {
		return err
	}
	if f.Words, err = f.accuracy(words, scripted); err != nil {
		return err
	}
	// The shuffled sets carry the labels that they were trained on: of scripted
	// turns these are what they are scored by.
	if f.Shuffled, err = f.meanOver(found[1:], scripted, func(r *LayerResult) float64 { return r.Accuracy }); err != nil {
		return err
	}
	if rows := f.at[KindUnscripted]; len(rows) > 0 {
		if err := f.unscripted(rows, found, words); err != nil {
			return fmt.Errorf("unscripted turns: %w", err)
		}
	}
	if rows := f.at[EditSwap]; len(rows) > 0 {
		if err := f.swap(rows, found[0], words); err != nil {
			return fmt.Errorf("marker swap: %w", err)
		}
	}
	for _, edit := range []string{EditMask, EditStrip} {
		rows := f.at[edit]
		if len(rows) == 0 {
			continue
		}
		e := EditFindings{Edit: edit}
		if e.Applied, err = f.accuracies(found[0], rows); err != nil {
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
		found, err := f.design.train(ctx, f.layers, f.all, []labelled{{y: f.all.Y}}, splits)
		if err != nil {
			return fmt.Errorf("edit %s, probes of edited turns: %w", e.Edit, err)
		}
		if e.Retrained, err = f.accuracies(found[0], rows); err != nil {
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

func (f *turnFinder) unscripted(rows []int, found [][]*LayerResult, words *LayerResult) error {
	out := &UnscriptedFindings{PerClass: map[string]int{}, Outside: map[string]int{}}
	first, err := f.part(found[0][0], rows)
	if err != nil {
		return err
	}
	y := linear.At(f.all.Y, first.tested)
	out.N = len(y)
	contexts := map[string]bool{}
	repeated := 0
	for _, i := range first.tested {
		contexts[f.rows[i].Group] = true
		out.PerClass[dmis.Stage(f.rows[i].Label).String()]++
		if f.rows[i].Label == f.rows[i].Script {
			repeated++
		}
	}
	out.Contexts, out.Chance = len(contexts), 1/float64(len(out.PerClass))
	out.RepeatedLabels = float64(repeated) / float64(out.N)
	_, out.Majority = stats.MajorityShare(y)
	var byWords *LayerResult
	if words != nil {
		if byWords, err = f.part(words, rows); err != nil {
			return err
		}
		w := &WordFindings{Accuracy: byWords.Accuracy, Recall: byWords.recalls()}
		if w.Balanced, err = byWords.statistic(balanced, f.r); err != nil {
			return err
		}
		if w.MacroF1, err = byWords.statistic(macroF1, f.r); err != nil {
			return err
		}
		out.Words = w
	}
	var chances, beyond []Outcomes
	for _, r := range found[0] {
		part, err := f.part(r, rows)
		if err != nil {
			return err
		}
		b, err := part.statistic(balanced, f.r)
		if err != nil {
			return err
		}
		m, err := part.statistic(macroF1, f.r)
		if err != nil {
			return err
		}
		repeats, err := shareOf(part.named(func(i int) int { return f.rows[i].Script }), f.r)
		if err != nil {
			return err
		}
		out.Balanced, out.MacroF1, out.Repeats = append(out.Balanced, b), append(out.MacroF1, m), append(out.Repeats, repeats)
		out.Accuracy, out.Recall = append(out.Accuracy, part.Accuracy), append(out.Recall, part.recalls())
		chances = append(chances, part.balancedHits(out.Chance))
		if byWords == nil {
			continue
		}
		d, err := part.balancedHits(0).Minus(byWords.balancedHits(0))
		if err != nil {
			return err
		}
		e, err := d.Test(f.r)
		if err != nil {
			return err
		}
		beyond, out.Beyond = append(beyond, d), append(out.Beyond, e)
	}
	if out.ChanceAdjusted, err = MaxStatistic(chances, f.r); err != nil {
		return err
	}
	if out.BeyondAdjusted, err = MaxStatistic(beyond, f.r); err != nil {
		return err
	}
	out.Shuffled, err = f.meanOver(found[1:], rows, func(r *LayerResult) float64 { return r.balancedHits(0).Mean() })
	f.Unscripted = out
	return err
}

func (f *turnFinder) swap(rows []int, layers []*LayerResult, words *LayerResult) error {
	out := &SwapFindings{}
	unedited := map[string]int{} // row by item
	for _, i := range f.at[KindScripted] {
		unedited[f.rows[i].Item] = i
	}
	shares := func(r *LayerResult) (*SwapShares, error) {
		part, err := f.part(r, rows)
		if err != nil {
			return nil, err
		}
		var s SwapShares
		if s.Follow, err = shareOf(part.named(func(i int) int { return f.rows[i].To }), f.r); err != nil {
			return nil, err
		}
		if s.Stay, err = shareOf(part.named(func(i int) int { return f.rows[i].Label }), f.r); err != nil {
			return nil, err
		}
		// Three stages: what is neither a nor b is the third.
		s.Third, err = shareOf(part.named(func(i int) int { return turnClasses - f.rows[i].Label - f.rows[i].To }), f.r)
		return &s, err
	}
	var moved []Outcomes
	for _, r := range layers {
		s, err := shares(r)
		if err != nil {
			return err
		}
		d, err := f.moved(r, rows, unedited)
		if err != nil {
			return err
		}
		e, err := d.Test(f.r)
		if err != nil {
			return err
		}
		moved, out.Moved = append(moved, d), append(out.Moved, e)
		out.N = s.Follow.N
		out.Follow, out.Stay, out.Third = append(out.Follow, s.Follow), append(out.Stay, s.Stay), append(out.Third, s.Third)
	}
	if words != nil {
		s, err := shares(words)
		if err != nil {
			return err
		}
		out.Words = s
	}
	var err error
	out.MovedAdjusted, err = MaxStatistic(moved, f.r)
	f.Swap = out
	return err
}

// moved returns, for each swapped turn, whether it is predicted as stage b minus
// whether it was before.
func (f *turnFinder) moved(r *LayerResult, swapped []int, unedited map[string]int) (Outcomes, error) {
	tested, to := map[int]bool{}, map[int]int{}
	for _, i := range r.tested {
		tested[i] = true
	}
	var after, before []int
	for _, i := range swapped {
		j, ok := unedited[f.rows[i].Item]
		if !ok || !tested[i] || !tested[j] {
			continue
		}
		after, before = append(after, i), append(before, j)
		to[i], to[j] = f.rows[i].To, f.rows[i].To
	}
	a, err := f.on(r, after)
	if err != nil {
		return Outcomes{}, err
	}
	b, err := f.on(r, before)
	if err != nil {
		return Outcomes{}, err
	}
	follows := func(i int) int { return to[i] }
	return a.named(follows).Minus(b.named(follows))
}

// named returns 1 for each row that a round predicted as the class of that row.
func (r *LayerResult) named(class func(row int) int) Outcomes {
	return r.outcomes(func(one *LayerResult) []float64 {
		return one.perRow(func(p *linear.Predictions, i int) float64 {
			if p.Argmax(i) == class(i) {
				return 1
			}
			return 0
		})
	})
}

// balancedHits returns outcomes whose mean is the balanced accuracy minus chance:
// hits minus chance, weighted so that all labels that occur count the same.
func (r *LayerResult) balancedHits(chance float64) Outcomes {
	count := map[int]float64{}
	for _, i := range r.tested {
		count[r.samples.Y[i]]++
	}
	return r.outcomes(func(one *LayerResult) []float64 {
		out := one.Hits()
		for k, i := range one.tested {
			out[k] = (out[k] - chance) * float64(len(one.tested)) / float64(len(count)) / count[r.samples.Y[i]]
		}
		return out
	})
}

// confusion counts rows by label (major) and prediction.
type confusion []float64

func (c confusion) classes() int { return int(math.Sqrt(float64(len(c)))) }

// sums returns how often class k is label, prediction, and both.
func (c confusion) sums(k int) (label, predicted, both float64) {
	n := c.classes()
	for j := range n {
		label += c[k*n+j]
		predicted += c[j*n+k]
	}
	return label, predicted, c[k*n+k]
}

// balanced is the mean recall of the labels that occur, in a resample too.
func balanced(c confusion) float64 {
	sum, occurring := 0.0, 0.0
	for k := range c.classes() {
		if label, _, both := c.sums(k); label > 0 {
			sum += both / label
			occurring++
		}
	}
	return sum / occurring
}

// macroF1 is the mean F1 of the classes that occur as label or prediction.
func macroF1(c confusion) float64 {
	sum, occurring := 0.0, 0.0
	for k := range c.classes() {
		if label, predicted, both := c.sums(k); label+predicted > 0 {
			sum += 2 * both / (label + predicted)
			occurring++
		}
	}
	return sum / occurring
}

// confusions returns the counts of each group in each round.
func (r *LayerResult) confusions() (groups []string, rounds [][]confusion) {
	number := map[string]int{}
	for _, i := range r.tested {
		if g := r.samples.Groups[i]; !slices.Contains(groups, g) {
			number[g] = len(groups)
			groups = append(groups, g)
		}
	}
	n := r.samples.Classes
	for _, p := range r.Rounds {
		cs := make([]confusion, len(groups))
		for g := range cs {
			cs[g] = make(confusion, n*n)
		}
		for _, i := range r.tested {
			cs[number[r.samples.Groups[i]]][r.samples.Y[i]*n+p.Argmax(i)]++
		}
		rounds = append(rounds, cs)
	}
	return groups, rounds
}

// statistic is a function of the counts with values 0..1, mean over rounds, with
// its group bootstrap interval, corrected as that of Outcomes.
func (r *LayerResult) statistic(of func(confusion) float64, rs Resampling) (stats.Estimate, error) {
	groups, rounds := r.confusions()
	var each []stats.Estimate
	total := make(confusion, r.samples.Classes*r.samples.Classes)
	for _, cs := range rounds {
		e, err := rs.bootstrap().Statistic(func(drawn []int) float64 {
			clear(total)
			for _, g := range drawn {
				floats.Add(total, cs[g])
			}
			return of(total)
		}, groups)
		if err != nil {
			return stats.Estimate{}, fmt.Errorf("probe: interval over rounds: %w", err)
		}
		each = append(each, e)
	}
	out, err := overRounds(each, r.width)
	out.N, out.Groups = len(r.tested), len(groups)
	return bounded(out), err
}

// recalls returns the share of each label's rows that were predicted right.
func (r *LayerResult) recalls() map[string]float64 {
	count, hits := map[int]float64{}, map[int]float64{}
	for k, h := range r.Hits() {
		y := r.samples.Y[r.tested[k]]
		count[y]++
		hits[y] += h
	}
	out := map[string]float64{}
	for y, n := range count {
		out[dmis.Stage(y).String()] = hits[y] / n
	}
	return out
}

// FindTurns trains probes on the scripted turns of a store of turns and puts
// together what they make of unscripted and of edited ones. Of the options it
// takes Design, Resampling, Layers and Progress.
func FindTurns(ctx context.Context, dir *run.Dir, o FindOptions) (out *TurnFindings, err error) {
	o = o.withDefaults()
	if o.Grouping != GroupContext {
		return nil, fmt.Errorf("folds of turns are of whole scenario contexts; %q is for the states of prompts and utterances", o.Grouping)
	}
	s, err := openTurns(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	names, err := chosenLayers(s.names, o.Layers)
	if err != nil {
		return nil, err
	}
	if len(s.rows) == 0 {
		return nil, fmt.Errorf("%s holds no state of a conflict turn; extract again with `ccmed probe extract --turns`", dir.Path())
	}
	o.Progress(fmt.Sprintf("probing %d turns in %d layers", len(s.rows), len(names)))
	out, err = FindTurnsIn(ctx, s.layers(names), s.rows, o.Design, o.Resampling)
	if err != nil {
		return nil, err
	}
	out.Left = s.left
	if out.Unscripted != nil {
		out.Unscripted.Outside = s.outside
	}
	for _, e := range slices.Sorted(maps.Keys(s.missing)) {
		out.Notes = append(out.Notes, fmt.Sprintf("edit %s: %d turns could not be edited", e, s.missing[e]))
	}
	out.Samples, err = dir.SamplesHash()
	return out, err
}

// turnStore is an opened store of turns.
type turnStore struct {
	names   []string
	files   []*activation.File // of the cells that have rows, in the order of rows
	in      [][]int            // rows of each file
	rows    []TurnRow          // of all files, one after the other
	left    int
	outside map[string]int // unscripted turns by a label that no conflict is scripted with
	missing map[string]int // turns without an edit
}

func (s *turnStore) close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (s *turnStore) layers(names []string) Layers {
	var out stack
	for i, f := range s.files {
		if len(s.in[i]) > 0 {
			out = append(out, storeLayers{f, names, s.in[i]})
		}
	}
	return out
}

func openTurns(dir *run.Dir) (s *turnStore, err error) {
	s = &turnStore{outside: map[string]int{}, missing: map[string]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if !HoldsTurns(dir) {
		return s, fmt.Errorf("%s holds no states at the ends of turns; make some with `ccmed probe extract --turns`", dir.Path())
	}
	index, err := activation.ReadIndex(dir.All())
	if err != nil {
		return s, err
	}
	states, err := readTurnStates(dir)
	if err != nil {
		return s, err
	}
	for _, c := range index.Cells() {
		if c.Position != TurnEnd {
			continue
		}
		f, err := activation.Open(filepath.Join(dir.Path(), c.File()))
		if err != nil {
			return s, err
		}
		s.files, s.in = append(s.files, f), append(s.in, nil)
		s.names = f.Spec().Layers
		entries, err := index.For(f)
		if err != nil {
			return s, err
		}
		for _, e := range entries {
			if err := s.add(f, states[e.Item], e); err != nil {
				return s, fmt.Errorf("item %s: %w", e.Item, err)
			}
		}
	}
	scripted := map[string]bool{}
	for _, r := range s.rows {
		if r.Kind == KindScripted {
			scripted[r.Item] = true
		}
	}
	s.left = len(states) - len(scripted)
	for _, st := range states {
		for e := range st.Missing {
			s.missing[e]++
		}
	}
	return s, nil
}

func readTurnStates(dir *run.Dir) (map[string]TurnStates, error) {
	out := map[string]TurnStates{}
	for sample, err := range dir.All() {
		if err != nil {
			return nil, err
		}
		if sample.Step != StepStates || sample.Unscored != "" {
			continue
		}
		var st TurnStates
		if err := json.Unmarshal(sample.Data, &st); err != nil {
			return nil, fmt.Errorf("states of item %s: %w", sample.Item, err)
		}
		out[sample.Item] = st
	}
	return out, nil
}

// add takes a row of a file, unless its states are missing or its label is none
// that probes can give.
func (s *turnStore) add(f *activation.File, st TurnStates, e activation.Entry) error {
	script, err := dmis.ParseStage(st.Stage)
	if err != nil {
		return err
	}
	if !script.Ethnocentric() {
		return nil // no class of the probes: counted as left out
	}
	row := TurnRow{Item: e.Item, Kind: e.Cell.Text, Group: st.Context, Label: int(script), Script: int(script)}
	if e.Cell.Text == TextOriginal {
		at := slices.IndexFunc(st.Turns, func(t TurnState) bool { return t.Row == e.Row })
		if at < 0 {
			return fmt.Errorf("row %d of %s is none of its turns; extract into a new run", e.Row, f.Path())
		}
		row.Kind, row.Text = KindScripted, st.Turns[at].Text
		if !st.Turns[at].Scripted {
			label, err := dmis.ParseStage(st.Turns[at].Label)
			if err != nil {
				return err
			}
			if !label.Ethnocentric() {
				s.outside[label.String()]++
				return nil
			}
			row.Kind, row.Label = KindUnscripted, int(label)
		}
	} else {
		edited := st.Edits[e.Cell.Text]
		row.Text = edited.Text
		if e.Cell.Text == EditSwap {
			to, err := dmis.ParseStage(edited.To)
			if err != nil {
				return err
			}
			row.To = int(to)
		}
	}
	there, err := f.Holds(e.Place)
	if err != nil || !there {
		return err
	}
	last := len(s.files) - 1
	s.in[last], s.rows = append(s.in[last], e.Row), append(s.rows, row)
	return nil
}
