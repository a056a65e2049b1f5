package probe

import (
	"context"
	"errors"
	"fmt"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

// ControlFindings are the controls of one cell, by layer.
type ControlFindings struct {
	Cell activation.Cell `json:"cell"`
	// Control tasks give each type (what the speakers disagree about) a random
	// stage. Real is the stage's accuracy on the same folds; selectivity is Real
	// minus Control (Hewitt and Liang 2019).
	Types   int       `json:"types,omitempty"`
	Unseen  int       `json:"unseen,omitempty"` // rows left out: training had not seen their type
	Real    []float64 `json:"real,omitempty"`
	Control []float64 `json:"control,omitempty"`
	// Compression is n·log₂K over the online code's bits, of the stage and of a
	// control task (Voita and Titov 2020); 1 is none.
	Compression        []float64 `json:"compression"`
	ControlCompression []float64 `json:"control_compression,omitempty"`
	// Surface is the accuracy of words and surface cues alone, Gain the log-loss in
	// nats that the states take off theirs.
	Surface *stats.Estimate `json:"surface,omitempty"`
	Gain    []Effect        `json:"gain,omitempty"`
}

// curves are the published figure's four: the cells with all controls.
func (f *finder) curves() []activation.Cell {
	var out []activation.Cell
	for _, c := range [][3]string{{ContextD, TextPrompt, PromptEnd}, {ContextND, TextPrompt, PromptEnd}, {ContextD, TextOwnD, UtteranceEnd}, {ContextND, TextOwnND, UtteranceEnd}} {
		if cell, ok := f.cell(c[0], c[1], c[2]); ok {
			out = append(out, cell)
		}
	}
	return out
}

func (f *finder) controls(ctx context.Context) error {
	if f.FindOptions.Controls < 0 {
		return nil
	}
	var types []string
	distinct := 0
	if f.of != nil {
		types, distinct = f.types(dialogue.Dialogue.Template)
		if distinct < f.Classes {
			f.Notes = append(f.Notes, fmt.Sprintf("%d value templates cannot carry a control task", distinct))
			types = nil
		}
	}
	for _, c := range f.curves() {
		f.Progress(fmt.Sprintf("controls of %s, %s", c.Context, c.Text))
		out := ControlFindings{Cell: c}
		if types != nil {
			out.Types = distinct
			sel, err := Select(ctx, f.at(c), f.samples, types, f.FindOptions.Controls, f.design)
			if errors.Is(err, ErrDesign) {
				f.Notes = append(f.Notes, fmt.Sprintf("no control task for %s: %v", c, err))
			} else if err != nil {
				return fmt.Errorf("control tasks of %s: %w", c, err)
			} else {
				out.Unseen = sel.Unseen
				for k, r := range sel.Real {
					out.Real = append(out.Real, r.Accuracy)
					out.Control = append(out.Control, r.Accuracy-sel.Selective(k))
				}
			}
		}
		if err := f.code(ctx, c, types, &out); err != nil {
			return err
		}
		if err := f.gain(ctx, c, &out); err != nil {
			return err
		}
		f.Findings.Controls = append(f.Findings.Controls, out)
	}
	return nil
}

func (f *finder) code(ctx context.Context, c activation.Cell, types []string, out *ControlFindings) error {
	mdl, err := Describe(ctx, f.at(c), f.samples, types, leastOrders, f.design)
	if errors.Is(err, ErrDesign) {
		f.Notes = append(f.Notes, fmt.Sprintf("no code length for %s: %v", c, err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("code length of %s: %w", c, err)
	}
	for _, code := range mdl.Real {
		out.Compression = append(out.Compression, code.Compression)
	}
	for _, code := range mdl.Control {
		out.ControlCompression = append(out.ControlCompression, code.Compression)
	}
	return nil
}

// gain measures the states against the words that they were computed from: those
// of the conflict's turn, and of the line in cells that end after one.
func (f *finder) gain(ctx context.Context, c activation.Cell, out *ControlFindings) error {
	if f.of == nil {
		return nil
	}
	var texts []string
	var turns []int
	for _, item := range f.store.items {
		d := f.of[item]
		texts = append(texts, d.Unmediated()[d.ConflictTurn-1].Message+"\n"+f.store.states[item].Texts[c.Text])
		turns = append(turns, d.ConflictTurn)
	}
	b, err := OffsetGain(ctx, f.at(c), surface(texts, turns), f.samples, f.design)
	if errors.Is(err, linear.ErrNoTerms) {
		f.Notes = append(f.Notes, fmt.Sprintf("no surface features for %s: the texts of a training part share no words", c))
		return nil
	}
	if err != nil {
		return fmt.Errorf("log-loss of %s beyond its words: %w", c, err)
	}
	e, err := shareOf(b.Base.RoundHits(), f.Resampling)
	if err != nil {
		return err
	}
	out.Surface = &e
	for k := range b.Layers {
		g, err := b.Gain(k)
		if err != nil {
			return err
		}
		t, err := g.Test(f.Resampling)
		if err != nil {
			return err
		}
		out.Gain = append(out.Gain, t)
	}
	return nil
}

// ContentFindings are what the states give away of the words of the line.
type ContentFindings struct {
	Embedder string        `json:"embedder"`
	Cells    []ContentCell `json:"cells"`
	// Gap tests at the verdict's layer whether the cosines of D and ND differ by less
	// than a margin.
	Gap *stats.Equivalence `json:"gap,omitempty"`
}

// ContentCell is one cell of it, by layer.
type ContentCell struct {
	Cell   activation.Cell `json:"cell"`
	Cosine []float64       `json:"cosine"`
	// Permuted and Skill are over the Compared lines, those beside which other lines of
	// their stage were held out; NotComputed says why both are empty where there are
	// none. Skill is the mean cosine above that with the other lines, with its test.
	Permuted    []float64 `json:"permuted"`
	Skill       []Effect  `json:"skill"`
	Lines       int       `json:"lines,omitempty"`
	Compared    int       `json:"compared,omitempty"`
	NotComputed string    `json:"not_computed,omitempty"`
}

// noOtherLine is why a line cannot be held against others.
const noOtherLine = "no other line of this stage"

// alikeLines is why a line cannot be told from others.
const alikeLines = "the lines of a stage are all alike"

// ContentTFIDF names the embedder that is fitted on training folds.
const ContentTFIDF = "TF-IDF and singular value decomposition"

func (f *finder) content(ctx context.Context) error {
	out := &ContentFindings{Embedder: f.Embedder}
	if f.Embed == nil {
		out.Embedder = ContentTFIDF
	}
	at := map[string]Outcomes{}
	for _, name := range []string{ContextD, ContextND} {
		text := "own-" + name
		lines, ok := f.text(text)
		if !ok {
			continue
		}
		targets, err := f.targets(ctx, lines)
		if errors.Is(err, linear.ErrNoTerms) {
			f.Notes = append(f.Notes, fmt.Sprintf("the %s lines share no words: no content probe", text))
			continue
		}
		if err != nil {
			return fmt.Errorf("embed the %s lines: %w", text, err)
		}
		for _, position := range []string{PromptEnd, UtteranceEnd} {
			of := text
			if position == PromptEnd {
				of = TextPrompt
			}
			c, ok := f.cell(name, of, position)
			if !ok {
				continue
			}
			f.Progress(fmt.Sprintf("content of the %s lines at %s", text, position))
			content, err := Content(ctx, f.at(c), targets, f.samples, f.design)
			if errors.Is(err, linear.ErrNoTerms) {
				f.Notes = append(f.Notes, fmt.Sprintf("the %s lines of a training part share no words: no content probe", text))
				break
			}
			if err != nil {
				return fmt.Errorf("content probe of %s: %w", c, err)
			}
			cell := ContentCell{Cell: c, Permuted: []float64{}, Skill: []Effect{}, Lines: len(content[0].Cosines().Groups), Compared: content[0].Compared,
				NotComputed: uncompared(content)}
			for _, r := range content {
				cell.Cosine = append(cell.Cosine, r.Cosine)
				if cell.NotComputed != "" {
					continue
				}
				e, err := r.Beyond().Test(f.Resampling)
				if err != nil {
					return err
				}
				cell.Permuted = append(cell.Permuted, r.Permuted)
				cell.Skill = append(cell.Skill, scaled(e, 1/(1-r.Permuted)))
			}
			out.Cells = append(out.Cells, cell)
			if position == UtteranceEnd {
				at[name] = content[f.last()].Cosines()
			}
		}
	}
	if len(out.Cells) == 0 {
		return nil
	}
	if d, nd := at[ContextD], at[ContextND]; d.Rounds != nil && nd.Rounds != nil {
		gap, err := d.Minus(nd)
		if err != nil {
			return err
		}
		e, err := gap.Equivalent(f.Cosine, f.Resampling)
		if err != nil {
			return err
		}
		out.Gap = &e
	}
	f.Findings.Content = out
	return nil
}

// uncompared is why no line can be held against others, in one layer or all; "" where it can.
func uncompared(content []*ContentResult) string {
	for _, r := range content {
		switch {
		case r.Compared == 0:
			return noOtherLine
		case 1-r.Permuted < 1e-9: // a share of nothing
			return alikeLines
		}
	}
	return ""
}

// scaled is an effect in other units.
func scaled(e Effect, by float64) Effect {
	e.Value, e.Lo, e.Hi = e.Value*by, e.Lo*by, e.Hi*by
	return e
}

// targets returns the embeddings of lines for each split.
func (f *finder) targets(ctx context.Context, lines []string) (func(Split) (*linear.Dense, error), error) {
	if f.Embed == nil {
		return func(s Split) (*linear.Dense, error) {
			return linear.LatentSemantic(ctx, lines, s.Train, contentDimensions)
		}, nil
	}
	vs, err := f.Embed(ctx, lines)
	if err != nil {
		return nil, err
	}
	if len(vs) != len(lines) || len(vs[0]) == 0 {
		return nil, fmt.Errorf("%s gave %d embeddings for %d lines", f.Embedder, len(vs), len(lines))
	}
	data := make([]float64, 0, len(vs)*len(vs[0]))
	for _, v := range vs {
		if len(v) != len(vs[0]) {
			return nil, fmt.Errorf("%s gave embeddings of %d and of %d values", f.Embedder, len(vs[0]), len(v))
		}
		for _, x := range v {
			data = append(data, float64(x))
		}
	}
	fixed, err := linear.NewDense(len(vs), len(vs[0]), data)
	if err != nil {
		return nil, err
	}
	return func(Split) (*linear.Dense, error) { return fixed, nil }, nil
}

// contentDimensions is the number of singular vectors that stand for a line
// without an embedder.
const contentDimensions = 32
