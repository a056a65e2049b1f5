package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/visible"
)

func (a *app) labelCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "label", Short: "Give turns their stages by hand, and compare two people's"}
	cmd.AddCommand(a.labelTurnsCmd(), a.labelAgreeCmd())
	return cmd
}

func (a *app) labelTurnsCmd() *cobra.Command {
	d := task.Records{}
	var out, by string
	var seed int64
	cmd := &cobra.Command{
		Use:   "turns DIR|RUN",
		Short: "Give the conflict speaker's turns their stages by hand",
		Long: `label turns shows a dialogue up to a turn of the conflict speaker and asks for the stage at
which the speaker speaks: 1 to 6, s to skip the turn, ? for the stages, q to stop.
Each answer is kept at once in the file --out, so that the command goes on where it
was stopped. Dialogues come in an order that the seed draws, without their scripted
stage and their recorded labels.

Two people label the same records into two files; label agree says how far they
agree, and mediate --labels A,B holds a labeller against the first one's labels, with
their agreement as what can be expected of it.

Of a mediation run it asks about the simulated turns after the intervention, the
mediator's line included, turn by turn in an order that the seed draws over all
conditions: neither the condition nor the labeller's stage is shown or kept. label
agree RUN then holds the labels against the labeller's by condition.`,
		Example: `  ccmed label turns CC-Mediation/data --out anna.jsonl --by anna
  ccmed label turns CC-Mediation/data --split training --limit 50 --out ben.jsonl --by ben
  ccmed label turns runs/MEDIATION --out anna-run.jsonl --by anna`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.Path = args[0]
			if out == "" || by == "" {
				return usagef("label turns needs --out, the file of the labels, and --by, who gives them")
			}
			return a.label(cmd.Context(), d, out, by, seed)
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "file of the labels; it is continued where it is there")
	f.StringVar(&by, "by", "", "who gives the labels")
	f.Int64Var(&seed, "seed", 1, "seed of the order of dialogues")
	f.IntVar(&d.Limit, "limit", 0, "take the first N dialogues, spread over stages; 0 takes all")
	f.StringVar(&d.Split, "split", "", "evaluate or training, where the folder holds both (default evaluate)")
	f.BoolVar(&d.Lenient, "lenient", false, "leave out records that cannot be used")
	return cmd
}

// labelled reads the labels that a person gave before; none where there is no file.
func labelled(path, by string) (map[string]bool, error) {
	labels, err := dialogue.ReadLabels(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, vacantFile(path, false)
	}
	if err != nil {
		return nil, err
	}
	done := map[string]bool{}
	for _, l := range labels {
		if l.By != by {
			return nil, usagef("%s holds labels by %s; give another --out, or --by %s", path, l.By, l.By)
		}
		done[l.Item+" "+l.Text] = true
	}
	return done, nil
}

// askedTurn is a turn that a person is asked about.
type askedTurn struct {
	of         dialogue.Dialogue
	turn       int
	transcript string // up to the turn
	// condition and stage, the labeller's, are of a turn of a run; they are not shown.
	condition, stage string
}

func (t askedTurn) text() string { return dialogue.HashText(t.transcript) }

// askedTurns are the turns of records, or of a run, that people label.
func (a *app) askedTurns(ctx context.Context, r task.Records) (out []askedTurn, of []dialogue.Dialogue, err error) {
	archive := a.opened()
	if !isRun(r.Path) {
		ds, _, err := archive.Dialogues(ctx, r)
		for _, d := range ds {
			for _, t := range d.OwnTurns() {
				out = append(out, askedTurn{of: d, turn: t.T, transcript: dialogue.Transcript(d.Unmediated()[:t.T])})
			}
		}
		return out, ds, err
	}
	opened, err := archive.Open(r.Path)
	if err != nil {
		return nil, nil, err
	}
	if name := opened.Identity().Task; name != mediation.TaskName {
		return nil, nil, fmt.Errorf("%s is a %s run; people label the turns of mediation runs", r.Path, name)
	}
	ds, err := opened.Dialogues(ctx, task.Records{})
	if err != nil {
		return nil, nil, err
	}
	samples, err := task.Collect(opened.Samples())
	if err != nil {
		return nil, nil, err
	}
	own, err := mediation.OwnTurns(samples, ds)
	if err != nil {
		return nil, nil, err
	}
	by := map[string]dialogue.Dialogue{}
	for _, d := range ds {
		by[d.Key()] = d
	}
	for _, t := range own {
		out = append(out, askedTurn{by[t.Item], t.Turn, t.Transcript, t.Condition, t.Stage})
	}
	if len(out) == 0 {
		return nil, nil, fmt.Errorf("%s holds no simulated turn of a conflict speaker", r.Path)
	}
	return out, ds, nil
}

// shuffle puts the turns of a run, or the dialogues of records, in an order that the seed
// draws: of records the turns of a dialogue stay together.
func shuffle(turns []askedTurn, seed int64) []askedTurn {
	var parts [][]askedTurn
	for i, t := range turns {
		if last := len(parts) - 1; i > 0 && t.condition == "" && turns[i-1].of.Key() == t.of.Key() {
			parts[last] = append(parts[last], t)
			continue
		}
		parts = append(parts, []askedTurn{t})
	}
	rand.New(rand.NewPCG(uint64(seed), 0)).Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return slices.Concat(parts...)
}

