package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/ollama"
)

// Together opens the models of several roles at a time, each once, and returns a backend a
// role for every worker. There are as many workers as the role with the fewest has.
func (f *Fleet) Together(ctx context.Context, roles []string) ([]map[string]infer.Backend, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var wanted []spec
	for _, role := range roles {
		s, ok := f.roles[role]
		if !ok {
			return nil, fmt.Errorf("no model for the role %q", role)
		}
		wanted = append(wanted, s)
	}
	f.closeModels(wanted)
	f.watchServers(wanted)
	for _, s := range wanted {
		if _, held := f.open[s]; held {
			continue
		}
		if err := f.hold(ctx, s); err != nil {
			return nil, err
		}
	}
	var out []map[string]infer.Backend
	for n, role := range roles {
		lent := f.lend(role)
		if n == 0 {
			out = make([]map[string]infer.Backend, len(lent))
		}
		out = out[:min(len(out), len(lent))]
		for i := range out {
			if out[i] == nil {
				out[i] = map[string]infer.Backend{}
			}
			out[i][role] = lent[i]
		}
	}
	return out, nil
}

// SetPaths says along how many token paths a role's prompts grow side by side, such as one
// for each speaker of a talk. Roles of one model keep theirs together.
func (f *Fleet) SetPaths(paths map[string]int) { f.paths = paths }

// pathsOf is how many paths the roles of a model keep; 0 where none says.
func (f *Fleet) pathsOf(s spec) (n int) {
	for role, paths := range f.paths {
		if f.roles[role] == s {
			n += paths
		}
	}
	return n
}

// slots is how many prompts an Ollama server keeps of a model.
func (f *Fleet) slots() int { return max(f.flags.Slots, f.flags.Concurrency, 1) }

// noteSlots says where a server has fewer slots than there are token paths.
func (f *Fleet) noteSlots() {
	noted := map[spec]bool{}
	for _, role := range f.Order() {
		s := f.roles[role]
		n := f.pathsOf(s) * f.flags.Concurrency
		if s.backend != "ollama" || n <= f.slots() || noted[s] {
			continue
		}
		noted[s] = true
		f.env.Note("%s is asked along %d token paths and the server keeps %d (--slots): each drives out another; start it with OLLAMA_NUM_PARALLEL=%d and give --slots %d",
			s.model, n, f.slots(), n, n)
	}
}

// watch looks once, when all models of a talk have answered, whether their server holds
// them together.
type watch struct {
	mu       sync.Mutex
	models   []string
	answered map[string]bool // by host and model
	looked   map[string]bool // by host
}

// watchServers begins to watch, where several models of Ollama servers are asked in turn.
func (f *Fleet) watchServers(wanted []spec) {
	var models []string
	for _, s := range wanted {
		if s.backend == "ollama" && !slices.Contains(models, s.model) {
			models = append(models, s.model)
		}
	}
	if f.watch = nil; len(models) > 1 && !f.flags.AllowReload {
		f.watch = &watch{models: models, answered: map[string]bool{}, looked: map[string]bool{}}
	}
}

// watched is a model of an Ollama server that tells when it has answered.
type watched struct {
	*ollama.Backend
	fleet       *Fleet
	host, model string
}

func (w *watched) Chat(ctx context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	r, err := w.Backend.Chat(ctx, p, o)
	if err == nil {
		err = w.answered(ctx)
	}
	return r, err
}

func (w *watched) Choose(ctx context.Context, ps []infer.Prompt, as []infer.Answer, o infer.Params) ([]infer.Choice, error) {
	cs, err := w.Backend.Choose(ctx, ps, as, o)
	if err == nil {
		err = w.answered(ctx)
	}
	return cs, err
}

// answered is an *infer.MissingError where the server holds only some of the models that a
// talk asks in turn: each turn would load one again.
func (w *watched) answered(ctx context.Context) error {
	w.fleet.mu.Lock()
	x := w.fleet.watch
	w.fleet.mu.Unlock()
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered[w.host+"\x00"+w.model] = true
	if x.looked[w.host] || slices.ContainsFunc(x.models, func(m string) bool { return !x.answered[w.host+"\x00"+m] }) {
		return nil
	}
	x.looked[w.host] = true
	loaded, err := ollama.Loaded(ctx, w.host)
	if err != nil {
		return fmt.Errorf("see which models the server holds: %w", err)
	}
	var missing []string
	for _, m := range x.models {
		if !slices.ContainsFunc(loaded, func(l ollama.LoadedModel) bool { return tagged(l.Name) == tagged(m) }) {
			missing = append(missing, m)
		}
	}
	if len(missing) > 0 {
		return &infer.MissingError{What: fmt.Sprintf("the server %s does not hold %s together: each turn of a talk would load a model again, and %s is out of memory now",
			infer.Redact(w.host), strings.Join(x.models, " and "), strings.Join(missing, ", ")),
			Fix: "start it with OLLAMA_MAX_LOADED_MODELS and memory for all, take one model for all roles, or give --allow-reload"}
	}
	return nil
}

// tagged is the full name of a model of Ollama.
func tagged(name string) string {
	if strings.Contains(name[strings.LastIndex(name, "/")+1:], ":") {
		return name
	}
	return name + ":latest"
}
