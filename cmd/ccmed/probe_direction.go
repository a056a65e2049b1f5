package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/direction"
)

type directionFlags struct {
	layers, scope []string
	kind, out     string
	gguf          bool
	seed          uint64
}

func (a *app) directionCmd() *cobra.Command {
	d := directionFlags{}
	cmd := &cobra.Command{
		Use:   "direction STORE",
		Short: "Learn from a store how to change a model's states, as an edit file",
		Long: `direction learns from the states at the end of the ND prompts of a store, of at
least 60 scenario contexts, how the residual stream is changed. Learn from the
training split: the dialogues that effects are measured on must be others.

  mean     the class's mean less that of all: a dose of 1 is its own length
  weights  what a linear probe reads the class by, as long as the mean
  leace    least-squares erasure: no linear probe tells the stages apart after it
  speak    of a store made with --task timing: the state at the conflict's turn
           less that at earlier turns, where it is asked whether to speak
  patch    the state at the end of the D prompt in the ND prompt's place, of the
           same dialogue (own) or of others (own:same-stage, own:other-stage)
  lens     the ND prompt's state after each of --layers in the last block's
           place; the classes are the layers

The file holds every stage, or for leace all stages at once (the class stage), and
controls of equal length: CLASS:negated, CLASS:shuffled-1 to -10 from shuffled
labels, CLASS:isotropic-1 to -5 from random numbers. It is a safetensors file.`,
		Example: `  ccmed probe direction runs/STORE --layers block.15 --out stage.edit
  ccmed probe direction runs/STORE --layers block.15 --kind leace --out erase.edit`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := a.untilInterrupt(cmd.Context())
			defer stop()
			return a.learnDirection(ctx, args[0], &d)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&d.layers, "layers", nil, "blocks whose states are learnt from, and changed together")
	f.StringVar(&d.kind, "kind", direction.Mean, "mean, weights, leace, speak, patch or lens")
	f.StringSliceVar(&d.scope, "scope", nil, "tokens that are changed: prompt_end, generated, or all (default: prompt_end and, but for speak, generated)")
	f.StringVar(&d.out, "out", "", "edit file to write; one that exists is replaced")
	f.BoolVar(&d.gguf, "gguf", false, "also write each stage as a control vector of llama.cpp's, beside the edit file")
	f.Uint64Var(&d.seed, "seed", 1, "seed of the controls")
	task.Choose(f, "kind", direction.Mean, direction.Weights, direction.LEACE, direction.Speak, direction.Patch, direction.Lens)
	task.Choose(f, "scope", string(infer.ScopePromptEnd), string(infer.ScopeGenerated), string(infer.ScopeAll))
	return cmd
}

// scopes are those of --scope.
func (d *directionFlags) scopes() (out []infer.Scope, err error) {
	for _, s := range d.scope {
		scope := infer.Scope(s)
		if scope != infer.ScopePromptEnd && scope != infer.ScopeGenerated && scope != infer.ScopeAll {
			return nil, usagef("unknown --scope %q; known are %s, %s and %s", s, infer.ScopePromptEnd, infer.ScopeGenerated, infer.ScopeAll)
		}
		if slices.Contains(out, scope) || len(out) > 0 && (scope == infer.ScopeAll || out[0] == infer.ScopeAll) {
			return nil, usagef("--scope %s changes a token twice", strings.Join(d.scope, ","))
		}
		out = append(out, scope)
	}
	return out, nil
}

