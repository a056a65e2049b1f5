package task

import (
	"cmp"
	"slices"

	"github.com/ccmed/ccmed/bench/run"
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
