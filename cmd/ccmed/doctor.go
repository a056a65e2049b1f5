package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/cache"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/infer/ollama"
)

// finding is one check of doctor with its one fix.
type finding struct {
	check, result, detail, fix string
}

// Results of a check.
const (
	ok     = "ok"
	absent = "absent" // not there, and not needed for everything
	faulty = "FAULT"
)

func (a *app) doctorCmd() *cobra.Command {
	m := modelFlags{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What works on this machine, and one fix for each fault",
		Long: `doctor checks the Ollama server, the in-process engine, Python and the GPU; with
--model also that model: its context, its log-probabilities, and whether a
repeated call gives the same answer. Same seed and temperature 0 do not promise
that; doctor measures it.`,
		Example: `  ccmed doctor
  ccmed doctor --model gemma2:9b
  ccmed doctor --model model.gguf`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fs := a.checkMachine(cmd.Context(), &m)
			if m.model != "" {
				more, err := a.checkModel(cmd.Context(), &m)
				if err != nil {
					return err
				}
				fs = append(fs, more...)
			}
			t := report.Table{Columns: []report.Column{{Name: "check"}, {Name: "result"}, {Name: "detail"}, {Name: "fix"}}}
			faults := 0
			for _, f := range fs {
				if f.result == faulty {
					faults++
				}
				t.Rows = append(t.Rows, []report.Cell{report.Text(f.check), report.Text(f.result), report.Text(f.detail), report.Text(f.fix)})
			}
			if err := a.print([]report.Section{{Title: "ccmed " + version(), Tables: []report.Table{t}}}); err != nil {
				return err
			}
			if faults > 0 {
				return &infer.MissingError{What: fmt.Sprintf("faults found: %d", faults)}
			}
			return nil
		},
	}
	m.register(cmd)
	return cmd
}

func (a *app) checkMachine(ctx context.Context, m *modelFlags) []finding {
	var fs []finding
	usable := false
	for _, h := range a.ollamaHosts(m) {
		c, cancel := context.WithTimeout(ctx, 5*time.Second)
		v, err := ollama.Version(c, h)
		name := "Ollama at " + hostName(h)
		if err != nil {
			fs = append(fs, finding{name, absent, "no answer", "start it with `ollama serve`, or name another with --host"})
			cancel()
			continue
		}
		usable = true
		models, err := ollama.Models(c, h)
		cancel()
		switch {
		case err != nil:
			fs = append(fs, finding{name, faulty, err.Error(), "restart the server"})
		case len(models) == 0:
			fs = append(fs, finding{name, ok, "version " + v + ", no models", "ollama pull gemma2:2b"})
		default:
			names := make([]string, len(models))
			for i, x := range models {
				names[i] = x.Name
			}
			fs = append(fs, finding{name, ok, fmt.Sprintf("version %s, %d models: %s", v, len(models), strings.Join(names[:min(5, len(names))], ", ")), ""})
		}
	}
	model := ""
	if strings.HasSuffix(strings.ToLower(m.model), ".gguf") {
		model = m.model
	}
	var missing *infer.MissingError
	switch i, err := a.engineCheck(ctx, model); {
	case err == nil:
		usable = true
		fs = append(fs, finding{"engine", ok, fmt.Sprintf("llama.cpp %s, %s", i.Release, strings.Join(i.Devices, ", ")), ""})
	case errors.As(err, &missing):
		fs = append(fs, finding{"engine", absent, "not installed", "ccmed engine install"})
	default:
		fs = append(fs, finding{"engine", faulty, err.Error(), "ccmed engine install"})
	}
	if !usable {
		fs = append(fs, finding{"a way to run models", faulty, "neither a server nor the engine", "ccmed engine install"})
	}
	fs = append(fs, a.checkTool(ctx, "Python", "for fine-tuning", "install Python 3.11 or newer", "python3", "--version"),
		a.checkTool(ctx, "GPU", "", "none is needed for small models; on a workstation install its driver",
			"nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"))
	if dir, err := llamacpp.CacheDir(); err != nil {
		fs = append(fs, finding{"cache folder", faulty, err.Error(), "set CCMED_CACHE"})
	} else {
		fs = append(fs, finding{"cache folder", ok, dir, ""})
	}
	return append(fs, finding{"machine", ok, fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()), ""})
}

