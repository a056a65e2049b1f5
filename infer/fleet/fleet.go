// Package fleet opens the models of a run by role: which backend each needs, which may be
// open together, how many workers there are, and which context fits them all.
//
//	f, err := fleet.New(env, &flags, map[string]string{"mediator": "", "judge": "qwen2.5:14b"})
//	err = f.Prepare(ctx, longest, answers)
//	workers, err := f.Workers(ctx, "judge")
package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/cache"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/infer/ollama"
	"github.com/ccmed/ccmed/infer/openai"
)

var backends = []string{"ollama", "embedded", "openai"}

// Flags say which model answers and where it runs. The fields are the flags of these
// names; Register has their descriptions.
type Flags struct {
	Model, Backend string
	Hosts          []string
	NumCtx         int
	Concurrency    int
	GPULayers      int
	Threads        int
	Cache          string
	ContinueFinal  bool
	Patience       time.Duration
	RequestTimeout time.Duration
	ChatTemplate   string
	Edits          []string
	Slots          int
	AllowReload    bool
}

// Env is what a fleet takes of the program that it works for.
type Env struct {
	Note   func(format string, args ...any) // prints a line for the user that is not data
	Getenv func(string) string
	// Readout opens a classifier of hidden states, which a role names as probe:PATH; nil
	// where the program has none.
	Readout func(path string) (*Readout, error)
	// Subject is the role whose model --edit changes.
	Subject string
	// Edits reads what a class of an edit file changes at a dose; nil where the program
	// edits no models.
	Edits func(path, class string, dose float64) (*Edits, error)
}

// Register adds the flags.
func (m *Flags) Register(f *pflag.FlagSet) {
	f.StringVarP(&m.Model, "model", "m", "", "model: a name of the server, or a GGUF file (then --backend is embedded)")
	f.StringVar(&m.Backend, "backend", "", "ollama, embedded (llama.cpp in this process) or openai (any compatible server); default ollama, embedded for a GGUF file")
	f.StringArrayVar(&m.Hosts, "host", nil, "server address; repeat it to spread the work over several (default $OLLAMA_HOST or 127.0.0.1:11434)")
	f.IntVar(&m.NumCtx, "num-ctx", 0, "context length in tokens; 0 fits it to the longest item once")
	f.IntVar(&m.Concurrency, "concurrency", 1, "requests at a time to each server; an Ollama server needs as many slots (OLLAMA_NUM_PARALLEL), or its prompt cache is spoilt")
	f.IntVar(&m.Slots, "slots", 0, "prompts that an Ollama server keeps of a model, its OLLAMA_NUM_PARALLEL (default: --concurrency)")
	f.BoolVar(&m.AllowReload, "allow-reload", false, "go on where an Ollama server cannot hold the models of a talk together, and loads them again for every turn")
	f.IntVar(&m.GPULayers, "gpu-layers", -1, "layers on the GPU with --backend embedded; -1 all, 0 none")
	f.IntVar(&m.Threads, "threads", 0, "CPU threads with --backend embedded; 0 means all cores")
	f.StringVar(&m.Cache, "cache", "", `response cache: a file, "off", or "force" to use it without a model digest too (default: in the user's cache folder)`)
	f.DurationVar(&m.Patience, "patience", infer.DefaultPatience, "how long a request that failed is made again; 0 not at all")
	f.DurationVar(&m.RequestTimeout, "request-timeout", infer.DefaultTimeout, "how long a server may be silent before a request has failed; it may have to load the model first")
	f.StringVar(&m.ChatTemplate, "chat-template", "", "chat template of a GGUF file in place of its own, or where it has none: "+
		strings.Join(llamacpp.TemplateNames(), ", ")+", or a Jinja file")
	f.StringArrayVar(&m.Edits, "edit", nil, "with --backend embedded: change the states of the model that is measured by `FILE,CLASS,DOSE`, a file of ccmed probe direction; repeat it for several")
	f.BoolVar(&m.ContinueFinal, "continue-final", false, "with --backend openai: the server continues an unfinished assistant message (vLLM does)")
}

