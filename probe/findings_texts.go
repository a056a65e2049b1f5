package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/linear"
)

// TextFindings is a text-only classifier, on the splits of the probes.
type TextFindings struct {
	Accuracy stats.Estimate `json:"accuracy"`
	Terms    int            `json:"terms"` // median over splits
}

// texts classifies the words alone: those of the prompt's dialogue and of the
// model's own lines.
func (f *finder) texts(ctx context.Context) error {
	outcomes := map[string]Outcomes{}
	for _, t := range []string{TextPrompt, TextOwnD, TextOwnND} {
		texts, ok := f.text(t)
		if !ok {
			continue
		}
		f.Progress("a bag of words of " + t)
		o, findings, err := f.textOnly(ctx, texts)
		if errors.Is(err, linear.ErrNoTerms) {
			f.Notes = append(f.Notes, fmt.Sprintf("the %s texts share no word: no text-only classifier", t))
			continue
		}
		if err != nil {
			return fmt.Errorf("text-only classifier of %s: %w", t, err)
		}
		outcomes[t], f.Texts[t] = o, findings
	}
	d, ok := outcomes[TextOwnD]
	nd, okND := outcomes[TextOwnND]
	if !ok || !okND {
		return nil
	}
	diff, err := d.Minus(nd)
	if err != nil {
		return fmt.Errorf("compare the texts: %w", err)
	}
	e, err := diff.Test(f.Resampling)
	if err != nil {
		return fmt.Errorf("compare the texts: %w", err)
	}
	f.textFit = Evidence{Effect: &e}
	if a := f.Texts[TextOwnND].Accuracy; a.Hi >= ceiling {
		f.textFit.Untestable = fmt.Sprintf("the ND texts fit the stage with %s already: there is no room above", report.Estimate(a, 3))
	}
	return nil
}

// text returns the texts of all rows: the model's lines, or for TextPrompt what
// was said up to the conflict. ok is false where a row has none.
func (f *finder) text(name string) (texts []string, ok bool) {
	for _, item := range f.store.items {
		line := f.store.states[item].Texts[name]
		if name == TextPrompt && f.of != nil {
			d := f.of[item]
			line = dialogue.Transcript(d.Unmediated()[:d.ConflictTurn])
		}
		if line == "" {
			return nil, false
		}
		texts = append(texts, line)
	}
	return texts, len(texts) > 0
}

// textOnly cross-validates a bag-of-words classifier of texts on the probes' own
// splits; its outcomes are those of the same rows and rounds.
func (f *finder) textOnly(ctx context.Context, texts []string) (Outcomes, TextFindings, error) {
	var probes *Validation // of any cell: all have the same splits
	for _, v := range f.results {
		probes = v
	}
	like := probes.Layers[0]
	out := like.RoundHits() // for its groups, rounds and width
	at := map[int]int{}     // sample to tested row
	for i, row := range like.Tested() {
		at[row] = i
	}
	for i := range out.Rounds {
		clear(out.Rounds[i])
	}
	var terms []int
	findings := TextFindings{}
	for _, sp := range probes.Splits {
		m, err := linear.FitText(ctx, linear.At(texts, sp.Train), linear.At(f.samples.Y, sp.Train), f.Classes,
			linear.VectorizerOptions{Bigrams: true, MinDocs: 2, Binary: true}, linear.Options{C: 1})
		if err != nil {
			return out, findings, err
		}
		terms = append(terms, len(m.Terms()))
		p, err := m.Predict(linear.At(texts, sp.Test))
		if err != nil {
			return out, findings, err
		}
		for i, row := range sp.Test {
			if k, ok := at[row]; ok && p.Argmax(i) == f.samples.Y[row] {
				out.Rounds[sp.Round][k] = 1
			}
		}
	}
	slices.Sort(terms)
	findings.Terms = terms[len(terms)/2]
	var err error
	findings.Accuracy, err = shareOf(out, f.Resampling)
	return out, findings, err
}

// surfaceTerms is the least number of texts with a word that is a surface feature.
const surfaceTerms = 3

// surface describes texts by what needs no understanding: words and pairs of
// words that occur, length, capitals, punctuation and position.
func surface(texts []string, turns []int) Surface {
	return func(train []int) (linear.Rows, error) {
		v, err := linear.FitVectorizer(linear.At(texts, train), linear.VectorizerOptions{Bigrams: true, MinDocs: surfaceTerms, Binary: true})
		if err != nil {
			return nil, err
		}
		var cues []float64
		width := 0
		for i, t := range texts {
			row := surfaceCues(t, turns[i])
			width = len(row)
			cues = append(cues, row...)
		}
		more, err := linear.NewDense(len(texts), width, cues)
		if err != nil {
			return nil, err
		}
		return v.Transform(texts).Beside(more)
	}
}

// surfaceCues are counts on scales of about 1.
func surfaceCues(text string, turn int) []float64 {
	var letters, capitals, digits float64
	for _, r := range text {
		switch {
		case unicode.IsUpper(r):
			capitals++
			letters++
		case unicode.IsLetter(r):
			letters++
		case unicode.IsDigit(r):
			digits++
		}
	}
	count := func(runes string) float64 {
		n := 0
		for _, r := range text {
			if strings.ContainsRune(runes, r) {
				n++
			}
		}
		return float64(n)
	}
	words := float64(len(strings.Fields(text)))
	return []float64{words / 50, capitals / max(1, letters) * 10, digits / 5, count("!"), count("?"), count(",;:") / 3, count("'\"“”’") / 3, float64(turn) / 5}
}
