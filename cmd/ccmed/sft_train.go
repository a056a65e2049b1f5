package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	bench "github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/visible"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/fleet"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/infer/ollama"
	"github.com/ccmed/ccmed/sft"
)

func (a *app) sftSetupCmd() *cobra.Command {
	var venv, python, interpreter string
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Make or check the Python environment that trains",
		Long: `setup makes a virtual environment with torch, transformers, peft and what else
training needs, each in the version that was tested: about 3 GB to fetch and 6 GB
on disk. The same packages use a GPU where there is one. With --python it checks
an environment of your own instead, and changes nothing in it.`,
		Example: `  ccmed sft setup
  ccmed sft setup --python ~/venvs/torch/bin/python`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := a.untilInterrupt(cmd.Context())
			defer stop()
			if python != "" && venv != "" {
				return usagef("--python checks your own environment and --venv makes a new one; give one")
			}
			env, err := a.setup(ctx, venv, python, interpreter)
			if err != nil {
				return err
			}
			return a.print([]report.Section{environmentSection(env)})
		},
	}
	f := cmd.Flags()
	f.StringVar(&venv, "venv", "", "folder of the environment (default: in the user's cache folder)")
	f.StringVar(&python, "python", "", "check this Python instead of making an environment")
	f.StringVar(&interpreter, "interpreter", "python3", "Python to make the environment with, 3.11 or later")
	return cmd
}

func (a *app) setup(ctx context.Context, venv, python, interpreter string) (*sft.Environment, error) {
	if python != "" {
		return sft.CheckPython(ctx, python)
	}
	if venv == "" {
		var err error
		if venv, err = sft.VenvDir(); err != nil {
			return nil, err
		}
	}
	return sft.Setup(ctx, venv, interpreter, noteWriter{a})
}

// noteWriter writes what a long step tells, unless --quiet.
type noteWriter struct{ a *app }

func (w noteWriter) Write(p []byte) (int, error) {
	if w.a.quiet {
		return len(p), nil
	}
	return w.a.stderr.Write(p)
}

func environmentSection(e *sft.Environment) report.Section {
	t := report.Table{Columns: report.Columns("training environment", "found")}
	row := func(k, v string) { t.Add(k, v) }
	row("python", e.Python)
	row("version", e.Version)
	for _, p := range e.Names() {
		row(p, e.Packages[p])
	}
	if len(e.GPUs) == 0 {
		row("GPU", "none that torch sees: training runs on the CPU")
	}
	for _, g := range e.GPUs {
		row("GPU", fmt.Sprintf("%s, %.0f GB", g.Name, float64(g.Bytes)/1e9))
	}
	s := report.Section{Title: "Training environment", Tables: []report.Table{t}}
	for _, d := range e.Differences {
		s.Notes = append(s.Notes, "not the tested version: "+d)
	}
	return s
}

