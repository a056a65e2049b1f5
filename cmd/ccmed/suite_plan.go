package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/infer"
)

// cost is what a run would ask: prompt tokens as sent, of them those that a server with one
// slot would evaluate, and at most so many generated; bytes of states on disk.
type cost struct {
	requests, tokens, evaluated, generated int
	bytes                                  int64
}

func (c *cost) add(o cost) {
	c.requests, c.tokens, c.evaluated, c.generated = c.requests+o.requests, c.tokens+o.tokens, c.evaluated+o.evaluated, c.generated+o.generated
	c.bytes += o.bytes
}

// pace is how many tokens the models read and write in a second; zero where nobody said it.
type pace struct{ read, written float64 }

func parsePace(s string) (p pace, err error) {
	if s == "" {
		return p, nil
	}
	read, written, ok := strings.Cut(s, ",")
	var failed [2]error
	p.read, failed[0] = strconv.ParseFloat(read, 64)
	p.written, failed[1] = strconv.ParseFloat(written, 64)
	ok = ok && failed == [2]error{} && p.read > 0 && p.written > 0
	if !ok {
		return p, usagef("--speed %q is not READ,WRITTEN, two numbers of tokens above 0", s)
	}
	return p, nil
}

func (p pace) hours(c cost) report.Cell {
	if p.read == 0 {
		return report.Text("")
	}
	return report.Num((float64(c.evaluated)/p.read+float64(c.generated)/p.written)/3600, 1)
}

// gigabytes are those of states, blank where none are written.
func (c cost) gigabytes() report.Cell {
	if c.bytes == 0 {
		return report.Text("")
	}
	return report.Num(float64(c.bytes)/1e9, 2)
}

// planSuite prints what runSuite would run, and what each step that makes a run would ask.
func (a *app) planSuite(ctx context.Context, name string, vars map[string]string, out, speed string) error {
	p, err := parsePace(speed)
	if err != nil {
		return err
	}
	steps, _, err := a.loadSuite(name, vars, out)
	if err != nil {
		return err
	}
	t := report.Table{Columns: report.Columns("step", "needs", "command")}
	costs := report.Table{Title: "What the steps would ask", Columns: report.Columns("step", "requests>", "prompt tokens>",
		"evaluated>", "generated, at most>", "hours>", "states, GB>", "not known")}
	var sum cost
	last := ""
	for _, s := range steps {
		t.Add(s.Name, strings.Join(s.Needs, ", "), cli.CommandLine(s.args()))
		if !s.makesRun {
			continue
		}
		c, why, err := a.costOf(ctx, s)
		if err != nil {
			return err
		}
		if why != "" {
			reason := why
			if why == last {
				reason = "the same"
			}
			last = why
			costs.Add(s.Name, "", "", "", "", "", "", reason)
			continue
		}
		sum.add(c)
		costs.Add(s.Name, c.requests, c.tokens, c.evaluated, c.generated, p.hours(c), c.gigabytes(), "")
	}
	costs.Add("all of these", sum.requests, sum.tokens, sum.evaluated, sum.generated, p.hours(sum), sum.gigabytes(), "")
	costs.Notes = []string{"tokens are estimated; evaluated: by a server with one slot, which keeps the prompt before"}
	if p.read == 0 {
		costs.Notes = append(costs.Notes, "hours: --speed READ,WRITTEN gives the models' tokens in a second, which every run prints with its cost")
	}
	return a.print([]report.Section{{Title: fmt.Sprintf("Suite %s: %d steps, none was run", name, len(steps)), Tables: []report.Table{t, costs}}})
}

// costOf plans a step's run without asking. why says what keeps it from being known.
func (a *app) costOf(ctx context.Context, s suiteStep) (c cost, why string, err error) {
	for _, used := range s.Uses {
		if _, err := os.Stat(filepath.Join(filepath.Dir(s.Folder), used, run.ManifestFile)); err != nil {
			return c, "before " + used + " is done", nil
		}
	}
	inner := *a
	inner.stdout, inner.stderr = io.Discard, io.Discard
	inner.cost, inner.settingsNamed, inner.archive = &c, true, nil
	inner.args = slices.Clone(s.Command)
	args := append(slices.Clone(s.Command), "--dry-run", "--quiet")
	if a.configFile != "" {
		args = append(args, "--config", a.configFile)
	}
	root := inner.root()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(""))
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	switch failed := root.ExecuteContext(ctx); {
	case ctx.Err() != nil:
		return c, "", ctx.Err()
	case failed != nil:
		return cost{}, report.Shorten(infer.Redact(failed.Error()), 160), nil
	}
	return c, "", nil
}
