// Package run holds run directories and the one executor that every benchmark
// uses. A task lists units and steps; the executor owns order, workers,
// progress, writing, resuming, shards and interruption:
//
//	dir, err := run.Create("runs/"+run.NewName("timing", "smollm2", time.Now()), identity, os.Args[1:])
//	summary, err := run.Execute(ctx, dir, task, run.Options{Workers: workers})
//
// A run directory holds
//
//	manifest.json  what the run is (identity) and when and where it ran (sessions)
//	samples.jsonl  one Sample a line, scored or unscored; the key is step, item, condition, repeat
//	prompts.jsonl  every distinct prompt once, by hash, as the model read it
//	errors.jsonl   one Failure a line: every failed attempt with its cause
//	metrics.json   what scoring found
//	log.txt        what happened when
//	lock           who writes to the directory now
//
// A kill at any moment loses at most the items in hand, one a worker: a line is
// written with one write(2), and a torn last line is cut when the run goes on.
package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/ccmed/ccmed/infer"
)

// Versions of what is in a run directory. Metrics of another version are computed anew.
const (
	// Schema is that of the manifest. 2 has the identity's hash.
	Schema = 2
	// SampleSchema is that of a line of samples.jsonl.
	SampleSchema = 1
	// MetricsSchema is that of metrics.json; docs/formats.md says what each version brought.
	MetricsSchema = 4
)

// Key identifies a sample within a run.
type Key struct {
	Step      string `json:"step"`
	Item      string `json:"item"`
	Condition string `json:"condition"`
	Repeat    int    `json:"repeat" jsonschema:"minimum=0"`
}

func (k Key) String() string {
	s := k.Step + " of item " + k.Item
	if k.Condition != "" {
		s += ", condition " + k.Condition
	}
	if k.Repeat != 0 {
		s += fmt.Sprintf(", repeat %d", k.Repeat)
	}
	return s
}

// Unit is one thing to take through the steps of a task. Item, Condition and
// Repeat together are unique in a task. Units of one Group share a prefix or a
// persona: one worker does them one after the other, and one shard holds them
// all. An empty group means the item.
type Unit[I any] struct {
	Item, Condition, Group string
	Repeat                 int
	Value                  I
}

// Sample is what a step found about a unit. A step fills Unscored and Data; the
// executor fills the rest.
type Sample struct {
	Key
	Schema int    `json:"schema"`
	Group  string `json:"group,omitempty"`
	// Unscored says why there is no usable answer, and is empty when there is
	// one. An unscored sample is a result, not an error.
	Unscored string          `json:"unscored,omitempty" jsonschema:"minLength=1"`
	Data     json.RawMessage `json:"data,omitempty"`
	Prompts  []string        `json:"prompts,omitempty"` // hashes into prompts.jsonl, in the order of asking
	Usage    infer.Usage     `json:"usage"`             // of all requests, as the backend reported it
	Seconds  float64         `json:"seconds" jsonschema:"minimum=0"`
}

// Lookup gives the samples that earlier steps made of the same unit.
type Lookup func(step string) (Sample, bool)

// Step maps one unit and the samples of its earlier steps to one sample. Role
// names the model that it asks; without a role the backend is nil. Do is called
// concurrently for units of different groups. It returns an error when the
// sample could not be made, which the executor counts and writes down, never a
// label that stands in for it; an error may carry the model's words, see
// RawReplier.
//
// A step whose samples need several models, such as a talk, names them in Roles and does
// its work in DoAll, with a backend a role; Role and Do are then empty.
type Step[I any] struct {
	Name, Role string
	Do         func(context.Context, infer.Backend, Unit[I], Lookup) (Sample, error)
	Roles      []string
	DoAll      func(context.Context, map[string]infer.Backend, Unit[I], Lookup) (Sample, error)
	// Only says which units the step takes; nil is all. Later steps of a unit do not wait
	// for a step that does not take it.
	Only func(Unit[I]) bool
}