// spec is one model as the user named it, and the values of --edit that change it.
type spec struct{ backend, model, edits string }

// plain is the model without edits.
func (s spec) plain() spec { return spec{backend: s.backend, model: s.model} }

func (s spec) String() string { return s.backend + ":" + s.model }

// parse reads "MODEL", "BACKEND:MODEL" or "probe:PATH".
func (m *Flags) parse(s string) (spec, error) {
	if s == "" {
		return spec{}, usage.Errorf("no model given; name one with --model (`ollama list` shows what the server has) or give a GGUF file")
	}
	if b, rest, ok := strings.Cut(s, ":"); ok && (b == infer.ReadoutBackend || slices.Contains(backends, b)) {
		return spec{backend: b, model: rest}, nil
	}
	backend := m.Backend
	if backend == "" {
		backend = "ollama"
		if strings.EqualFold(filepath.Ext(s), ".gguf") {
			backend = "embedded"
		}
	}
	if !slices.Contains(backends, backend) {
		return spec{}, usage.Errorf("unknown backend %q; known are %s", backend, strings.Join(backends, ", "))
	}
	return spec{backend: backend, model: s}, nil
}

// OllamaHosts are the addresses of Ollama servers.
func (m *Flags) OllamaHosts(getenv func(string) string) []string {
	if len(m.Hosts) > 0 {
		return m.Hosts
	}
	if h := getenv("OLLAMA_HOST"); h != "" {
		return []string{h}
	}
	return []string{"127.0.0.1:11434"}
}

// Fleet opens the models of a run, one spec at a time or those of several roles together,
// and keeps a model open while consecutive roles use it.
type Fleet struct {
	env   Env
	flags *Flags
	roles map[string]spec
	db    *cache.DB
	// numCtx is the context length of each role; frozen before the run.
	numCtx map[string]int
	// template is the source of --chat-template.
	template string
	edits    []Edits // of --edit, in its order
	// paths is along how many token paths the prompts of a role grow side by side.
	paths map[string]int

	mu     sync.Mutex
	open   map[spec]opened
	vocabs map[string]*llamacpp.Vocab
	models map[spec]infer.Model
	watch  *watch
}

// opened is a model that is held: a backend a server, and the same before wrapping.
type opened struct{ workers, bare []infer.Backend }

// What one run can sensibly ask for; more is a slip that would fill the memory.
const (
	maxConcurrency = 1024       // requests at a time to each server
	maxNumCtx      = 16_777_216 // tokens
)

// New resolves the roles. An empty name means the model that --model names. Values of
// flags out of range are *usage.Error.
func New(env Env, m *Flags, roles map[string]string) (*Fleet, error) {
	f := &Fleet{env: env, flags: m, roles: map[string]spec{}, numCtx: map[string]int{}, open: map[spec]opened{}, vocabs: map[string]*llamacpp.Vocab{}, models: map[spec]infer.Model{}}
	if m.Concurrency < 1 || m.Concurrency > maxConcurrency {
		return nil, usage.Errorf("--concurrency %d; it must be at least 1 and at most %d", m.Concurrency, maxConcurrency)
	}
	if m.Threads < 0 {
		return nil, usage.Errorf("--threads %d; it must not be negative", m.Threads)
	}
	if m.NumCtx < 0 || m.NumCtx > maxNumCtx {
		return nil, usage.Errorf("--num-ctx %d; it must not be negative, and at most %d", m.NumCtx, maxNumCtx)
	}
	if m.Patience < 0 {
		return nil, usage.Errorf("--patience %s; it must not be negative", m.Patience)
	}
	if m.RequestTimeout <= 0 {
		return nil, usage.Errorf("--request-timeout %s; it must be above 0", m.RequestTimeout)
	}
	if strings.HasPrefix(m.Model, infer.ReadoutBackend+":") {
		return nil, usage.Errorf("--model %s: a classifier of hidden states answers one question only, and is the model of one role: --labeller", m.Model)
	}
	for role, name := range roles {
		if name == "" {
			name = m.Model
		}
		s, err := m.parse(name)
		if err != nil {
			return nil, err
		}
		f.roles[role] = s
	}
	if err := errors.Join(f.useTemplate(), f.useEdits()); err != nil {
		return nil, err
	}
	if m.Cache != "off" {
		file := m.Cache
		if file == "" || file == "force" {
			dir, err := llamacpp.CacheDir()
			if err != nil {
				return nil, fmt.Errorf("find the cache folder: %w", err)
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, fmt.Errorf("make the cache folder: %w; choose another with CCMED_CACHE, or give --cache off", err)
			}
			file = filepath.Join(dir, "responses.db")
		}
		db, err := cache.Open(file)
		if err != nil {
			return nil, err
		}
		db.OnFailure = func(err error) { env.Note("answers are no longer kept: %v", err) }
		f.db = db
	}
	return f, nil
}

