package mediation

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

// Profile is the simulator's system prompt for an agent.
func (o Options) Profile(d dialogue.Dialogue, agent int) (string, error) {
	p, err := o.Prompts.Build("simulate", map[string]any{"Name": d.Name(agent), "Who": d.Who(agent), "Other": d.Name(3 - agent),
		"Context": d.Context, "Value": d.Value(agent), "Goals": d.GoalsOf(agent)})
	if err != nil {
		return "", err
	}
	return p.Messages[0].Content, nil
}

// simulatePrompt shows an agent the dialogue from its own side: its turns as
// the assistant's, everybody else's as the user's. Neighbouring lines of one side
// are joined, because chat templates want the roles to alternate.
func (o Options) simulatePrompt(d dialogue.Dialogue, agent int, history []dialogue.Turn) (infer.Prompt, error) {
	system, err := o.Profile(d, agent)
	if err != nil {
		return infer.Prompt{}, err
	}
	ms := []infer.Message{{Role: infer.System, Content: system}}
	add := func(role, text string) {
		if last := &ms[len(ms)-1]; last.Role == role {
			last.Content += "\n\n" + text
			return
		}
		ms = append(ms, infer.Message{Role: role, Content: text})
	}
	for _, t := range history {
		switch t.Agent {
		case agent:
			if len(ms) == 1 {
				add(infer.User, "The conversation begins; you speak first.")
			}
			add(infer.Assistant, dialogue.OneTurn("", t.Message))
		case dialogue.Mediator:
			add(infer.User, "[Mediator]: "+dialogue.OneLine(t.Message))
		default:
			add(infer.User, dialogue.OneTurn(t.Speaker, t.Message))
		}
	}
	return infer.Prompt{Messages: ms}, nil
}

// SpeakerOf returns who speaks a turn: odd turns are agent 1's.
func SpeakerOf(turn int) int { return 2 - turn%2 }

// TurnSeed gives every simulated turn its own seed, equal in all conditions, so
// that mediated and unmediated continuations are matched.
func TurnSeed(seed int64, item string, turn int) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d|%s|%d", seed, item, turn)
	return int64(h.Sum64() & 0x7fffffff)
}

// before returns the dialogue up to the intervention, with the mediator's line
// as its last turn where there is one.
func before(d dialogue.Dialogue, u Utterance) []dialogue.Turn {
	turns := append([]dialogue.Turn(nil), d.Unmediated()[:u.Turn]...)
	if u.Text != "" {
		turns = append(turns, dialogue.Turn{T: u.Turn, Speaker: "Mediator", Agent: dialogue.Mediator, Message: u.Text})
	}
	return turns
}

func (o Options) simulate(ctx context.Context, b infer.Backend, u run.Unit[Item], look run.Lookup) (run.Sample, error) {
	utt, unscored, err := earlier[Utterance](look, StepUtterance)
	if err != nil {
		return run.Sample{}, err
	}
	d := u.Value.Dialogue
	out := Continuation{}
	if u.Value.Recorded != nil {
		return sample(Continuation{u.Value.Recorded}, "")
	}
	if unscored != "" {
		return sample(out, unscored)
	}
	if utt.Turn >= d.LastTurn() {
		return sample(out, fmt.Sprintf("the mediator speaks after turn %d and the dialogue has %d: no turn is left to follow", utt.Turn, d.LastTurn()))
	}
	history := before(d, utt)
	for t := utt.Turn + 1; t <= d.LastTurn(); t++ {
		agent := SpeakerOf(t)
		p, err := o.simulatePrompt(d, agent, history)
		if err != nil {
			return run.Sample{}, err
		}
		r, err := b.Chat(ctx, p, infer.Params{MaxTokens: o.SimMaxTokens, Temperature: o.SimTemp, TopP: 1, Seed: TurnSeed(o.Seed, u.Item, t), Repeat: u.Repeat})
		if err != nil {
			return run.Sample{}, fmt.Errorf("simulate turn %d: %w", t, err)
		}
		text := CleanLine(r.Text, d.Name(agent))
		if text == "" {
			return sample(out, fmt.Sprintf("turn %d: the simulator said nothing", t))
		}
		out.Turns = append(out.Turns, SimTurn{T: t, Agent: agent, Text: text, Stop: r.Stop})
		history = append(history, dialogue.Turn{T: t, Speaker: d.Name(agent), Agent: agent, Message: text})
	}
	return sample(out, "")
}
