package linear

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode"
)

// VectorizerOptions say what counts as a feature of a text.
type VectorizerOptions struct {
	Bigrams bool // pairs of neighbouring words besides single words
	MinDocs int  // least number of training texts with a term; 0 means 1
	Binary  bool // 1 for a term that occurs, not its count
}

// Vectorizer turns texts into bags of words. A word is a run of at least two
// letters, digits or underscores of the lower-cased text, as in scikit-learn's
// CountVectorizer (token pattern \b\w\w+\b).
type Vectorizer struct {
	opt    VectorizerOptions
	terms  []string
	column map[string]int
}

// ErrNoTerms reports training texts without a term that is frequent enough.
var ErrNoTerms = errors.New("linear: the training texts have no term that occurs in enough of them")

// FitVectorizer takes the terms from the training texts, in alphabetical order
// of their code points. The error is ErrNoTerms.
func FitVectorizer(texts []string, opt VectorizerOptions) (*Vectorizer, error) {
	type seen struct{ docs, last int }
	terms := map[string]*seen{}
	for doc, text := range texts {
		eachTerm(text, opt.Bigrams, func(term []byte) {
			s := terms[string(term)]
			if s == nil {
				s = &seen{last: -1}
				terms[string(term)] = s
			}
			if s.last != doc {
				s.docs, s.last = s.docs+1, doc
			}
		})
	}
	v := &Vectorizer{opt: opt, column: map[string]int{}}
	for term, s := range terms {
		if s.docs >= opt.MinDocs {
			v.terms = append(v.terms, term)
		}
	}
	if len(v.terms) == 0 {
		return nil, ErrNoTerms
	}
	slices.Sort(v.terms)
	for j, term := range v.terms {
		v.column[term] = j
	}
	return v, nil
}

// Terms returns the term of each column. It must not be changed.
func (v *Vectorizer) Terms() []string { return v.terms }

// Transform returns one row a text. Terms that training did not see are left out.
func (v *Vectorizer) Transform(texts []string) *Sparse {
	x := &Sparse{d: len(v.terms), index: make([][]int, len(texts)), value: make([][]float64, len(texts))}
	var columns []int
	for i, text := range texts {
		columns = columns[:0]
		eachTerm(text, v.opt.Bigrams, func(term []byte) {
			if j, ok := v.column[string(term)]; ok {
				columns = append(columns, j)
			}
		})
		slices.Sort(columns)
		for k, j := range columns {
			switch {
			case k == 0 || columns[k-1] != j:
				x.index[i] = append(x.index[i], j)
				x.value[i] = append(x.value[i], 1)
			case !v.opt.Binary:
				x.value[i][len(x.value[i])-1]++
			}
		}
	}
	return x
}

// TextModel classifies texts by their words.
type TextModel struct {
	vectorizer *Vectorizer
	model      *Model
}

// FitText fits a classifier of bags of words to texts of the classes y, 0..classes-1. The
// error may be ErrNoTerms.
func FitText(ctx context.Context, texts []string, y []int, classes int, v VectorizerOptions, o Options) (*TextModel, error) {
	vectorizer, err := FitVectorizer(texts, v)
	if err != nil {
		return nil, err
	}
	m, err := Fit(ctx, vectorizer.Transform(texts), y, classes, o)
	return &TextModel{vectorizer, m}, err
}

// Terms returns the terms that the classifier knows. They must not be changed.
func (m *TextModel) Terms() []string { return m.vectorizer.Terms() }

// Predict returns the probabilities of every class for every text.
func (m *TextModel) Predict(texts []string) (*Predictions, error) {
	return m.model.Predict(m.vectorizer.Transform(texts))
}

// eachTerm calls f for every term of a text. The bytes are only valid during
// the call.
func eachTerm(text string, bigrams bool, f func([]byte)) {
	var pair, word []byte // the pair so far is "previous word and a space"
	flush := func(runes int) {
		if runes < 2 {
			return
		}
		f(word)
		if bigrams {
			if len(pair) > 0 {
				f(append(pair, word...))
			}
			pair = append(append(pair[:0], word...), ' ')
		}
	}
	runes := 0
	for _, r := range strings.ToLower(text) {
		if r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) {
			word = append(word, string(r)...)
			runes++
			continue
		}
		flush(runes)
		word, runes = word[:0], 0
	}
	flush(runes)
}