func (a *app) learnDirection(ctx context.Context, path string, d *directionFlags) error {
	if d.out == "" {
		return usagef("probe direction needs --out, the edit file to write")
	}
	scopes, err := d.scopes()
	if err != nil {
		return err
	}
	dir, err := a.openExtraction(path)
	if err != nil {
		return err
	}
	if st := dir.Manifest().Status; st != run.StatusDone {
		return usagef("%s is not finished; go on with: ccmed runs resume %s", path, path)
	}
	o := direction.Options{Kind: d.kind, Layers: d.layers, Scope: scopes, Seed: d.seed}
	var f *direction.File
	if d.kind == direction.Patch || d.kind == direction.Lens {
		f, err = a.learnStates(ctx, dir, o)
	} else {
		f, err = direction.Learn(ctx, dir.Dir, o)
	}
	if err != nil {
		return err
	}
	if err := f.Save(d.out); err != nil {
		return err
	}
	for _, class := range f.Classes {
		if !d.gguf || strings.Contains(class, ":") {
			continue
		}
		vector := strings.TrimSuffix(d.out, filepath.Ext(d.out)) + "." + class + ".gguf"
		if err := f.SaveControlVector(vector, class); err != nil {
			return err
		}
		a.note("%s written", vector)
	}
	if a.json {
		return a.encode(f.Card)
	}
	return a.print([]report.Section{directionSection(d.out, f)})
}

// learnStates takes the states of a store by the ND prompts of its dialogues.
func (a *app) learnStates(ctx context.Context, r *task.Run, o direction.Options) (*direction.File, error) {
	set, err := prompt.Load("")
	if err != nil {
		return nil, err
	}
	if r.Identity().Prompts["mediate"] != set.Hashes("mediate")["mediate"] {
		return nil, fmt.Errorf("%s was made with another prompt template mediate: its states belong to other prompts than those that are asked", r.Path())
	}
	ds, err := r.Dialogues(ctx, task.Records{})
	if err != nil {
		return nil, fmt.Errorf("read the dialogues of %s, whose prompts find the states: %w", r.Path(), err)
	}
	of := map[string]dialogue.Dialogue{}
	for _, d := range ds {
		of[d.Key()] = d
	}
	x := &probe.Extraction{Prompts: set}
	return direction.LearnStates(ctx, r.Dir, o, func(item string) (string, error) {
		d, ok := of[item]
		if !ok {
			return "", fmt.Errorf("the dialogue %s of %s is not among its records", item, r.Path())
		}
		p, err := x.Prompt(d, probe.ContextND)
		return p.Hash(), err
	})
}

// directionSection lists the classes that can be named, with their lengths.
func directionSection(path string, f *direction.File) report.Section {
	columns := []string{"class"}
	for _, l := range f.Layers {
		columns = append(columns, "length at "+l+">")
	}
	t := report.Table{Columns: report.Columns(columns...), Notes: []string{"a class's controls have its length: " + strings.Join(controlNames(f), ", ")}}
	switch f.Kind {
	case direction.Patch, direction.Lens:
		t.Notes = []string{"a length is the mean of the states'; classes behind a colon are controls"}
	case direction.LEACE:
		t.Notes = []string{"a length is the Frobenius norm of what is taken out; controls have the same rank: " + strings.Join(controlNames(f), ", ")}
	}
	for _, c := range f.Classes {
		if strings.Contains(c, ":") && f.Kind != direction.Patch {
			continue
		}
		row := []any{c}
		for _, n := range f.Norms[c] {
			row = append(row, report.Num(n, 3))
		}
		t.Add(row...)
	}
	return report.Section{Title: "Edit file " + path + ": " + f.Kind, Tables: []report.Table{t},
		Notes: []string{learntFrom(f), "use it with: --edit " + path + "," + f.Classes[0] + ",1"}}
}

// learntFrom says how much a file was made from.
func learntFrom(f *direction.File) string {
	if f.Groups == nil {
		return fmt.Sprintf("states of %d dialogues", f.Items)
	}
	return fmt.Sprintf("learnt from %d dialogues of %d scenario contexts", f.Items, len(f.Groups))
}

// controlNames are those of the first class.
func controlNames(f *direction.File) (out []string) {
	for _, c := range f.Classes {
		if class, control, ok := strings.Cut(c, ":"); ok && class == f.Classes[0] {
			out = append(out, ":"+control)
		}
	}
	return out
}