// label asks for the stages of all turns that have none.
func (a *app) label(ctx context.Context, r task.Records, out, by string, seed int64) error {
	turns, _, err := a.askedTurns(ctx, r)
	if err != nil {
		return err
	}
	if to, err := disk.Look(out); err == nil && to == disk.Stream {
		return usagef("--out %s is no regular file, and labels have to be kept", out)
	}
	done, err := labelled(out, by)
	if err != nil {
		return err
	}
	turns = slices.DeleteFunc(shuffle(turns, seed), func(t askedTurn) bool { return done[t.of.Key()+" "+t.text()] })
	answers := bufio.NewReader(a.stdin)
	if len(turns) > 0 {
		a.stages()
	}
	for i, t := range turns {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.tell("\n%s\n%s", visible.Text(t.of.Context), visible.Text(t.transcript)); err != nil {
			return err
		}
		left := len(turns) - i
		stage, stop, err := a.askStage(answers, fmt.Sprintf("%s speaks at stage (1-6, s, ?, q; %d left): ", visible.Text(t.of.Name(t.of.ConflictAgent)), left))
		if err != nil {
			return err
		}
		if stop {
			a.note("\n%d turns are left; the same command goes on", left)
			return nil
		}
		if err := dialogue.AppendLabel(out, dialogue.Label{Item: t.of.Key(), Turn: t.turn, Stage: stage, By: by, Text: t.text()}); err != nil {
			return err
		}
	}
	a.note("all turns are labelled: %s", out)
	return nil
}

// stages prints what the answers mean.
func (a *app) stages() {
	for _, s := range dmis.Definitions() {
		_ = a.tell("%d %s: %s\n", s.Number, s.Name, s.Definition)
	}
}

// askStage reads one answer: a stage, or "" of a turn that is skipped.
func (a *app) askStage(answers *bufio.Reader, question string) (stage string, stop bool, err error) {
	for {
		if err := a.tell("%s", question); err != nil {
			return "", false, err
		}
		line, err := answers.ReadString('\n')
		line = strings.TrimSpace(line)
		switch {
		case err != nil && (!errors.Is(err, io.EOF) || line == ""):
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return "", true, err
		case line == "q":
			return "", true, nil
		case line == "s":
			return "", false, nil
		case line == "?":
			a.stages()
			continue
		}
		if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= dmis.NumStages {
			return dmis.Stage(n - 1).String(), false, nil
		}
		a.note("%q is none of 1 to 6, s, ? and q", line)
	}
}

func (a *app) labelAgreeCmd() *cobra.Command {
	d := task.Records{}
	cmd := &cobra.Command{
		Use:   "agree DIR|RUN A [B]",
		Short: "How far two people's labels agree, or one's with a labeller's",
		Example: `  ccmed label agree CC-Mediation/data anna.jsonl ben.jsonl
  ccmed label agree runs/MEDIATION anna-run.jsonl`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.Path = args[0]
			return a.labelAgree(cmd.Context(), d, args[1:])
		},
	}
	cmd.Flags().StringVar(&d.Split, "split", "", "evaluate or training, where the folder holds both (default evaluate)")
	return cmd
}

// labelAgree compares files of labels, and of a run the first with the labeller too.
func (a *app) labelAgree(ctx context.Context, r task.Records, paths []string) error {
	turns, ds, err := a.askedTurns(ctx, r)
	if err != nil {
		return err
	}
	var sides [][]dialogue.Label
	for _, path := range paths {
		labels, err := dialogue.ReadLabels(path)
		if err != nil {
			return err
		}
		sides = append(sides, labels)
	}
	ofRun := isRun(r.Path)
	if !ofRun && len(paths) < 2 {
		return usagef("label agree needs two files of labels, or a run and one")
	}
	t := report.Table{Columns: report.Columns("compared", "condition", "turns>", "same stage>", "quadratic kappa [95 %]>")}
	add := func(compared, condition string, g *dialogue.Agreement) {
		if g != nil {
			t.Add(compared, condition, g.Turns, report.Pct(g.Agree, g.Turns), report.Estimate(g.Kappa, 2))
		}
	}
	if len(sides) == 2 {
		g, err := dialogue.CompareLabels(sides[0], sides[1], ds, 1)
		if err != nil {
			return err
		}
		add(paths[0]+", "+paths[1], "", g)
	}
	if ofRun {
		for i, side := range sides {
			if err := agreeWithLabeller(side, turns, func(condition string, g *dialogue.Agreement) { add(paths[i]+", the labeller", condition, g) }); err != nil {
				return err
			}
		}
	}
	if len(t.Rows) == 0 {
		return fmt.Errorf("%s: no turn of %s has two labels, or all labels are alike: there is no agreement to compute", strings.Join(paths, " and "), r.Path)
	}
	return a.print([]report.Section{{Title: "Agreement of the labels", Tables: []report.Table{t}, Notes: []string{"intervals are by scenario context"}}})
}

// agreeWithLabeller holds a person's labels against the labeller's, over all turns and by
// condition.
func agreeWithLabeller(labels []dialogue.Label, turns []askedTurn, add func(condition string, g *dialogue.Agreement)) error {
	given := map[string]string{}
	for _, l := range labels {
		given[l.Item+" "+l.Text] = l.Stage
	}
	conditions := map[string]bool{"": true}
	for _, t := range turns {
		conditions[t.condition] = true
	}
	for _, c := range slices.Sorted(maps.Keys(conditions)) {
		var person, labeller, contexts []string
		for _, t := range turns {
			if c == "" || t.condition == c {
				person, labeller, contexts = append(person, given[t.of.Key()+" "+t.text()]), append(labeller, t.stage), append(contexts, t.of.ContextKey())
			}
		}
		g, err := dialogue.Agree(person, labeller, contexts, 1)
		if err != nil {
			return err
		}
		if c == "" {
			c = "all"
		}
		add(c, g)
	}
	return nil
}
