package effect

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/ccmed/ccmed/probe/linear"
)

// Classes is the number of stages that conflicts are scripted with.
const Classes = 3

// StageWords begins the words that name one of those stages or are made from its name. D
// tells the model the name: a line that repeats it says nothing of what the model makes of it.
var StageWords = regexp.MustCompile(`(?i)\b(?:deni(?:al|ed|es)|deny|defen[cs]|minimi[sz]|ethnocentri)\pL*`)

// Masked is a text without the words of stages.
func Masked(text string) string { return StageWords.ReplaceAllString(text, " ") }

// folds are those by which the lines of training groups are classified without themselves.
const folds = 5

// words is the frozen bag of words that says which stage a line fits.
type words struct {
	all    *linear.TextModel
	parts  []*linear.TextModel // each fitted without one fold
	foldOf map[string]int      // of a training group
	terms  int
}

// wordsOptions are those of the bags of words of probe train.
var wordsOptions = linear.VectorizerOptions{Bigrams: true, MinDocs: 2, Binary: true}

// fitWords fits the bag of words to D lines.
func fitWords(ctx context.Context, lines []Line) (*words, error) {
	w := &words{foldOf: map[string]int{}}
	var texts, groups []string
	var y []int
	for _, l := range lines {
		texts, groups, y = append(texts, Masked(l.Text)), append(groups, l.Group), append(y, l.Stage)
	}
	fit := func(rows []int) (*linear.TextModel, error) {
		return linear.FitText(ctx, linear.At(texts, rows), linear.At(y, rows), Classes, wordsOptions, linear.Options{C: 1})
	}
	fold, err := linear.GroupKFold(y, groups, folds, 1)
	if err != nil {
		return nil, fmt.Errorf("divide %d D lines into %d parts: %w; give more training dialogues", len(lines), folds, err)
	}
	var all []int
	for i, g := range groups {
		w.foldOf[g] = fold[i]
		all = append(all, i)
	}
	for f := range folds {
		train, _ := linear.Split(fold, f)
		part, err := fit(train)
		if err != nil {
			return nil, fmt.Errorf("fit a bag of words to D lines: %w", err)
		}
		w.parts = append(w.parts, part)
	}
	if w.all, err = fit(all); err != nil {
		return nil, fmt.Errorf("fit a bag of words to D lines: %w", err)
	}
	w.terms = len(w.all.Terms())
	return w, nil
}

// fits gives P(stage | line) for each line, by the bag that has not seen its group.
func (w *words) fits(lines []Line) ([][]float64, error) {
	out := make([][]float64, len(lines))
	by := map[*linear.TextModel][]int{}
	for i, l := range lines {
		m := w.all
		if f, seen := w.foldOf[l.Group]; seen {
			m = w.parts[f]
		}
		by[m] = append(by[m], i)
	}
	for m, rows := range by {
		texts := make([]string, len(rows))
		for k, i := range rows {
			texts[k] = Masked(lines[i].Text)
		}
		p, err := m.Predict(texts)
		if err != nil {
			return nil, err
		}
		for k, i := range rows {
			out[i] = slices.Clone(p.Row(k))
		}
	}
	return out, nil
}