// untilInterrupt returns a context that the first interrupt ends, for what has
// nothing in hand to finish.
func (a *app) untilInterrupt(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		select {
		case <-a.soft:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

type sftTrainFlags struct {
	base, preset, python string
	reuse, targets       string
	hosts                []string
	nproc                int
	stall, grace         time.Duration
	resume, force        bool
	config               sft.Config
	fromConfig           []string // names of the flags that set config
}

func (a *app) sftTrainCmd() *cobra.Command {
	x := sftTrainFlags{}
	cmd := &cobra.Command{
		Use:   "train",
		Short: "Train a base model and its decision head on exported data",
		Long: `train starts the trainer (Python: torch, transformers, peft) and watches it: losses,
validation, speed, memory, time left. The run folder --out keeps the settings, every
event, the losses as loss.csv and drawn in report.html, the trainer's log,
checkpoints and the result.

--base is a folder in Hugging Face's format, ollama:MODEL or a GGUF file. From the
latter two a checkpoint is rebuilt once, in the user's cache folder, and its
tokenizer is held against llama.cpp's on several hundred texts: where they differ
it is refused.

Settings come from a preset chosen by the base's family and size (--preset names
one), and each flag overrides one of them. An interrupt saves a checkpoint;
--resume goes on to the same result. A second interrupt ends at once.`,
		Example: `  ccmed sft train --base models/Llama-3.1-8B-Instruct --data sft-data --out runs/tuned
  ccmed sft train --base ollama:smollm2:135m --data sft-data --out runs/small --max-steps 300
  ccmed sft train --out runs/small --resume`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sftTrain(cmd.Context(), cmd.Flags(), &x) },
	}
	f := cmd.Flags()
	f.StringVar(&x.base, "base", "", "model to train: a Hugging Face folder, ollama:MODEL or a GGUF file")
	f.StringVar(&x.config.Data, "data", "", "folder that ccmed sft export wrote")
	f.StringVar(&x.config.Out, "out", "", "folder of this run (default: a new one in runs/)")
	f.StringVar(&x.preset, "preset", "", "settings: "+strings.Join(sft.Presets, ", ")+" (default: by the base's family and size)")
	f.StringVar(&x.python, "python", "", "your own Python (default: the environment of ccmed sft setup)")
	f.IntVar(&x.nproc, "nproc", 1, "processes, one a GPU, through torchrun")
	f.BoolVar(&x.resume, "resume", false, "go on with the run in --out")
	f.BoolVar(&x.force, "force", false, "train a large model without a GPU, or with less memory than it is estimated to take")
	f.DurationVar(&x.stall, "stall-timeout", 30*time.Minute, "stop a trainer that says nothing for so long")
	f.DurationVar(&x.grace, "grace", 10*time.Minute, "time to finish the step in hand and save a checkpoint after an interrupt")
	f.StringArrayVar(&x.hosts, "host", nil, "server address for --base ollama:MODEL (default $OLLAMA_HOST or 127.0.0.1:11434)")
	x.configFlags(f)
	return cmd
}

// configFlags registers the flags that override a preset's settings.
func (x *sftTrainFlags) configFlags(f *pflag.FlagSet) {
	c := pflag.NewFlagSet("", pflag.ContinueOnError)
	t := &x.config
	c.StringVar(&t.Method, "method", "", "lora, or full for small models")
	c.IntVar(&t.Rank, "rank", 0, "rank of the adapters")
	c.Float64Var(&t.Alpha, "alpha", 0, "scale of the adapters, times the rank")
	c.Float64Var(&t.Dropout, "dropout", 0, "dropout within the adapters")
	c.StringVar(&x.targets, "targets", "", "projections with adapters, as q_proj,k_proj,v_proj,o_proj")
	c.Float64Var(&t.LRAdapter, "lr-adapter", 0, "learning rate of the adapters (of all weights with --method full)")
	c.Float64Var(&t.LRHead, "lr-head", 0, "learning rate of the decision head")
	c.Float64Var(&t.Epochs, "epochs", 0, "times that every record is trained on")
	c.IntVar(&t.MaxSteps, "max-steps", 0, "end after so many steps; 0 for none")
	c.IntVar(&t.Batch, "batch", 0, "sequences at a time")
	c.IntVar(&t.GradAccum, "grad-accum", 0, "batches a step")
	c.Float64Var(&t.Lambda, "lambda", 0, "weight of the decision loss: loss = LM + lambda BCE")
	c.Float64Var(&t.PosWeight, "pos-weight", 0, "weight of a positive decision; 0 for negatives/positives of the data")
	c.Int64Var(&t.Seed, "seed", 0, "seed of everything random")
	c.StringVar(&t.DType, "dtype", "", "f32 or bf16")
	c.BoolVar(&t.LoadIn4Bit, "load-in-4bit", false, "hold the base in 4 bits (needs bitsandbytes and a GPU)")
	c.BoolVar(&t.Checkpointing, "gradient-checkpointing", false, "compute activations again instead of keeping them")
	c.IntVar(&t.MaxLength, "max-length", 0, "refuse longer sequences, in tokens; 0 for the model's context")
	c.StringVar(&x.reuse, "reuse-tokens", "", "three unused tokens of the vocabulary to be <TURN_END>, [SPEAK] and [/SPEAK], as A,B,C (default: new tokens)")
	c.IntVar(&t.SaveSteps, "save-steps", 0, "steps between checkpoints; 0 for none")
	c.IntVar(&t.SaveSeconds, "save-seconds", 0, "seconds between checkpoints; 0 for none")
	c.IntVar(&t.EvalSteps, "eval-steps", 0, "steps between validations; 0 for each epoch's end only")
	c.IntVar(&t.WarmupSteps, "warmup-steps", 0, "steps in which the learning rates rise")
	c.IntVar(&t.Threads, "threads", 0, "CPU threads; 0 for torch's own choice")
	c.VisitAll(func(g *pflag.Flag) {
		x.fromConfig = append(x.fromConfig, g.Name)
		if g.Name != "reuse-tokens" {
			g.Usage += " (default: the preset's)"
		}
	})
	f.AddFlagSet(c)
}

// override puts the flags that were given over other settings.
func (x *sftTrainFlags) override(f *pflag.FlagSet, under sft.Config) (sft.Config, error) {
	given := map[string]string{}
	for _, name := range x.fromConfig {
		if g := f.Lookup(name); g.Changed {
			given[name] = g.Value.String()
		}
	}
	data, out := x.config.Data, x.config.Out
	x.config = under
	if data != "" {
		x.config.Data = data
	}
	x.config.Out = out
	for name, v := range given {
		if err := f.Set(name, v); err != nil {
			return under, usagef("--%s: %w", name, err)
		}
	}
	if x.targets != "" {
		x.config.Targets = strings.Split(x.targets, ",")
	}
	if x.reuse != "" {
		names := strings.Split(x.reuse, ",")
		if len(names) != 3 {
			return under, usagef("--reuse-tokens %q; it must name three tokens, as A,B,C", x.reuse)
		}
		x.config.ReuseTokens = map[string]string{sft.TurnEnd: names[0], sft.Speak: names[1], sft.EndSpeak: names[2]}
	}
	if err := x.config.Check(); err != nil {
		return under, &usageError{Err: err}
	}
	return x.config, nil
}

func (a *app) sftTrain(ctx context.Context, f *pflag.FlagSet, x *sftTrainFlags) error {
	switch {
	case x.resume && x.config.Out == "":
		return usagef("--resume needs the folder of the run, --out")
	case x.resume && (x.base != "" || x.preset != ""):
		return usagef("--resume goes on with the base and preset of the run; leave --base and --preset out")
	case !x.resume && x.base == "":
		return usagef("no --base given; name a Hugging Face folder, ollama:MODEL or a GGUF file")
	case !x.resume && x.config.Data == "":
		return usagef("no --data given; name a folder that ccmed sft export wrote")
	case x.nproc < 1:
		return usagef("--nproc %d; it must be at least 1", x.nproc)
	case x.stall <= 0 || x.grace <= 0:
		return usagef("--stall-timeout and --grace must be above 0")
	}
	if x.config.Out == "" {
		x.config.Out = filepath.Join("runs", bench.NewName("sft", x.base, a.now()))
	}
	before, stop := a.untilInterrupt(ctx)
	defer stop()
	env, err := a.trainingPython(before, x)
	if err != nil {
		return err
	}
	run, err := a.openTraining(before, f, x, env)
	if err != nil {
		return err
	}
	defer run.Close()
	a.note("run folder: %s", run.Dir())
	release := a.hold(cli.Work{Saves: true, Again: cli.CommandLine([]string{"sft", "train", "--out", run.Dir(), "--resume"})})
	result, err := run.Execute(ctx, sft.Supervision{Environment: *env, Processes: x.nproc, Stall: x.stall, Grace: x.grace, Soft: a.soft,
		Progress: a.trainProgress(), Note: func(s string) { a.note("%s", s) }})
	release()
	var failed *sft.TrainError
	if errors.As(err, &failed) {
		a.note("what was done is kept; go on with: ccmed sft train --out %s --resume", x.config.Out)
	}
	if err != nil {
		return err
	}
	sections, err := sft.TrainSections(ctx, run.Dir())
	if err != nil {
		return err
	}
	if err := a.print(sections); err != nil {
		return err
	}
	if err := writePage(filepath.Join(run.Dir(), "report.html"), "ccmed sft train", sections); err != nil {
		return err
	}
	a.note("%s", result.Final)
	return nil
}

// writePage writes sections as one HTML file.
func writePage(path, title string, sections []report.Section) error {
	var b bytes.Buffer
	if err := report.Write(&b, report.HTML, sections, report.Options{Title: title}); err != nil {
		return err
	}
	if err := disk.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func (a *app) trainProgress() sft.TrainProgress {
	switch {
	case a.quiet:
		return sft.QuietProgress()
	case isTerminal(a.stderr):
		return sft.BarProgress(visible.Under(a.stderr))
	}
	return sft.LineProgress(a.stderr)
}

// trainingPython finds and checks the Python that trains.
func (a *app) trainingPython(ctx context.Context, x *sftTrainFlags) (*sft.Environment, error) {
	python := x.python
	if python == "" {
		var err error
		if python, err = sft.DefaultPython(); err != nil {
			return nil, err
		}
	} else if resolved, err := exec.LookPath(python); err == nil {
		python = resolved
	}
	env, err := sft.CheckPython(ctx, python)
	if err != nil {
		return nil, err
	}
	env.Python = python // an interpreter may name the one it was made of
	for _, d := range env.Differences {
		a.note("note: not the tested version: %s", d)
	}
	if n := len(env.GPUs); n > 0 && x.nproc > n {
		return nil, usagef("--nproc %d; torch sees %d GPUs", x.nproc, n)
	}
	return env, nil
}

// openTraining makes the run folder, or opens it again to go on.
func (a *app) openTraining(ctx context.Context, f *pflag.FlagSet, x *sftTrainFlags, env *sft.Environment) (*sft.TrainingRun, error) {
	if x.resume {
		return a.resumeTraining(ctx, f, x, env)
	}
	export, err := sft.ReadExport(x.config.Data)
	if err != nil {
		return nil, err
	}
	base, err := a.checkpoint(ctx, x, env, x.base)
	if err != nil {
		return nil, err
	}
	if x.preset == "" {
		x.preset = sft.PresetFor(base)
	}
	settings, err := sft.Preset(x.preset)
	if err != nil {
		return nil, &usageError{Err: err}
	}
	if len(env.GPUs) == 0 {
		settings.DType, settings.LoadIn4Bit = "f32", false
	}
	c, err := x.override(f, settings)
	if err != nil {
		return nil, err
	}
	for _, p := range []*string{&c.Data, &c.Out, &base.Dir} {
		if *p, err = filepath.Abs(*p); err != nil {
			return nil, fmt.Errorf("find the folders: %w", err)
		}
	}
	c.Base = base.Dir
	memory := sft.EstimateMemory(base, c, export.LongestTokens())
	if err := a.enough(base, c, memory, env, x.force); err != nil {
		return nil, err
	}
	scripts, err := sft.ScriptsDigest()
	if err != nil {
		return nil, err
	}
	a.note("base: %s, %.3g million parameters; preset %s; about %.1f GB of memory", x.base, float64(base.Parameters)/1e6, x.preset, float64(memory.Total())/1e9)
	return sft.CreateTraining(sft.Manifest{Version: version(), Scripts: scripts, Preset: x.preset, Config: c, Base: *base, Export: export, ExportDigest: export.Digest(), Memory: memory})
}

// resumeTraining opens a run and checks that it would go on to the same result.
func (a *app) resumeTraining(ctx context.Context, f *pflag.FlagSet, x *sftTrainFlags, env *sft.Environment) (_ *sft.TrainingRun, err error) {
	run, err := sft.ResumeTraining(x.config.Out)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, run.Close())
		}
	}()
	m := run.Manifest()
	c, err := x.override(f, m.Config)
	if err != nil {
		return nil, err
	}
	if err := run.Same(c); err != nil {
		return nil, err
	}
	if c.Data, err = filepath.Abs(c.Data); err != nil {
		return nil, fmt.Errorf("find the training data: %w", err)
	}
	export, err := sft.ReadExport(c.Data)
	if err != nil {
		return nil, err
	}
	from := m.Base.From
	if from == "" {
		from = m.Base.Dir
	}
	base, err := a.checkpoint(ctx, x, env, from)
	if err != nil {
		return nil, err
	}
	if err := run.Unchanged(base, export); err != nil {
		return nil, err
	}
	if scripts, err := sft.ScriptsDigest(); err != nil {
		return nil, err
	} else if scripts != m.Scripts {
		a.note("note: the run was started with another version of the trainer (%s); the result may differ from that of an unbroken run", m.Version)
	}
	c.Base, c.Out = base.Dir, run.Dir()
	run.Continue(c)
	return run, nil
}

