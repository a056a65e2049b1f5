package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/infer/ollama"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

func (a *app) probeCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "probe", Short: "Read a model's hidden states while it mediates"}
	cmd.AddCommand(a.extractCmd(), a.trainCmd(), a.probeReportCmd())
	return cmd
}

type extractFlags struct {
	models                      modelFlags
	data                        dataFlags
	run                         runFlags
	conditions, contexts, texts []string
	cells, edits                []string
	turns                       bool
	from, dtype                 string
	maxTokens                   int
}

func (a *app) extractCmd() *cobra.Command {
	x := extractFlags{}
	cmd := &cobra.Command{
		Use:   "extract",
		Short: "Store the residual stream at the end of the prompt and of the utterance",
		Long: `extract reads the hidden states of the very weights that Ollama serves (--model NAME)
or of a GGUF file, after every block, and stores them as safetensors in a run
folder: at prompt_end (the last prompt token) and at utterance_end (the end-of-turn
token after the line). One evaluation gives both.

--conditions D,ND reads the model's own line under its own prompt. To tell
reading from writing, cross contexts (D, ND, wrong, none) with texts (own-D,
own-ND, placebo, other): every text is fed after every context.

--turns reads another store: the dialogue as it went without a mediator, at the
end of the conflict turn and of every later turn of the same speaker, in one
pass. --edits adds the conflict turn with its marker phrases masked, removed, or
with the phrase of another stage.

Lines come from a mediation run (--from), or the model writes them first. With
Ollama at hand the prompts are its own renderings, and their token counts are
held against its own.`,
		Example: `  ccmed probe extract --model gemma2:9b --data CC-Mediation/data --conditions D,ND
  ccmed probe extract --model model.gguf --data sample --contexts D,ND,wrong,none --texts own-D,own-ND,placebo,other
  ccmed probe extract --model model.gguf --data CC-Mediation/data --split training --turns --edits mask,strip,swap`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := x.checkTurns(cmd.Flags().Changed); err != nil {
				return err
			}
			return a.extract(cmd.Context(), &x)
		},
	}
	x.models.register(cmd)
	x.data.register(cmd)
	x.run.register(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&x.conditions, "conditions", []string{"D", "ND"}, "conditions whose own lines are read: D, ND")
	f.StringSliceVar(&x.contexts, "contexts", nil, "crossed design: contexts D, ND, wrong, none (instead of --conditions)")
	f.StringSliceVar(&x.texts, "texts", []string{"own-D", "own-ND", "placebo", "other"}, "crossed design: texts own-D, own-ND, placebo, other")
	f.StringSliceVar(&x.cells, "cells", nil, "single cells, CONTEXT:TEXT, instead of a whole cross: D:own-D,ND:own-ND,wrong:own-ND")
	f.BoolVar(&x.turns, "turns", false, "read the conflict speaker's own turns instead, at the end of each")
	f.StringSliceVar(&x.edits, "edits", nil, "with --turns: the conflict turn edited as well: mask, strip, swap")
	f.StringVar(&x.from, "from", "", "mediation run whose lines are read; without it the model writes them first")
	f.StringVar(&x.dtype, "dtype", "f16", "f16 or f32")
	f.IntVar(&x.maxTokens, "max-tokens", 160, "cap of a line that is generated")
	return cmd
}

func (x *extractFlags) pairs() ([]probe.Pair, error) {
	var out []probe.Pair
	if len(x.cells) > 0 {
		if len(x.contexts) > 0 {
			return nil, errors.New("--cells and --contexts are two ways to say the same; give one")
		}
		for _, c := range x.cells {
			before, text, ok := strings.Cut(c, ":")
			if !ok {
				return nil, fmt.Errorf("--cells %q is not CONTEXT:TEXT, such as D:own-D", c)
			}
			ps, err := probe.Pairs([]string{before}, []string{text})
			if err != nil {
				return nil, err
			}
			for _, p := range ps {
				if slices.Contains(out, p) {
					return nil, fmt.Errorf("--cells names %s twice", c)
				}
				out = append(out, p)
			}
		}
		return out, nil
	}
	if len(x.contexts) > 0 {
		return probe.Pairs(x.contexts, x.texts)
	}
	for _, c := range x.conditions {
		if c != probe.ContextD && c != probe.ContextND {
			return nil, fmt.Errorf("unknown condition %q; known are D and ND", c)
		}
		out = append(out, probe.Pair{Context: c, Text: "own-" + c})
	}
	if len(out) == 0 {
		return nil, errors.New("no conditions given")
	}
	return out, nil
}

