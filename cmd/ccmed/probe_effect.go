package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/ask"
	"github.com/ccmed/ccmed/probe/direction"
	"github.com/ccmed/ccmed/probe/effect"
	"github.com/ccmed/ccmed/probe/extract"
)

type effectFlags struct {
	lines, choose        string
	format, out, figures string
	resamples            int
	seed                 uint64
}

func (a *app) effectCmd() *cobra.Command {
	e := effectFlags{}
	cmd := &cobra.Command{
		Use:   "effect RUN...",
		Short: "Say what edits of a model's states did to what it says and answers",
		Long: `effect takes runs of probe ask, one without an edit and one for each arm, and says
how much of the way from the model's ND lines to its D lines an edit takes them.
M is P(gold stage | line) by a bag of words that was fitted to D lines of training
groups with the stages' names masked, and the recovery of an edit is
(M − M of ND) / (M of D − M of ND). Of each dialogue the arm of its own stage is the
right one; those of other stages, of shuffled labels and random ones are held
against it. Stores of probe extract --edit may stand among the runs: the probes of
--lines say whether the stage is still read at the end of their lines.

Dialogues whose scenario context a direction was learnt from only choose a block and
a dose: --choose writes an edit file of the best cell, of which a dose of 1 is what
was chosen. All others bear a verdict: "used", "surface", or "decodable, not shown to
be used".`,
		Example: `  ccmed probe effect runs/PLAIN runs/DENIAL runs/DEFENSE runs/MINIMIZATION --lines runs/STORE
  ccmed probe effect runs/PLAIN runs/DOSE1 runs/DOSE2 --choose chosen.edit
  ccmed probe effect runs/PLAIN runs/DENIAL --lines runs/STORE --format html --out effect.html`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := a.untilInterrupt(cmd.Context())
			defer stop()
			return a.effect(ctx, args, &e)
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.lines, "lines", "", "store or mediation run of training dialogues whose D lines the bag of words is fitted to (default: D lines of the groups that the edits were learnt from, in the runs that were asked about)")
	f.StringVar(&e.choose, "choose", "", "edit file to write, of the block and dose that recover most on training groups")
	f.StringVar(&e.format, "format", "table", "table, markdown, html or json")
	f.StringVar(&e.out, "out", "", "file to write instead of standard output; one that exists is kept")
	f.StringVar(&e.figures, "figures", "", "folder for a paper: each figure as SVG and PDF, each table as LaTeX and Markdown")
	f.IntVar(&e.resamples, "resamples", 10_000, "resamples of intervals and tests")
	f.Uint64Var(&e.seed, "seed", 1, "seed of resampling")
	return cmd
}

func (a *app) effect(ctx context.Context, paths []string, e *effectFlags) error {
	if e.resamples < 100 {
		return usagef("--resamples %d; it must be at least 100", e.resamples)
	}
	in, err := a.effectInput(ctx, paths, e)
	if err != nil {
		return err
	}
	found, err := effect.Find(ctx, in.Input, effect.Options{Resamples: e.resamples, Seed: e.seed})
	if err != nil {
		return err
	}
	if e.choose != "" {
		if err := a.chooseEdit(found, e.choose); err != nil {
			return err
		}
	}
	sections := found.Sections(in.model, in.known)
	sections[0].Notes = append(sections[0].Notes, found.Cautions()...)
	if e.figures != "" {
		return a.writeFigures(e.figures, sections)
	}
	return a.writeOut(e.out, func(w io.Writer) error {
		switch e.format {
		case "table":
			if e.out == "" && !a.json {
				return a.print(sections)
			}
			if a.json {
				return encodeTo(w, found)
			}
			return report.Write(w, report.Terminal, sections, report.Options{})
		case "markdown":
			return report.Write(w, report.Markdown, sections, report.Options{})
		case "html":
			browser := effect.Browser(in.Input)
			sections = append(sections, report.Section{Title: "Lines side by side", Browser: &browser})
			return report.Write(w, report.HTML, sections, report.Options{Title: "Elicitation: " + in.model})
		case "json":
			return encodeTo(w, found)
		}
		return usagef("unknown --format %q; known are table, markdown, html and json", e.format)
	})
}

