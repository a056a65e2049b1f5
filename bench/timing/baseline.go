package timing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/ccmed/ccmed/bench/stats"
)

// BaselineDialogue is what a baseline knows of a dialogue: its text, without
// speakers or persona.
type BaselineDialogue struct {
	ID    string
	Group string   // scenario context; empty means that the dialogue is a group of its own
	Gold  int      // the turn to step in after, 1..len(Turns)
	Turns []string // turn t is Turns[t-1]
}

func (d BaselineDialogue) group() string {
	if d.Group == "" {
		return "dialogue " + d.ID
	}
	return "context " + d.Group
}

// BaselineInput is what the baselines are computed from.
//
//	results, err := timing.BaselineInput{Eval: eval, Train: training}.Results(ctx)
type BaselineInput struct {
	Eval  []BaselineDialogue // predicted
	Train []BaselineDialogue // fitted on; without any, what needs fitting is cross-validated on Eval
	First int                // predictions start at this turn; 0 means 3
	Seed  uint64             // of the folds
	// Scored names the dialogues that a model was scored on: baselines beside it count
	// these alone. Empty: all of Eval.
	Scored map[string]bool
	// Offered: the model chose among the turns from First to the last, so that chance is
	// one among these.
	Offered bool
}

// BaselineResult is what one baseline reaches.
type BaselineResult struct {
	Name   string `json:"name"`
	Fitted string `json:"fitted"` // on what it was fitted, in words
	N      int    `json:"n"`
	// Accuracy is the share of the N dialogues with the gold turn predicted, 0..1; no
	// prediction counts as wrong. For the uniform baseline it is the expectation.
	Accuracy float64 `json:"accuracy"`
	// AccuracyAll is the same of all NAll dialogues, where BaselineInput.Scored leaves
	// some out.
	AccuracyAll float64 `json:"accuracy_all,omitempty"`
	NAll        int     `json:"n_all,omitempty"`
	// Interval is that of Accuracy over scenario contexts. It is nil without predicted
	// turns, and with fewer than five contexts unless it is exact.
	Interval *stats.Estimate `json:"interval,omitempty"`
	// Predicted holds one turn a dialogue of Eval, in its order; 0 is none. It is
	// nil for the uniform baseline.
	Predicted []int `json:"predicted,omitempty"`
}

// Share returns the accuracy as text, with counts where dialogues were counted.
func (r BaselineResult) Share() string {
	if r.Predicted == nil {
		return fmt.Sprintf("%.1f %% expected", 100*r.Accuracy)
	}
	return fmt.Sprintf("%.1f %% (%.0f/%d)", 100*r.Accuracy, r.Accuracy*float64(r.N), r.N)
}

// ShareOfAll is Share of all dialogues, where N leaves some out; else it is empty.
func (r BaselineResult) ShareOfAll() string {
	if r.NAll == 0 {
		return ""
	}
	r.Accuracy, r.N = r.AccuracyAll, r.NAll
	return r.Share()
}

// The turns at which the study scripts its conflicts.
const (
	baselineFirst = 3
	baselineLast  = 8
)

// MarkerBaseline names the baseline of marker phrases; those of a bag of words have
// names that begin with BagBaseline.
const (
	MarkerBaseline = "marker phrases"
	BagBaseline    = "bag of words"
)

// notFitted is BaselineResult.Fitted for what has no parameters.
const notFitted = "nothing"

func (in BaselineInput) withDefaults() (BaselineInput, error) {
	if in.First == 0 {
		in.First = baselineFirst
	}
	if in.First < 1 {
		return in, fmt.Errorf("timing: the baselines' first turn is %d; turns start at 1", in.First)
	}
	if len(in.Eval) == 0 {
		return in, errors.New("timing: there are no dialogues to compute baselines for")
	}
	if len(in.Scored) > 0 && !slices.ContainsFunc(in.Eval, in.counts) {
		return in, errors.New("timing: none of the dialogues that were scored is among those to compute baselines for")
	}
	for _, d := range slices.Concat(in.Eval, in.Train) {
		if d.Gold < 1 || d.Gold > len(d.Turns) {
			return in, fmt.Errorf("timing: dialogue %s has %d turns and gold turn %d; it must be one of them", d.ID, len(d.Turns), d.Gold)
		}
	}
	return in, nil
}

