package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/visible"
)

func (a *app) labelCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "label", Short: "Give the conflict speaker's turns their stages by hand, and compare two people's"}
	cmd.AddCommand(a.labelTurnsCmd(), a.labelAgreeCmd())
	return cmd
}

func (a *app) labelTurnsCmd() *cobra.Command {
	d := task.Records{}
	var out, by string
	var seed int64
	cmd := &cobra.Command{
		Use:   "turns DIR",
		Short: "Give the conflict speaker's turns their stages by hand",
		Long: `label turns shows a dialogue up to a turn of the conflict speaker and asks for the stage at
which the speaker speaks: 1 to 6, s to skip the turn, ? for the stages, q to stop.
Each answer is kept at once in the file --out, so that the command goes on where it
was stopped. Dialogues come in an order that the seed draws, without their scripted
stage and their recorded labels.

Two people label the same records into two files; label agree says how far they
agree, and mediate --labels A,B holds a labeller against the first one's labels, with
their agreement as what can be expected of it.`,
		Example: `  ccmed label turns CC-Mediation/data --out anna.jsonl --by anna
  ccmed label turns CC-Mediation/data --split training --limit 50 --out ben.jsonl --by ben`,
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

// label asks for the stages of all turns that have none.
func (a *app) label(ctx context.Context, r task.Records, out, by string, seed int64) error {
	ds, _, err := a.opened().Dialogues(ctx, r)
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
	rand.New(rand.NewPCG(uint64(seed), 0)).Shuffle(len(ds), func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
	left := 0
	for _, d := range ds {
		left += len(slices.DeleteFunc(d.OwnTurns(), func(t dialogue.Turn) bool { return done[d.Key()+" "+d.TextHash(t.T)] }))
	}
	answers := bufio.NewReader(a.stdin)
	if left > 0 {
		a.stages()
	}
	for _, d := range ds {
		for _, t := range d.OwnTurns() {
			text := d.TextHash(t.T)
			if done[d.Key()+" "+text] {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := a.tell("\n%s\n%s", visible.Text(d.Context), visible.Text(dialogue.Transcript(d.Unmediated()[:t.T]))); err != nil {
				return err
			}
			stage, stop, err := a.askStage(answers, fmt.Sprintf("%s speaks at stage (1-6, s, ?, q; %d left): ", visible.Text(d.Name(d.ConflictAgent)), left))
			if err != nil {
				return err
			}
			if stop {
				a.note("\n%d turns are left; the same command goes on", left)
				return nil
			}
			if err := dialogue.AppendLabel(out, dialogue.Label{Item: d.Key(), Turn: t.T, Stage: stage, By: by, Text: text}); err != nil {
				return err
			}
			left--
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
		Use:     "agree DIR A B",
		Short:   "How far the labels of two people agree",
		Example: "  ccmed label agree CC-Mediation/data anna.jsonl ben.jsonl",
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.Path = args[0]
			ds, _, err := a.opened().Dialogues(cmd.Context(), d)
			if err != nil {
				return err
			}
			var sides [2][]dialogue.Label
			for i, path := range args[1:] {
				if sides[i], err = dialogue.ReadLabels(path); err != nil {
					return err
				}
			}
			g, err := dialogue.CompareLabels(sides[0], sides[1], ds, 1)
			if err != nil {
				return err
			}
			if g == nil {
				return fmt.Errorf("%s and %s share no turn of %s that both labelled, or all their labels are alike: there is no agreement to compute", args[1], args[2], d.Path)
			}
			t := report.Table{Columns: []report.Column{{Name: "turns that both labelled", Align: report.Right}, {Name: "same stage", Align: report.Right}, {Name: "quadratic kappa [95 %]", Align: report.Right}},
				Rows: [][]report.Cell{{report.Int(g.Turns), report.Text(report.Pct(g.Agree, g.Turns)), report.Text(report.Estimate(g.Kappa, 2))}}}
			return a.print([]report.Section{{Title: "Agreement of the labels", Tables: []report.Table{t}, Notes: []string{"the interval is by scenario context"}}})
		},
	}
	cmd.Flags().StringVar(&d.Split, "split", "", "evaluate or training, where the folder holds both (default evaluate)")
	return cmd
}
