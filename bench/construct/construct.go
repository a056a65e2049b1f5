// Package construct makes records of its own for the study, as CC-Mediation was made: from
// scenes in which two people of different countries see a question differently (Scenarios),
// through conversations with a scripted conflict (Dialogues) and their labels (Label), to
// pairs of a mediation that helps and one that helps less (Pairs). Each of the four is a
// benchmark, whose samples the next one goes on from. What cannot be used is a sample too,
// unscored, with the reason.
//
//	scenarios, rejected, err := construct.ReadScenarios(ctx, archive, "sample", construct.Alike)
//	cases, err := construct.Design(scenarios, 1, seed, prompts)
//	err = construct.WriteCases("cases.jsonl", cases)
//
// Records reads a run of Pairs or Label as records in the released format.
package construct

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// Tasks in manifests.
const (
	taskScenarios = "construct-scenarios"
	taskDialogues = "construct-dialogues"
	taskLabel     = "construct-label"
	taskPairs     = "construct-pairs"
)

// Steps of the runs.
const (
	StepWrite = "write" // of Scenarios

	StepOpen  = "open"  // of Dialogues: the turns up to the conflict
	StepCheck = "check" // the scripted turn
	StepRest  = "rest"  // the turns after it

	StepLabel = "label" // of Label

	StepLine   = "line" // of Pairs
	StepPath   = "path"
	StepStages = "stages"
)

// Roles of models.
const (
	RoleWriter    = "writer"
	RoleSimulator = "simulator"
	RoleLabeller  = "labeller"
	RoleMediator  = "mediator"
)

// instruments are the flags that several of the benchmarks have.
type instruments struct {
	simulator, labeller string
	limit               int
	o                   options
}

func (i *instruments) registerSimulator(f *pflag.FlagSet) {
	f.StringVar(&i.simulator, "simulator", "", "model that plays the speakers (default: --model)")
	f.Float64Var(&i.o.Temperature, "sim-temperature", 0.8, "temperature of the simulator")
	f.IntVar(&i.o.MaxTokens, "sim-max-tokens", 120, "cap of one turn, and of a mediator's line")
	f.IntVar(&i.o.Attempts, "attempts", 3, "how often a turn is asked for, with other seeds, before the dialogue is rejected")
	task.Reads(f, "simulator")
}

func (i *instruments) registerLabeller(f *pflag.FlagSet) {
	f.StringVar(&i.labeller, "labeller", "", "model that gives the stages (default: --model)")
	f.Float64Var(&i.o.MinMass, "min-mass", 0.05, "minimum probability mass on the digits; below it the label is unscored")
	f.IntVar(&i.limit, "limit", 0, "take the first N; 0 takes all")
	task.Reads(f, "labeller")
}

func (i *instruments) check(simulates bool) error {
	switch o := i.o; {
	case i.limit < 0:
		return usage.Errorf("--limit %d; it must not be negative", i.limit)
	case o.MinMass < 0 || o.MinMass >= 1:
		return usage.Errorf("--min-mass %g; it must lie in 0..1", o.MinMass)
	case simulates && (o.MaxTokens < 1 || o.Attempts < 1):
		return usage.Errorf("--sim-max-tokens and --attempts must be at least 1")
	case simulates && o.Temperature <= 0:
		return usage.Errorf("--sim-temperature %g; it must be above 0", o.Temperature)
	case strings.HasPrefix(i.simulator, infer.ReadoutBackend+":"):
		return usage.Errorf("--simulator %s: a classifier of hidden states gives stages only", i.simulator)
	case strings.HasPrefix(i.labeller, infer.ReadoutBackend+":"):
		return usage.Errorf("--labeller %s: a classifier of hidden states knows the stages in one order, and labels are made in two", i.labeller)
	}
	return nil
}

// first are the first n of a list, all for 0.
func first[T any](list []T, n int) []T {
	if n > 0 && n < len(list) {
		return list[:n]
	}
	return list
}

// hashOf identifies what a run is made from.
func hashOf(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode the items: %w", err)
	}
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:]), nil
}

func absolute(path string) string {
	if p, err := filepath.Abs(path); err == nil {
		return p
	}
	return path
}

// filler stands for a text of as many tokens as words.
func filler(tokens int) string { return strings.TrimSpace(strings.Repeat("word ", tokens)) }

// earlierRun reads the units of a run of another of the benchmarks, and what they come to.
func earlierRun(env task.Env, flag, path, name, made string) (*task.Run, []task.Unit, error) {
	if path == "" {
		return nil, nil, usage.Errorf("no --%s; name a run of ccmed %s", flag, made)
	}
	r, err := env.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if got := r.Identity().Task; got != name {
		return nil, nil, usage.Errorf("--%s %s is a run of the task %s; name one of ccmed %s", flag, path, got, made)
	}
	samples, err := task.Collect(r.Samples())
	return r, task.Units(samples), err
}