// checkpoint resolves a base model: a folder as it is, a GGUF file rebuilt.
func (a *app) checkpoint(ctx context.Context, x *sftTrainFlags, env *sft.Environment, base string) (*sft.Checkpoint, error) {
	s := sft.Source{Name: base, Path: base}
	if name, ok := strings.CutPrefix(base, "ollama:"); ok {
		b, err := ollama.New((&fleet.Flags{Hosts: x.hosts}).OllamaHosts(a.getenv)[0], name, ollama.Options{})
		if err != nil {
			return nil, err
		}
		m, err := b.Model(ctx)
		if err != nil {
			return nil, err
		}
		if m.Path == "" {
			return nil, fmt.Errorf("the weights of %s are not readable on this machine; name a GGUF file or a Hugging Face folder with --base", name)
		}
		s.Path, s.Digest = m.Path, m.Digest
	} else if !strings.EqualFold(filepath.Ext(base), ".gguf") {
		return sft.ReadCheckpoint(base)
	} else if path, err := filepath.Abs(base); err != nil {
		return nil, fmt.Errorf("find the base model: %w", err)
	} else {
		s.Name, s.Path = path, path
	}
	v, err := llamacpp.OpenVocab(ctx, s.Path, "")
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return sft.Rebuild(ctx, env.Python, s, v, func(line string) { a.note("%s", line) })
}

