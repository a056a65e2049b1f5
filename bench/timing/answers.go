package timing

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

// Answers are the samples of a timing run without the raw alternatives, which are most of
// a sample and which nothing but the samples themselves needs.
type Answers struct {
	// Decided are the decisions, in the order of items.
	Decided []Decided
	// Cut counts, by step, the generated texts that end at their cap of tokens, of all
	// whose end is known.
	Cut map[string]Rate
	// Undecided are what the steps of units without a decision cost.
	Undecided []run.Sample
}

// Decided is a decision about an item.
type Decided struct {
	Key run.Key // without a step
	Decision
	Unscored string // why the decision cannot be used
	// Line is what a tuned model says where it steps in; nil for models that were asked.
	Line *Utterance
	// LineUnscored says why Line is not usable.
	LineUnscored string
	// Stop says why the line, or else the reasoning, ended.
	Stop string
	// Steps are the samples of the unit, by step, without their data.
	Steps []run.Sample
}

// StepUtterance is the step in which a tuned model writes its line, in runs of DualHead.
const StepUtterance = "utterance"

// NotSpoken is why an utterance is unscored when the model never stepped in.
const NotSpoken = "no turn was predicted"

// Utterance is the data of a sample of StepUtterance.
type Utterance struct {
	Gold     int    `json:"gold"`
	Turn     int    `json:"turn"` // the model speaks after it; 0 when it never steps in
	LastTurn int    `json:"last_turn"`
	Stage    string `json:"stage"` // of the conflict
	Context  string `json:"context"`
	Text     string `json:"text"`
	Source   string `json:"source"` // "model", or "none" when it never steps in
	// Stop is "stop" where the model ended the span, "length" where the cap did.
	Stop string `json:"stop,omitempty"`
}

// Read reads the samples of a timing run, in any order.
func Read(samples iter.Seq2[run.Sample, error]) (Answers, error) {
	var a Answers
	units := map[run.Key]*Decided{}
	for s, err := range samples {
		if err != nil {
			return a, err
		}
		k := s.Key
		k.Step = ""
		u := units[k]
		if u == nil {
			u = &Decided{Key: k}
			units[k] = u
		}
		if err := a.add(u, s); err != nil {
			return a, err
		}
		s.Data = nil
		u.Steps = append(u.Steps, s)
	}
	for _, u := range units {
		slices.SortFunc(u.Steps, func(x, y run.Sample) int { return cmp.Compare(x.Step, y.Step) })
		if u.decided() {
			a.Decided = append(a.Decided, *u)
		} else {
			a.Undecided = append(a.Undecided, u.Steps...)
		}
	}
	slices.SortFunc(a.Decided, func(x, y Decided) int { return run.CompareUnits(x.Key, y.Key) })
	slices.SortFunc(a.Undecided, func(x, y run.Sample) int {
		return cmp.Or(run.CompareUnits(x.Key, y.Key), cmp.Compare(x.Step, y.Step))
	})
	return a, nil
}

func (u *Decided) decided() bool {
	return slices.ContainsFunc(u.Steps, func(s run.Sample) bool { return s.Step == StepDecide })
}

// add takes what a sample says into its unit.
func (a *Answers) add(u *Decided, s run.Sample) error {
	switch s.Step {
	case StepDecide:
		var err error
		u.Decision, u.Unscored, err = readDecision(s)
		return err
	case StepUtterance:
		u.Line, u.LineUnscored = &Utterance{}, s.Unscored
		if len(s.Data) > 0 {
			if err := json.Unmarshal(s.Data, u.Line); err != nil {
				return fmt.Errorf("timing sample %s of item %s: %w", s.Step, s.Item, err)
			}
		}
		u.Stop = cmp.Or(u.Line.Stop, u.Stop)
		a.ended(s.Step, u.Line.Stop)
		return nil
	}
	var text struct{ Stop string }
	if len(s.Data) > 0 {
		if err := json.Unmarshal(s.Data, &text); err != nil {
			return fmt.Errorf("timing sample %s of item %s: %w", s.Step, s.Item, err)
		}
	}
	u.Stop = cmp.Or(u.Stop, text.Stop)
	a.ended(s.Step, text.Stop)
	return nil
}

// ended counts a generated text by why it ended.
func (a *Answers) ended(step, stop string) {
	if stop == "" {
		return
	}
	if a.Cut == nil {
		a.Cut = map[string]Rate{}
	}
	r := a.Cut[step]
	if r.N++; stop == infer.StopLength {
		r.K++
	}
	a.Cut[step] = r
}

// readDecision decodes a sample of the deciding step without the raw alternatives, and
// says why it holds no usable answer, "" where it does.
func readDecision(s run.Sample) (Decision, string, error) {
	var read struct {
		Decision
		Curve []struct {
			Point
			Top skipped `json:"top"`
		} `json:"curve"`
	}
	if err := json.Unmarshal(s.Data, &read); err != nil {
		return Decision{}, "", fmt.Errorf("timing sample of item %s: %w", s.Item, err)
	}
	d := read.Decision
	d.Curve = make([]Point, len(read.Curve))
	for i, p := range read.Curve {
		d.Curve[i] = p.Point
	}
	if s.Unscored != "" {
		return d, s.Unscored, nil
	}
	return d, d.fault(), nil
}

// skipped is JSON that is not decoded.
type skipped struct{}

func (*skipped) UnmarshalJSON([]byte) error { return nil }

// fault says why a decision is none about its dialogue: it names a turn that could not
// be predicted, or holds what is no probability. A model cannot decide so; a file that
// others wrote, or a sample that was edited, can.
func (d Decision) fault() string {
	within := func(turn, first int) bool { return turn >= first && (turn <= d.LastTurn || d.LastTurn == 0) }
	switch {
	case !within(d.Gold, 1):
		return fmt.Sprintf("the conflict turn %d is not one of the dialogue's 1 to %d", d.Gold, d.LastTurn)
	case d.Predicted != 0 && !within(d.Predicted, max(1, d.FirstTurn)):
		return fmt.Sprintf("the predicted turn %d is not one of %d to %d", d.Predicted, max(1, d.FirstTurn), d.LastTurn)
	}
	for _, p := range d.Curve {
		switch {
		case !within(p.Turn, 1):
			return fmt.Sprintf("an answer is about turn %d, which the dialogue has not", p.Turn)
		case p.Unscored == "" && !(p.Share >= 0 && p.Share <= 1+rounding):
			return fmt.Sprintf("the probability of turn %d is %g", p.Turn, p.Share)
		}
	}
	return ""
}

// rounding is by how much a share of a sum may exceed 1.
const rounding = 1e-9

// AtThreshold returns the decisions of a DualHead run as another threshold would have
// made them.
func (a Answers) AtThreshold(threshold float64) Answers {
	out := Answers{Decided: slices.Clone(a.Decided)}
	for i := range out.Decided {
		d := &out.Decided[i]
		d.Threshold, d.Predicted = threshold, firstAt(d.Curve, d.FirstTurn, threshold)
	}
	return out
}
