package construct

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Why something is not used. A sample that is unscored for one of these is a reject.
const (
	emptyTurn     = "an empty turn"
	repeatedTurn  = "a turn repeats an earlier one"
	namedStage    = "the scripted turn names a stage"
	otherByWords  = "another stage than scripted, by words"
	otherByLabel  = "another stage than scripted, by the labeller"
	unlabelled    = "the labeller gives no stage"
	unreadable    = "the answer is no JSON object of a scenario"
	nothingBefore = "rejected before"
)

// Said is one generated turn.
type Said struct {
	T     int    `json:"t"`
	Agent int    `json:"agent"` // 1, 2 or dialogue.Mediator
	Text  string `json:"text"`
	Stop  string `json:"stop,omitempty"`
	// Attempts is how often the turn was asked for.
	Attempts int `json:"attempts,omitempty"`
}

// Talk is a conversation, or what of it there is.
type Talk struct {
	Case  Case   `json:"case"`
	Turns []Said `json:"turns"`
}

// Check is what the scripted turn shows.
type Check struct {
	Label mediation.TurnLabel `json:"label"`
	// Words is the stage with the most cue phrases, "" where none or several have most.
	Words string `json:"words,omitempty"`
}

// options steer what is generated and labelled.
type options struct {
	Prompts     *prompt.Set
	Seed        int64
	MaxTokens   int
	Temperature float64
	Attempts    int
	MinMass     float64
}

// labeller is the labeller's side of mediation: its prompts and its rules.
func (o options) labeller() mediation.Options {
	return mediation.Options{Prompts: o.Prompts, Seed: o.Seed, MinMass: o.MinMass}
}

// history is a conversation as prompts show it.
func history(d dialogue.Dialogue, turns []Said) []dialogue.Turn {
	out := make([]dialogue.Turn, len(turns))
	for i, t := range turns {
		out[i] = dialogue.Turn{T: t.T, Speaker: d.Name(t.Agent), Agent: t.Agent, Message: t.Text}
	}
	return out
}

// turnPrompt asks for turn t. What all prompts of a conversation share comes first, so that
// each begins with the one before it but for its end.
func (o options) turnPrompt(c Case, d dialogue.Dialogue, turns []Said, t int) (infer.Prompt, error) {
	part := "go on"
	switch {
	case t == c.Turn:
		part = "conflict"
	case t == c.Turn-1:
		part = "approach"
	case t < c.Turn:
		part = "open"
	}
	agent := mediation.SpeakerOf(t)
	return o.Prompts.Build("turn", map[string]any{"Transcript": dialogue.Transcript(history(d, turns)), "Profile": c.Profiles[agent-1], "Script": c.Script,
		"Part": part, "Turn": t, "Name": d.Name(agent)})
}

// speak lets the simulator say the turns from..to after turns. why is not empty where one
// of them cannot be had in Attempts attempts: the talk then ends before it.
func (o options) speak(ctx context.Context, b infer.Backend, c Case, turns []Said, from, to int) (out []Said, why string, err error) {
	d, err := c.dialogue()
	if err != nil {
		return nil, "", err
	}
	out = slices.Clone(turns)
	for t := from; t <= to; t++ {
		p, err := o.turnPrompt(c, d, out, t)
		if err != nil {
			return nil, "", err
		}
		spoken := Said{T: t, Agent: mediation.SpeakerOf(t)}
		for spoken.Attempts = 1; ; spoken.Attempts++ {
			seed := mediation.TurnSeed(o.Seed, fmt.Sprintf("%d|%d", c.ID, spoken.Attempts), t)
			r, err := b.Chat(ctx, p, infer.Params{MaxTokens: o.MaxTokens, Temperature: o.Temperature, TopP: 1, Seed: seed})
			if err != nil {
				return nil, "", fmt.Errorf("simulate turn %d: %w", t, err)
			}
			spoken.Text, spoken.Stop = cleanTurn(r.Text, d, spoken.Agent), r.Stop
			if why = o.refuse(c, spoken, out); why == "" || spoken.Attempts >= o.Attempts {
				break
			}
		}
		if why != "" {
			return out, why, nil
		}
		out = append(out, spoken)
	}
	return out, "", nil
}