// chooseEdit writes the cell that recovers most on training groups.
func (a *app) chooseEdit(found *effect.Findings, path string) error {
	if found.Chosen == nil {
		return errors.New("no block and dose can be chosen: no edit has a recovery on training groups at a cost that counts; ask about more training dialogues, or other doses")
	}
	s := found.Steer[*found.Chosen]
	if len(s.Layers) != 1 {
		return fmt.Errorf("the best cell changes %d blocks together; a file of one block is chosen", len(s.Layers))
	}
	f, err := direction.Load(s.File)
	if err != nil {
		return err
	}
	one, err := f.Only(s.Layers[0], s.Dose, s.File)
	if err != nil {
		return err
	}
	if err := one.Save(path); err != nil {
		return err
	}
	a.note("%s, dose %g of %s: %s written", s.Layers[0], s.Dose, s.File, path)
	return nil
}

// effectInput is what the runs hold.
type effectInput struct {
	effect.Input
	model string
	known effect.Known
}

// effectInput reads the runs.
func (a *app) effectInput(ctx context.Context, paths []string, e *effectFlags) (*effectInput, error) {
	in := &effectInput{Input: effect.Input{ND: effect.Arm{Name: "ND, unchanged", Drift: math.NaN()}, D: effect.Arm{Name: "D, unchanged", Named: true, Drift: math.NaN()}}}
	bases, learnt, digest := map[string]bool{}, map[string]bool{}, ""
	names := map[string]int{}
	for _, p := range paths {
		r, err := a.opened().Open(p)
		if err != nil {
			return nil, err
		}
		if r.Identity().Task == extract.TaskName {
			ends, err := endsOf(ctx, r, e)
			if err != nil {
				return nil, err
			}
			in.Ends = append(in.Ends, ends...)
			continue
		}
		arm, s, err := armOf(r)
		if err != nil {
			return nil, err
		}
		id := r.Identity()
		m := id.Models[mediation.RoleMediator]
		if digest != "" && m.Digest != digest {
			return nil, usagef("%s asked another model than the runs before it; give runs of one model", p)
		}
		digest, in.model = m.Digest, id.ModelNames()
		bases[s.From] = true
		for _, edit := range s.Edits {
			for _, g := range edit.Groups {
				learnt[g] = true
			}
		}
		if names[arm.Name]++; names[arm.Name] > 1 {
			arm.Name = p
		}
		switch {
		case len(s.Edits) > 0:
			in.Arms = append(in.Arms, arm)
		case arm.Named:
			in.D.Lines = append(in.D.Lines, arm.Lines...)
		default:
			in.ND.Lines = append(in.ND.Lines, arm.Lines...)
		}
	}
	if len(in.ND.Lines) == 0 {
		return nil, usagef("none of the runs asked the unchanged model under ND; make one with: ccmed probe ask RUN (without --edit)")
	}
	return in, a.addPlain(in, bases, learnt, e.lines)
}

// addPlain adds the D lines of the runs that were asked about, the training lines, and what a
// probe knows.
func (a *app) addPlain(in *effectInput, bases, learnt map[string]bool, lines string) error {
	asked := map[string]bool{}
	for _, l := range in.D.Lines {
		asked[l.Item] = true
	}
	wanted := map[string]bool{}
	for _, l := range in.ND.Lines {
		wanted[l.Item] = true
	}
	add := func(path string, each func(ask.Line)) error {
		r, err := a.opened().Open(path)
		if err != nil {
			return err
		}
		own, err := ask.Lines(r)
		if err != nil {
			return err
		}
		for _, l := range own {
			if l.Condition == probe.ContextD && l.Stage <= dmis.Minimization {
				each(l)
			}
		}
		return nil
	}
	for base := range bases {
		err := add(base, func(l ask.Line) {
			if wanted[l.Item] && !asked[l.Item] {
				in.D.Lines = append(in.D.Lines, plainLine(l))
			}
			if lines == "" && learnt[l.Context] {
				in.Training = append(in.Training, plainLine(l))
			}
		})
		if err != nil {
			return err
		}
	}
	if lines != "" {
		if err := add(lines, func(l ask.Line) { in.Training = append(in.Training, plainLine(l)) }); err != nil {
			return err
		}
		in.known = a.knownAt(lines)
	}
	if len(in.Training) == 0 {
		return usagef("no D lines of training dialogues at hand; name the store that the edits were learnt from with --lines")
	}
	byItem := func(x, y effect.Line) int { return cmp.Compare(x.Item, y.Item) }
	slices.SortFunc(in.Training, byItem)
	slices.SortFunc(in.D.Lines, byItem)
	return nil
}

func plainLine(l ask.Line) effect.Line {
	return effect.Line{Item: l.Item, Group: l.Context, Stage: int(l.Stage), Text: l.Text, Answer: math.NaN(), Name: math.NaN(), Names: math.NaN(), Nats: math.NaN(), Repeated: math.NaN()}
}

