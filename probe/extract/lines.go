package extract

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/ollama"
	"github.com/ccmed/ccmed/probe"
)

// takeLines takes the lines of the run that --from names. It must be a run of the same
// weights, prompts and turns: its token counts are then the server's word on what the
// model read.
func (c *call) takeLines(env task.Env, x *probe.Extraction, ds []dialogue.Dialogue) ([]dialogue.Dialogue, error) {
	r, err := env.Open(c.from)
	if err != nil {
		return nil, err
	}
	m := r.Manifest()
	med := m.Identity.Models[role]
	// The lines of a tuned model that chose its turns itself: those at the conflict.
	_, chosen := r.Bench.(task.Owner)
	switch {
	case m.Identity.Task != mediation.TaskName && !chosen:
		return nil, fmt.Errorf("--from %s is a %s run; name a mediation run, or one of `ccmed sft predict`", c.from, m.Identity.Task)
	case m.Status != run.StatusDone:
		return nil, fmt.Errorf("%s is not finished; go on with: ccmed runs resume %s", c.from, c.from)
	case med.Digest != x.Model.Digest || med.Edits != x.Model.Edits:
		return nil, fmt.Errorf("%s was made with %s (%s) and the states would be those of %s (%s): not the same model",
			c.from, med.Name, infer.ShortDigest(med.Digest), x.Model.Name, infer.ShortDigest(x.Model.Digest))
	case chosen && slices.ContainsFunc(x.Pairs, func(p probe.Pair) bool { return p.Text == probe.TextOwnD }):
		return nil, fmt.Errorf("%s holds one line a dialogue, which was told no stage; leave own-D out, for example with --conditions ND", c.from)
	case !chosen && m.Identity.Prompts["mediate"] != x.Prompts.Hashes("mediate")["mediate"]:
		return nil, fmt.Errorf("%s was made with another prompt template mediate: its lines do not follow these prompts", c.from)
	}
	x.Given, x.Expected = map[string]map[string]string{}, map[string]map[string]int{}
	for s, err := range r.Samples() {
		if err != nil {
			return nil, err
		}
		if err := c.takeLine(x, s, chosen, med.Backend == "ollama"); err != nil {
			return nil, err
		}
	}
	kept := slices.DeleteFunc(slices.Clone(ds), func(d dialogue.Dialogue) bool { return x.Given[d.Key()] == nil })
	if len(kept) == 0 {
		return nil, fmt.Errorf("%s and --data share no dialogue", c.from)
	}
	if n := len(ds) - len(kept); n > 0 {
		env.Note("%d dialogues are left out: %s has no lines at the conflict for them", n, c.from)
	}
	if chosen {
		env.Note("the lines of %s were written after the dialogue alone, and are read after the prompts of a mediator", c.from)
	}
	return kept, nil
}

// takeLine takes the line of a sample, and how many tokens the server counted in its
// prompt.
func (c *call) takeLine(x *probe.Extraction, s run.Sample, chosen, served bool) error {
	if chosen {
		s.Condition = mediation.ND
	}
	if s.Step != mediation.StepUtterance || s.Condition != mediation.ND && s.Condition != mediation.D {
		return nil
	}
	u, err := task.Data[mediation.Utterance](s) // a tuned model's has these fields too
	if err != nil {
		return fmt.Errorf("%s: %w", c.from, err)
	}
	if u.Turn != u.Gold {
		if chosen {
			return nil
		}
		return fmt.Errorf("%s mediates at predicted turns; the states are read at the conflict turn: make a run with --turn gold", c.from)
	}
	if x.Given[s.Item] == nil {
		x.Given[s.Item], x.Expected[s.Item] = map[string]string{}, map[string]int{}
	}
	if s.Unscored == "" {
		x.Given[s.Item]["own-"+s.Condition] = u.Text
	}
	// An answer out of the response cache has no count of its own.
	if s.Usage.Replayed == 0 && s.Usage.Prompt > 0 && served {
		x.Expected[s.Item][s.Condition] = s.Usage.Prompt
	}
	return nil
}

// checkServed holds the token counts of the longest and of 15 random prompts against
// Ollama's own, where the model is one of Ollama's.
func checkServed(ctx context.Context, env task.Env, models task.Models, x *probe.Extraction, ds []dialogue.Dialogue) error {
	name := models.Named(role)
	if strings.HasSuffix(strings.ToLower(name), ".gguf") {
		return nil
	}
	server, err := ollama.New(models.Hosts()[0], name, ollama.Options{})
	if err != nil {
		return err
	}
	type item struct {
		rendered string
		tokens   int
		key      string
	}
	var all []item
	for _, d := range ds {
		p, err := x.Prompt(d, probe.ContextD)
		if err != nil {
			return err
		}
		rendered, err := x.Render(ctx, p)
		if err != nil {
			return err
		}
		ts, err := x.Tokens(ctx, p, "")
		if err != nil {
			return err
		}
		all = append(all, item{rendered, len(ts), d.Key()})
	}
	slices.SortStableFunc(all, func(x, y item) int { return y.tokens - x.tokens })
	picked := all[:1]
	rng := rand.New(rand.NewPCG(uint64(x.Seed), 0))
	for _, i := range rng.Perm(len(all) - 1)[:min(15, len(all)-1)] {
		picked = append(picked, all[i+1])
	}
	for _, it := range picked {
		r, err := server.Chat(ctx, infer.Prompt{Raw: it.rendered}, infer.Params{MaxTokens: 1, TopP: 1, NumCtx: models.NumCtx(role)})
		if err != nil {
			return fmt.Errorf("ask Ollama how many tokens the prompt of item %s has: %w", it.key, err)
		}
		if r.Usage.Prompt != it.tokens {
			return fmt.Errorf("the prompt of item %s has %d tokens here and %d on the server: these are not the states of the served model", it.key, it.tokens, r.Usage.Prompt)
		}
	}
	env.Note("token counts of %d prompts equal Ollama's", len(picked))
	return models.MakeRoom(ctx)
}

func absolute(path string) string {
	if path == "" {
		return ""
	}
	if p, err := filepath.Abs(path); err == nil {
		return p
	}
	return path
}