// refuse says why a turn cannot stand, "" where it can.
func (o options) refuse(c Case, spoken Said, before []Said) string {
	if spoken.Text == "" {
		return emptyTurn
	}
	for _, t := range before {
		if plain(t.Text) == plain(spoken.Text) {
			return repeatedTurn
		}
	}
	if spoken.T != c.Turn {
		return ""
	}
	switch words := stageByWords(spoken.Text); {
	case stageWords.MatchString(spoken.Text):
		return namedStage
	case words != "" && words != c.Stage:
		return otherByWords
	}
	return ""
}

var letters = regexp.MustCompile(`[^\p{L}\p{N}]+`)

// plain is a text without what does not make it another one.
func plain(text string) string {
	return strings.TrimSpace(letters.ReplaceAllString(strings.ToLower(text), " "))
}

var numbered = regexp.MustCompile(`(?i)^[\W_]*turn \d+\b[^:]{0,40}:`)

// cleanTurn takes off the speaker's name, and what is spoken in the name of another one.
func cleanTurn(text string, d dialogue.Dialogue, agent int) string {
	text = strings.TrimSpace(text)
	text = strings.TrimSpace(strings.TrimPrefix(text, numbered.FindString(text)))
	lines := strings.Split(mediation.CleanLine(text, d.Name(agent)), "\n")
	for i, line := range lines {
		line = strings.ToLower(strings.TrimLeft(line, "*[ "))
		for _, other := range []string{d.Name(3 - agent), "Mediator"} {
			if strings.HasPrefix(line, strings.ToLower(other)+":") || numbered.MatchString(line) {
				lines = lines[:i]
				break
			}
		}
		if len(lines) == i {
			break
		}
	}
	return strings.Trim(strings.TrimSpace(strings.Join(lines, "\n")), `"`)
}

// stageByWords is the ethnocentric stage with the most cue phrases in a text, "" where none
// or several have most.
func stageByWords(text string) string {
	text = " " + plain(text) + " "
	best, most := "", 0
	for s := dmis.Denial; s.Ethnocentric(); s++ {
		n := 0
		for _, cue := range cueWords(s) {
			if strings.Contains(text, " "+plain(cue)+" ") {
				n++
			}
		}
		switch {
		case n > most:
			best, most = s.String(), n
		case n == most:
			best = ""
		}
	}
	return best
}

func (o options) open(ctx context.Context, b infer.Backend, u run.Unit[Case], _ run.Lookup) (run.Sample, error) {
	turns, why, err := o.speak(ctx, b, u.Value, nil, 1, u.Value.Turn)
	return task.Sample(Talk{u.Value, turns}, why, err)
}

func (o options) check(ctx context.Context, b infer.Backend, u run.Unit[Case], look run.Lookup) (run.Sample, error) {
	talk, why, err := task.Earlier[Talk](look, StepOpen)
	if err != nil || why != "" {
		return task.Sample(Check{}, nothingUsable(why), err)
	}
	d, err := talk.Case.dialogue()
	if err != nil {
		return run.Sample{}, err
	}
	p, err := o.labeller().LabelPrompt(d, history(d, talk.Turns))
	if err != nil {
		return run.Sample{}, err
	}
	cs, err := b.Choose(ctx, []infer.Prompt{p}, infer.Digits(1, 6), infer.Params{TopP: 1, Seed: o.Seed})
	if err != nil {
		return run.Sample{}, fmt.Errorf("label the scripted turn: %w", err)
	}
	out := Check{Label: o.labeller().ReadLabel(cs[0], talk.Case.Turn, true), Words: stageByWords(talk.Turns[talk.Case.Turn-1].Text)}
	switch {
	case out.Label.Unscored != "":
		why = unlabelled
	case out.Label.Stage != talk.Case.Stage:
		why = otherByLabel
	}
	return task.Sample(out, why, nil)
}

// nothingUsable is why a step has nothing to go on from, "" where it has.
func nothingUsable(why string) string {
	if why == "" {
		return ""
	}
	return nothingBefore
}

func (o options) goOn(ctx context.Context, b infer.Backend, u run.Unit[Case], look run.Lookup) (run.Sample, error) {
	talk, why, err := task.Earlier[Talk](look, StepOpen)
	if err != nil {
		return run.Sample{}, err
	}
	if _, checked, err := task.Earlier[Check](look, StepCheck); err != nil || why != "" || checked != "" {
		return task.Sample(Talk{Case: u.Value}, nothingUsable(why+checked), err)
	}
	turns, why, err := o.speak(ctx, b, u.Value, talk.Turns, u.Value.Turn+1, lastTurn)
	return task.Sample(Talk{u.Value, turns}, why, err)
}