func (a *app) extract(ctx context.Context, x *extractFlags) error {
	pairs, err := x.pairs()
	if err != nil {
		return &usageError{Err: err}
	}
	dtype := activation.DType(strings.ToUpper(x.dtype))
	if dtype != activation.F16 && dtype != activation.F32 {
		return usagef("unknown --dtype %q; known are f16 and f32", x.dtype)
	}
	if x.maxTokens < 1 {
		return usagef("--max-tokens %d; it must be at least 1", x.maxTokens)
	}
	if x.models.backend != "" && x.models.backend != "embedded" {
		return usagef("hidden states come from the embedded engine; leave --backend out (a name of Ollama's opens the weights that Ollama serves)")
	}
	set, err := prompt.Load(x.run.prompts)
	if err != nil {
		return err
	}
	ds, err := x.data.load(ctx, a)
	if err != nil {
		return err
	}
	x.models.backend, x.models.cacheFile = "embedded", "off"
	f, err := a.newFleet(&x.models, map[string]string{roleMediator: ""})
	if err != nil {
		return err
	}
	defer f.Close()
	id, err := f.Model(ctx, roleMediator)
	if err != nil {
		return err
	}
	engine, ok := f.raw(roleMediator).(*llamacpp.Engine)
	if !ok {
		return fmt.Errorf("the backend of %s reads no hidden states", id.Name)
	}
	ex := &probe.Extraction{Reader: engine, Render: func(ctx context.Context, p infer.Prompt) (string, error) { return engine.Render(ctx, p) },
		Tokens: engine.Tokens, EndOfTurn: engine.EndOfTurn(), Prompts: set, Pairs: pairs, DType: dtype, Model: id, MaxTokens: x.maxTokens, Seed: x.run.seed}
	if x.turns {
		return a.extractTurns(ctx, f, engine, ex, ds, x)
	}
	if ex.EndOfTurn < 0 {
		return fmt.Errorf("the vocabulary of %s has no end-of-turn token: utterance_end has no place", id.Name)
	}
	options := map[string]any{"data": x.data.path(), "split": x.data.split, "limit": x.data.limit, "pairs": pairs, "dtype": string(dtype),
		"max_tokens": x.maxTokens, "from": x.from, "layers": engine.Layers(), "width": engine.Width()}
	if x.from != "" {
		if ds, err = x.linesFrom(a, ex, id, set, ds); err != nil {
			return err
		}
	}
	if err := a.fitStates(ctx, f, ex, ds, x.maxTokens); err != nil {
		return err
	}
	if x.run.dryRun {
		p, err := ex.Prompt(ds[0], pairs[0].Context)
		if err != nil {
			return err
		}
		var ps []infer.Prompt
		for _, d := range ds {
			q, err := ex.Prompt(d, pairs[0].Context)
			if err != nil {
				return err
			}
			ps = append(ps, q)
		}
		a.note("%d cells of %d layers x %d dialogues x %d values: %.1f MB on disk", len(ex.Cells()), len(engine.Layers()), len(ds), engine.Width(), float64(ex.Bytes(len(ds)))/1e6)
		return a.dryRun(ctx, f, len(ds), map[string][]infer.Prompt{roleMediator: ps}, map[string]infer.Prompt{roleMediator: p})
	}
	if x.from == "" {
		if err := a.checkServed(ctx, f, ex, ds); err != nil {
			return err
		}
	}
	rid, err := a.identity(ctx, f, "extract", ds, &x.run, set.Hashes("mediate"), options)
	if err != nil {
		return err
	}
	if x.from != "" {
		rid.Parent = x.from
	}
	return a.extractInto(ctx, f, x, rid, ex, func(dir *run.Dir) error { return ex.Open(ctx, dir, ds) })
}

// extractor is an extraction of either kind.
type extractor interface {
	Task() run.Task[dialogue.Dialogue]
	Close() error
}

// extractInto runs an extraction in its run folder, where open makes its files.
func (a *app) extractInto(ctx context.Context, f *fleet, x *extractFlags, id run.Identity, ex extractor, open func(*run.Dir) error) error {
	dir, err := a.openRun(id, &x.run)
	if err != nil {
		return err
	}
	if err := open(dir); err != nil {
		return errors.Join(err, dir.Close(run.StatusFailed))
	}
	defer ex.Close()
	sum, err := executeIn(ctx, a, f, &x.run, dir, ex.Task())
	if err != nil {
		return err
	}
	if err := ex.Close(); err != nil {
		return err
	}
	return a.finish(ctx, dir, sum, &x.run, scoreFlags{data: x.data, seed: x.run.seed}, a.tables)
}

