package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ollama/ollama/fs/gguf"
	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer/fleet"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/infer/ollama"
	"github.com/ccmed/ccmed/sft"
)

func (a *app) sftCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "sft", Short: "Fine-tune a model to step in at the right turn and to mediate"}
	cmd.AddCommand(a.sftExportCmd(), a.sftSetupCmd(), a.sftTrainCmd(), a.sftPackageCmd(), a.sftBenchCmd())
	return cmd
}

type exportFlags struct {
	data        task.Records
	out         string
	holdout     string
	fraction    float64
	excludeSeen bool
	laterTurns  bool
	seed        int64
	model, gguf string
	hosts       []string
	force       bool
}

func (a *app) sftExportCmd() *cobra.Command {
	x := exportFlags{}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write dialogues as training and validation sequences",
		Long: `export writes one JSON object a line into OUT/train.jsonl and OUT/valid.jsonl: the
turns up to the conflict, each closed by <TURN_END>, the record's mediation as
[SPEAK] ... [/SPEAK], and one decision label a turn. OUT/export.json counts and
hashes them, and says what they share with the evaluation split. The same data,
options and seed give the same bytes.

Dialogues of one scenario context are never in both files. --holdout dimension,
template or country moves every dialogue with certain keys to OUT/heldout.jsonl,
at least --fraction of all: what training has not seen.`,
		Example: `  ccmed sft export --data CC-Mediation/data --out sft-data
  ccmed sft export --data CC-Mediation/data --out sft-country --holdout country --exclude-seen-contexts`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sftExport(cmd.Context(), &x) },
	}
	f := cmd.Flags()
	x.data.Register(f)
	f.Lookup("split").Usage = "evaluate or training, where the folder holds both (default training)"
	f.StringVar(&x.out, "out", "", "folder to write to")
	f.StringVar(&x.holdout, "holdout", string(sft.HoldoutRandom), "what is held out: random (validation only), dimension, template or country")
	f.Float64Var(&x.fraction, "fraction", 0.1, "share of the dialogues for validation, and for the holdout")
	f.BoolVar(&x.laterTurns, "later-turns", false, "go on after the mediation with the record's turns, as decisions not to speak")
	f.BoolVar(&x.excludeSeen, "exclude-seen-contexts", false, "leave out dialogues whose scenario context is in the evaluation split")
	f.Int64Var(&x.seed, "seed", 1, "seed of the split and of the holdout's keys")
	f.StringVarP(&x.model, "model", "m", "", "count tokens for this model of Ollama")
	f.StringVar(&x.gguf, "gguf", "", "count tokens for this GGUF file")
	f.StringArrayVar(&x.hosts, "host", nil, "server address for --model (default $OLLAMA_HOST or 127.0.0.1:11434)")
	f.BoolVar(&x.force, "force", false, "replace an export in --out")
	return cmd
}

func (a *app) sftExport(ctx context.Context, x *exportFlags) error {
	switch {
	case x.out == "":
		return usagef("no --out folder given")
	case !slices.Contains(sft.Holdouts, sft.Holdout(x.holdout)):
		return usagef("unknown --holdout %q; known are %v", x.holdout, sft.Holdouts)
	case !(x.fraction > 0 && x.fraction < 1):
		return usagef("--fraction %g; it must lie between 0 and 1", x.fraction)
	case x.model != "" && x.gguf != "":
		return usagef("--model and --gguf are two ways to name one model; give one")
	}
	evaluation, err := x.evaluation(ctx, a)
	if err != nil {
		return err
	}
	if x.excludeSeen && evaluation == nil {
		return usagef("--exclude-seen-contexts needs data with an evaluation split: a folder that holds evaluate and training")
	}
	ds, _, err := a.opened().Dialogues(ctx, x.data)
	if err != nil {
		return err
	}
	o := sft.ExportOptions{Holdout: sft.Holdout(x.holdout), Fraction: x.fraction, Seed: x.seed, Evaluation: evaluation, ExcludeSeen: x.excludeSeen, LaterTurns: x.laterTurns,
		Lenient: x.data.Lenient, Force: x.force}
	if x.model != "" || x.gguf != "" {
		v, err := a.openTokenizer(ctx, x, &o)
		if err != nil {
			return err
		}
		defer v.Close()
	}
	e, err := sft.WriteExport(ctx, x.out, ds, o)
	if err != nil {
		return fmt.Errorf("export %s: %w", x.data.Path, err)
	}
	for _, p := range e.Problems {
		a.note("left out: %v", p)
	}
	if err := a.print(e.Sections()); err != nil {
		return err
	}
	a.note("%s", filepath.Join(x.out, sft.ExportFile))
	return nil
}

// evaluation reads the evaluation split beside the one that is exported, and makes
// training the default of --split where the folder holds it; nil where there is none.
func (x *exportFlags) evaluation(ctx context.Context, a *app) ([]dialogue.Dialogue, error) {
	if x.data.Path == "" || x.data.Path == "sample" {
		return nil, nil
	}
	splits, err := dialogue.Splits(x.data.Path)
	if err != nil {
		return nil, task.MissingRecords(err)
	}
	if x.data.Split == "" && slices.Contains(splits, dialogue.Training) {
		x.data.Split = dialogue.Training
	}
	if x.data.Split == dialogue.Evaluate || !slices.Contains(splits, dialogue.Evaluate) {
		return nil, nil
	}
	return a.opened().All(ctx, task.Records{Path: x.data.Path, Split: dialogue.Evaluate, Lenient: x.data.Lenient})
}

// openTokenizer opens the vocabulary of --model or --gguf for token counts.
func (a *app) openTokenizer(ctx context.Context, x *exportFlags, o *sft.ExportOptions) (*llamacpp.Vocab, error) {
	path, name := x.gguf, filepath.Base(x.gguf)
	if x.model != "" {
		host := (&fleet.Flags{Hosts: x.hosts}).OllamaHosts(a.getenv)[0]
		b, err := ollama.New(host, x.model, ollama.Options{})
		if err != nil {
			return nil, err
		}
		m, err := b.Model(ctx)
		if err != nil {
			return nil, err
		}
		if m.Path == "" {
			return nil, fmt.Errorf("the weights of %s are not readable on this machine; name a GGUF file with --gguf to count tokens", x.model)
		}
		path, name = m.Path, x.model
	}
	v, err := llamacpp.OpenVocab(ctx, path, "")
	if err != nil {
		return nil, err
	}
	head, err := v.Tokenize("")
	if err != nil {
		return nil, err
	}
	o.Model = name
	o.Tokens = func(s string) (int, error) {
		ts, err := v.LiteralTokens(s)
		return len(ts) - len(head), err
	}
	if f, err := gguf.Open(path); err == nil {
		o.Context = int(f.KeyValue("context_length").Uint())
		_ = f.Close() // opened for reading
	}
	return v, nil
}
