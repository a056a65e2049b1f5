package probe

import (
	"errors"
	"fmt"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe/linear"
)

// OuterFolds are the outer folds of a store's probes, as Find, FindTurns and FindLabeller
// make them with folds of whole scenario contexts.
type OuterFolds struct {
	Folds int
	Seeds []uint64 // one partition each
	of    []map[string]int
	items map[string]bool // that have a fold
}

// Of returns the fold in which an item's rows are held out, one a partition; -1 where
// probes leave the item out.
func (o *OuterFolds) Of(item, context string) []int64 {
	out := make([]int64, len(o.of))
	for k, folds := range o.of {
		fold, ok := folds[context]
		if out[k] = int64(fold); !ok || !o.items[item] {
			out[k] = -1
		}
	}
	return out
}

// ReadFolds divides a store as the design does. Where a stage has too few contexts the
// error wraps linear.ErrFolds or ErrDesign.
func ReadFolds(dir *run.Dir, d Design) (*OuterFolds, error) {
	d = d.withDefaults()
	s, items, err := dividedRows(dir, d.Folds)
	if err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	o := &OuterFolds{Folds: d.Folds, Seeds: d.Seeds, items: map[string]bool{}}
	for _, item := range items {
		o.items[item] = true
	}
	for _, seed := range d.Seeds {
		folds, err := linear.GroupKFold(s.Y, s.Groups, d.Folds, seed)
		if err != nil {
			return nil, fmt.Errorf("probe: %d folds: %w", d.Folds, err)
		}
		of := map[string]int{}
		for i, g := range s.Groups {
			of[g] = folds[i]
		}
		o.of = append(o.of, of)
	}
	return o, nil
}

// dividedRows are the rows that a store's probes divide into folds, and their items.
func dividedRows(dir *run.Dir, folds int) (s Samples, items []string, err error) {
	switch {
	case HoldsTurns(dir):
		t, err := openTurns(dir)
		if err != nil {
			return s, nil, err
		}
		s.Classes = turnClasses
		for _, r := range t.rows {
			items = append(items, r.Item)
			if r.Kind == KindScripted {
				s.Y, s.Groups = append(s.Y, r.Label), append(s.Groups, r.Group)
			}
		}
		return s, items, t.close()
	case HoldsQuestions(dir):
		q, err := openQuestions(dir)
		if err != nil {
			return s, nil, err
		}
		fit := &labellerFit{LabellerFindings: &LabellerFindings{Folds: folds, PerClass: map[string]int{}, Outside: map[string]int{}}}
		fit.take(q)
		for item := range q.items {
			items = append(items, item)
		}
		return fit.samples, items, q.file.Close()
	}
	if HoldsTiming(dir) {
		return s, nil, fmt.Errorf("%w: no probe is trained on questions whether to speak", ErrDesign)
	}
	st, err := openStore(dir)
	if err != nil {
		return s, nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	s.Classes = int(dmis.Minimization) + 1
	for _, item := range st.items {
		stage, err := dmis.ParseStage(st.states[item].Stage)
		if err != nil {
			return s, nil, fmt.Errorf("item %s: %w", item, err)
		}
		s.Y, s.Groups = append(s.Y, int(stage)), append(s.Groups, st.states[item].Context)
	}
	return s, st.items, nil
}