// knownAt is what probes read at the end of the ND prompts of a store; empty where none was
// trained.
func (a *app) knownAt(path string) (k effect.Known) {
	r, err := a.opened().Open(path)
	if err != nil {
		return k
	}
	f, err := extract.ReadFindings(r.Dir)
	if err != nil || f.Cells == nil {
		a.note("no probe accuracies beside the recovery: %s has no findings (ccmed probe train makes them)", path)
		return k
	}
	cell := activation.Cell{Context: probe.ContextND, Text: probe.TextPrompt, Position: probe.PromptEnd}
	for _, c := range f.Cells.Cells {
		if c.Cell.Context == cell.Context && c.Cell.Text == cell.Text && c.Cell.Position == cell.Position {
			k.Layers, k.Accuracy = f.Cells.Layers, c.Accuracy
		}
	}
	return k
}

// endsOf applies the probes of --lines to the ends of the lines of a store.
func endsOf(ctx context.Context, r *task.Run, e *effectFlags) (out []effect.Ends, err error) {
	if e.lines == "" {
		return nil, usagef("%s is a store: name the store whose probes read it with --lines", r.Path())
	}
	applied, err := probe.Apply(ctx, r.Dir, filepath.Join(e.lines, probe.ProbesDir), probe.Resampling{Resamples: e.resamples, Seed: e.seed})
	if err != nil {
		return nil, fmt.Errorf("read the states of %s: %w", r.Path(), err)
	}
	for _, x := range applied {
		named := x.Cell.Context == probe.ContextD
		own := map[bool]string{true: probe.TextOwnD, false: probe.TextOwnND}[named]
		if x.Cell.Position == probe.UtteranceEnd && x.Cell.Text == own {
			out = append(out, effect.Ends{Name: r.Name(), Named: named, Edited: r.Identity().Models[mediation.RoleMediator].Edits != "", N: x.N, Layers: x.Layers, Shares: x.Accuracy})
		}
	}
	return out, nil
}

// armOf reads a run of probe ask.
func armOf(r *task.Run) (arm effect.Arm, s ask.Settings, err error) {
	id := r.Identity()
	if id.Task != ask.TaskName {
		return arm, s, usagef("%s is a %s run; effects are found in runs of ccmed probe ask", r.Path(), id.Task)
	}
	if st := r.Manifest().Status; st != run.StatusDone {
		return arm, s, fmt.Errorf("%s is not finished; go on with: ccmed runs resume %s", r.Path(), r.Path())
	}
	if s, err = task.Settings[ask.Settings](id); err != nil {
		return arm, s, err
	}
	if len(s.Edits) > 1 {
		return arm, s, fmt.Errorf("%s has %d edits; an arm has one", r.Path(), len(s.Edits))
	}
	arm = effect.Arm{Name: r.Name(), Named: s.Condition == probe.ContextD}
	for _, e := range s.Edits {
		class, control, _ := strings.Cut(e.Class, ":")
		arm.Edit = effect.Edit{File: e.File, Kind: e.Kind, Layers: e.Layers, Class: class, Of: control, Dose: e.Dose, Widest: e.Widest, Groups: e.Groups}
	}
	samples, err := task.Collect(r.Samples())
	if err != nil {
		return arm, s, err
	}
	cases, drift, err := ask.Read(task.Units(samples))
	if err != nil {
		return arm, s, err
	}
	arm.Drift = drift
	for _, c := range cases {
		stage, err := dmis.ParseStage(c.Utterance.Stage)
		if err != nil || stage > dmis.Minimization {
			continue // no class of the bag of words
		}
		l := effect.Line{Item: c.Key.Item, Group: c.Utterance.Context, Stage: int(stage), Answer: math.NaN(), Name: math.NaN(), Names: math.NaN(), Nats: math.NaN(), Repeated: math.NaN()}
		if gold, all, ok := c.Utterance.NameMass(); ok {
			l.Name, l.Names = gold, all
		}
		if c.Silent == "" {
			l.Text = c.Utterance.Text
		}
		// A stored state stands at the end of its own prompt alone: it does not reach the question.
		if c.Unscored == "" && arm.Edit.Kind != direction.Patch && arm.Edit.Kind != direction.Lens {
			l.Answer = c.Answer.Gold
		}
		if c.Cost != nil {
			l.Nats, l.Repeated = c.Cost.Nats/float64(max(1, c.Cost.Tokens)), c.Cost.Repeated
		}
		arm.Lines = append(arm.Lines, l)
	}
	return arm, s, nil
}
