// Package task says what a benchmark is. A benchmark is one folder that brings a Bench,
// and one line in the program's list of benchmarks. All else works on it from there: its
// command, dry runs, running, resuming, shards, the response cache, scoring, comparison,
// reports, exports, verification, schemas and suites.
//
//	type Bench struct{}
//
//	func (Bench) About() task.About { return task.About{Task: "toy", Command: "toy", Subject: "speaker"} }
//	func (Bench) Flags(f *pflag.FlagSet) task.Call { … }
//	func (Bench) Score(ctx context.Context, in task.Input) (task.Result, error) { … }
//
// Package tasktest holds the test that every benchmark passes, and a whole benchmark in
// one file, the toy.
package task

import (
	"context"
	"slices"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

// Bench is a benchmark: what is asked, and what the answers come to.
type Bench interface {
	// About describes the benchmark. It is the same at every call.
	About() About
	// Flags registers the flags of the benchmark's own and returns what holds their
	// values once they are parsed.
	Flags(*pflag.FlagSet) Call
	// Score gives the result of a run from its samples. It asks no model, and samples in
	// another order give the same result.
	Score(context.Context, Input) (Result, error)
}

// Owner is implemented by a benchmark that makes some of the runs of another one's task,
// such as the decisions of a tuned model's head among the runs of timing.
type Owner interface{ Owns(run.Identity) bool }

// About describes a benchmark.
type About struct {
	Task    string // as manifests name it
	Command string // that makes its runs: "timing", "probe extract"
	// Argument names the one argument that the command takes, whose Call is a Taker; "" where
	// it takes none.
	Argument string
	// Short, Long and Example are the help of the command.
	Short, Long, Example string
	// Subject is the role of the model that is measured; the other roles are instruments.
	Subject string
	// Roles names the role that each step asks, "" for none.
	Roles map[string]string
	// Item and Cluster are the nouns of what is measured and of what is drawn for
	// intervals: "dialogue" and "scenario context".
	Item, Cluster string
	// Scale are the settings that must agree before two runs are compared, for they
	// change what a number means.
	Scale []string
	// AlsoMadeBy are other commands that make runs of the task.
	AlsoMadeBy []string
	// Folder is what a folder of the benchmark's runs is called; "" is a run.
	Folder string
	// States says that hidden states are read: the models are opened in the program's own
	// engine, without the response cache.
	States bool
	// Data holds the zero value of each step's data (a list of values where there are several
	// forms), Metrics of what scoring finds, Row
	// of a row of the exported tables (nil where runs have none): their forms are the
	// schemas and the columns.
	Data    map[string]any
	Metrics any
	Row     any
}

// Call is one call of a benchmark's command.
type Call interface {
	// Roles names the models by role, "" for the model that --model names.
	Roles(Env) (map[string]string, error)
	// Plan says what the call asks. Values out of range are *usage.Error.
	Plan(context.Context, Env) (Plan, error)
}

// Taker is implemented by calls of commands that take an argument.
type Taker interface{ Take(argument string) }

// Env is what a plan is made from.
type Env struct {
	*Archive
	// Seed is that of sampling, Prompts are the templates.
	Seed    int64
	Prompts *prompt.Set
	// Model, NumCtx and ChatTemplate are the flags of these names.
	Model        string
	NumCtx       int
	ChatTemplate string
	// Edits are the values of the flag --edit.
	Edits []string
	// Models opens the models of Call.Roles. Most plans need none of them.
	Models func() (Models, error)
}

// Models are the open models of a call.
type Models interface {
	Model(ctx context.Context, role string) (infer.Model, error)
	// Raw is the backend of a role as it was opened, without cache and recorder; nil
	// where its model is not the open one.
	Raw(role string) infer.Backend
	// Named is the model of a role as the user named it.
	Named(role string) string
	// NumCtx is the context length of a role, once it fits.
	NumCtx(role string) int
	// Hosts are the addresses of Ollama servers.
	Hosts() []string
	// MakeRoom frees the GPU where the engine is about to use one.
	MakeRoom(context.Context) error
}

// Plan is what a call asks.
type Plan struct {
	// Task holds the units and steps: a run.Task.
	Task Executor
	// Roles are those that are asked; nil are all of Call.Roles.
	Roles []string
	// Size counts the items; Items are their keys and DataHash identifies the data.
	Size  int
	Items []string
	// Others are items of other records that have samples too, such as those of a card.
	Others   []string
	DataHash string
	// Templates are the hashes of the prompt templates that are used, by name.
	Templates map[string]string
	// Settings hold every option that could change a number, as a struct or a map. They
	// are the options of the run's identity.
	Settings any
	// Parent is the run that this one is made from.
	Parent string
	// Names replaces the names of models in the identity, by role.
	Names map[string]string
	// Longest are prompts by role among which the longest one is, and Answer is how many
	// tokens its answer takes: the context is made to fit.
	Longest map[string][]infer.Prompt
	Answer  map[string]int
	// Paths is along how many token paths a role's prompts grow side by side, such as one for
	// each party of a talk. nil: prompts of a role follow one another.
	Paths map[string]int
	// Preview makes the prompts of a dry run, once the contexts fit.
	Preview func(context.Context) (Preview, error)
	// Check looks, once the identity is known, whether the run can be made.
	Check func(run.Identity) error
	// Ready does what is to be done once the contexts fit and before the run begins.
	Ready func(context.Context) error
	// Open makes the files that the run has beside its samples, and returns what closes
	// them.
	Open func(context.Context, *run.Dir) (done func() error, err error)
}

// Preview is what a dry run shows.
type Preview struct {
	// Calls are the prompts by role, First the one that is shown.
	Calls map[string][]infer.Prompt
	First map[string]infer.Prompt
	// Bytes is what the run writes beside its samples: states. 0 for none.
	Bytes int64
}

// Executor is a run.Task over any kind of unit.
type Executor interface {
	Execute(context.Context, *run.Dir, run.Options) (run.Summary, error)
}

// Merger is implemented by benchmarks whose runs have files beside their samples, which are
// joined with the shards of a run.
type Merger interface {
	Merge(ctx context.Context, out string, shards []string) error
}

// Verifier is implemented by benchmarks whose runs have files beside their samples. form
// checks a file of the run against the schema of that name; both return faults, joined.
type Verifier interface {
	Verify(r *Run, form func(schema, file string) error) error
}

// Registry lists the benchmarks.
type Registry []Bench

// Of finds the benchmark that made a run.
func (r Registry) Of(id run.Identity) (Bench, bool) {
	for _, b := range r {
		if o, ok := b.(Owner); ok && o.Owns(id) {
			return b, true
		}
	}
	i := slices.IndexFunc(r, func(b Bench) bool {
		_, some := b.(Owner)
		return !some && b.About().Task == id.Task
	})
	if i < 0 {
		return nil, false
	}
	return r[i], true
}

// Tasks lists the tasks, each once.
func (r Registry) Tasks() []string {
	var out []string
	for _, b := range r {
		if t := b.About().Task; !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}