// Results computes all baselines, from the simplest to the strongest: uniform
// over turns 3..8, the constant that is best on Train and the one that is best
// on Eval itself, the first turn asked about, the longest turn, marker phrases,
// and a bag-of-words turn classifier by both of its rules, fitted on Train, and
// on what of Train has contexts that Eval lacks; or cross-validated by context
// where there is no Train. What cannot be fitted is left out: the constant
// without Train, the cross-validated classifier with fewer than two contexts.
func (in BaselineInput) Results(ctx context.Context) ([]BaselineResult, error) {
	in, err := in.withDefaults()
	if err != nil {
		return nil, err
	}
	results := []BaselineResult{in.uniform()}
	if in.Offered {
		results = append(results, in.offered())
	}
	if len(in.Train) > 0 {
		results = append(results, in.constant("constant, best on training", in.Train, fmt.Sprintf("gold turns of %d training dialogues", len(in.Train))))
	}
	results = append(results,
		in.constant("constant, best on evaluation itself", slices.DeleteFunc(slices.Clone(in.Eval), func(d BaselineDialogue) bool { return !in.counts(d) }),
			"the evaluation's own gold turns"),
		in.result("first turn", notFitted, func(d BaselineDialogue) int { return in.allowed(d, in.First) }),
		in.result("longest turn", notFitted, in.longest),
		in.result(MarkerBaseline, "nothing: a fixed list", in.marked))
	bags, err := in.bags(ctx)
	if err != nil {
		return nil, err
	}
	results = append(results, bags...)
	for i := range results {
		if err := in.interval(&results[i]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// interval sets the interval of a baseline's accuracy.
func (in BaselineInput) interval(r *BaselineResult) error {
	if r.Predicted == nil {
		return nil
	}
	var hits []float64
	var groups []string
	for i, d := range in.Eval {
		if in.counts(d) {
			hits, groups = append(hits, indicator(r.Predicted[i] == d.Gold)), append(groups, d.group())
		}
	}
	e, err := stats.Bootstrap{Resamples: baselineResamples, Seed: in.Seed}.Share(hits, groups)
	if err != nil {
		return fmt.Errorf("timing: the interval of the baseline %s: %w", r.Name, err)
	}
	if e.Exact || e.Groups >= leastContexts {
		r.Interval = &e
	}
	return nil
}

// baselineResamples is how often contexts are drawn for an interval.
const baselineResamples = 10_000

// result applies a rule to every dialogue.
func (in BaselineInput) result(name, fitted string, rule func(BaselineDialogue) int) BaselineResult {
	predicted := make([]int, len(in.Eval))
	var all errgroup.Group
	for part := range runtime.GOMAXPROCS(0) {
		all.Go(func() error {
			for i := part; i < len(in.Eval); i += runtime.GOMAXPROCS(0) {
				predicted[i] = rule(in.Eval[i])
			}
			return nil
		})
	}
	_ = all.Wait() // no rule fails
	return in.scored(name, fitted, predicted)
}

func (in BaselineInput) scored(name, fitted string, predicted []int) BaselineResult {
	r := in.share(func(i int) float64 { return indicator(predicted[i] == in.Eval[i].Gold) })
	r.Name, r.Fitted, r.Predicted = name, fitted, predicted
	return r
}

// counts tells whether a dialogue counts in a baseline's accuracy.
func (in BaselineInput) counts(d BaselineDialogue) bool {
	return len(in.Scored) == 0 || in.Scored[d.ID]
}

// share is the mean of what of gives for the dialogues that count, and for all.
func (in BaselineInput) share(of func(i int) float64) BaselineResult {
	var r BaselineResult
	for i, d := range in.Eval {
		v := of(i)
		r.AccuracyAll += v
		if in.counts(d) {
			r.Accuracy, r.N = r.Accuracy+v, r.N+1
		}
	}
	r.Accuracy /= float64(r.N)
	if r.NAll = len(in.Eval); r.NAll == r.N {
		r.NAll, r.AccuracyAll = 0, 0
		return r
	}
	r.AccuracyAll /= float64(r.NAll)
	return r
}

// allowed returns turn t where the dialogue has it, else 0.
func (in BaselineInput) allowed(d BaselineDialogue, t int) int {
	if t < in.First || t > len(d.Turns) {
		return 0
	}
	return t
}

func (in BaselineInput) uniform() BaselineResult {
	r := in.share(func(i int) float64 {
		return indicator(in.Eval[i].Gold >= baselineFirst && in.Eval[i].Gold <= baselineLast) / (baselineLast - baselineFirst + 1)
	})
	r.Name, r.Fitted = fmt.Sprintf("uniform over %d..%d", baselineFirst, baselineLast), notFitted
	return r
}

// offered is the expectation of a choice at random among the turns that were offered.
func (in BaselineInput) offered() BaselineResult {
	r := in.share(func(i int) float64 {
		d := in.Eval[i]
		if d.Gold < in.First {
			return 0
		}
		return 1 / float64(len(d.Turns)-in.First+1)
	})
	r.Name, r.Fitted = "uniform over the offered turns", notFitted
	return r
}

// constant predicts the most frequent gold turn of fit, the earliest of equals.
func (in BaselineInput) constant(name string, fit []BaselineDialogue, fitted string) BaselineResult {
	count := map[int]int{}
	best := 0
	for _, d := range fit {
		if d.Gold >= in.First {
			count[d.Gold]++
		}
	}
	for t, n := range count {
		if n > count[best] || n == count[best] && t < best {
			best = t
		}
	}
	r := in.result(name, fitted, func(d BaselineDialogue) int { return in.allowed(d, best) })
	r.Name = fmt.Sprintf("%s (turn %d)", name, best)
	return r
}

// longest returns the turn with the most characters of the whole dialogue, the
// first of equals. (Among turns up to 8 only it would be right more often: 82 and
// not 78 % on the public evaluation records, whose goodbyes are long.)
func (in BaselineInput) longest(d BaselineDialogue) int {
	best, most := 0, -1
	for t := in.First; t <= len(d.Turns); t++ {
		if n := utf8.RuneCountInString(d.Turns[t-1]); n > most {
			best, most = t, n
		}
	}
	return best
}

// baselineArgmax returns the turn from first on with the greatest score, the
// first of equals, and 0 where there is no such turn.
func baselineArgmax[S cmp.Ordered](scores []S, first int) int {
	best := 0
	for t := first; t <= len(scores); t++ {
		if best == 0 || scores[t-1] > scores[best-1] {
			best = t
		}
	}
	return best
}
