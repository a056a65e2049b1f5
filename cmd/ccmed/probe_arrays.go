package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/arrays"
	"github.com/ccmed/ccmed/probe/extract"
)

func (a *app) probeExportCmd() *cobra.Command {
	var out string
	var folds, seeds, seed int
	o := arrays.Options{Note: a.note}
	cmd := &cobra.Command{
		Use:   "export STORE",
		Short: "Write hidden states as NumPy archives or Parquet tables",
		Long: `export writes a NumPy archive (.npz) for each cell of a store into a new folder:

  X      (layers, rows, width), float32: the hidden states
  y      (rows), int64: the stage, by number
  group  (rows), int64: the scenario context, by number; keep groups whole in folds
  fold   (partitions, rows), int64: the fold in which probe train holds the row out,
         with the same --folds, --seeds and --seed; -1 where it leaves the row out
  turn   (rows), int64: the turn that the row is about

and meta.json in the same archive, which names model, cell, layers, stages, groups and
the dialogue of each row. Rows without states are left out. In Python:

  z = numpy.load("arrays/D.own-D.utterance_end.residual.npz")
  meta = json.loads(z["meta.json"])
  X = z["X"][meta["layers"].index("block.12")]

--format parquet writes tables with a row for each layer and row instead: layer, item,
condition, text, position, turn, stage, group, fold and x.

Beside the archives of a store of lines stands card.json, with which probe import
takes them in again.`,
		Example: `  ccmed probe export runs/STORE --out arrays
  ccmed probe export runs/STORE --layers block.10,block.20 --out arrays
  ccmed probe export runs/STORE --format parquet --out tables`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case out == "":
				return usagef("probe export needs --out, the folder of the arrays")
			case o.Format != arrays.NPZ && o.Format != arrays.Parquet:
				return usagef("unknown --format %q; it is %s or %s", o.Format, arrays.NPZ, arrays.Parquet)
			case folds < 2 || seeds < 1:
				return usagef("--folds %d and --seeds %d; there are at least 2 folds and 1 partition", folds, seeds)
			}
			dir, err := a.openExtraction(args[0])
			if err != nil {
				return err
			}
			ctx, stop := a.untilInterrupt(cmd.Context())
			defer stop()
			o.Design = probe.Design{Folds: folds, Seeds: probeSeeds(seed, seeds)}
			files, err := arrays.Export(ctx, dir.Dir, out, o)
			if err != nil {
				return err
			}
			a.note("%d files written in %s", len(files), out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "folder to write, which must not exist")
	f.StringVar(&o.Format, "format", arrays.NPZ, "npz or parquet")
	f.StringSliceVar(&o.Layers, "layers", nil, "layers to write (default: all)")
	f.IntVar(&folds, "folds", 5, "folds of whole groups, as in probe train")
	f.IntVar(&seeds, "seeds", 5, "partitions into folds")
	f.IntVar(&seed, "seed", 1, "seed of the first partition")
	return cmd
}

// probeSeeds are the seeds of a probe's partitions into folds.
func probeSeeds(first, n int) (out []uint64) {
	for i := range n {
		out = append(out, uint64(first+i))
	}
	return out
}

func (a *app) probeImportCmd() *cobra.Command {
	var out string
	var records task.Records
	cmd := &cobra.Command{
		Use:   "import CARD",
		Short: "Make a store of hidden states that were made elsewhere",
		Long: `import takes in states of TransformerLens, nnsight or a program of your own: arrays of
shape (layers, rows, width) in .npz, .npy or .safetensors files, one for each cell, and
a card beside them that says what they are, in YAML or JSON:

  model: {name: gemma-2-9b-it, digest: 11c9b309abf73637e4b6f9a3fa1e92e615547819}
  layers: [embed, block.1, block.2, final_norm]
  arrays:
    - {file: nd.npz, array: resid, context: ND, text: own-ND, position: utterance_end}
  items: ["9001", "9002"]
  labels: [Denial, Defense]
  groups: [first scene, second scene]

digest tells two models apart: a checksum of the weights or the commit of their
repository. Labels are the stages Denial, Defense and Minimization; items of a group
stay in one fold. With --data labels and groups may be left out, and those that are
there must be the records' own. Further members: rows of an array (numbers of items,
where it has not all), tokens and token (length of the sequence, and whose state it
is), turns, texts (the lines, by text), dtype (F32 or F16, as they are stored).

The store takes probe train, probe report and report as any other. What does not fit
is refused, with its place. A folder of probe export is imported by its name.`,
		Example: `  ccmed probe import states/card.yaml --out runs/imported
  ccmed probe import states/card.yaml --data CC-Mediation/data --split training
  ccmed probe import arrays --out runs/again`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := a.untilInterrupt(cmd.Context())
			defer stop()
			return a.importStates(ctx, args[0], out, records)
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "folder of the new store (default: a new one in runs)")
	f.StringVar(&records.Path, "data", "", "the records that the states are of: labels and groups come from there")
	f.StringVar(&records.Split, "split", "", "evaluate or training, where the folder holds both (default evaluate)")
	return cmd
}

// importStates makes a store of a card's arrays and shows it.
func (a *app) importStates(ctx context.Context, card, out string, records task.Records) error {
	to := arrays.Target{Command: cli.Redacted(a.args), Identity: run.Identity{Task: extract.TaskName, Version: version()}}
	var ds []dialogue.Dialogue
	if records.Path != "" {
		var err error
		if _, ds, err = a.opened().Dialogues(ctx, records); err != nil {
			return err
		}
		to.Settings = records.Settings()
	}
	c, err := arrays.ReadCard(card, ds)
	if err != nil {
		return err
	}
	if ds = c.Used(ds); ds != nil {
		to.Identity.DataHash = dialogue.Hash(ds)
	}
	m := c.Model.Identity()
	if out == "" {
		out = filepath.Join("runs", run.NewName(extract.TaskName, m.Name, a.now()))
	}
	to.Identity.Models = map[string]infer.Model{mediation.RoleMediator: m}
	if err := arrays.Import(ctx, out, c, to); err != nil {
		return fmt.Errorf("import states: %w", err)
	}
	a.opened().Forget(out)
	err = a.scoreRun(ctx, out, task.ScoreOptions{}, func(sections []report.Section) error { return a.print(sections[:1]) })
	if err == nil {
		a.note("next: %s", cli.CommandLine([]string{"probe", "train", out}))
	}
	return err
}
