// Package llamacpp runs a GGUF model inside the process: llama.cpp's shared
// libraries, called without cgo. It gives what no server does: every token's
// exact probability, and prompts that share a prefix evaluated once.
//
//	dir, err := llamacpp.Install(ctx, llamacpp.CPU, os.Stderr) // once a machine
//	e, err := llamacpp.Open(ctx, llamacpp.Options{ModelPath: "model.gguf", LibDir: dir, NumCtx: 2048, GPULayers: -1})
//	defer e.Close()
//	choices, err := e.Choose(ctx, prompts, infer.Digits(1, 6), infer.Params{})
//
// An Engine is one mutex around one llama.cpp context: it answers one request
// after the other. Throughput over many conversations at once belongs to a
// server (infer/ollama, infer/openai).
//
// llama.cpp reports most failures as errors, but an assertion that fails inside
// it ends the process. What can be checked before is checked in Go: the
// libraries' release and struct layouts, the file's format, the text's encoding,
// the prompt's length. SelfCheck in a child process tries the rest.
package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// Options say which model to open and how. Only ModelPath is required.
type Options struct {
	ModelPath string
	Name      string // of the model, for reports; the file's name when empty
	LibDir    string // of the shared libraries; Locate finds them when empty
	NumCtx    int    // context length in tokens; 0 means 4,096, or the model's own where that is less
	Batch     int    // most tokens between two looks at the context.Context; 0 means 512
	UBatch    int    // tokens computed together; 0 means 512
	GPULayers int    // layers kept on the GPU; 0 none, -1 all
	Threads   int    // 0 means one for each core that computes well
	Digest    string // of the file, where it is known already; saves hashing it
	// Render renders chat messages, for example through the server that has the
	// same model; it must break what reads like a control token in them (see
	// infer.Controls). nil means the file's own Jinja template.
	Render       func(ctx context.Context, messages []infer.Message) (string, error)
	TemplateHash string // identifies what Render does; the Jinja template's hash when empty
	// ChatTemplate is the source of a Jinja template, see the function of that
	// name, that takes the place of the file's own; with KeepTemplate only where
	// the file has none.
	ChatTemplate string
	KeepTemplate bool
	// Paths is how many token paths the cache keeps side by side, each of NumCtx tokens: one
	// for each speaker of a conversation, whose prompts share nothing, so that each finds
	// its own path again. 0 means 2.
	Paths int
}

// Engine is an open model. It is safe for concurrent use and answers one request
// at a time.
type Engine struct {
	*weights
	edits  *editing // nil where nothing is changed
	closed bool
}

// weights are what an engine shares with those that Edited makes of it.
type weights struct {
	opts     Options
	onGPU    bool
	template *chatTemplate // nil where Options.Render renders
	given    bool          // the template is Options.ChatTemplate
	id       infer.Model

	hashing sync.Mutex // guards id.Digest
	mu      sync.Mutex // guards all below, and every call that reaches llama.cpp
	model   llama.Model
	vocabulary
	blocks   int // transformer blocks
	width    int // values of a hidden state
	llama    llama.Context
	memory   llama.Memory
	batch    llama.Batch
	numCtx   int
	texts    map[string][]llama.Token
	resident []step      // what the keys and values in the slot in use are of, in order of position
	slot     llama.SeqId // the slot in use
	idle     [][]step    // by slot, what the slots not in use hold
	left     []int       // by slot, when it was left: a count of switches
	switches int
	tap      *tap // of the context, where it has one
	reading  bool // the context is the one that hidden states are read in
	stop     *stop
	changes  changes
	users    int // engines that are not closed
}

var (
	_ infer.Backend      = (*Engine)(nil)
	_ infer.TokenCounter = (*Engine)(nil)
)

// maxOutputs is the most rows of logits from one call of llama_decode. llama.cpp
// reserves memory for them: a vocabulary of 256,000 tokens takes 1 MB a row.
const maxOutputs = 32

