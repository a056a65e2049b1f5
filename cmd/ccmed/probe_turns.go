package main

import (
	"context"
	"maps"
	"slices"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/probe"
)

// extractTurns stores the states at the ends of the conflict agent's own turns.
// all carries what both kinds of extraction share.
func (a *app) extractTurns(ctx context.Context, f *fleet, engine *llamacpp.Engine, all *probe.Extraction, ds []dialogue.Dialogue, x *extractFlags) error {
	ex := &probe.TurnExtraction{Reader: all.Reader, Render: all.Render, Tokens: all.Tokens, Controls: engine.Controls(), Prompts: all.Prompts, Edits: x.edits,
		DType: all.DType, Model: all.Model, Seed: all.Seed}
	if err := ex.Use(ds); err != nil {
		return err
	}
	var ps []infer.Prompt
	for _, d := range ds {
		p, err := ex.Prompt(d)
		if err != nil {
			return err
		}
		q, err := all.Prompt(d, probe.ContextD) // which checkServed asks
		if err != nil {
			return err
		}
		ps = append(ps, p, q)
	}
	first := ps[0]
	// An edit may be longer than the turn that it replaces.
	if err := f.fit(ctx, roleMediator, ps, 64); err != nil {
		return err
	}
	if x.run.dryRun {
		a.note("%d own turns of %d dialogues, %d layers x %d values, %d edits: %.1f MB on disk", ex.Turns(), len(ds), len(ex.Reader.Layers()), ex.Reader.Width(),
			len(ex.Edits), float64(ex.Bytes())/1e6)
		return a.dryRun(ctx, f, len(ds), map[string][]infer.Prompt{roleMediator: ps}, map[string]infer.Prompt{roleMediator: first})
	}
	markers := ex.Markers()
	for _, s := range slices.Sorted(maps.Keys(markers)) {
		a.note("%s: %d marker phrases", s, markers[s])
	}
	if err := a.checkServed(ctx, f, all, ds); err != nil {
		return err
	}
	id, err := a.identity(ctx, f, "extract", ds, &x.run, all.Prompts.Hashes("mediate"), map[string]any{"data": x.data.path(), "split": x.data.split, "limit": x.data.limit,
		"turns": true, "edits": x.edits, "dtype": string(ex.DType), "layers": ex.Reader.Layers(), "width": ex.Reader.Width()})
	if err != nil {
		return err
	}
	return a.extractInto(ctx, f, x, id, ex, func(dir *run.Dir) error { return ex.Open(ctx, dir) })
}

// checkTurns finds flags that --turns has no use for.
func (x *extractFlags) checkTurns(changed func(string) bool) error {
	if !x.turns {
		if len(x.edits) > 0 {
			return usagef("--edits are edits of the conflict turn; give --turns with them")
		}
		return nil
	}
	for _, name := range []string{"conditions", "contexts", "texts", "cells", "from", "max-tokens"} {
		if changed(name) {
			return usagef("--turns reads the dialogue as it went, without a line of the mediator's; leave --%s out", name)
		}
	}
	return nil
}
