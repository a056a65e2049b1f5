package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/fleet"
	"github.com/ccmed/ccmed/infer/ollama"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/extract"
)

type trainFlags struct {
	layers           []string
	data, grouping   string
	folds, seeds     int
	shuffles         int
	controls         int
	resampling, seed int
	margin, cosine   float64
	embedder         string
	hosts            []string
	apply            string
}

func (a *app) probeCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "probe", Short: "Read a model's hidden states while it mediates"}
	cmd.AddCommand(a.trainCmd(), a.directionCmd(), a.effectCmd(), a.probeReportCmd(), a.probeExportCmd(), a.probeImportCmd())
	return cmd
}

func (a *app) trainCmd() *cobra.Command {
	t := trainFlags{}
	cmd := &cobra.Command{
		Use:   "train STORE",
		Short: "Train linear probes on every layer and cell of a store",
		Long: `train fits multinomial logistic probes of the conflict's stage on every layer of
every cell of an extraction run, with grouped cross-validation by scenario context,
equal splits in all cells, and penalties chosen on inner folds. Beside them stand
shuffled labels, the majority class, bags of words, control tasks, code lengths, what
the states know beyond words, and a probe of what the line says. It takes the
published D−ND difference apart (reading the prompt, what the model wrote, what
writing lost), tests transfer and wrong stages, and says which sentence the evidence
allows. The findings go into the store as probe.json, which probe report shows, and
the weights into its folder probes.

On a store of --questions it fits a labeller to the recorded stages instead, which
mediate asks with --labeller probe:STORE, and holds it against words of the turn.

--apply uses saved probes on this store and trains none: a file on every cell, a
folder of them each on its own cell.`,
		Example: `  ccmed probe train runs/STORE
  ccmed probe train runs/STORE --layers block.10,block.20,block.30 --seeds 2
  ccmed probe train runs/OTHER --apply runs/STORE/probes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := a.untilInterrupt(cmd.Context())
			defer stop()
			return a.train(ctx, args[0], &t)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&t.layers, "layers", nil, "layers to probe (default: all)")
	f.StringVar(&t.data, "data", "", "the dialogues that the states were read in (default: where the extraction had them from)")
	f.StringVar(&t.grouping, "groups", probe.GroupContext, "what folds keep apart: context, template or country")
	f.IntVar(&t.folds, "folds", 5, "folds of whole groups")
	f.IntVar(&t.seeds, "seeds", 5, "partitions into folds")
	f.IntVar(&t.shuffles, "shuffles", 1, "shuffled-label baselines")
	f.IntVar(&t.controls, "controls", 3, "control tasks by type; 0 leaves out control tasks, code lengths and the gain over words")
	f.Float64Var(&t.margin, "margin", 0.05, "accuracies that differ by less count as equal; choose it before looking")
	f.Float64Var(&t.cosine, "cosine-margin", 0.02, "cosines of the content probe that differ by less count as equal; choose it before looking")
	f.StringVar(&t.embedder, "embedder", "", "Ollama model that embeds lines for the content probe, such as all-minilm (default: TF-IDF and singular values)")
	f.StringArrayVar(&t.hosts, "host", nil, "address of the embedder's server (default $OLLAMA_HOST or 127.0.0.1:11434)")
	f.StringVar(&t.apply, "apply", "", "saved probes, a file or a folder: apply them and train none")
	f.IntVar(&t.resampling, "resamples", 10_000, "resamples of intervals and tests")
	f.IntVar(&t.seed, "seed", 1, "seed of folds and resampling")
	return cmd
}

func (t *trainFlags) check() error {
	for _, c := range []struct {
		name        string
		value, most int
	}{{"folds", t.folds, 2}, {"seeds", t.seeds, 1}, {"shuffles", t.shuffles, 1}, {"controls", t.controls, 0}, {"resamples", t.resampling, 100}} {
		if c.value < c.most {
			return usagef("--%s %d; it must be at least %d", c.name, c.value, c.most)
		}
	}
	switch t.grouping {
	case probe.GroupContext, probe.GroupTemplate, probe.GroupCountry:
	default:
		return usagef("unknown --groups %q; known are %s, %s and %s", t.grouping, probe.GroupContext, probe.GroupTemplate, probe.GroupCountry)
	}
	if !(t.margin > 0 && t.margin < 1) || !(t.cosine > 0 && t.cosine < 1) {
		return usagef("--margin and --cosine-margin lie between 0 and 1")
	}
	return nil
}

func (a *app) train(ctx context.Context, path string, t *trainFlags) error {
	if err := t.check(); err != nil {
		return err
	}
	dir, err := a.openExtraction(path)
	if err != nil {
		return err
	}
	if st := dir.Manifest().Status; st != run.StatusDone {
		return fmt.Errorf("%s is not finished; go on with: ccmed runs resume %s", path, path)
	}
	model := dir.Manifest().Identity.ModelNames()
	resampling := probe.Resampling{Resamples: t.resampling, Seed: uint64(t.seed)}
	if probe.HoldsTiming(dir.Dir) {
		return fmt.Errorf("%s holds states at the question whether to speak; a direction is learnt from it: ccmed probe direction %s --kind speak --layers BLOCK --out FILE", path, path)
	}
	if t.apply != "" && (probe.HoldsTurns(dir.Dir) || probe.HoldsQuestions(dir.Dir)) {
		return fmt.Errorf("%s holds states of turns or questions; saved probes are applied to stores of lines (without --turns and --questions)", path)
	}
	if t.apply != "" {
		findings, err := probe.Apply(ctx, dir.Dir, t.apply, resampling)
		if err != nil {
			return err
		}
		if a.json {
			return a.encode(findings)
		}
		return a.print([]report.Section{probe.AppliedSection(model, findings)})
	}
	o := probe.FindOptions{Layers: t.layers, Design: probe.Design{Folds: t.folds, Shuffles: t.shuffles}, Resampling: resampling, Grouping: t.grouping,
		Controls: t.controls, Margin: t.margin, Cosine: t.cosine, Progress: func(what string) { a.note("%s", what) }}
	if t.controls == 0 {
		o.Controls = -1
	}
	o.Design.Seeds = probeSeeds(t.seed, t.seeds)
	if probe.HoldsTurns(dir.Dir) {
		return a.trainTurns(ctx, dir.Dir, o)
	}
	if probe.HoldsQuestions(dir.Dir) {
		return a.trainLabeller(ctx, dir.Dir, o)
	}
	if o.Dialogues, err = a.storeDialogues(ctx, dir, t.data); err != nil {
		return err
	}
	if err := a.embedWith(ctx, t, &o); err != nil {
		return err
	}
	f, err := probe.Find(ctx, dir.Dir, o)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	// The findings come last: they never stand beside another training's weights.
	saved, err := probe.Save(ctx, dir.Dir, f, o)
	if err != nil {
		return err
	}
	if err := writeFindings(dir.Dir, probe.FindingsFile, f); err != nil {
		return err
	}
	a.note("%d probes saved in %s", len(saved), filepath.Join(path, probe.ProbesDir))
	return a.print(probe.Sections(model, f))
}

// trainTurns trains on a store of turns, which asks other questions.
func (a *app) trainTurns(ctx context.Context, dir *run.Dir, o probe.FindOptions) error {
	f, err := probe.FindTurns(ctx, dir, o)
	if err != nil {
		return err
	}
	if err := writeFindings(dir, probe.TurnFindingsFile, f); err != nil {
		return err
	}
	return a.print(probe.TurnSections(dir.Manifest().Identity.ModelNames(), f))
}

// trainLabeller fits a labeller to a store of questions.
func (a *app) trainLabeller(ctx context.Context, dir *run.Dir, o probe.FindOptions) error {
	m := dir.Manifest()
	named, err := extract.Named(m.Identity)
	if err != nil {
		return err
	}
	f, err := probe.FindLabeller(ctx, dir, named, o)
	if err != nil {
		return fmt.Errorf("%s: %w", dir.Path(), err)
	}
	if err := writeFindings(dir, probe.LabellerFindingsFile, f); err != nil {
		return err
	}
	if err := a.print(probe.LabellerSections(m.Identity.ModelNames(), f)); err != nil {
		return err
	}
	a.note("ask it with: ccmed mediate … --labeller probe:%s", dir.Path())
	return nil
}

func writeFindings(dir *run.Dir, name string, f any) error {
	return dir.WriteSealed(name, f)
}

// storeDialogues reads the dialogues of a store: those given, or those that the
// extraction named, where they still are.
func (a *app) storeDialogues(ctx context.Context, r *task.Run, given string) ([]dialogue.Dialogue, error) {
	ds, err := r.Dialogues(ctx, task.Records{Path: given})
	if err != nil && given == "" {
		a.note("the dialogues of %s are not at hand (%v): controls that need them are left out (name their folder with --data)", r.Path(), err)
		return nil, nil
	}
	return ds, err
}

// embedWith lets an Ollama model embed the lines of the content probe.
func (a *app) embedWith(ctx context.Context, t *trainFlags, o *probe.FindOptions) error {
	if t.embedder == "" {
		return nil
	}
	server, err := ollama.New((&fleet.Flags{Hosts: t.hosts}).OllamaHosts(a.getenv)[0], t.embedder, ollama.Options{})
	if err != nil {
		return err
	}
	id, err := server.Model(ctx)
	if err != nil {
		return err
	}
	o.Embedder = strings.TrimSpace(id.Name + " " + infer.ShortDigest(id.Digest))
	o.Embed = func(ctx context.Context, texts []string) ([][]float32, error) {
		const batch = 64
		var out [][]float32
		for len(texts) > 0 {
			n := min(batch, len(texts))
			vs, err := server.Embed(ctx, texts[:n])
			if err != nil {
				return nil, err
			}
			out, texts = append(out, vs...), texts[n:]
		}
		return out, nil
	}
	return nil
}

func (a *app) openExtraction(path string) (*task.Run, error) {
	r, err := a.opened().Open(path)
	if err != nil {
		return nil, err
	}
	if name := r.Identity().Task; name != extract.TaskName {
		return nil, fmt.Errorf("%s is a %s run; probes are trained on a store, made by `ccmed probe extract`", path, name)
	}
	return r, nil
}

func (a *app) probeReportCmd() *cobra.Command {
	var format, out, figures string
	cmd := &cobra.Command{
		Use:   "report STORE",
		Short: "Show the findings of a store and the conclusion they support",
		Example: `  ccmed probe report runs/STORE
  ccmed probe report runs/STORE --format csv
  ccmed probe report runs/STORE --format html --out probes.html`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.probeReport(args[0], format, out, figures) },
	}
	cmd.Flags().StringVar(&figures, "figures", "", "folder for a paper: each figure as SVG and PDF, each table as LaTeX and Markdown")
	cmd.Flags().StringVar(&format, "format", "table", "table, markdown, html, json or csv")
	cmd.Flags().StringVar(&out, "out", "", "file to write instead of standard output; one that exists is kept")
	return cmd
}

func (a *app) probeReport(path, format, out, figures string) error {
	dir, err := a.openExtraction(path)
	if err != nil {
		return err
	}
	findings, err := extract.ReadFindings(dir.Dir)
	if err != nil {
		return err
	}
	model := dir.Manifest().Identity.ModelNames()
	sections := findings.Sections(model)
	if figures != "" {
		return a.writeFigures(figures, sections)
	}
	return a.writeOut(out, func(w io.Writer) error {
		switch format {
		case "table":
			if out == "" {
				return a.print(sections)
			}
			return report.Write(w, report.Terminal, sections, report.Options{})
		case "markdown":
			return report.Write(w, report.Markdown, sections, report.Options{})
		case "html":
			return report.Write(w, report.HTML, sections, report.Options{Title: "Probes: " + model})
		case "json":
			return encodeTo(w, findings.Value())
		case "csv":
			return findings.WriteCSV(w)
		}
		return usagef("unknown --format %q; known are table, markdown, html, json and csv", format)
	})
}

// writeOut writes to a new file, or to standard output for "".
func (a *app) writeOut(path string, write func(io.Writer) error) error {
	if path == "" {
		return write(a.exact())
	}
	if to, err := disk.Look(path); err != nil {
		return err
	} else if to == disk.File {
		return fmt.Errorf("%s exists and is kept; name another file with --out, or remove it", path)
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if err := disk.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	a.note("%s written", path)
	return nil
}