// Open loads a model. The file must be a GGUF file; a missing one, like missing
// libraries, is an *infer.MissingError.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Batch <= 0 {
		o.Batch = 512
	}
	o.Batch = max(o.Batch, 2*fewestRows)
	if o.UBatch <= 0 {
		o.UBatch = 512
	}
	o.UBatch = min(o.UBatch, o.Batch)
	if o.Paths <= 0 {
		o.Paths = 2
	}
	if o.Name == "" {
		o.Name = strings.TrimSuffix(filepath.Base(o.ModelPath), ".gguf")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	params, info, err := loadParams(o.ModelPath, o.LibDir)
	if err != nil {
		return nil, err
	}
	onGPU := info.GPU && o.GPULayers != 0
	params.NGpuLayers = int32(o.GPULayers)
	if !onGPU {
		params.UseExtraBufts = 0 // see contextParams
	}
	model, v, err := loadModel(ctx, o.ModelPath, params)
	if err != nil {
		return nil, err
	}
	e := &Engine{weights: &weights{users: 1, opts: o, onGPU: onGPU, model: model, vocabulary: v, stop: newStop(), batch: llama.BatchInit(int32(o.Batch), 0, 1),
		blocks: int(llama.ModelNLayer(model)), width: int(llama.ModelNEmbd(model)),
		changes: changes{numbers: map[string]editID{}, hooked: map[int]bool{}}}}
	if err := e.start(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Engine) start() error {
	if llama.ModelHasEncoder(e.model) || !llama.ModelHasDecoder(e.model) {
		return fmt.Errorf("llamacpp: %s is not a decoder-only language model", e.opts.ModelPath)
	}
	train := int(llama.ModelNCtxTrain(e.model))
	if e.opts.NumCtx <= 0 {
		e.opts.NumCtx = 4096
		if train > 0 {
			e.opts.NumCtx = min(e.opts.NumCtx, train)
		}
	}
	architecture, _ := llama.ModelMetaValStr(e.model, "general.architecture")
	e.id = infer.Model{
		Backend: "embedded", Name: e.opts.Name, Digest: e.opts.Digest, Path: e.opts.ModelPath,
		Quantization: quantization(llama.FtypeName(llama.ModelFtype(e.model))),
		Architecture: architecture, Family: architecture,
		Parameters:   parameters(llama.ModelNParams(e.model)),
		ContextTrain: train, TemplateHash: e.opts.TemplateHash, Server: "llama.cpp " + Release,
	}
	source := llama.ModelChatTemplate(e.model, "")
	e.given = e.opts.ChatTemplate != "" && (source == "" || !e.opts.KeepTemplate)
	if e.given {
		source = e.opts.ChatTemplate
	}
	e.controls = newControls(e.vocabulary, source)
	if e.opts.Render == nil {
		t, err := newChatTemplate(source, e.text(e.bos), e.text(llama.VocabEOS(e.handle)))
		if err != nil {
			return err
		}
		e.template = t
		if e.id.TemplateHash == "" {
			e.id.TemplateHash = t.hash
		}
	}
	return e.resize(e.opts.NumCtx)
}

// quantization writes llama.cpp's "Q4_K - Medium" as everyone else does: Q4_K_M.
func quantization(name string) string {
	return strings.NewReplacer(" - Small", "_S", " - Medium", "_M", " - Large", "_L").Replace(name)
}

// parameters writes a number of weights as "135M" or "9.2B".
func parameters(n uint64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.1fB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.0fM", float64(n)/1e6)
}

// contextParams are the parameters of a context of so many slots, n tokens each. Sliding-window
// layers keep the whole window (SwaFull), so that a path can be cut back.
//
// On the CPU a prompt gets the same logits to the bit however it is cut into
// batches. For that, flash attention is off (its kernels for fewer and for more
// than 64 rows round differently), weights are not repacked (the kernels for
// blocks of four rows and for the rest do), and a prompt's last token is not
// evaluated alone (fewestRows). Quantised activations blow such rounding up:
// with flash attention probabilities moved by 0.07 on SmolLM2-135M Q4_1, with
// repacking by 0.02 on Gemma 3 270M Q4_K_M. It costs about a fifth of the speed.
// On a GPU the kernels depend on the batch's size in any case.
func (e *Engine) contextParams(n, slots int) llama.ContextParams {
	p := llama.ContextDefaultParams()
	p.NCtx, p.NBatch, p.NUbatch, p.NSeqMax = uint32(slots*n), uint32(e.opts.Batch), uint32(e.opts.UBatch), uint32(slots)
	p.NOutputsMax, p.NOutputsMaxPerSeq = maxOutputs, maxOutputs
	p.FlashAttentionType = llama.FlashAttentionTypeAuto
	if !e.onGPU {
		p.FlashAttentionType = llama.FlashAttentionTypeDisabled
		p.OpOffload, p.Offload_kqv = 0, 0
	}
	p.SwaFull, p.NoPerf = 1, 1
	p.AbortCallback, _ = stopCallbacks()
	p.AbortCallbackData = e.stop.id
	if e.opts.Threads > 0 {
		p.NThreads, p.NThreadsBatch = int32(e.opts.Threads), int32(e.opts.Threads)
	}
	return p
}

// resize makes the context one of n tokens for chatting and choosing. Another
// context is replaced, and its cache lost.
func (e *Engine) resize(n int) error {
	if n == e.numCtx && e.llama != 0 && !e.reading {
		return nil
	}
	if err := e.dropContext(); err != nil {
		return err
	}
	if err := e.FitsMemory(n); err != nil {
		return err
	}
	return e.newContext(n, e.contextParams(n, e.opts.Paths))
}

// dropContext frees the context, if there is one.
func (e *Engine) dropContext() error {
	c := e.llama
	e.llama, e.memory, e.numCtx, e.tap, e.reading = 0, 0, 0, nil, false
	e.resident, e.slot, e.changes.vector = nil, 0, 0
	e.emptyPaths()
	if c == 0 {
		return nil
	}
	err := llama.Free(c)
	taps.Delete(uintptr(e.model))
	if err != nil {
		return fmt.Errorf("llamacpp: freeing the context: %w", err)
	}
	return nil
}

// newContext makes a context where there is none.
func (e *Engine) newContext(n int, p llama.ContextParams) error {
	takeComplaints()
	c, err := llama.InitFromModel(e.model, p)
	if err != nil {
		return fmt.Errorf("llamacpp: no context of %d tokens for %s%s; lower --num-ctx or --gpu-layers", n, e.opts.Name, takeComplaints())
	}
	m, err := llama.GetMemory(c)
	if err != nil || m == 0 {
		return errors.Join(fmt.Errorf("llamacpp: %s keeps no cache, so it cannot generate", e.opts.Name), err, llama.Free(c))
	}
	e.llama, e.memory, e.numCtx = c, m, n
	return nil
}

// ready is called with the mutex held, before anything is evaluated. An answer is given
// where a text is evaluated that the model did not just write.
func (e *Engine) ready(ctx context.Context, o infer.Params, given bool) error {
	if e.model == 0 {
		return ErrClosed
	}
	n := o.NumCtx
	if n <= 0 {
		n = e.opts.NumCtx
	}
	if err := e.resize(n); err != nil || e.edits == nil {
		return err
	}
	return e.readyToEdit(ctx, given)
}

// fewestRows is the fewest tokens of a prompt that are evaluated together. A
// single row goes through other kernels than two or more, which round otherwise:
// a prompt whose last token alone was missing from the cache would get other
// numbers than the same prompt from the start.
const fewestRows = 2

// resume cuts the cached path back to where the evaluation of prompt goes on so
// that the logits after its token first-1 and later ones can be had, and returns
// how many tokens are kept.
func (e *Engine) resume(prompt []step, first int) (int, error) {
	return e.rewind(max(0, min(commonPrefix(e.resident, prompt), first-fewestRows)))
}

// rewind cuts the cached path back to its first keep tokens and returns how many
// are left: none where the model cannot forget a part (recurrent models).
func (e *Engine) rewind(keep int) (int, error) {
	if keep >= len(e.resident) {
		return len(e.resident), nil
	}
	if keep > 0 {
		ok, err := llama.MemorySeqRm(e.memory, e.slot, llama.Pos(keep), -1)
		if err != nil {
			return 0, fmt.Errorf("llamacpp: cutting the cache back: %w", err)
		}
		if ok {
			e.resident = e.resident[:keep]
			return keep, nil
		}
	}
	e.resident = e.resident[:0]
	// Whole sequences can always be removed.
	if _, err := llama.MemorySeqRm(e.memory, e.slot, 0, -1); err != nil {
		return 0, errors.Join(fmt.Errorf("llamacpp: emptying a slot: %w", err), e.forget())
	}
	return 0, nil
}

// switchSlot takes the slot whose path has most in common with prompt, or, where
// that is less than half of the prompt, the one that was left longest ago.
func (e *Engine) switchSlot(prompt []step) {
	e.idle[e.slot] = e.resident
	best, common := e.slot, commonPrefix(e.resident, prompt)
	for slot := range e.idle {
		if n := commonPrefix(e.idle[slot], prompt); n > common {
			best, common = llama.SeqId(slot), n
		}
	}
	if 2*common < len(prompt) {
		best = e.longestIdle()
	}
	e.takeSlot(best)
}

// longestIdle is the slot that was left longest ago.
func (e *Engine) longestIdle() llama.SeqId {
	e.left[e.slot] = e.switches + 1 // it is in use
	oldest := 0
	for slot := range e.left {
		if e.left[slot] < e.left[oldest] {
			oldest = slot
		}
	}
	return llama.SeqId(oldest)
}

// takeSlot leaves the slot in use for another one.
func (e *Engine) takeSlot(slot llama.SeqId) {
	e.idle[e.slot] = e.resident
	if slot != e.slot {
		e.switches++
		e.left[e.slot] = e.switches
	}
	e.slot, e.resident = slot, e.idle[slot]
}

// emptyPaths forgets what the slots hold.
func (e *Engine) emptyPaths() {
	e.idle, e.left, e.switches = make([][]step, e.opts.Paths), make([]int, e.opts.Paths), 0
}

// forget empties the cache.
func (e *Engine) forget() error {
	e.resident = e.resident[:0]
	e.emptyPaths()
	if err := llama.MemoryClear(e.memory, true); err != nil {
		return fmt.Errorf("llamacpp: clearing the cache: %w", err)
	}
	return nil
}

// push evaluates tokens at the end of the cached path. At the indices of tokens
// in want, ascending, it calls row with the index and the logits of the token
// that follows; they are valid during the call only.
func (e *Engine) push(ctx context.Context, tokens []step, want []int, row func(i int, logits []float32) error) error {
	return e.advance(ctx, tokens, want, func(done int, outputs []int) error {
		for _, i := range outputs {
			logits, err := llama.GetLogitsIth(e.llama, int32(i), e.size)
			if err != nil || logits == nil {
				return errors.Join(fmt.Errorf("llamacpp: no logits for token %d", done+i), err, e.forget())
			}
			if err := row(done+i, logits); err != nil {
				return err
			}
		}
		return nil
	})
}

// limit is the most tokens of one evaluation. Where tensors are read or changed, no more
// than are computed together: a tensor holds just the tokens of one.
func (e *Engine) limit() int {
	if e.tap != nil {
		return e.tapLimit()
	}
	return e.opts.Batch
}

// advance evaluates tokens at the end of the cached path, with outputs at the indices of tokens in want, ascending. After each
// evaluation it calls evaluated with the number of tokens before it and the
// indices of the outputs in it.
func (e *Engine) advance(ctx context.Context, tokens []step, want []int, evaluated func(done int, outputs []int) error) error {
	for done := 0; done < len(tokens); {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := e.batch.Clear(); err != nil {
			return fmt.Errorf("llamacpp: filling a batch: %w", err)
		}
		n := min(e.limit(), len(tokens)-done)
		if len(want) > maxOutputs {
			n = min(n, want[maxOutputs]-done)
		}
		if left := len(tokens) - done - n; left > 0 && left < fewestRows {
			n -= fewestRows - left
		}
		var outputs []int
		for i := range n {
			output := len(want) > len(outputs) && want[len(outputs)] == done+i
			if output {
				outputs = append(outputs, i)
			}
			if err := e.batch.Add(tokens[done+i].token, llama.Pos(len(e.resident)+i), []llama.SeqId{e.slot}, output); err != nil {
				return fmt.Errorf("llamacpp: filling a batch: %w", err)
			}
		}
		if e.tap != nil {
			e.tap.expect(n, outputs)
		}
		if err := e.edit(tokens[done:done+n], outputs); err != nil {
			return err
		}
		if err := e.decode(ctx); err != nil {
			return errors.Join(err, e.forget())
		}
		if e.tap != nil {
			if err := e.tap.edited(); err != nil {
				return errors.Join(err, e.forget())
			}
		}
		e.resident = append(e.resident, tokens[done:done+n]...)
		if err := evaluated(done, outputs); err != nil {
			return err
		}
		want = want[len(outputs):]
		done += n
	}
	return nil
}

// decode evaluates the batch. The codes are those of llama_decode in llama.h.
func (e *Engine) decode(ctx context.Context) error {
	takeComplaints()
	var code int32
	var err error
	e.stop.with(ctx, func() { code, err = llama.Decode(e.llama, e.batch) })
	runtime.KeepAlive(e)
	switch {
	case (err != nil || code != 0) && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("llamacpp: evaluating %d tokens: %w", e.batch.NTokens, err)
	case code == 0:
		return nil
	case code == 1:
		return fmt.Errorf("llamacpp: no room in the cache for %d tokens after %d; raise --num-ctx", e.batch.NTokens, len(e.resident))
	}
	return fmt.Errorf("llamacpp: evaluating %d tokens failed with code %d%s; is there enough memory? lower --gpu-layers or --num-ctx",
		e.batch.NTokens, code, takeComplaints())
}

// Model identifies the file. Its first call may hash the file; the result is
// remembered in the cache folder.
func (e *Engine) Model(ctx context.Context) (infer.Model, error) {
	e.hashing.Lock()
	defer e.hashing.Unlock()
	if e.id.Digest == "" {
		d, err := fileDigest(ctx, e.opts.ModelPath)
		if err != nil {
			return infer.Model{}, err
		}
		e.id.Digest = d
	}
	m := e.id
	if e.edits != nil {
		m.Edits = e.edits.hash
	}
	return m, nil
}

// Embed returns infer.ErrUnsupported: sentence embeddings come from a model made
// for them.
func (e *Engine) Embed(context.Context, []string) ([][]float32, error) {
	return nil, infer.ErrUnsupported
}

// Close frees the model, when the engines that Edited made of this one, or this one of, are
// closed too.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	if e.users--; e.users > 0 {
		return nil
	}
	err := errors.Join(llama.BatchFree(e.batch), e.dropContext(), llama.ModelFree(e.model))
	e.stop.release()
	e.model = 0
	return err
}
