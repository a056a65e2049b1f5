package task

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

// Unit is an item under a condition, in one repeat, with the samples of its steps in the
// order of their names.
type Unit struct {
	Key   run.Key // without a step
	Steps []run.Sample
}

// Units groups samples by unit, in the order of items, conditions and repeats.
func Units(samples []run.Sample) []Unit {
	at := map[run.Key]int{}
	var units []Unit
	for _, s := range samples {
		k := s.Key
		k.Step = ""
		i, ok := at[k]
		if !ok {
			i = len(units)
			at[k] = i
			units = append(units, Unit{Key: k})
		}
		units[i].Steps = append(units[i].Steps, s)
	}
	for _, u := range units {
		slices.SortFunc(u.Steps, func(x, y run.Sample) int { return cmp.Compare(x.Step, y.Step) })
	}
	slices.SortFunc(units, func(x, y Unit) int { return run.CompareUnits(x.Key, y.Key) })
	return units
}

// Step is the sample of a step.
func (u Unit) Step(name string) (run.Sample, bool) {
	i := slices.IndexFunc(u.Steps, func(s run.Sample) bool { return s.Step == name })
	if i < 0 {
		return run.Sample{}, false
	}
	return u.Steps[i], true
}

// Costs are the samples without their data.
func (u Unit) Costs() []run.Sample {
	out := slices.Clone(u.Steps)
	for i := range out {
		out[i].Data = nil
	}
	return out
}

// UnitsOnce returns a function that reads the units of a run, once however often it is
// called.
func (in Input) UnitsOnce() func() ([]Unit, error) {
	return sync.OnceValues(func() ([]Unit, error) {
		samples, err := Collect(in.Samples())
		return Units(samples), err
	})
}

// StepData is the data of a unit's step, and why it holds no usable answer. A step without
// a sample is unscored.
func StepData[T any](u Unit, step string) (v T, unscored string, err error) {
	s, ok := u.Step(step)
	if !ok {
		return v, "the step " + step + " has no sample", nil
	}
	v, err = Data[T](s)
	return v, s.Unscored, err
}

// Earlier is the data of a step that was made before, for a step that goes on from it.
func Earlier[T any](look run.Lookup, step string) (v T, unscored string, err error) {
	s, ok := look(step)
	if !ok {
		return v, "", fmt.Errorf("the sample of the step %s is missing", step)
	}
	v, err = Data[T](s)
	return v, s.Unscored, err
}

// Sample is what a step returns: its data, and why there is no usable answer.
func Sample(data any, unscored string, err error) (run.Sample, error) {
	if err != nil {
		return run.Sample{}, err
	}
	b, err := json.Marshal(data)
	if err != nil {
		return run.Sample{}, fmt.Errorf("encode a sample: %w", err)
	}
	return run.Sample{Unscored: unscored, Data: b}, nil
}

// PreviewOf shows the prompts by role, the first of each.
func PreviewOf(calls map[string][]infer.Prompt) Preview {
	p := Preview{Calls: calls, First: map[string]infer.Prompt{}}
	for role, ps := range calls {
		p.First[role] = ps[0]
	}
	return p
}