func (a *app) checkTool(ctx context.Context, what, why, fix, name string, args ...string) finding {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return finding{what, absent, strings.TrimSpace("no " + name + " " + why), fix}
	}
	return finding{what, ok, strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "; "), ""}
}

// checkModel asks one model a few questions whose answers say what it can do.
func (a *app) checkModel(ctx context.Context, m *modelFlags) ([]finding, error) {
	f, err := a.newFleet(m, map[string]string{roleMediator: ""})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	f.numCtx[roleMediator] = 2048
	if m.numCtx > 0 {
		f.numCtx[roleMediator] = m.numCtx
	}
	id, err := f.Model(ctx, roleMediator)
	var missing *infer.MissingError
	if errors.As(err, &missing) {
		return []finding{{"model " + m.model, faulty, missing.What, missing.Fix}}, nil
	}
	if err != nil {
		return nil, err
	}
	fs := []finding{{"model " + id.Name, ok, strings.TrimSpace(fmt.Sprintf("%s %s %s, trained on %d tokens of context, digest %s",
		id.Architecture, id.Parameters, id.Quantization, id.ContextTrain, short(id.Digest))), ""}}
	bs, err := f.Workers(ctx, roleMediator)
	if err != nil {
		return nil, err
	}
	b := bs[0]
	p := infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: "Answer with one digit."}, {Role: infer.User, Content: "How many legs has a dog? Answer with one digit."}}, LeadIn: "Answer: "}
	params := infer.Params{TopP: 1, Seed: 1}
	bypass := cache.Bypass(ctx)
	choose := func() (infer.Choice, error) {
		cs, err := b.Choose(bypass, []infer.Prompt{p}, infer.Digits(1, 6), params)
		if err != nil {
			return infer.Choice{}, err
		}
		return cs[0], nil
	}
	first, err := choose()
	if err != nil {
		return append(fs, finding{"log-probabilities", faulty, err.Error(), "try another model or backend"}), nil
	}
	if first.Unscored != "" {
		fs = append(fs, finding{"log-probabilities", faulty, first.Unscored, "use --backend ollama or embedded, or a server that returns log-probabilities"})
	} else {
		fs = append(fs, finding{"log-probabilities", ok, fmt.Sprintf("the digits got %.3f of the probability, %q most", first.Mass, fmt.Sprint(first.Argmax()+1)), ""})
	}
	const repeats = 5
	same, differ := 0, 0.0
	for range repeats {
		again, err := choose()
		if err != nil {
			return append(fs, finding{"repeated call", faulty, err.Error(), "try again; look into the server's log"}), nil
		}
		if again.Argmax() == first.Argmax() {
			same++
		}
		for i := range again.P {
			differ = max(differ, math.Abs(again.P[i]-first.P[i]))
		}
	}
	fs = append(fs, finding{"repeated choice", ok, fmt.Sprintf("%d of %d gave the same answer, largest difference of a probability %.2g", same, repeats, differ), ""})
	chat := infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: "You are helpful."}, {Role: infer.User, Content: "Name three colours."}}}
	texts, agree := map[string]bool{}, 0
	for i := range repeats {
		r, err := b.Chat(bypass, chat, infer.Params{MaxTokens: 24, TopP: 1, Seed: 1})
		if err != nil {
			return append(fs, finding{"text", faulty, err.Error(), "try another model or backend"}), nil
		}
		if i > 0 && texts[r.Text] {
			agree++
		}
		texts[r.Text] = true
		if r.Thinking != "" && i == 0 {
			fs = append(fs, finding{"reasoning", ok, "the model reasons although it was asked not to; answers are looked for after it", ""})
		}
	}
	return append(fs, finding{"repeated text", ok, fmt.Sprintf("temperature 0, same seed: %d of %d repetitions equal an earlier text", agree, repeats-1), ""}), nil
}
