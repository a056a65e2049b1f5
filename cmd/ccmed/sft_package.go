package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/fleet"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/infer/ollama"
	"github.com/ccmed/ccmed/sft"
)

type packageFlags struct {
	train, name, out, python string
	quantize, base           string
	noOllama, force          bool
	proveOn                  string
	proveN, proveTokens      int
	models                   fleet.Flags // hosts, GPU layers and threads alone
}

func (a *app) sftPackageCmd() *cobra.Command {
	p := packageFlags{}
	cmd := &cobra.Command{
		Use:   "package",
		Short: "Bring a trained model into Ollama and verify it against PyTorch",
		Long: `package merges what was learnt into the base, converts the result to GGUF, gives it
to Ollama with the template, system text and parameters of the base, and puts the
decision head and a card beside it, both bound to the model's digest. [/SPEAK] is
added to the parameters' stop texts: the base never says it.

Then it is proved that nothing got lost, on held-out dialogues: the markers are
single tokens, the sequences have PyTorch's tokens, P(speak) is PyTorch's to 0.02, the
greedy tokens are PyTorch's wherever its own lead is above 0.05 logits, and end
where PyTorch ends; and base and tuned render every prompt alike. What does
not hold is an error. The two measures of quantised weights are reported without a
limit.`,
		Example: `  ccmed sft package --train runs/TRAINING --name gemma2-mediator --out tuned
  ccmed sft package --train runs/TRAINING --name gemma2-mediator-q8 --quantize q8_0 --out tuned-q8
  ccmed sft package --train runs/TRAINING --name mediator --no-ollama --out tuned`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sftPackage(cmd.Context(), &p) },
	}
	f := cmd.Flags()
	f.StringVar(&p.train, "train", "", "folder of the training run")
	f.StringVar(&p.name, "name", "", "name of the model in Ollama")
	f.StringVar(&p.out, "out", "", "folder of the package (default tuned/NAME)")
	f.StringVar(&p.python, "python", "", "Python with the packages of training (default: the environment of ccmed sft setup)")
	f.StringVar(&p.quantize, "quantize", sft.Unquantized, "weights: none (F16) or "+strings.Join(llamacpp.Quantizations(), ", "))
	f.StringVar(&p.base, "base-model", "", "the base's name in Ollama (default: the one that was trained from)")
	f.BoolVar(&p.noOllama, "no-ollama", false, "leave Ollama out; what needs it is recorded as not proved")
	f.BoolVar(&p.force, "force", false, "replace a model of the name in Ollama, and a package in --out")
	f.StringVar(&p.proveOn, "prove-on", "", "held-out dialogues: a JSONL file of sft export, or records as for --data (default: what the training's export held out, else its validation file)")
	f.IntVar(&p.proveN, "prove-n", 8, "dialogues to prove with; 0 takes all")
	f.IntVar(&p.proveTokens, "prove-tokens", 64, "greatest length of an utterance that is compared")
	f.StringArrayVar(&p.models.Hosts, "host", nil, "server address (default $OLLAMA_HOST or 127.0.0.1:11434)")
	f.IntVar(&p.models.GPULayers, "gpu-layers", -1, "layers of the embedded engine on the GPU; -1 all, 0 none")
	f.IntVar(&p.models.Threads, "threads", 0, "CPU threads of the embedded engine; 0 means all cores")
	return cmd
}

func (p *packageFlags) check() error {
	switch {
	case p.train == "":
		return usagef("no training run given; name its folder with --train")
	case p.name == "":
		return usagef("the model has no name; give it one with --name")
	case p.quantize != sft.Unquantized && !slices.Contains(llamacpp.Quantizations(), p.quantize):
		return usagef("unknown --quantize %q; known are %s, %s", p.quantize, sft.Unquantized, strings.Join(llamacpp.Quantizations(), ", "))
	case p.proveN < 0:
		return usagef("--prove-n %d; it must not be negative", p.proveN)
	case p.proveTokens < 1:
		return usagef("--prove-tokens %d; it must be at least 1", p.proveTokens)
	case p.models.Threads < 0:
		return usagef("--threads %d; it must not be negative", p.models.Threads)
	case p.noOllama && p.base != "":
		return usagef("--base-model names a model of Ollama's, and --no-ollama leaves Ollama out; give one")
	}
	if p.out == "" {
		p.out = filepath.Join("tuned", strings.NewReplacer("/", "-", ":", "-").Replace(p.name))
	}
	return nil
}

