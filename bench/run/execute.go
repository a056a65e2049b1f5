package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ccmed/ccmed/infer"
)

// ErrSkipped is what Progress is told of a sample that was not tried because an
// earlier step of its unit failed.
var ErrSkipped = errors.New("run: skipped, an earlier step of the unit failed")

// syncEvery is how much work a power cut can lose.
const syncEvery = time.Second

// Execute takes every unit of the task through every step, one step after the
// other, and writes the samples to the run, which must come from Create or
// Resume. Samples that are there already are not made again. It ends the
// session, with the status that fits the error, and closes the run.
//
// A unit whose step fails is written to errors.jsonl and left out of the later
// steps. Errors that stop the run: *FailuresError after more failures than
// MaxFailures, *infer.MissingError at once, *InterruptedError after a stop was
// asked for, and a failure to write. All of them leave a run that can be
// resumed.
func Execute[I any](ctx context.Context, d *Dir, t Task[I], o Options) (sum Summary, err error) {
	if d.lock == nil {
		return sum, fmt.Errorf("run %s is not open for writing", d.path)
	}
	start := time.Now()
	if o.Progress == nil {
		o.Progress = Silent()
	}
	x := &execution[I]{dir: d, task: t, options: o}
	defer func() {
		sum = x.sum
		sum.Seconds = time.Since(start).Seconds()
		var sums map[string]lineSum
		if x.store != nil {
			sums = x.store.sums()
		}
		// That the folder is lost is told once.
		if e := d.close(statusOf(err), &sum, sums); !isLost(e) || !isLost(err) {
			err = errors.Join(err, e)
		}
	}()
	if err := x.prepare(); err != nil {
		return sum, err
	}
	return sum, x.run(ctx)
}

func statusOf(err error) string {
	var interrupted *InterruptedError
	switch {
	case err == nil:
		return StatusDone
	case errors.As(err, &interrupted):
		return StatusInterrupted
	}
	return StatusFailed
}

// execution is the state of one call of Execute.
type execution[I any] struct {
	dir     *Dir
	task    Task[I]
	options Options
	groups  [][]int32 // indices of units, in the order of the task
	store   *store
	index   []span // of unit u and step s at u*len(steps)+s

	open      []map[string]infer.Backend // by worker and role
	openRoles []string

	mu        sync.Mutex // guards the progress and what follows
	sum       Summary
	firstFail error
	stop      error // why the run stops before its end
	softStop  context.CancelFunc
	hardStop  context.CancelFunc
}

func (x *execution[I]) at(unit, step int) *span { return &x.index[unit*len(x.task.Steps)+step] }

// prepare checks the task, deals the units into groups and takes up what is on
// disk.
func (x *execution[I]) prepare() error {
	if want := x.dir.manifest.Identity.Shard; x.options.Shard != want {
		return fmt.Errorf("the run %s is for shard %q and not %q", x.dir.path, want, x.options.Shard)
	}
	sh, err := parseShard(x.options.Shard)
	if err != nil {
		return err
	}
	steps := map[string]int{}
	for i, s := range x.task.Steps {
		if _, dup := steps[s.Name]; dup {
			return fmt.Errorf("task %s has two steps named %q", x.task.Name, s.Name)
		}
		if s.Role != "" && x.options.Workers == nil || len(s.Roles) > 0 && x.options.Together == nil {
			return fmt.Errorf("task %s: step %s needs the role %s and no workers were given", x.task.Name, s.Name, strings.Join(s.roles(), ", "))
		}
		steps[s.Name] = i
	}
	units := make(map[Key]int32, len(x.task.Units))
	groups := map[string]int{}
	for i, u := range x.task.Units {
		k := Key{Item: u.Item, Condition: u.Condition, Repeat: u.Repeat}
		if _, dup := units[k]; dup {
			return fmt.Errorf("task %s has two units with item %q, condition %q and repeat %d", x.task.Name, u.Item, u.Condition, u.Repeat)
		}
		units[k] = int32(i)
		name := u.Group
		if name == "" {
			name = u.Item
		}
		if !sh.holds(name) {
			continue
		}
		g, ok := groups[name]
		if !ok {
			g = len(x.groups)
			groups[name] = g
			x.groups = append(x.groups, nil)
		}
		x.groups[g] = append(x.groups[g], int32(i))
	}
	samples := filepath.Join(x.dir.path, SamplesFile)
	x.index = make([]span, len(x.task.Units)*len(x.task.Steps))
	st, err := x.dir.openStore(func(s Sample, at span) error {
		step, ok := steps[s.Step]
		k := s.Key
		k.Step = ""
		unit, known := units[k]
		if !ok || !known {
			return fmt.Errorf("%s holds a sample that this task does not make: %s; start a new run", samples, s.Key)
		}
		if x.at(int(unit), step).n > 0 {
			return fmt.Errorf("%s holds two samples of %s; %s", samples, s.Key, remake)
		}
		*x.at(int(unit), step) = at
		x.sum.Reused++
		x.count(s)
		return nil
	})
	if err != nil {
		return err
	}
	x.store = st
	return nil
}

