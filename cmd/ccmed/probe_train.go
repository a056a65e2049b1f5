package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/infer/ollama"
	"github.com/ccmed/ccmed/probe"
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
	model := modelNames(dir.Manifest().Identity)
	resampling := probe.Resampling{Resamples: t.resampling, Seed: uint64(t.seed)}
	if t.apply != "" && probe.HoldsTurns(dir) {
		return fmt.Errorf("%s holds states of turns; saved probes are applied to stores of lines (without --turns)", path)
	}
	if t.apply != "" {
		found, err := probe.Apply(ctx, dir, t.apply, resampling)
		if err != nil {
			return err
		}
		if a.json {
			return a.encode(found)
		}
		return a.print([]report.Section{probe.AppliedSection(model, found)})
	}
	o := probe.FindOptions{Layers: t.layers, Design: probe.Design{Folds: t.folds, Shuffles: t.shuffles}, Resampling: resampling, Grouping: t.grouping,
		Controls: t.controls, Margin: t.margin, Cosine: t.cosine, Progress: func(what string) { a.note("%s", what) }}
	if t.controls == 0 {
		o.Controls = -1
	}
	for i := range t.seeds {
		o.Design.Seeds = append(o.Design.Seeds, uint64(t.seed+i))
	}
	if probe.HoldsTurns(dir) {
		return a.trainTurns(ctx, dir, o)
	}
	if o.Dialogues, err = a.storeDialogues(ctx, dir, t.data); err != nil {
		return err
	}
	if err := a.embedWith(ctx, t, &o); err != nil {
		return err
	}
	f, err := probe.Find(ctx, dir, o)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	// The findings come last: they never stand beside another training's weights.
	saved, err := probe.Save(ctx, dir, f, o)
	if err != nil {
		return err
	}
	if err := writeFindings(dir, probe.FindingsFile, f); err != nil {
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
	return a.print(probe.TurnSections(modelNames(dir.Manifest().Identity), f))
}

func writeFindings(dir *run.Dir, name string, f any) error {
	return dir.WriteSealed(name, f)
}

// storeDialogues reads the dialogues of a store: those given, or those that the
// extraction named, where they still are.
func (a *app) storeDialogues(ctx context.Context, dir *run.Dir, given string) ([]dialogue.Dialogue, error) {
	options := dir.Manifest().Identity.Options
	d := dataFlags{dir: given, lenient: true}
	if split, ok := options["split"].(string); ok {
		d.split = split
	}
	if given == "" {
		recorded, _ := options["data"].(string)
		if recorded == "" {
			return nil, nil
		}
		if _, err := os.Stat(recorded); recorded != "sample" && errors.Is(err, fs.ErrNotExist) {
			a.note("%s is no longer there; controls that need the dialogues are left out (name their folder with --data)", recorded)
			return nil, nil
		}
		d.dir = recorded
	}
	return d.read(ctx, a, d.split)
}

// embedWith lets an Ollama model embed the lines of the content probe.
func (a *app) embedWith(ctx context.Context, t *trainFlags, o *probe.FindOptions) error {
	if t.embedder == "" {
		return nil
	}
	server, err := ollama.New(a.ollamaHosts(&modelFlags{hosts: t.hosts})[0], t.embedder, ollama.Options{})
	if err != nil {
		return err
	}
	id, err := server.Model(ctx)
	if err != nil {
		return err
	}
	o.Embedder = strings.TrimSpace(id.Name + " " + short(id.Digest))
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

func (a *app) openExtraction(path string) (*run.Dir, error) {
	dir, err := a.reading(path)
	if err != nil {
		return nil, err
	}
	if task := dir.Manifest().Identity.Task; task != "extract" {
		return nil, fmt.Errorf("%s is a %s run; probes are trained on a store, made by `ccmed probe extract`", path, task)
	}
	return dir, nil
}

func (a *app) probeReportCmd() *cobra.Command {
	var format, out string
	cmd := &cobra.Command{
		Use:   "report STORE",
		Short: "Show the findings of a store: by layer, taken apart, and the sentence they allow",
		Example: `  ccmed probe report runs/STORE
  ccmed probe report runs/STORE --format csv
  ccmed probe report runs/STORE --format html --out probes.html`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.probeReport(args[0], format, out) },
	}
	cmd.Flags().StringVar(&format, "format", "table", "table, markdown, html, json or csv")
	cmd.Flags().StringVar(&out, "out", "", "file to write instead of standard output; one that exists is kept")
	return cmd
}

func (a *app) probeReport(path, format, out string) error {
	dir, err := a.openExtraction(path)
	if err != nil {
		return err
	}
	found, err := readFindings(dir)
	if err != nil {
		return err
	}
	model := modelNames(dir.Manifest().Identity)
	sections := found.sections(model)
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
			return encodeTo(w, found.value())
		case "csv":
			if found.turns != nil {
				return probe.WriteTurnsCSV(w, found.turns)
			}
			return probe.WriteCSV(w, found.cells)
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

// findings are those of a store of cells or of a store of turns.
type findings struct {
	cells *probe.Findings
	turns *probe.TurnFindings
}

func (f findings) value() any {
	if f.turns != nil {
		return f.turns
	}
	return f.cells
}

func (f findings) sections(model string) []report.Section {
	if f.turns != nil {
		return probe.TurnSections(model, f.turns)
	}
	return probe.Sections(model, f.cells)
}

// findingsFile is where a store's findings are, whether there are some or not.
func findingsFile(dir *run.Dir) string {
	if probe.HoldsTurns(dir) {
		return filepath.Join(dir.Path(), probe.TurnFindingsFile)
	}
	return filepath.Join(dir.Path(), probe.FindingsFile)
}

// readFindings reads a store's findings and checks that they are of its samples.
func readFindings(dir *run.Dir) (f findings, err error) {
	file := findingsFile(dir)
	again := "run `ccmed probe train " + dir.Path() + "` again"
	if !exists(file) {
		return f, fmt.Errorf("%s has no findings yet; make them with `ccmed probe train %s`", dir.Path(), dir.Path())
	}
	var head struct {
		Schema  int    `json:"schema"`
		Samples string `json:"samples_sha256"`
	}
	text, err := disk.ReadEntry(file, disk.MaxText)
	if err != nil {
		return f, fmt.Errorf("read the findings: %w", err)
	}
	if err := strictjson.Unmarshal(text, &head); err != nil {
		return f, fmt.Errorf("%s is damaged: %w; %s", file, err, again)
	}
	if err := checksum.Check(text); err != nil && !errors.Is(err, checksum.ErrNone) {
		return f, fmt.Errorf("%s: %w; %s", file, err, again)
	}
	want := probe.FindingsSchema
	if probe.HoldsTurns(dir) {
		want, f.turns = probe.TurnFindingsSchema, &probe.TurnFindings{}
	} else {
		f.cells = &probe.Findings{}
	}
	if head.Schema != want {
		return f, fmt.Errorf("%s was written by another version (schema %d, this one reads %d); %s", file, head.Schema, want, again)
	}
	hash, err := dir.SamplesHash()
	if err != nil {
		return f, err
	}
	if hash != head.Samples {
		return f, fmt.Errorf("%s was made from other samples than %s holds; %s", file, dir.Path(), again)
	}
	if err := json.Unmarshal(text, f.value()); err != nil {
		return f, fmt.Errorf("%s is damaged: %w; %s", file, err, again)
	}
	if f.turns != nil {
		f.turns.ContentHash = ""
	} else {
		f.cells.ContentHash = ""
	}
	return f, nil
}
