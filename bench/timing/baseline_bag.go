package timing

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/ccmed/ccmed/probe/linear"
)

// BagOfWords is a classifier of single turns: which words and word pairs occur,
// into the probability that this is the turn to step in after. It sees neither
// the turn's number nor what was said before.
type BagOfWords struct {
	words *linear.Vectorizer
	model *linear.Model
}

// bagWords: words and pairs of at least two turns. Whether they occur tells more
// of a turn than how often.
var bagWords = linear.VectorizerOptions{Bigrams: true, MinDocs: 2, Binary: true}

// bagThreshold is the probability from which a turn is taken by the rule of the
// first probable turn.
const bagThreshold = 0.5

// bagDialogues is the number of dialogues that a classifier is fitted on at most: more of
// them, with their hundred thousands of turns, move it no further.
const bagDialogues = 20_000

// TrainBagOfWords fits a classifier on the turns up to and including the gold
// one of every dialogue, the gold one being the positive sample: what comes
// later, a live mediator would not have seen. Of more than bagDialogues it takes some at
// equal distances. The error is linear.ErrClasses, linear.ErrNoTerms or the context's.
func TrainBagOfWords(ctx context.Context, ds []BaselineDialogue) (*BagOfWords, error) {
	if n := len(ds); n > bagDialogues {
		some := make([]BaselineDialogue, bagDialogues)
		for i := range some {
			some[i] = ds[i*n/bagDialogues]
		}
		ds = some
	}
	turns, y, _ := turnSamples(ds)
	words, err := linear.FitVectorizer(turns, bagWords)
	if err != nil {
		return nil, fmt.Errorf("timing: the bag of words of %d dialogues: %w", len(ds), err)
	}
	model, err := linear.Fit(ctx, words.Transform(turns), y, 2, linear.Options{})
	if err != nil {
		return nil, fmt.Errorf("timing: the bag-of-words classifier of %d dialogues: %w", len(ds), err)
	}
	return &BagOfWords{words, model}, nil
}

// takenOf says how many of n dialogues TrainBagOfWords takes.
func takenOf(n int) string {
	if n <= bagDialogues {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d of %d", bagDialogues, n)
}

// Probabilities returns, for each turn's text, the probability that it is the
// turn to step in after.
func (b *BagOfWords) Probabilities(turns []string) ([]float64, error) {
	p, err := b.model.Predict(b.words.Transform(turns))
	if err != nil {
		return nil, fmt.Errorf("timing: the bag-of-words classifier: %w", err)
	}
	probable := make([]float64, len(turns))
	for t := range turns {
		probable[t] = p.Row(t)[1]
	}
	return probable, nil
}

// turnSamples returns the turns up to the gold ones, 1 for the gold ones, and
// the dialogue that each belongs to.
func turnSamples(ds []BaselineDialogue) (turns []string, y, of []int) {
	for i, d := range ds {
		for t := 1; t <= d.Gold; t++ {
			gold := 0
			if t == d.Gold {
				gold = 1
			}
			turns, y, of = append(turns, d.Turns[t-1]), append(y, gold), append(of, i)
		}
	}
	return turns, y, of
}

// bags returns the baselines that need the classifier.
func (in BaselineInput) bags(ctx context.Context) ([]BaselineResult, error) {
	if len(in.Train) == 0 {
		return in.crossValidated(ctx)
	}
	results, err := in.trained(ctx, BagBaseline, in.Train, takenOf(len(in.Train))+" training dialogues")
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, d := range in.Eval {
		seen[d.group()] = true
	}
	var unseen []BaselineDialogue
	for _, d := range in.Train {
		if !seen[d.group()] {
			unseen = append(unseen, d)
		}
	}
	// Without a shared context it is the classifier above, without any other there is nothing to fit.
	if len(unseen) == len(in.Train) || len(unseen) == 0 {
		return results, nil
	}
	more, err := in.trained(ctx, BagBaseline+", unseen contexts", unseen,
		takenOf(len(unseen))+" training dialogues whose contexts do not occur in the evaluation")
	return append(results, more...), err
}

func (in BaselineInput) trained(ctx context.Context, name string, train []BaselineDialogue, fitted string) ([]BaselineResult, error) {
	bag, err := TrainBagOfWords(ctx, train)
	if err != nil {
		return nil, err
	}
	curves := make([][]float64, len(in.Eval))
	for i, d := range in.Eval {
		if curves[i], err = bag.Probabilities(d.Turns); err != nil {
			return nil, err
		}
	}
	return in.ruled(name, fitted, curves), nil
}

// ruled applies both rules to the probabilities of every turn of every dialogue.
func (in BaselineInput) ruled(name, fitted string, curves [][]float64) []BaselineResult {
	first, best := make([]int, len(curves)), make([]int, len(curves))
	for i, curve := range curves {
		best[i] = baselineArgmax(curve, in.First)
		for t := in.First; t <= len(curve) && first[i] == 0; t++ {
			if curve[t-1] >= bagThreshold {
				first[i] = t
			}
		}
	}
	return []BaselineResult{
		in.scored(fmt.Sprintf("%s, first p ≥ %v", name, bagThreshold), fitted, first),
		in.scored(name+", argmax", fitted, best),
	}
}

// bagFolds is the number of folds of cross-validation, where there are as many
// contexts.
const bagFolds = 5

func (in BaselineInput) crossValidated(ctx context.Context) ([]BaselineResult, error) {
	groups := map[string]bool{}
	for _, d := range in.Eval {
		groups[d.group()] = true
	}
	k := min(bagFolds, len(groups))
	if k < 2 {
		return nil, nil
	}
	// The folds are balanced over turns, the samples of the classifier.
	_, y, of := turnSamples(in.Eval)
	names := make([]string, len(of))
	for s, i := range of {
		names[s] = in.Eval[i].group()
	}
	folds, err := linear.GroupKFold(y, names, k, in.Seed)
	if errors.Is(err, linear.ErrFolds) {
		return nil, nil // too few dialogues with a turn before the gold one
	}
	if err != nil {
		return nil, err
	}
	foldOf := make([]int, len(in.Eval))
	for s, i := range of {
		foldOf[i] = folds[s]
	}
	curves := make([][]float64, len(in.Eval))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(runtime.GOMAXPROCS(0))
	for f := range k {
		all.Go(func() error {
			train, test := linear.Split(foldOf, f)
			bag, err := TrainBagOfWords(ctx, linear.At(in.Eval, train))
			if err != nil {
				return err
			}
			for _, i := range test {
				if curves[i], err = bag.Probabilities(in.Eval[i].Turns); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	fitted := fmt.Sprintf("the other contexts of these %d dialogues, %d folds", len(in.Eval), k)
	if n := len(in.Eval) * (k - 1) / k; n > bagDialogues {
		fitted += fmt.Sprintf(" of at most %d dialogues", bagDialogues)
	}
	return in.ruled(BagBaseline+", cross-validated", fitted, curves), nil
}
