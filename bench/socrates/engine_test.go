package socrates

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

// heard keeps the tokens of all prompts to an engine as a tree, and what it evaluated.
type heard struct {
	*llamacpp.Engine
	mu        sync.Mutex
	nodes     map[string]bool // paths from the root
	evaluated int
	prompts   int
}

func (h *heard) add(ctx context.Context, ps []infer.Prompt, used infer.Usage) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.evaluated += used.Evaluated
	for _, p := range ps {
		text, err := h.Render(ctx, p)
		if err != nil {
			return err
		}
		tokens, err := h.Tokenize(text)
		if err != nil {
			return err
		}
		path := ""
		for _, t := range tokens {
			path += fmt.Sprint(t, " ")
			h.nodes[path] = true
		}
		h.prompts += len(tokens)
	}
	return nil
}

func (h *heard) Chat(ctx context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	r, err := h.Engine.Chat(ctx, p, o)
	if err == nil {
		err = h.add(ctx, []infer.Prompt{p}, r.Usage)
	}
	return r, err
}

func (h *heard) Choose(ctx context.Context, ps []infer.Prompt, as []infer.Answer, o infer.Params) ([]infer.Choice, error) {
	cs, err := h.Engine.Choose(ctx, ps, as, o)
	used := infer.Usage{}
	for _, c := range cs {
		used = used.Add(c.Usage)
	}
	if err == nil {
		err = h.add(ctx, ps, used)
	}
	return cs, err
}

// TestATalkIsEvaluatedOnce: with a path for each party and the mediator, the engine evaluates
// little more than the different tokens of all prompts of a talk.
func TestATalkIsEvaluatedOnce(t *testing.T) {
	model := os.Getenv("CCMED_TEST_MODEL")
	if _, err := llamacpp.Locate(); model == "" || err != nil {
		if os.Getenv("CCMED_REQUIRE") == "1" {
			t.Fatalf("CCMED_TEST_MODEL is %q, engine: %v", model, err)
		}
		t.Skip("needs CCMED_TEST_MODEL and the engine")
	}
	of := caseOf(t, "van", "general")
	o := Options{Arm: Arm{Kind: ArmGeneric}, Seed: 1, MaxTurns: 4, MaxTokens: 80, MediatorTokens: 12, Temperature: temperature}
	e, err := llamacpp.Open(t.Context(), llamacpp.Options{ModelPath: model, Paths: len(of.Scenario.Parties) + 1, NumCtx: 2048, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	h := &heard{Engine: e, nodes: map[string]bool{}}
	talk, why, err := Simulate(t.Context(), h, h, of, o)
	if err != nil || talk.PartyTurns() < 4 {
		t.Fatalf("%d turns: %q, %v", talk.PartyTurns(), why, err)
	}
	ratio := float64(h.evaluated) / float64(len(h.nodes))
	t.Logf("%d turns and %d interventions: evaluated / unique = %d / %d = %.3f; %d tokens of prompts", talk.PartyTurns(), len(talk.Interventions()), h.evaluated, len(h.nodes), ratio, h.prompts)
	if ratio > 1.10 || h.prompts < 2*len(h.nodes) {
		t.Errorf("evaluated / unique is %.3f, want at most 1.10", ratio)
	}
}
