package socrates

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// caseHash identifies a scenario under a condition, as parties and mediator see it.
func caseHash(of scenario.Case) (string, error) {
	b, err := json.Marshal(of)
	if err != nil {
		return "", fmt.Errorf("encode the scenario %s: %w", of.Scenario.ID, err)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:8]), nil
}

// earlier are the talks without a mediator of an earlier run, by scenario and condition.
type earlier struct {
	manifest run.Manifest
	talks    map[string]run.Sample
}

func earlierKey(item, condition string) string { return item + "\x00" + condition }

// earlierTalks reads the unmediated talks of a run, and sees that there is one of each case.
func earlierTalks(env task.Env, path string, cases []scenario.Case) (*earlier, error) {
	r, err := env.Open(path)
	if err != nil {
		return nil, err
	}
	e := &earlier{r.Manifest(), map[string]run.Sample{}}
	for s, err := range r.Samples() {
		if err != nil {
			return nil, err
		}
		if s.Step == StepUnmediated {
			e.talks[earlierKey(s.Item, s.Condition)] = s
		}
	}
	for _, of := range cases {
		s, ok := e.talks[earlierKey(of.Scenario.ID, of.Condition)]
		if !ok {
			return nil, usage.Errorf("--baselines %s has no talk of %s under %s; take a run with the same --scenarios and --conditions", path, of.Scenario.ID, of.Condition)
		}
		t, err := task.Data[Talk](s)
		if err != nil {
			return nil, fmt.Errorf("read the baselines of %s: %w", path, err)
		}
		hash, err := caseHash(of)
		if err != nil {
			return nil, err
		}
		if t.Case != hash {
			return nil, usage.Errorf("--baselines %s: its scenario %s is another one under %s; the talks cannot be shared", path, of.Scenario.ID, of.Condition)
		}
	}
	return e, nil
}

// fits says what keeps the talks of the earlier run from being those of a run.
func (e *earlier) fits(id run.Identity) error {
	b := e.manifest.Identity
	var differ []string
	add := func(what string, same bool) {
		if !same {
			differ = append(differ, what)
		}
	}
	x, y := b.Models[RoleParty], id.Models[RoleParty]
	add("model of the parties", x.Name == y.Name && x.Digest == y.Digest && x.TemplateHash == y.TemplateHash)
	add("seed", b.Seed == id.Seed)
	add("prompts of the parties", b.Prompts["socrates_party"] == id.Prompts["socrates_party"])
	for _, o := range []string{"max_turns", "max_tokens", "max_history"} {
		add("--"+strings.ReplaceAll(o, "_", "-"), fmt.Sprint(b.Options[o]) == fmt.Sprint(id.Options[o]))
	}
	if len(differ) > 0 {
		return usage.Errorf("the talks of %s cannot be shared with this run; they differ in: %s", e.manifest.Path, strings.Join(differ, ", "))
	}
	if e.manifest.Status != run.StatusDone {
		return usage.Errorf("the run %s, whose talks are to be shared, is not finished; go on with: ccmed runs resume %s", e.manifest.Path, e.manifest.Path)
	}
	return nil
}

// step takes the talks over.
func (e *earlier) step() run.Step[unit] {
	return run.Step[unit]{Name: StepUnmediated, Only: simulated, Do: func(_ context.Context, _ infer.Backend, u run.Unit[unit], _ run.Lookup) (run.Sample, error) {
		s := e.talks[earlierKey(u.Item, u.Condition)]
		return run.Sample{Unscored: s.Unscored, Data: s.Data}, nil
	}}
}