// linesFrom takes the lines of a mediation run. It must be a run of the same
// weights, prompts and turns: its token counts are then the server's word on
// what the model read.
func (x *extractFlags) linesFrom(a *app, ex *probe.Extraction, id infer.Model, set *prompt.Set, ds []dialogue.Dialogue) ([]dialogue.Dialogue, error) {
	dir, err := a.reading(x.from)
	if err != nil {
		return nil, err
	}
	m := dir.Manifest()
	med := m.Identity.Models[mediation.RoleMediator]
	// The lines of a tuned model that chose its turns itself: those at the conflict.
	chosen := m.Identity.Task == "timing" && m.Identity.Options["mode"] == string(timing.DualHead)
	switch {
	case m.Identity.Task != "mediation" && !chosen:
		return nil, fmt.Errorf("--from %s is a %s run; name a mediation run, or one of `ccmed sft predict`", x.from, m.Identity.Task)
	case m.Status != run.StatusDone:
		return nil, fmt.Errorf("%s is not finished; go on with: ccmed runs resume %s", x.from, x.from)
	case med.Digest != id.Digest:
		return nil, fmt.Errorf("%s was made with %s (%s) and the states would be those of %s (%s): not the same model", x.from, med.Name, short(med.Digest), id.Name, short(id.Digest))
	case chosen && slices.ContainsFunc(ex.Pairs, func(p probe.Pair) bool { return p.Text == probe.TextOwnD }):
		return nil, fmt.Errorf("%s holds one line a dialogue, which was told no stage; leave own-D out, for example with --conditions ND", x.from)
	case !chosen && m.Identity.Prompts["mediate"] != set.Hashes("mediate")["mediate"]:
		return nil, fmt.Errorf("%s was made with another prompt template mediate: its lines do not follow these prompts", x.from)
	}
	ex.Given, ex.Expected = map[string]map[string]string{}, map[string]map[string]int{}
	for s, err := range dir.All() {
		if err != nil {
			return nil, err
		}
		if chosen {
			s.Condition = mediation.ND
		}
		if s.Step != mediation.StepUtterance || s.Condition != mediation.ND && s.Condition != mediation.D {
			continue
		}
		var u mediation.Utterance
		if err := json.Unmarshal(s.Data, &u); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", x.from, s.Key, err)
		}
		if chosen && u.Turn != u.Gold {
			continue
		}
		if u.Turn != u.Gold {
			return nil, fmt.Errorf("%s mediates at predicted turns; the states are read at the conflict turn: make a run with --turn gold", x.from)
		}
		if ex.Given[s.Item] == nil {
			ex.Given[s.Item], ex.Expected[s.Item] = map[string]string{}, map[string]int{}
		}
		if s.Unscored == "" {
			ex.Given[s.Item]["own-"+s.Condition] = u.Text
		}
		// An answer out of the response cache has no count of its own.
		if s.Usage.Replayed == 0 && s.Usage.Prompt > 0 && med.Backend == "ollama" {
			ex.Expected[s.Item][s.Condition] = s.Usage.Prompt
		}
	}
	kept := slices.DeleteFunc(slices.Clone(ds), func(d dialogue.Dialogue) bool { return ex.Given[d.Key()] == nil })
	if len(kept) == 0 {
		return nil, fmt.Errorf("%s and --data share no dialogue", x.from)
	}
	if n := len(ds) - len(kept); n > 0 {
		a.note("%d dialogues are left out: %s has no lines at the conflict for them", n, x.from)
	}
	if chosen {
		a.note("the lines of %s were written after the dialogue alone, and are read after the prompts of a mediator", x.from)
	}
	return kept, nil
}

// fitStates opens the engine with room for the longest prompt and line.
func (a *app) fitStates(ctx context.Context, f *fleet, ex *probe.Extraction, ds []dialogue.Dialogue, line int) error {
	var ps []infer.Prompt
	for _, d := range ds {
		for _, c := range []string{probe.ContextD, probe.ContextWrong} {
			p, err := ex.Prompt(d, c)
			if err != nil {
				return err
			}
			ps = append(ps, p)
		}
	}
	return f.fit(ctx, roleMediator, ps, max(line, 96)+8)
}

