package mediation

import (
	"context"
	"fmt"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

func (o Options) judgePrompt(d dialogue.Dialogue, u Utterance) (infer.Prompt, error) {
	data := map[string]any{"Transcript": dialogue.Transcript(d.Unmediated()[:u.Turn]), "Utterance": dialogue.OneLine(u.Text)}
	o.stage(data, d)
	return o.Prompts.Build("judge", data)
}

func (o Options) judge(ctx context.Context, b infer.Backend, u run.Unit[Item], look run.Lookup) (run.Sample, error) {
	utt, unscored, err := earlier[Utterance](look, StepUtterance)
	if err != nil {
		return run.Sample{}, err
	}
	if unscored != "" {
		return sample(Judgement{}, unscored)
	}
	if utt.Text == "" {
		return sample(Judgement{NotApplicable: "no mediator's line"}, "")
	}
	p, err := o.judgePrompt(u.Value.Dialogue, utt)
	if err != nil {
		return run.Sample{}, err
	}
	cs, err := b.Choose(ctx, []infer.Prompt{p}, infer.Digits(1, 5), infer.Params{TopP: 1, Seed: o.Seed, Repeat: u.Repeat})
	if err != nil {
		return run.Sample{}, fmt.Errorf("ask the judge: %w", err)
	}
	c := cs[0]
	j := Judgement{P: [5]float64(c.P), Mass: c.Mass, Top: c.Top}
	if c.Unscored == "" && c.Mass < o.MinMass {
		c.Unscored = fmt.Sprintf("the scores got %.3g of the probability, less than %g", c.Mass, o.MinMass)
	}
	if c.Unscored == "" {
		j.Score = c.Argmax() + 1
		for i, p := range c.P {
			j.Expected += float64(i+1) * (p / c.Mass)
		}
		j.Expected = min(5, max(1, j.Expected)) // shares add up to 1 but for rounding
	}
	return sample(j, c.Unscored)
}
