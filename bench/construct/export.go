package construct

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
)

// Records are the records of a run of Pairs, of which admitted pairs alone, or of Label,
// and their data card in Markdown. licence is what the user chose.
func Records(a *task.Archive, path, licence string) ([]dialogue.Dialogue, string, error) {
	r, err := a.Open(path)
	if err != nil {
		return nil, "", err
	}
	samples, err := task.Collect(r.Samples())
	if err != nil {
		return nil, "", err
	}
	units := task.Units(samples)
	s := &scoring{seed: uint64(r.Identity().Seed)}
	var out []dialogue.Dialogue
	sources := map[string]int{}
	keep := func(rec record, of Case) error {
		d, err := rec.parse()
		if err == nil {
			out = append(out, d)
			sources[cmp.Or(of.Scenario.Source, "a file without a source")]++
		}
		return err
	}
	switch r.Identity().Task {
	case taskPairs:
		settings, err := task.Settings[pairsSettings](r.Identity())
		if err != nil {
			return nil, "", err
		}
		pairs, err := pairsOf(units)
		if err != nil {
			return nil, "", err
		}
		mediator := r.Identity().Models[RoleMediator].Name
		for _, p := range pairs {
			s.add(outcome{why: p.why})
			if p.why != "" {
				continue
			}
			p.positive.mediator, p.negative.mediator = mediator, mediator
			if err := keep(recordOf(p.positive.Of, p.positive, p.negative), p.positive.Of.Case); err != nil {
				return nil, "", err
			}
		}
		if s.m.Pairs, err = findings(pairs, settings.Grade, s.seed); err != nil {
			return nil, "", err
		}
	case taskLabel:
		labelled, err := labelledOf(units)
		if err != nil {
			return nil, "", err
		}
		card, err := cardOf(labelled, s.seed)
		if err != nil {
			return nil, "", err
		}
		s.m.Labels = &card
		for _, l := range labelled {
			s.add(outcome{})
			if err := keep(recordOf(l, nil, nil), l.Case); err != nil {
				return nil, "", err
			}
		}
	default:
		return nil, "", usage.Errorf("%s is a run of the task %s; name one of ccmed build pairs or ccmed build label", path, r.Identity().Task)
	}
	if len(out) == 0 {
		return nil, "", fmt.Errorf("%s holds no record that is kept; `ccmed runs show %s` counts the reasons", path, path)
	}
	card, err := dataCard(a, r, s.m, out, sources, licence)
	return out, card, err
}

// dataCard says what the records are, with the runs that they come from.
func dataCard(a *task.Archive, r *task.Run, m Metrics, ds []dialogue.Dialogue, sources map[string]int, licence string) (string, error) {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Constructed cross-cultural dialogues\n\nMade with ccmed build; all words that are spoken are written by models. Licence: %s.\n", licence)
	if f := m.Pairs; f != nil && f.Grade != Consistent {
		line("**The labeller is %s: a pipeline check. Which path of a pair is the better one is not known.**\n", f.Grade)
	}
	line("## Counts\n\n| what | n |\n|---|---:|\n| records | %d |", len(ds))
	stages, turns := map[string]int{}, map[int]int{}
	contexts := map[string]bool{}
	for _, d := range ds {
		stages[d.Stage.String()]++
		turns[d.ConflictTurn]++
		contexts[d.ContextKey()] = true
	}
	line("| scenario contexts | %d |", len(contexts))
	for _, s := range slices.Sorted(maps.Keys(stages)) {
		line("| conflict stage %s | %d |", s, stages[s])
	}
	for _, t := range slices.Sorted(maps.Keys(turns)) {
		line("| conflict turn %d | %d |", t, turns[t])
	}
	for _, why := range slices.Sorted(maps.Keys(m.Rejected)) {
		line("| not here: %s | %d |", why, m.Rejected[why])
	}
	if f := m.Pairs; f != nil && f.Chosen.AUC != nil {
		line("| mean gap of AUC, index scale | %.3f |", f.Chosen.AUC.Value)
		if f.Chosen.AUCAgain != nil {
			line("| the same on a second labelling | %.3f |", f.Chosen.AUCAgain.Value)
		}
	}
	line("\n## Scenarios\n\n| written by | records |\n|---|---:|")
	for _, by := range slices.Sorted(maps.Keys(sources)) {
		line("| %s | %d |", by, sources[by])
	}
	if sources[fromOthers] > 0 {
		line("\nOf scenarios from records of others the scene, the people and their goals are not a model's: whether they may be passed on depends on those records' licence.")
	}
	err := lineage(a, r, line)
	return b.String(), err
}

// lineage names the models of a run and of those before it, the rejects of each, and the
// labeller's grade.
func lineage(a *task.Archive, r *task.Run, line func(string, ...any)) error {
	line("\n## How they were made\n\n| run | role | model | quantisation | digest |\n|---|---|---|---|---|")
	var notes []string
	for {
		id := r.Identity()
		for _, role := range slices.Sorted(maps.Keys(id.Models)) {
			m := id.Models[role]
			line("| %s | %s | %s | %s | %s |", id.Task, role, m.Name, m.Quantization, m.Digest)
		}
		note, err := lineageNotes(r, id)
		if err != nil {
			return err
		}
		notes = append(notes, note...)
		if id.Parent == "" {
			break
		}
		next, err := a.Open(id.Parent)
		if err != nil {
			return fmt.Errorf("the run %s was made from another one: %w", r.Path(), err)
		}
		r = next
	}
	line("\n## What to know\n")
	for _, n := range notes {
		line("- %s", n)
	}
	line("- stage labels are a model's, of each turn's own speaker; before the conflict a label says what a turn is about")
	return nil
}

func lineageNotes(r *task.Run, id run.Identity) ([]string, error) {
	samples, err := task.Collect(r.Samples())
	if err != nil {
		return nil, err
	}
	switch id.Task {
	case taskLabel:
		labelled, err := labelledOf(task.Units(samples))
		if err != nil {
			return nil, err
		}
		card, err := cardOf(labelled, uint64(id.Seed))
		if err != nil {
			return nil, err
		}
		note := "the labeller is " + card.Grade
		if len(card.Why) > 0 {
			note += ": " + strings.Join(card.Why, "; ")
		}
		if card.Reliability != nil {
			note += fmt.Sprintf("; κ of both labellings %.2f, of %d turns", card.Reliability.Kappa.Value, card.Reliability.Turns)
		}
		return []string{note}, nil
	case taskDialogues:
		rejected := map[string]int{}
		for _, s := range samples {
			if s.Unscored != "" && s.Unscored != nothingBefore {
				rejected[s.Unscored]++
			}
		}
		var notes []string
		for _, why := range slices.Sorted(maps.Keys(rejected)) {
			notes = append(notes, fmt.Sprintf("dialogues rejected for %s: %d", why, rejected[why]))
		}
		return notes, nil
	}
	return nil, nil
}
