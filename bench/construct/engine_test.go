package construct

import (
	"context"
	"os"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

// counted notes what an engine evaluates, and the tokens of the prompts that it is shown, as
// a tree.
type counted struct {
	*llamacpp.Engine
	tree              map[string]bool
	evaluated, unique int
}

func (c *counted) note(rendered string, u infer.Usage) error {
	tokens, err := c.Tokenize(rendered)
	if err != nil {
		return err
	}
	path := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		path = append(path, byte(t), byte(t>>8), byte(t>>16), byte(t>>24))
		if !c.tree[string(path)] {
			c.tree[string(path)] = true
			c.unique++
		}
	}
	c.evaluated += u.Evaluated
	return nil
}

func (c *counted) Chat(ctx context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	r, err := c.Engine.Chat(ctx, p, o)
	if err != nil {
		return r, err
	}
	return r, c.note(r.Rendered, r.Usage)
}

func (c *counted) Choose(ctx context.Context, ps []infer.Prompt, as []infer.Answer, o infer.Params) ([]infer.Choice, error) {
	out, err := c.Engine.Choose(ctx, ps, as, o)
	for i := 0; i < len(out) && err == nil; i++ {
		err = c.note(out[i].Rendered, out[i].Usage)
	}
	return out, err
}

// A dialogue costs what its prompts have in all, counted by the engine: speaking its turns,
// and labelling them.
func TestWhatADialogueCosts(t *testing.T) {
	path := infertest.ModelPath(t)
	if _, err := llamacpp.Locate(); err != nil {
		if os.Getenv("CCMED_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("the engine is not installed: ccmed engine install")
	}
	e, err := llamacpp.Open(t.Context(), llamacpp.Options{ModelPath: path, NumCtx: 2048, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	o, of := oneCase(t, 5, "Denial")
	o.MaxTokens = 16
	measure := func(what string, do func(infer.Backend) error) {
		t.Helper()
		c := &counted{Engine: e, tree: map[string]bool{}}
		if err := do(c); err != nil {
			t.Fatal(err)
		}
		ratio := float64(c.evaluated) / float64(c.unique)
		t.Logf("%s: evaluated %d, unique %d: %.3f", what, c.evaluated, c.unique, ratio)
		if ratio > 1.10 {
			t.Errorf("%s: evaluated / unique is %.3f", what, ratio)
		}
	}
	var talk Talk
	measure("speaking", func(b infer.Backend) error {
		turns, why, err := o.speak(t.Context(), b, of, nil, 1, lastTurn)
		if talk = (Talk{of, turns}); why != "" {
			t.Log("the model's dialogue ends: " + why)
		}
		return err
	})
	talk = o.fullTalk(of)
	measure("labelling", func(b infer.Backend) error {
		_, err := o.label(t.Context(), b, run.Unit[Talk]{Value: talk}, nil)
		return err
	})
}
