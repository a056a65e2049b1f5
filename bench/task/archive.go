package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
)

// Archive opens runs and records for one command, each once.
type Archive struct {
	Benches Registry
	// Version is that of the program; metrics of another version are computed anew.
	Version string
	// Note prints a line for the user that is not data.
	Note func(format string, args ...any)

	runs    map[string]*Run
	records map[Records][]dialogue.Dialogue
	noted   map[string]bool
}

// once prints a line that a command prints once.
func (a *Archive) once(line string) {
	if a.noted == nil {
		a.noted = map[string]bool{}
	}
	if !a.noted[line] {
		a.noted[line] = true
		a.Note("%s", line)
	}
}

// Run is a run folder that is read. Its samples are read at most once for its result,
// whoever asks for it.
type Run struct {
	*run.Dir
	Archive *Archive
	Bench   Bench // nil for a task that this version does not know

	result  Result
	made    Input // what result was computed from
	passes  int
	whole   bool // one of the passes reached the end
	totals  *run.Summary
	first   []FirstPrompt
	records *runRecords
}

// Open opens a run whose samples, and other files that are named, will be read. What of
// them no checksum vouches for is noted once.
func (a *Archive) Open(path string, files ...string) (*Run, error) {
	at, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", path, err)
	}
	r := a.runs[at]
	if r == nil {
		d, err := run.Open(path)
		if err != nil {
			return nil, err
		}
		r = &Run{Dir: d, Archive: a}
		if b, ok := a.Benches.Of(d.Manifest().Identity); ok {
			r.Bench = b
		}
		if a.runs == nil {
			a.runs = map[string]*Run{}
		}
		a.runs[at] = r
	}
	for _, n := range r.Unchecked(append([]string{run.SamplesFile}, files...)...) {
		a.once("note: " + n)
	}
	return r, nil
}

// Forget drops what is known of a run, as after it was written to.
func (a *Archive) Forget(path string) {
	if at, err := filepath.Abs(path); err == nil {
		delete(a.runs, at)
	}
}

// Name is the name of the run's folder.
func (r *Run) Name() string { return filepath.Base(r.Path()) }

// Identity is what the run is.
func (r *Run) Identity() run.Identity { return r.Manifest().Identity }

// Passes counts how often the samples were read from their beginning.
func (r *Run) Passes() int { return r.passes }

// FirstPrompt names the first prompt of a step under a condition.
type FirstPrompt struct{ Step, Condition, Item, Hash string }

// Samples iterates over the samples in the order of writing. On the way it adds up what
// they cost, and refuses two samples of one key, as an edit by hand leaves them: every
// number would count both.
func (r *Run) Samples() iter.Seq2[run.Sample, error] {
	return func(yield func(run.Sample, error) bool) {
		r.passes++
		var sum run.Summary
		var first []FirstPrompt
		lines := map[run.Key]int{}
		places := map[[2]string]bool{}
		n := 0
		for s, err := range r.All() {
			if err == nil {
				n++
				if at, twice := lines[s.Key]; twice {
					err = run.TwiceError(r.Path(), n, at, s.Key)
				}
				lines[s.Key] = n
			}
			if err != nil {
				yield(run.Sample{}, err)
				return
			}
			sum.Usage = sum.Usage.Add(s.Usage)
			if s.Unscored == "" {
				sum.Scored++
			} else {
				sum.Unscored++
			}
			if p := [2]string{s.Step, s.Condition}; !places[p] && len(s.Prompts) > 0 {
				places[p] = true
				first = append(first, FirstPrompt{s.Step, s.Condition, s.Item, s.Prompts[0]})
			}
			if !yield(s, nil) {
				return
			}
		}
		r.count(sum, first)
	}
}

// count completes what a whole pass over the samples adds up to.
func (r *Run) count(sum run.Summary, first []FirstPrompt) {
	m := r.Manifest()
	sessions := m.Sessions
	if len(m.Merged) > 0 {
		sessions = sessions[len(sessions)-1:] // it sums up the shards'
	}
	for _, s := range sessions {
		if s.Summary != nil {
			sum.Seconds += s.Summary.Seconds
			sum.Failed, sum.Skipped = s.Summary.Failed, s.Summary.Skipped
		}
	}
	r.totals, r.first, r.whole = &sum, first, true
}

