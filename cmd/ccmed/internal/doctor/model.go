package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/cache"
	"github.com/ccmed/ccmed/infer/fleet"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

// aboutModel says what is told of a model: servers of the OpenAI API tell its name alone.
func aboutModel(m infer.Model) string {
	var parts []string
	if kind := strings.Join(strings.Fields(m.Architecture+" "+m.Parameters+" "+m.Quantization), " "); kind != "" {
		parts = append(parts, kind)
	}
	if m.ContextTrain > 0 {
		parts = append(parts, fmt.Sprintf("trained on %d tokens of context", m.ContextTrain))
	}
	if m.Digest == "" {
		return strings.Join(append(parts, "the server tells no digest"), ", ")
	}
	return strings.Join(append(parts, "digest "+infer.ShortDigest(m.Digest)), ", ")
}

// checkTemplate says which chat template the engine renders prompts with.
func checkTemplate(e *llamacpp.Engine, given string) Finding {
	whose, foreign := e.Template()
	detail := map[string]string{"server": "Ollama renders", "file": "the file's own", "given": given + " (--chat-template)"}[whose]
	if detail == "" {
		return Finding{"chat template", Faulty, "the file has none",
			"choose one: --chat-template " + strings.Join(llamacpp.TemplateNames(), ", ") + " or a Jinja file"}
	}
	if foreign != "" {
		detail += fmt.Sprintf("; %s is no control token of this model, which reads it as text", foreign)
	}
	return Finding{"chat template", OK, detail, ""}
}

// Role is that of the model which CheckModel asks.
const Role = "mediator"

// CheckModel asks one model a few questions whose answers say what it can do.
func CheckModel(ctx context.Context, env Env, m *fleet.Flags) ([]Finding, error) {
	f, err := fleet.New(env.Env, m, map[string]string{Role: ""})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	f.SetContext(Role, cmp.Or(m.NumCtx, 2048))
	id, err := f.Model(ctx, Role)
	var missing *infer.MissingError
	if errors.As(err, &missing) {
		return []Finding{{"model " + m.Model, Faulty, missing.What, missing.Fix}}, nil
	}
	if err != nil {
		return nil, err
	}
	fs := []Finding{{"model " + id.Name, OK, aboutModel(id), ""}}
	bs, err := f.Workers(ctx, Role)
	if err != nil {
		return nil, err
	}
	b := bs[0]
	if e, isEngine := f.Raw(Role).(*llamacpp.Engine); isEngine {
		t := checkTemplate(e, m.ChatTemplate)
		if fs = append(fs, t); t.Result == Faulty {
			return fs, nil
		}
	}
	p := infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: "Answer with one digit."}, {Role: infer.User, Content: "How many legs has a dog? Answer with one digit."}}, LeadIn: "Answer: "}
	params := infer.Params{TopP: 1, Seed: 1}
	bypass := cache.Bypass(ctx)
	choose := func() (infer.Choice, error) {
		cs, err := b.Choose(bypass, []infer.Prompt{p}, infer.Digits(1, 6), params)
		if err != nil {
			return infer.Choice{}, err
		}
		return cs[0], nil
	}
	first, err := choose()
	if err != nil {
		return append(fs, Finding{"log-probabilities", Faulty, err.Error(), "try another model or backend"}), nil
	}
	const repeats = 5
	unscored, same, differ := first.Unscored, 0, 0.0
	for i := 0; i < repeats && unscored == ""; i++ {
		again, err := choose()
		if err != nil {
			return append(fs, Finding{"repeated call", Faulty, err.Error(), "try again; look into the server's log"}), nil
		}
		if unscored = again.Unscored; again.Argmax() == first.Argmax() {
			same++
		}
		for i := range again.P {
			differ = max(differ, math.Abs(again.P[i]-first.P[i]))
		}
	}
	if unscored != "" {
		fs = append(fs, Finding{"log-probabilities", Faulty, unscored, "use --backend ollama or embedded, or a server that returns log-probabilities"})
	} else {
		fs = append(fs, Finding{"log-probabilities", OK, fmt.Sprintf("the digits got %.3f of the probability, %q most", first.Mass, fmt.Sprint(first.Argmax()+1)), ""},
			Finding{"repeated choice", OK, fmt.Sprintf("%d of %d gave the same answer, largest difference of a probability %.2g", same, repeats, differ), ""})
	}
	chat := infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: "You are helpful."}, {Role: infer.User, Content: "Name three colours."}}}
	texts, agree := map[string]bool{}, 0
	for i := range repeats {
		r, err := b.Chat(bypass, chat, infer.Params{MaxTokens: 24, TopP: 1, Seed: 1})
		if err != nil {
			return append(fs, Finding{"text", Faulty, err.Error(), "try another model or backend"}), nil
		}
		if i > 0 && texts[r.Text] {
			agree++
		}
		texts[r.Text] = true
		if r.Thinking != "" && i == 0 {
			fs = append(fs, Finding{"reasoning", OK, "the model reasons although it was asked not to; answers are looked for after it", ""})
		}
	}
	return append(fs, Finding{"repeated text", OK, fmt.Sprintf("temperature 0, same seed: %d of %d repetitions equal an earlier text", agree, repeats-1), ""}), nil
}
