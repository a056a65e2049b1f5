package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/published"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/task"
)

func (a *app) dataCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "data", Short: "Look at, check, split and sample dialogue records"}
	cmd.AddCommand(a.dataStatsCmd(), a.dataValidateCmd(), a.dataSampleCmd(), a.dataSplitCmd(), a.dataPromptsCmd())
	return cmd
}

func (a *app) dataStatsCmd() *cobra.Command {
	d := task.Records{}
	cmd := &cobra.Command{
		Use:   "stats DIR",
		Short: "Count what a folder of records holds",
		Example: `  ccmed data stats CC-Mediation/data
  ccmed data stats sample`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.Path = args[0]
			var sections []report.Section
			sets, err := d.Splits()
			if err != nil {
				return err
			}
			read := map[string][]dialogue.Dialogue{}
			var all []dialogue.Dialogue
			for _, s := range sets {
				ds, err := a.opened().All(cmd.Context(), task.Records{Path: d.Path, Split: s, Lenient: d.Lenient})
				if err != nil {
					return err
				}
				read[s], all = ds, append(all, ds...)
				name := s
				if name == "" {
					name = filepath.Base(d.Path)
				}
				sections = append(sections, statsSection(name, dialogue.Stats(ds)))
			}
			if s, ok, err := reliabilitySection(all); err != nil {
				return err
			} else if ok {
				sections = append(sections, s)
			}
			if ev, tr := read["evaluate"], read["training"]; ev != nil && tr != nil {
				shared, total := dialogue.SharedContexts(ev, tr)
				sections[0].Notes = append(sections[0].Notes, fmt.Sprintf("%d of %d evaluation dialogues have a scenario context that also occurs in training", shared, total))
				if s, ok := releasedSection(ev, tr); ok {
					sections = append(sections, s)
				}
			}
			return a.print(sections)
		},
	}
	cmd.Flags().StringVar(&d.Split, "split", "", "evaluate or training; both where the folder holds both")
	cmd.Flags().BoolVar(&d.Lenient, "lenient", false, "leave out records that cannot be used")
	return cmd
}

// releasedSection puts what the paper says of its data beside the released records.
// Of other records it says nothing: ok is false.
func releasedSection(eval, training []dialogue.Dialogue) (s report.Section, ok bool) {
	if dialogue.Hash(slices.Concat(eval, training)) != published.Records {
		return s, false
	}
	ev, tr := dialogue.Stats(eval), dialogue.Stats(training)
	t, ok := published.Table(published.Data, map[string]published.Measured{
		published.Dialogues:  {Value: float64(ev.UsableMediations + tr.UsableMediations)},
		published.UtilityGap: {Value: tr.StoredPositive.Mean - tr.StoredNegative.Mean},
	}, published.Options{})
	t.Title = ""
	t.Notes = append(t.Notes, "dialogues here: those with a mediation that can be used")
	return report.Section{Title: "Data beside the published numbers", Tables: []report.Table{t}}, ok
}

// reliabilitySection shows how far the recorded labels agree with themselves. ok is false
// where no turn was labelled twice.
func reliabilitySection(ds []dialogue.Dialogue) (s report.Section, ok bool, err error) {
	all, own, err := dialogue.LabelReliability(ds, 1)
	if err != nil || all == nil {
		return s, false, err
	}
	t := report.Table{Columns: report.Columns("turns labelled twice", "n>", "same stage>", "quadratic kappa [95 %]>")}
	for _, x := range []struct {
		name string
		of   *dialogue.Agreement
	}{{"all", all}, {"the conflict speaker's own", own}} {
		if x.of != nil {
			t.Add(x.name, x.of.Turns, report.Pct(x.of.Agree, x.of.Turns), report.Estimate(x.of.Kappa, 2))
		}
	}
	return report.Section{Title: "Reliability of the recorded labels", Tables: []report.Table{t}, Notes: []string{
		"turns that a record's unmediated and rejected continuations share, with equal words before them; intervals by scenario context",
		"a label is about the one who speaks the turn; a labeller as good as the recorded one reaches about this kappa against recorded labels, one without error about its square root"}}, true, nil
}