// takes says whether the step takes a unit.
func (s Step[I]) takes(u Unit[I]) bool { return s.Only == nil || s.Only(u) }

// roles are those that a step asks.
func (s Step[I]) roles() []string {
	if s.Role != "" {
		return []string{s.Role}
	}
	return s.Roles
}

// Task is a list of steps over units. A step is finished over all units before
// the next one starts, so that each model is loaded once.
type Task[I any] struct {
	Name  string
	Units []Unit[I]
	Steps []Step[I]
}

// Execute is Execute on the task, for those who do not know the kind of its units.
func (t Task[I]) Execute(ctx context.Context, d *Dir, o Options) (Summary, error) {
	return Execute(ctx, d, t, o)
}

// CompareUnits orders keys by item, numbers in their order, then by condition and repeat.
func CompareUnits(x, y Key) int {
	return cmp.Or(len(x.Item)-len(y.Item), cmp.Compare(x.Item, y.Item), cmp.Compare(x.Condition, y.Condition), x.Repeat-y.Repeat)
}

// RawReplier is implemented by errors that carry what the model said; it is
// kept in errors.jsonl.
type RawReplier interface{ RawReply() string }

// Options steer Execute.
type Options struct {
	// Workers returns one backend a worker for a role. The same backend may
	// occur more than once. It is called when a step of the role has something
	// to do; the executor closes what it returned, each distinct backend once,
	// before it asks for another role and at the end.
	Workers func(ctx context.Context, role string) ([]infer.Backend, error)
	// Together returns, for every worker, a backend a role, of models that are open at the
	// same time. It is what Workers is for the steps that ask several roles.
	Together func(ctx context.Context, roles []string) ([]map[string]infer.Backend, error)
	// Identify says which model answers a role now, asked anew. It is called at the
	// end of a step that asked one; nil is never. Another model than the identity's
	// marks the session and ends the run with a *ModelChangedError.
	Identify func(ctx context.Context, role string) (infer.Model, error)
	// MaxFailures is how many failed samples are tolerated; one more stops the
	// run with a *FailuresError.
	MaxFailures int
	Progress    Progress // nil is Silent()
	// Shard is the part "i/n" of the units to do, 1 <= i <= n; "" is all of
	// them. It must be the shard in the run's identity.
	Shard string
	// Soft asks for a stop when it is closed: the items in hand are finished
	// and no new ones begun. Cancelling the context drops the items in hand.
	Soft <-chan struct{}
}

// Summary is what Execute did.
type Summary struct {
	// Usage adds up what this session asked, failed attempts included.
	Usage    infer.Usage `json:"usage"`
	Scored   int         `json:"scored"`   // samples of the run with an answer, reused ones included
	Unscored int         `json:"unscored"` // samples of the run without one, reused ones included
	Failed   int         `json:"failed"`   // samples that could not be made
	Skipped  int         `json:"skipped"`  // samples not tried because an earlier step of the unit failed
	Reused   int         `json:"reused"`   // samples taken over from an earlier session
	Seconds  float64     `json:"seconds"`  // of this session, wall clock
}

// FailuresError reports more failed samples than are tolerated. What was done
// is kept and the run can be resumed.
type FailuresError struct {
	Failed, Max int
	Path        string // of the run
	First       error
}

func (e *FailuresError) Error() string {
	return fmt.Sprintf("%d failed, %d tolerated (--max-failures); the first: %v; all are in %s", e.Failed, e.Max, e.First, ErrorsFile)
}

// InterruptedError reports a run that was asked to stop. It can be resumed.
type InterruptedError struct {
	Path string // of the run
	Err  error  // the context's cause; nil for a soft stop
}

func (e *InterruptedError) Error() string {
	return "interrupted; the run in " + e.Path + " can be resumed"
}

func (e *InterruptedError) Unwrap() error { return e.Err }