// largeWithoutGPU is the number of parameters from which a CPU would take days.
const largeWithoutGPU = 1_500_000_000

// enough refuses what this machine cannot train.
func (a *app) enough(b *sft.Checkpoint, c sft.Config, m sft.Memory, env *sft.Environment, force bool) error {
	need := fmt.Sprintf("about %.0f GB (weights %.1f, what is trained %.1f, activations %.1f)", math.Ceil(float64(m.Total())/1e9),
		float64(m.Weights)/1e9, float64(m.Training)/1e9, float64(m.Activations)/1e9)
	switch {
	case c.LoadIn4Bit && len(env.GPUs) == 0:
		return errors.New("4-bit training needs a GPU that torch sees; leave --load-in-4bit out")
	case c.LoadIn4Bit && env.Packages["bitsandbytes"] == "":
		return &infer.MissingError{What: "4-bit training needs the Python package bitsandbytes", Fix: fmt.Sprintf("install it with `%s -m pip install bitsandbytes`, or pass --load-in-4bit=false", env.Python)}
	case len(env.GPUs) == 0 && b.Parameters > largeWithoutGPU && !force:
		return fmt.Errorf("the base has %.1f billion parameters and torch sees no GPU: training takes one with %s of memory; use such a machine, a smaller base, or --force to train on the CPU all the same", float64(b.Parameters)/1e9, need)
	case len(env.GPUs) > 0 && m.Total() > env.GPUs[0].Bytes && !force:
		return fmt.Errorf("training takes %s of memory and %s has %.0f GB; lower it with --load-in-4bit, --gradient-checkpointing, --batch 1 or --max-length, or try with --force", need, env.GPUs[0].Name, float64(env.GPUs[0].Bytes)/1e9)
	}
	free, err := sft.FreeDisk(c.Out)
	if err != nil {
		return err
	}
	if disk := sft.EstimateDisk(b, c); free < disk {
		return fmt.Errorf("checkpoints take about %.1f GB and the disk of %s has %.1f GB free; free some space, or choose another --out", float64(disk)/1e9, c.Out, float64(free)/1e9)
	}
	return nil
}