func statsSection(name string, s dialogue.Summary) report.Section {
	counts := func(title, label string, keys []string, n map[string]int) report.Table {
		t := report.Table{Title: title, Columns: report.Columns(label, "dialogues>")}
		for _, k := range keys {
			t.Add(k, n[k])
		}
		return t
	}
	turns := func(title, label string, m map[int]int) report.Table {
		t := report.Table{Title: title, Columns: report.Columns(label, "dialogues>")}
		for i := range 32 {
			if m[i] > 0 {
				t.Add(strconv.Itoa(i), m[i])
			}
		}
		return t
	}
	facts := report.Table{Title: "Records", Columns: report.Columns("fact", "value>")}
	row := func(k string, c report.Cell) { facts.Add(k, c) }
	row("dialogues", report.Int(s.N))
	row("usable mediations", report.Int(s.UsableMediations))
	row("distinct scenario contexts", report.Int(s.Contexts))
	for _, f := range s.AgentFields() {
		row("agents without "+f.Name, report.Text(fmt.Sprintf("%d of %d", f.Missing, s.Agents)))
	}
	p, n := s.StoredPositive, s.StoredNegative
	for _, x := range []struct {
		name string
		n    int
		v    float64
	}{{"mean stored AUC, positive", p.N, p.Mean}, {"mean stored AUC, negative", n.N, n.Mean}, {"difference", min(p.N, n.N), p.Mean - n.Mean}} {
		if x.n > 0 {
			row(x.name, report.Num(x.v, 4))
		} else {
			row(x.name, report.Text("none stored"))
		}
	}
	row("pairs with both", report.Int(s.StoredPairs))
	return report.Section{Title: "Data: " + name, Tables: []report.Table{facts,
		counts("Conflict stage", "stage", s.StageNames(), s.Stages), turns("Conflict turn", "turn", s.ConflictTurns), turns("Last turn", "turn", s.LastTurns)}}
}

func (a *app) dataValidateCmd() *cobra.Command {
	d := task.Records{}
	cmd := &cobra.Command{
		Use:     "validate DIR",
		Short:   "Check records: JSON, turns and their order, ids, stages",
		Example: "  ccmed data validate CC-Mediation/data",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.Path = args[0]
			sets, err := d.Splits()
			if err != nil {
				return err
			}
			good, bad := 0, 0
			for _, s := range sets {
				if d.Path == "sample" {
					good += len(dialogue.Sample())
					continue
				}
				ds, rep, err := dialogue.Read(cmd.Context(), d.Path, dialogue.ReadOptions{Lenient: true, Split: s})
				if err != nil {
					return err
				}
				good, bad = good+len(ds), bad+len(rep.Problems)
				for _, p := range rep.Problems {
					if err := a.tell("%v\n", p); err != nil {
						return err
					}
				}
			}
			if err := a.tell("%d dialogues can be used, %d records cannot\n", good, bad); err != nil {
				return err
			}
			if bad > 0 {
				return &partialError{fmt.Errorf("%d records cannot be used; mend them, or leave them out with --lenient", bad)}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&d.Split, "split", "", "evaluate or training; all where empty")
	return cmd
}

func (a *app) dataSampleCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "sample DIR",
		Short:   "Write the embedded sample of 12 dialogues",
		Example: "  ccmed data sample my-dialogues",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			ds := dialogue.Sample()
			if err := dialogue.Write(args[0], ds); err != nil {
				return err
			}
			a.note("wrote %d dialogues to %s", len(ds), args[0])
			return nil
		},
	}
}

func (a *app) dataSplitCmd() *cobra.Command {
	d := task.Records{}
	var out string
	var fraction float64
	var seed int64
	cmd := &cobra.Command{
		Use:   "split DIR",
		Short: "Split dialogues in two so that no scenario context is in both",
		Long: `split writes two folders of records, OUT/training and OUT/evaluate. Dialogues that
share a scenario context stay together, stages are kept in balance, and the
same seed gives the same split.`,
		Example: "  ccmed data split CC-Mediation/data/training --out split --evaluate 0.2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.Path = args[0]
			if out == "" {
				return usagef("no --out folder given")
			}
			if fraction <= 0 || fraction >= 1 {
				return usagef("--evaluate %g; it must lie between 0 and 1", fraction)
			}
			d.Whole = true
			ds, _, err := a.opened().Dialogues(cmd.Context(), d)
			if err != nil {
				return err
			}
			train, eval, err := dialogue.Split(ds, fraction, seed)
			if err != nil {
				return err
			}
			if err := dialogue.Write(filepath.Join(out, "training"), train); err != nil {
				return err
			}
			if err := dialogue.Write(filepath.Join(out, "evaluate"), eval); err != nil {
				return err
			}
			a.note("wrote %d training and %d evaluation dialogues to %s", len(train), len(eval), out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "folder to write to")
	f.Float64Var(&fraction, "evaluate", 0.2, "share of the dialogues for evaluation")
	f.Int64Var(&seed, "seed", 1, "seed of the split")
	f.StringVar(&d.Split, "split", "", "evaluate or training, where the folder holds both")
	f.BoolVar(&d.Lenient, "lenient", false, "leave out records that cannot be used")
	return cmd
}

func (a *app) dataPromptsCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "prompts DIR",
		Short:   "Write the prompt templates, to change and use with --prompts",
		Example: "  ccmed data prompts my-prompts",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := prompt.WriteTo(args[0]); err != nil {
				return err
			}
			a.note("wrote the templates to %s", args[0])
			return nil
		},
	}
}
