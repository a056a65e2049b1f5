package ask

import (
	"fmt"
	"strings"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/probe"
)

// Line is a line that a model said at the conflict of a dialogue.
type Line struct {
	Item, Context string
	Condition     string // probe.ContextD or ContextND
	Stage         dmis.Stage
	Text          string
}

// Lines are the model's own lines in a store or a mediation run, at the conflict turn.
func Lines(r *task.Run) ([]Line, error) {
	if st := r.Manifest().Status; st != run.StatusDone {
		return nil, fmt.Errorf("%s is not finished; go on with: ccmed runs resume %s", r.Path(), r.Path())
	}
	var out []Line
	add := func(item, context, condition, stage, text string) error {
		s, err := dmis.ParseStage(stage)
		if err != nil {
			return fmt.Errorf("%s, dialogue %s: %w", r.Path(), item, err)
		}
		if text = strings.TrimSpace(text); text != "" {
			out = append(out, Line{item, context, condition, s, text})
		}
		return nil
	}
	for s, err := range r.Samples() {
		if err != nil {
			return nil, err
		}
		switch {
		case s.Step == probe.StepStates:
			st, err := task.Data[probe.States](s)
			if err != nil {
				return nil, err
			}
			for text, condition := range map[string]string{probe.TextOwnD: probe.ContextD, probe.TextOwnND: probe.ContextND} {
				if err := add(s.Item, st.Context, condition, st.Stage, st.Texts[text]); err != nil {
					return nil, err
				}
			}
		case s.Step == mediation.StepUtterance && (s.Condition == mediation.ND || s.Condition == mediation.D) && s.Unscored == "":
			u, err := task.Data[mediation.Utterance](s)
			if err != nil {
				return nil, err
			}
			if u.Turn != u.Gold {
				return nil, fmt.Errorf("%s mediates at predicted turns; name a run that does at the conflict turn (--turn gold)", r.Path())
			}
			if err := add(s.Item, u.Context, s.Condition, u.Stage, u.Text); err != nil {
				return nil, err
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no lines of the model's own; name a store made with --conditions D,ND, or a mediation run", r.Path())
	}
	return out, nil
}