// checkServed holds the token counts of the longest and of 15 random prompts
// against Ollama's own, where the model is one of Ollama's.
func (a *app) checkServed(ctx context.Context, f *fleet, ex *probe.Extraction, ds []dialogue.Dialogue) error {
	name := f.roles[roleMediator].model
	if strings.HasSuffix(strings.ToLower(name), ".gguf") {
		return nil
	}
	server, err := ollama.New(a.ollamaHosts(f.flags)[0], name, ollama.Options{})
	if err != nil {
		return err
	}
	type item struct {
		rendered string
		tokens   int
		key      string
	}
	var all []item
	for _, d := range ds {
		p, err := ex.Prompt(d, probe.ContextD)
		if err != nil {
			return err
		}
		rendered, err := ex.Render(ctx, p)
		if err != nil {
			return err
		}
		ts, err := ex.Tokens(ctx, p, "")
		if err != nil {
			return err
		}
		all = append(all, item{rendered, len(ts), d.Key()})
	}
	slices.SortStableFunc(all, func(x, y item) int { return y.tokens - x.tokens })
	picked := all[:1]
	rng := rand.New(rand.NewPCG(uint64(ex.Seed), 0))
	for _, i := range rng.Perm(len(all) - 1)[:min(15, len(all)-1)] {
		picked = append(picked, all[i+1])
	}
	for _, it := range picked {
		r, err := server.Chat(ctx, infer.Prompt{Raw: it.rendered}, infer.Params{MaxTokens: 1, TopP: 1, NumCtx: f.numCtx[roleMediator]})
		if err != nil {
			return fmt.Errorf("ask Ollama how many tokens the prompt of item %s has: %w", it.key, err)
		}
		if r.Usage.Prompt != it.tokens {
			return fmt.Errorf("the prompt of item %s has %d tokens here and %d on the server: these are not the states of the served model", it.key, it.tokens, r.Usage.Prompt)
		}
	}
	a.note("token counts of %d prompts equal Ollama's", len(picked))
	return f.makeRoom(ctx)
}

// scoreExtraction audits the files of an extraction run.
func (a *app) scoreExtraction(ctx context.Context, dir *run.Dir) (any, []report.Section, error) {
	index, err := activation.ReadIndex(dir.All())
	if err != nil {
		return nil, nil, err
	}
	paths, err := activation.List(dir.Path())
	if err != nil {
		return nil, nil, err
	}
	for _, c := range index.Cells() {
		if file := filepath.Join(dir.Path(), c.File()); !slices.Contains(paths, file) {
			return nil, nil, &run.ChangedError{File: file, What: "it is gone"}
		}
	}
	type cell struct {
		Cell    activation.Cell    `json:"cell"`
		Rows    int                `json:"rows"`
		Missing []int              `json:"missing,omitempty"`
		Layers  []activation.Count `json:"layers"`
	}
	t := report.Table{Columns: []report.Column{{Name: "context"}, {Name: "text"}, {Name: "position"}, {Name: "layers", Align: report.Right}, {Name: "dialogues", Align: report.Right},
		{Name: "missing", Align: report.Right}, {Name: "not finite", Align: report.Right}, {Name: "file"}}}
	var cells []cell
	for _, p := range paths {
		c, row, err := auditCell(ctx, p, index)
		if err != nil {
			return nil, nil, err
		}
		cells = append(cells, cell{c.spec.Cell, c.spec.Samples, c.audit.Missing, c.audit.Layers})
		t.Rows = append(t.Rows, row)
	}
	return map[string]any{"cells": cells}, []report.Section{{Title: "Hidden states: " + modelNames(dir.Manifest().Identity), Tables: []report.Table{t},
		Notes: []string{"missing rows read as NaN; a layer with values that are not finite is refused by name when it is read"}}}, nil
}

type audited struct {
	spec  activation.Spec
	audit *activation.Audit
}

func auditCell(ctx context.Context, path string, index *activation.Index) (out audited, row []report.Cell, err error) {
	f, err := activation.Open(path)
	if err != nil {
		return out, nil, err
	}
	defer f.Close()
	out.spec = f.Spec()
	if out.audit, err = f.Audit(ctx); err != nil {
		return out, nil, err
	}
	entries, err := index.For(f)
	if err == nil {
		err = out.audit.Check(entries)
	}
	if err != nil {
		return out, nil, err
	}
	bad := 0
	for _, l := range out.audit.Layers {
		bad += l.NonFinite
	}
	c := out.spec.Cell
	return out, []report.Cell{report.Text(c.Context), report.Text(c.Text), report.Text(c.Position), report.Int(len(out.spec.Layers)), report.Int(out.spec.Samples),
		report.Int(len(out.audit.Missing)), report.Int(bad), report.Text(c.File())}, nil
}