func (a *app) sftPackage(ctx context.Context, p *packageFlags) error {
	if err := p.check(); err != nil {
		return err
	}
	m, err := sft.ReadTraining(p.train)
	if err != nil {
		return err
	}
	if name, ok := strings.CutPrefix(m.Base.From, "ollama:"); ok && p.base == "" {
		p.base = name
	}
	host := p.models.OllamaHosts(a.getenv)[0]
	if !p.noOllama {
		if err := p.checkNames(ctx, host); err != nil {
			return err
		}
	}
	held, err := p.held(ctx, a, m)
	if err != nil {
		return err
	}
	pkg, err := sft.Build(ctx, sft.PackageOptions{Train: p.train, Out: p.out, Name: p.name, Quantize: p.quantize, Python: p.python, Force: p.force,
		Note: func(s string) { a.note("%s", s) }})
	if err != nil {
		return err
	}
	err = p.prove(ctx, a, pkg, host, held)
	if finish := pkg.Finish(); err != nil || finish != nil {
		return errors.Join(err, finish)
	}
	if err := a.print([]report.Section{pkg.Card.Section()}); err != nil {
		return err
	}
	a.note("%s", pkg.Dir)
	return sft.Failed(pkg.Card.Proofs)
}

// checkNames makes sure, before hours of work, that the model can be created.
func (p *packageFlags) checkNames(ctx context.Context, host string) error {
	if strings.TrimSuffix(p.name, ":latest") == strings.TrimSuffix(p.base, ":latest") {
		return usagef("--name %s is the base itself; choose another name", p.name)
	}
	there, err := ollama.Exists(ctx, host, p.name)
	if err != nil {
		return err
	}
	if there && !p.force {
		return fmt.Errorf("there is a model %s in Ollama; choose another --name, or replace it with --force", p.name)
	}
	if p.base == "" {
		return nil
	}
	if there, err = ollama.Exists(ctx, host, p.base); err == nil && !there {
		err = fmt.Errorf("there is no model %s in Ollama, whose template and parameters the tuned one is to have; name the base with --base-model", p.base)
	}
	return err
}

// held reads the dialogues that the package is proved with.
func (p *packageFlags) held(ctx context.Context, a *app, m *sft.Manifest) ([]sft.Held, error) {
	path := p.proveOn
	if path == "" {
		path = filepath.Join(m.Config.Data, sft.HeldOutFile)
		if !exists(path) {
			path = filepath.Join(m.Config.Data, sft.ValidFile)
		}
		if !exists(path) {
			return nil, fmt.Errorf("the training data of %s is gone (no %s); name held-out dialogues with --prove-on", p.train, path)
		}
	}
	var held []sft.Held
	// Records as for --data can be a JSONL file too; then they are none of ours.
	if st, err := os.Stat(path); err == nil && !st.IsDir() {
		held, err = sft.ReadHeld(path)
		if err != nil && p.proveOn == "" {
			return nil, err
		}
	}
	if held == nil {
		ds, _, err := a.opened().Dialogues(ctx, task.Records{Path: path})
		if err != nil {
			return nil, err
		}
		if held, err = sft.HoldDialogues(dialogue.Limit(ds, p.proveN)); err != nil {
			return nil, err
		}
	}
	if p.proveN > 0 && len(held) > p.proveN {
		held = held[:p.proveN]
	}
	return held, nil
}