func (x *execution[I]) count(s Sample) {
	if s.Unscored != "" {
		x.sum.Unscored++
	} else {
		x.sum.Scored++
	}
}

// run takes the units through the steps.
func (x *execution[I]) run(ctx context.Context) (err error) {
	hard, hardStop := context.WithCancel(ctx)
	soft, softStop := context.WithCancel(hard)
	x.hardStop, x.softStop = hardStop, softStop
	defer hardStop()
	defer softStop()
	background := sync.WaitGroup{}
	background.Go(func() {
		select {
		case <-x.options.Soft: // nil without the option: never ready
			softStop()
		case <-soft.Done():
		}
	})
	background.Go(func() { x.syncRegularly(soft) })
	defer func() {
		softStop()
		background.Wait()
		x.closeBackends()
		x.options.Progress.End()
		if e := x.store.close(); !isLost(e) || !isLost(err) {
			err = errors.Join(err, e)
		}
	}()
	for i, s := range x.task.Steps {
		if soft.Err() == nil {
			err = x.step(hard, soft, i)
		}
		changed := x.unchanged(hard, s)
		switch {
		case x.stopped() != nil:
			return errors.Join(x.stopped(), changed)
		case err != nil && ctx.Err() == nil:
			return err
		case changed != nil && soft.Err() == nil:
			return changed
		case soft.Err() != nil:
			// A stop that comes after the last sample interrupts nothing.
			if i == len(x.task.Steps)-1 && x.pending(i) == 0 {
				return changed
			}
			x.dir.logf("interrupted in step %s", s.Name)
			return errors.Join(&InterruptedError{x.dir.path, context.Cause(ctx)}, changed)
		}
	}
	return nil
}

func (x *execution[I]) syncRegularly(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := x.store.sync(); err != nil {
				x.halt(err, true)
			}
		}
	}
}

// halt makes the run stop with err: after the items in hand, or at once. The
// first one counts.
func (x *execution[I]) halt(err error, atOnce bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stop == nil {
		x.stop = err
		x.dir.logf("stopping: %v", err)
	}
	x.softStop()
	if atOnce {
		x.hardStop()
	}
}

func (x *execution[I]) stopped() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stop
}

// pending counts the units of this shard that step i has still to do and can do.
func (x *execution[I]) pending(step int) int {
	n := 0
	for _, g := range x.groups {
		for _, u := range g {
			if x.missing(int(u), step) && x.ready(int(u), step) {
				n++
			}
		}
	}
	return n
}

// missing reports whether a step takes a unit and has no sample of it.
func (x *execution[I]) missing(unit, step int) bool {
	return x.at(unit, step).n == 0 && x.task.Steps[step].takes(x.task.Units[unit])
}

// ready reports whether every earlier step that takes the unit has made its sample.
func (x *execution[I]) ready(unit, step int) bool {
	for s := range step {
		if x.missing(unit, s) {
			return false
		}
	}
	return true
}