// Order lists the roles so that those of one model follow each other.
func (f *Fleet) Order() []string {
	roles := slices.Collect(maps.Keys(f.roles))
	slices.SortFunc(roles, func(x, y string) int {
		return strings.Compare(f.roles[x].String()+"\x00"+x, f.roles[y].String()+"\x00"+y)
	})
	return roles
}

// Model identifies the model of a role.
func (f *Fleet) Model(ctx context.Context, role string) (infer.Model, error) {
	if _, err := f.Workers(ctx, role); err != nil {
		return infer.Model{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.models[f.roles[role]], nil
}

// Refresh asks anew which model answers a role. Where several servers hold it, the
// first one that differs answers; backends that cannot tell hold what they held.
func (f *Fleet) Refresh(ctx context.Context, role string) (infer.Model, error) {
	f.mu.Lock()
	known, open := f.models[f.roles[role]], slices.Clone(f.open[f.roles[role]].bare)
	f.mu.Unlock()
	for _, b := range open {
		r, ok := b.(interface {
			Refresh(context.Context) (infer.Model, error)
		})
		if !ok {
			continue
		}
		m, err := r.Refresh(ctx)
		if err != nil {
			return infer.Model{}, err
		}
		if m.Digest != known.Digest || m.TemplateHash != known.TemplateHash {
			return m, nil
		}
	}
	return known, nil
}

// Named is the model of a role as the user named it.
func (f *Fleet) Named(role string) string { return f.roles[role].model }

// NumCtx is the context length of a role, once it fits.
func (f *Fleet) NumCtx(role string) int { return f.numCtx[role] }

// Hosts are the addresses of Ollama servers.
func (f *Fleet) Hosts() []string { return f.flags.OllamaHosts(f.env.Getenv) }

// Raw returns the backend of a role as it was opened, without wrappers; nil when
// its model is not the open one.
func (f *Fleet) Raw(role string) infer.Backend {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bare := f.open[f.roles[role]].bare; len(bare) > 0 {
		return bare[0]
	}
	return nil
}

// Workers returns one backend a worker for a role; closing them is the fleet's
// affair, so that a model stays loaded while the next role uses it too.
func (f *Fleet) Workers(ctx context.Context, role string) ([]infer.Backend, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.roles[role]
	if !ok {
		return nil, fmt.Errorf("no model for the role %q", role)
	}
	if _, held := f.open[s]; !held {
		f.closeModels(f.sameWeights(s))
		if err := f.hold(ctx, s); err != nil {
			return nil, err
		}
	}
	return f.lend(role), nil
}

// hold opens a model.
func (f *Fleet) hold(ctx context.Context, s spec) error {
	o, err := f.openSpec(ctx, s)
	if err == nil {
		f.open[s] = o
	}
	return err
}

// lend returns the workers of a role whose model is open.
func (f *Fleet) lend(role string) []infer.Backend {
	o := f.open[f.roles[role]]
	out := make([]infer.Backend, len(o.workers))
	for i, b := range o.workers {
		out[i] = &borrowed{Backend: b, bare: o.bare[i%len(o.bare)], numCtx: f.numCtx[role]}
	}
	return out
}

// closeModels closes the open models but those that are kept.
func (f *Fleet) closeModels(keep []spec) {
	for s, o := range f.open {
		if slices.Contains(keep, s) {
			continue
		}
		closed := map[infer.Backend]bool{}
		for _, b := range o.workers {
			if !closed[b] {
				closed[b] = true
				if err := b.Close(); err != nil {
					f.env.Note("closing %s: %v", s, err)
				}
			}
		}
		delete(f.open, s)
	}
}

// Close frees the open models, the vocabularies and the cache.
func (f *Fleet) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeModels(nil)
	for _, v := range f.vocabs {
		v.Close()
	}
	if f.db != nil {
		return f.db.Close()
	}
	return nil
}

func (f *Fleet) openSpec(ctx context.Context, s spec) (o opened, err error) {
	var hosts []infer.Backend
	switch s.backend {
	case "embedded":
		b, err := f.openEdited(ctx, s)
		if err != nil {
			return o, err
		}
		hosts = []infer.Backend{b}
	case infer.ReadoutBackend:
		b, err := f.openReadout(ctx, s)
		if err != nil {
			return o, err
		}
		hosts = []infer.Backend{b}
	case "ollama":
		for _, h := range f.flags.OllamaHosts(f.env.Getenv) {
			b, err := f.openOllama(ctx, h, s.model)
			if err != nil {
				return o, err
			}
			hosts = append(hosts, b)
		}
	case "openai":
		if len(f.flags.Hosts) == 0 {
			return o, usage.Errorf("--backend openai needs --host, the server's address up to /v1")
		}
		for _, h := range f.flags.Hosts {
			b, err := openai.New(h, s.model, f.env.Getenv("OPENAI_API_KEY"), openai.Options{ContinueFinal: f.flags.ContinueFinal,
				Parallel: f.flags.Concurrency, Retry: f.policy()})
			if err != nil {
				return o, err
			}
			for _, n := range b.Notes() {
				f.env.Note("%s: %s", infer.Redact(h), n)
			}
			hosts = append(hosts, b)
		}
	}
	bare := slices.Clone(hosts)
	var identity infer.Model
	for i, b := range hosts {
		m, err := b.Model(ctx)
		if err != nil {
			return o, err
		}
		if i == 0 {
			identity = m
		} else if m.Digest != identity.Digest || m.TemplateHash != identity.TemplateHash {
			return o, fmt.Errorf("the servers hold different versions of %s (%s and %s); pull the same one on all", s.model, infer.ShortDigest(identity.Digest), infer.ShortDigest(m.Digest))
		}
		if f.db != nil && (m.Digest != "" || f.flags.Cache == "force") {
			if b, err = cache.Wrap(b, f.db, m, f.flags.Cache == "force"); err != nil {
				return o, err
			}
		} else if f.db != nil {
			f.env.Note("%s tells no digest of %s: the response cache is off (--cache force uses it all the same)", s.backend, s.model)
		}
		hosts[i] = b
	}
	f.models[s] = identity
	o.bare = bare
	n := f.flags.Concurrency
	if s.backend == "embedded" || s.backend == infer.ReadoutBackend {
		n = 1 // one context: more workers would only wait for each other
	}
	for range n {
		o.workers = append(o.workers, hosts...)
	}
	return o, nil
}

// policy is how long the requests of this command are waited for.
func (f *Fleet) policy() infer.RetryPolicy {
	p := infer.RetryPolicy{Patience: f.flags.Patience, Timeout: f.flags.RequestTimeout, Notify: func(notice string) { f.env.Note("%s", notice) }}
	if p.Patience == 0 {
		p.Patience = -1
	}
	// For tests against servers that fail often; what is no duration is the default.
	p.First, _ = time.ParseDuration(f.env.Getenv("CCMED_RETRY_WAIT"))
	return p
}

func (f *Fleet) openOllama(ctx context.Context, host, model string) (infer.Backend, error) {
	o := ollama.Options{Parallel: f.flags.Concurrency, Slots: f.slots(), Retry: f.policy()}
	b, err := ollama.New(host, model, o)
	if err != nil {
		return nil, err
	}
	m, err := b.Model(ctx)
	if err != nil {
		return nil, err
	}
	// With the weights and the engine at hand, tokens are counted exactly.
	v, err := f.vocab(ctx, m.Path)
	if err != nil {
		f.env.Note("token counts of %s are estimates: %v", model, err)
	}
	if v != nil {
		o.Controls, o.Tokenize = v.Controls(), func(_ context.Context, s string) ([]int32, error) { return v.Tokenize(s) }
		if b, err = ollama.New(host, model, o); err != nil {
			return nil, err
		}
	}
	return &watched{b, f, host, model}, nil
}

// Prepare keeps the roles that are asked, nil for all, and gives each a context that fits
// its longest prompt and the tokens of its answer.
func (f *Fleet) Prepare(ctx context.Context, roles []string, longest map[string][]infer.Prompt, answers map[string]int) error {
	if roles != nil {
		maps.DeleteFunc(f.roles, func(role string, _ spec) bool { return !slices.Contains(roles, role) })
	}
	for _, role := range f.Order() {
		if err := f.fit(ctx, role, longest[role], answers[role]); err != nil {
			return err
		}
		if e, ok := f.Raw(role).(*llamacpp.Engine); ok {
			if err := e.FitsMemory(f.numCtx[role]); err != nil {
				return err
			}
		}
	}
	f.shareContext()
	f.noteSlots()
	return nil
}

// SetContext gives a role a context length.
func (f *Fleet) SetContext(role string, tokens int) { f.numCtx[role] = tokens }

// fit freezes the context length of a role: --num-ctx, or what the longest of
// its prompts needs plus the answer's tokens, rounded up to 256. A --num-ctx that
// is known to be too small is refused here, before items fail one by one.
func (f *Fleet) fit(ctx context.Context, role string, longest []infer.Prompt, answer int) error {
	bs, err := f.Workers(ctx, role)
	if err != nil {
		return err
	}
	slices.SortFunc(longest, func(a, b infer.Prompt) int { return promptBytes(b) - promptBytes(a) })
	need, known := 0, true
	for _, p := range longest[:min(8, len(longest))] {
		n, exact, err := countTokens(ctx, bs[0], p)
		if err != nil {
			return err
		}
		need, known = max(need, n), known && exact
	}
	if n := f.flags.NumCtx; n > 0 {
		if known && need+answer > n {
			return usage.Errorf("the longest prompt of the %s needs %d tokens with its answer and --num-ctx is %d; raise it, or leave --num-ctx out to have it fitted",
				role, need+answer, n)
		}
		f.numCtx[role] = n
		return nil
	}
	n := (need + answer + 16 + 255) / 256 * 256
	f.mu.Lock()
	m := f.models[f.roles[role]]
	f.mu.Unlock()
	if m.ContextTrain > 0 && n > m.ContextTrain {
		if need+answer > m.ContextTrain {
			return fmt.Errorf("the longest prompt of the %s needs about %d tokens and %s was trained on %d; leave that item out, or set --num-ctx yourself",
				role, need+answer, m.Name, m.ContextTrain)
		}
		n = m.ContextTrain
	}
	f.numCtx[role] = n
	return nil
}

// shareContext gives roles with one model one context length, so that the
// server does not load it again between steps.
func (f *Fleet) shareContext() {
	for role, s := range f.roles {
		for other, t := range f.roles {
			if s.plain() == t.plain() {
				f.numCtx[role] = max(f.numCtx[role], f.numCtx[other])
			}
		}
	}
}

// countTokens counts a prompt, exactly where the backend can, else from its
// bytes: 2.5 bytes a token is below what tokenizers of today reach on prose.
func countTokens(ctx context.Context, b infer.Backend, p infer.Prompt) (n int, exact bool, err error) {
	if w, ok := b.(*borrowed); ok {
		if e, ok := w.bare.(*llamacpp.Engine); ok { // which alone knows what is text in the rendered prompt
			ts, err := e.Tokens(ctx, p, "")
			if err != nil {
				return 0, false, fmt.Errorf("count a prompt's tokens: %w", err)
			}
			return len(ts), true, nil
		}
	}
	rendered, err := b.Render(ctx, p)
	if errors.Is(err, infer.ErrUnsupported) {
		return promptBytes(p)*2/5 + 64, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("render a prompt to count its tokens: %w", err)
	}
	if c, ok := b.(infer.TokenCounter); ok {
		n, err := c.CountTokens(ctx, rendered)
		if err == nil || !errors.Is(err, infer.ErrUnsupported) {
			return n, true, err
		}
	}
	return len(rendered) * 2 / 5, false, nil
}

// Size is about how much prompts are: their tokens, those of them that a server evaluates
// which keeps the prompt before, and their bytes.
type Size struct{ Tokens, Evaluated, Bytes int }

// Estimate says about how much the prompts of a role are, asked in their order. Counting
// every prompt exactly would cost a request each on a server: a sample of them gives the
// tokens a byte.
func (f *Fleet) Estimate(ctx context.Context, role string, prompts []infer.Prompt) (Size, error) {
	bs, err := f.Workers(ctx, role)
	if err != nil {
		return Size{}, err
	}
	bytes, shared, last := 0, 0, ""
	sampledBytes, sampled := 0, 0
	step := max(1, len(prompts)/8)
	for i, p := range prompts {
		bytes += promptBytes(p)
		now := promptText(p)
		for k := 0; k < min(len(now), len(last)) && now[k] == last[k]; k++ {
			shared++
		}
		last = now
		if i%step != 0 {
			continue
		}
		n, _, err := countTokens(ctx, bs[0], p)
		if err != nil {
			return Size{}, err
		}
		sampled += n
		sampledBytes += promptBytes(p)
	}
	rate := float64(sampled) / float64(max(1, sampledBytes))
	return Size{int(float64(bytes) * rate), int(float64(bytes-shared) * rate), bytes}, nil
}

// Spec is a role's model as BACKEND:MODEL.
func (f *Fleet) Spec(role string) string { return f.roles[role].String() }

// promptText is a prompt's own text, in order.
func promptText(p infer.Prompt) string {
	var b strings.Builder
	b.WriteString(p.Raw)
	for _, m := range p.Messages {
		b.WriteString(m.Content + "\n")
	}
	return b.String() + p.LeadIn
}

func promptBytes(p infer.Prompt) int {
	n := len(p.Raw) + len(p.LeadIn)
	for _, m := range p.Messages {
		n += len(m.Content) + 16
	}
	return n
}

// borrowed is a backend lent to one step: closing it does nothing, and every
// request has the frozen context length.
type borrowed struct {
	infer.Backend
	bare   infer.Backend // the same, before wrapping
	numCtx int
}

func (b *borrowed) Close() error { return nil }

func (b *borrowed) Chat(ctx context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	o.NumCtx = b.numCtx
	return b.Backend.Chat(ctx, p, o)
}

func (b *borrowed) Choose(ctx context.Context, ps []infer.Prompt, as []infer.Answer, o infer.Params) ([]infer.Choice, error) {
	o.NumCtx = b.numCtx
	return b.Backend.Choose(ctx, ps, as, o)
}

func (b *borrowed) CountTokens(ctx context.Context, rendered string) (int, error) {
	if c, ok := b.Backend.(infer.TokenCounter); ok {
		return c.CountTokens(ctx, rendered)
	}
	return 0, infer.ErrUnsupported
}

// HostName is a server's address without a user's password.
func HostName(h string) string {
	if u, err := url.Parse(h); err == nil && u.Host != "" {
		return u.Host
	}
	return h
}