// prove fills the card's proofs. The model goes to Ollama only when its files are
// what they should be.
func (p *packageFlags) prove(ctx context.Context, a *app, pkg *sft.Package, host string, held []sft.Held) error {
	a.note("asking PyTorch about %d held-out dialogues", len(held))
	refs, err := pkg.Reference(ctx, held, p.proveTokens)
	if err != nil {
		return err
	}
	if err := fleet.MakeRoom(ctx, a.fleetEnv(""), &p.models); err != nil {
		return err
	}
	gguf := filepath.Join(pkg.Dir, sft.ModelFile)
	o := llamacpp.Options{ModelPath: gguf, Name: p.name, Digest: pkg.Card.Digest, GPULayers: p.models.GPULayers, Threads: p.models.Threads}
	for _, r := range refs {
		o.NumCtx = max(o.NumCtx, (len(r.Tokens)+256)/256*256)
	}
	engine, err := llamacpp.Open(ctx, o)
	if err != nil {
		return err
	}
	defer engine.Close()
	a.note("comparing tokens, P(speak) and words with PyTorch's")
	if pkg.Card.Proofs, err = pkg.Prove(ctx, engine, refs); err != nil {
		return err
	}
	var why string
	switch {
	case p.noOllama:
		why = "left out (--no-ollama)"
	case sft.Failed(pkg.Card.Proofs) != nil:
		why = "the files are not proved, so that Ollama was not given the model"
	}
	if why != "" {
		for _, name := range []string{sft.ProofGreedy + ", Ollama", sft.ProofEnds + ", Ollama", sft.ProofRendered} {
			pkg.Card.Proofs = append(pkg.Card.Proofs, sft.NotRun(name, why))
		}
		return nil
	}
	a.note("creating %s in Ollama", p.name)
	digest, err := ollama.CreateLike(ctx, host, p.name, gguf, p.base, sft.EndSpeak)
	if err != nil {
		return err
	}
	if digest != pkg.Card.Digest {
		return fmt.Errorf("%s changed while it was packaged (%s, was %s); package it again", gguf, digest, pkg.Card.Digest)
	}
	served, err := p.proveServed(ctx, pkg, host, engine, refs)
	pkg.Card.Proofs = append(pkg.Card.Proofs, served...)
	return err
}

// proveServed proves what Ollama serves.
func (p *packageFlags) proveServed(ctx context.Context, pkg *sft.Package, host string, engine *llamacpp.Engine, refs []sft.Reference) ([]sft.Proof, error) {
	tuned, err := ollama.New(host, p.name, ollama.Options{Controls: engine.LiteralControls(), Tokenize: func(_ context.Context, s string) ([]int32, error) { return engine.PromptTokens(s) }})
	if err != nil {
		return nil, err
	}
	m, err := tuned.Model(ctx)
	if err != nil {
		return nil, err
	}
	if m.Digest != pkg.Card.Digest {
		return nil, fmt.Errorf("%s is what Ollama serves as %s, and the package's model is %s", m.Digest, p.name, pkg.Card.Digest)
	}
	markers, err := sft.MarkerTokensOf(engine)
	if err != nil {
		return nil, err
	}
	out, err := pkg.ProveWords(ctx, "Ollama", tuned, engine, markers, refs)
	if err != nil {
		return out, err
	}
	if p.base == "" {
		return append(out, sft.NotRun(sft.ProofRendered, "the base is not in Ollama; name it with --base-model")), nil
	}
	base, err := ollama.New(host, p.base, ollama.Options{})
	if err != nil {
		return out, err
	}
	b, err := base.Model(ctx)
	if err != nil {
		return out, err
	}
	note := ""
	if source := pkg.Training.Base.Source; source != "" && source != b.Digest {
		note = fmt.Sprintf("; the base in Ollama is another version than the one trained from (%s, was %s)", infer.ShortDigest(b.Digest), infer.ShortDigest(source))
	}
	rendered, err := sft.ProveRendered(ctx, base, tuned, sft.ChatPrompts(), note)
	if err != nil {
		return out, err
	}
	return append(out, rendered), nil
}