// pass reads the samples for what they add up to alone, unless that is known.
func (r *Run) pass() error {
	if r.whole {
		return nil
	}
	for _, err := range r.Samples() {
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckSamples holds the samples against the checksum that the manifest has of them, unless
// a pass over all of them did so.
func (r *Run) CheckSamples() error {
	if r.whole {
		return nil
	}
	return r.Check(run.SamplesFile)
}

// Totals adds up what all sessions of the run cost.
func (r *Run) Totals() (run.Summary, error) {
	if r.totals == nil {
		if err := r.pass(); err != nil {
			return run.Summary{}, err
		}
	}
	return *r.totals, nil
}

// FirstPrompts lists the first prompt of every step and condition, in the order of asking.
func (r *Run) FirstPrompts() ([]FirstPrompt, error) {
	if err := r.pass(); err != nil {
		return nil, err
	}
	return r.first, nil
}

// ScoreOptions steer the scoring of a run.
type ScoreOptions struct {
	Seed int64   // of resampling; 0 is the run's own
	Rule string  // see Input
	At   Records // see Input
	// Anew computes the metrics whether or not the stored ones are still true.
	Anew bool
}

// Result scores the run, or takes what an earlier scoring found where that is still true.
func (r *Run) Result(ctx context.Context, o ScoreOptions) (Result, error) {
	id := r.Identity()
	if r.Bench == nil {
		return nil, fmt.Errorf("%s is a %s run, and this version knows no such task", r.Path(), id.Task)
	}
	if o.Seed == 0 {
		o.Seed = id.Seed
	}
	in := Input{Run: r, Seed: uint64(o.Seed), Rule: o.Rule, At: o.At}
	if r.result != nil && r.made.Seed == in.Seed && r.made.Rule == in.Rule && r.made.At == in.At && !(o.Anew && r.made.Stored != nil) {
		return r.result, nil
	}
	if !o.Anew && o.Rule == "" && o.At == (Records{}) {
		stored, why, err := r.stored(o.Seed)
		switch {
		case err != nil:
			return nil, err
		case why != "":
			r.Archive.once(fmt.Sprintf("%s: %s; it is scored again", r.Path(), why))
		case stored != nil:
			in.Stored = stored.Metrics
			if r.totals == nil {
				r.totals = &stored.Usage
			}
		}
	}
	res, err := r.Bench.Score(ctx, in)
	if err != nil {
		return nil, err
	}
	r.result, r.made = res, in
	return res, nil
}

// stored returns the metrics of an earlier scoring where they are still true. why says
// what speaks against those that are there.
func (r *Run) stored(seed int64) (m *run.StoredMetrics, why string, err error) {
	x, err := r.Dir.Metrics()
	var newer *run.NewerError
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &newer):
		return nil, "", nil
	case err != nil:
		return nil, "its " + run.MetricsFile + " cannot be used: " + err.Error(), nil
	}
	inputs, err := r.Inputs()
	if err != nil {
		return nil, "", err
	}
	hash := r.Manifest().SamplesHash
	switch {
	case x.ContentHash == "", x.Schema != run.MetricsSchema, x.Version != r.Archive.Version:
		return nil, "its " + run.MetricsFile + " is of another version of ccmed", nil
	case x.SamplesHash != hash || hash == "":
		return nil, "its " + run.MetricsFile + " is of other samples", nil
	case !maps.Equal(x.Inputs, inputs):
		return nil, "its " + run.MetricsFile + " was computed with another " + firstDifference(x.Inputs, inputs), nil
	case x.Seed != seed:
		return nil, "", nil // another seed was asked for
	}
	return &x, "", nil
}

// firstDifference names an input in which two scorings differ.
func firstDifference(a, b map[string]string) string {
	names := maps.Clone(a)
	if names == nil {
		names = map[string]string{}
	}
	maps.Copy(names, b)
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if a[n] != b[n] {
			return n
		}
	}
	return "input"
}

// Depender is implemented by benchmarks whose metrics depend on other runs than their
// own; it returns hashes by name.
type Depender interface {
	Inputs(*Run) (map[string]string, error)
}

// Inputs are the hashes of what the metrics depend on beside the run's own samples.
func (r *Run) Inputs() (map[string]string, error) {
	if d, ok := r.Bench.(Depender); ok {
		return d.Inputs(r)
	}
	return nil, nil
}

// Metrics is what metrics.json holds after a scoring.
func (r *Run) Metrics(res Result, seed int64) (map[string]any, error) {
	total, err := r.Totals()
	if err != nil {
		return nil, err
	}
	hash, err := r.SamplesHash()
	if err != nil {
		return nil, err
	}
	inputs, err := r.Inputs()
	if err != nil {
		return nil, err
	}
	if seed == 0 {
		seed = r.Identity().Seed
	}
	m := map[string]any{"schema": run.MetricsSchema, "version": r.Archive.Version, "task": r.Identity().Task, "samples_sha256": hash, "seed": seed, "usage": total, "metrics": res.Metrics()}
	if len(inputs) > 0 {
		m["inputs"] = inputs
	}
	return m, nil
}
