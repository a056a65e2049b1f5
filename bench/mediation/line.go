package mediation

import (
	"context"
	"fmt"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

// MediatePrompt asks the mediator for its line after the item's turn.
func (o Options) MediatePrompt(it Item) (infer.Prompt, error) {
	d := it.Dialogue
	data := map[string]any{"Transcript": dialogue.Transcript(d.Unmediated()[:it.Turn]), "Turn": it.Turn, "Stage": "", "Speaker": "", "Pattern": "", "Move": ""}
	if it.Condition == D {
		o.stage(data, d)
	}
	return o.Prompts.Build("mediate", data)
}

// stage adds what the D prompt and the judge are told about the conflict.
func (o Options) stage(data map[string]any, d dialogue.Dialogue) {
	data["Stage"], data["Speaker"] = d.Stage.String(), d.Name(d.ConflictAgent)
	data["Pattern"], data["Move"] = d.Stage.Pattern(), d.Stage.Move()
}

func (o Options) utter(ctx context.Context, b infer.Backend, u run.Unit[Item], _ run.Lookup) (run.Sample, error) {
	it := u.Value
	d := it.Dialogue
	out := Utterance{Gold: d.ConflictTurn, Turn: it.Turn, LastTurn: d.LastTurn(), Stage: d.Stage.String(), Context: d.ContextKey(), Source: "given", Text: it.Given}
	if unspoken(it.Condition) {
		out.Source = "none"
		return sample(out, "")
	}
	if it.Turn == 0 {
		out.Source, out.Text = "none", ""
		return sample(out, NotSpoken)
	}
	switch it.Condition {
	case Generic:
		out.Text = GenericLine
	case ND, D:
		p, err := o.MediatePrompt(it)
		if err != nil {
			return run.Sample{}, err
		}
		r, err := b.Chat(ctx, p, infer.Params{MaxTokens: o.MaxTokens, Temperature: o.Temperature, TopP: 1, Seed: o.Seed, Repeat: u.Repeat})
		if err != nil {
			return run.Sample{}, fmt.Errorf("ask the mediator: %w", err)
		}
		out.Source, out.Stop = "model", r.Stop
		out.Text = CleanLine(r.Text, "Mediator")
	}
	out.Sentences = sentences(out.Text)
	if out.Text == "" {
		return sample(out, "the mediator said nothing")
	}
	return sample(out, "")
}

// CleanLine removes a name that the model put before its own line.
func CleanLine(text, name string) string {
	text = strings.TrimSpace(text)
	for _, n := range []string{name + ":", "[" + name + "]:", "**" + name + ":**"} {
		if len(text) >= len(n) && strings.EqualFold(text[:len(n)], n) {
			text = strings.TrimSpace(text[len(n):])
		}
	}
	return text
}

// sentences counts sentence ends that are followed by a space, a quotation mark or the
// end; the full-width ones need nothing after them.
func sentences(s string) int {
	n, rs := 0, []rune(strings.TrimSpace(s))
	for i, r := range rs {
		switch {
		case i+1 == len(rs),
			strings.ContainsRune(".!?؟", r) && strings.ContainsRune(" \n\"", rs[i+1]),
			strings.ContainsRune("。！？", r) && !strings.ContainsRune("。！？", rs[i+1]):
			n++
		}
	}
	return n
}