// step takes all units through one step.
func (x *execution[I]) step(hard, soft context.Context, step int) error {
	s := x.task.Steps[step]
	total, done := 0, 0
	for _, g := range x.groups {
		for _, u := range g {
			switch {
			case x.at(int(u), step).n > 0:
				total, done = total+1, done+1
			case x.missing(int(u), step):
				total++
			}
		}
	}
	x.dir.logf("step %s: %d samples, %d of them there", s.Name, total, done)
	x.progress(func(p Progress) { p.Step(s.Name, total, done) })
	workers := make([]map[string]infer.Backend, runtime.GOMAXPROCS(0))
	if roles := s.roles(); len(roles) > 0 && x.pending(step) > 0 {
		bs, err := x.backends(hard, roles)
		if err != nil {
			return err
		}
		workers = bs
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for _, b := range workers {
		wg.Go(func() {
			for soft.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(x.groups) {
					return
				}
				for _, u := range x.groups[i] {
					if soft.Err() != nil {
						return
					}
					if x.missing(int(u), step) {
						x.unit(hard, step, int(u), b)
					}
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// backends returns the workers of roles, and closes those of others first.
func (x *execution[I]) backends(ctx context.Context, roles []string) ([]map[string]infer.Backend, error) {
	if slices.Equal(x.openRoles, roles) && len(x.open) > 0 {
		return x.open, nil
	}
	x.closeBackends()
	names := strings.Join(roles, ", ")
	workers, err := x.workers(ctx, roles)
	if err != nil {
		return nil, fmt.Errorf("open the model of the %s: %w", names, err)
	}
	if len(workers) == 0 {
		return nil, fmt.Errorf("open the model of the %s: there are no workers", names)
	}
	x.open, x.openRoles = workers, roles
	return workers, nil
}

func (x *execution[I]) workers(ctx context.Context, roles []string) ([]map[string]infer.Backend, error) {
	if len(roles) > 1 || x.options.Workers == nil {
		return x.options.Together(ctx, roles)
	}
	bs, err := x.options.Workers(ctx, roles[0])
	workers := make([]map[string]infer.Backend, len(bs))
	for i, b := range bs {
		workers[i] = map[string]infer.Backend{roles[0]: b}
	}
	return workers, err
}

func (x *execution[I]) closeBackends() {
	closed := map[infer.Backend]bool{}
	for _, worker := range x.open {
		for _, role := range x.openRoles {
			b := worker[role]
			if reflect.TypeOf(b).Comparable() {
				if closed[b] {
					continue
				}
				closed[b] = true
			}
			if err := b.Close(); err != nil {
				x.dir.logf("close the model of the %s: %v", role, err)
			}
		}
	}
	x.open, x.openRoles = nil, nil
}

// unit makes one sample.
func (x *execution[I]) unit(ctx context.Context, step, unit int, backends map[string]infer.Backend) {
	s, u := x.task.Steps[step], x.task.Units[unit]
	key := Key{s.Name, u.Item, u.Condition, u.Repeat}
	if !x.ready(unit, step) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.sum.Skipped++
		x.options.Progress.Done(key, Sample{Key: key}, ErrSkipped)
		return
	}
	rec := &record{}
	asking := map[string]infer.Backend{}
	for role, b := range backends {
		asking[role] = &recorder{b, rec}
	}
	var unreadable error
	look := func(name string) (Sample, bool) {
		for i := range step {
			if x.task.Steps[i].Name == name && x.at(unit, i).n > 0 {
				sample, err := x.store.get(*x.at(unit, i))
				if err != nil {
					unreadable = err
				}
				return sample, err == nil
			}
		}
		return Sample{}, false
	}
	start := time.Now()
	var sample Sample
	var err error
	if s.DoAll != nil {
		sample, err = s.DoAll(ctx, asking, u, look)
	} else {
		sample, err = s.Do(ctx, asking[s.Role], u, look)
	}
	sample.Key, sample.Schema, sample.Group = key, SampleSchema, u.Group
	sample.Seconds = time.Since(start).Seconds()
	sample.Usage, sample.Prompts = rec.usage, rec.hashes()
	if unreadable != nil {
		x.halt(unreadable, true)
		return
	}
	if err == nil {
		var at span
		var bad errUnencodable
		if at, err = x.store.put(sample, rec.prompts); err == nil {
			*x.at(unit, step) = at
		} else if !errors.As(err, &bad) {
			x.halt(err, true)
			return
		}
	}
	if err != nil && ctx.Err() != nil {
		return // dropped in hand: neither a sample nor a failure
	}
	x.finish(key, sample, err)
}

// finish counts a sample or a failure and tells the progress.
func (x *execution[I]) finish(key Key, sample Sample, err error) {
	if err != nil {
		if e := x.store.fail(key, err); e != nil {
			x.halt(errors.Join(err, e), true)
			return
		}
	}
	x.mu.Lock()
	x.sum.Usage = x.sum.Usage.Add(sample.Usage)
	over := false
	if err != nil {
		x.sum.Failed++
		if x.firstFail == nil {
			x.firstFail = fmt.Errorf("%s: %w", key, err)
		}
		over = x.sum.Failed > x.options.MaxFailures
		x.dir.logf("%s failed: %v", key, err)
	} else {
		x.count(sample)
	}
	failures := &FailuresError{x.sum.Failed, x.options.MaxFailures, x.dir.path, x.firstFail}
	x.options.Progress.Done(key, sample, err)
	x.mu.Unlock()
	var missing *infer.MissingError
	switch {
	case errors.As(err, &missing):
		x.halt(fmt.Errorf("%s: %w", key, err), true)
	case over:
		x.halt(failures, false)
	}
}

func (x *execution[I]) progress(f func(Progress)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(x.options.Progress)
}
