package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// ErrClosed is returned by an Engine or Vocab that has been closed.
var ErrClosed = errors.New("llamacpp: closed")

// Vocab is a model file's tokeniser without its weights. It counts the tokens of
// prompts that go to a server which has the same file. It is safe for
// concurrent use.
type Vocab struct {
	mu    sync.Mutex
	model llama.Model // 0 after Close
	vocabulary
}

var _ infer.TokenCounter = (*Vocab)(nil)

// OpenVocab reads the vocabulary of a GGUF file with the libraries in libDir, or
// those that Locate finds when libDir is empty.
func OpenVocab(ctx context.Context, path, libDir string) (*Vocab, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	params, _, err := loadParams(path, libDir)
	if err != nil {
		return nil, err
	}
	params.VocabOnly = 1
	model, v, err := loadModel(ctx, path, params)
	if err != nil {
		return nil, err
	}
	v.controls = newControls(v, llama.ModelChatTemplate(model, ""))
	return &Vocab{model: model, vocabulary: v}, nil
}

// Tokenize returns the token ids of a rendered prompt, special tokens
// recognised, with the model's beginning-of-sequence token in front where the
// model wants one and the text does not bring it.
func (v *Vocab) Tokenize(rendered string) ([]int32, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.model == 0 {
		return nil, ErrClosed
	}
	tokens, err := v.promptTokens([]part{{text: rendered}})
	return ids(tokens), err
}

// CountTokens returns the number of tokens that Tokenize gives.
func (v *Vocab) CountTokens(ctx context.Context, rendered string) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	tokens, err := v.Tokenize(rendered)
	return len(tokens), err
}

// LiteralTokens is Tokenize for a text in which control tokens are not meant, see
// infer.Prompt.Literal.
func (v *Vocab) LiteralTokens(text string) ([]int32, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.model == 0 {
		return nil, ErrClosed
	}
	tokens, err := v.promptTokens([]part{{text, true}})
	return ids(tokens), err
}

// Controls are the vocabulary's control tokens.
func (v *Vocab) Controls() *infer.Controls { return v.all }

// Close frees the vocabulary.
func (v *Vocab) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.model == 0 {
		return nil
	}
	model := v.model
	v.model = 0
	return llama.ModelFree(model)
}

// loadParams checks the file and loads the library, so that llama.cpp is asked
// about nothing else than a GGUF file.
func loadParams(path, libDir string) (llama.ModelParams, Info, error) {
	if err := checkGGUF(path); err != nil {
		return llama.ModelParams{}, Info{}, err
	}
	info, err := Load(libDir)
	if err != nil {
		return llama.ModelParams{}, Info{}, err
	}
	return llama.ModelDefaultParams(), info, nil
}

// loadModel loads a model until ctx ends. llama.cpp asks whether to go on when it
// reads tensors and not while it reads a vocabulary, which takes seconds where that
// is large: then it ends on its own after loadModel has returned.
func loadModel(ctx context.Context, path string, params llama.ModelParams) (llama.Model, vocabulary, error) {
	takeComplaints()
	s := newStop()
	_, params.ProgressCallback = stopCallbacks()
	params.ProgressCallbackUserData = s.id
	var model llama.Model
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.release()
		s.with(ctx, func() { model, err = llama.ModelLoadFromFile(path, params) })
	}()
	select {
	case <-done:
	case <-ctx.Done():
		go func() {
			if <-done; err == nil {
				_ = llama.ModelFree(model) // nobody waits for it
			}
		}()
		return 0, vocabulary{}, ctx.Err()
	}
	if err != nil && ctx.Err() != nil {
		return 0, vocabulary{}, ctx.Err()
	}
	if err != nil {
		return 0, vocabulary{}, fmt.Errorf("llamacpp: llama.cpp cannot load %s%s; the file may be incomplete, or of a kind that %s does not know",
			path, takeComplaints(), Release)
	}
	h := llama.ModelGetVocab(model)
	if llama.GetVocabType(h) == llama.VocabTypeNone {
		return 0, vocabulary{}, errors.Join(fmt.Errorf("llamacpp: %s has no vocabulary", path), llama.ModelFree(model))
	}
	v := vocabulary{handle: h, size: int(llama.VocabNTokens(h)), bos: llama.VocabBOS(h), addBOS: llama.VocabGetAddBOS(h)}
	if err := v.check(path); err != nil {
		return 0, vocabulary{}, errors.Join(err, llama.ModelFree(model))
	}
	return model, v, nil
}

// check refuses vocabularies with which llama.cpp would end the process:
// SentencePiece writes what it has no token for byte by byte.
func (v vocabulary) check(path string) error {
	if v.size < 2 {
		return fmt.Errorf("llamacpp: the vocabulary of %s has %d tokens", path, v.size)
	}
	if llama.GetVocabType(v.handle) != llama.VocabTypeSPM {
		return nil
	}
	var bytes [256]bool
	n := 0
	for t := range llama.Token(v.size) {
		if llama.VocabGetAttr(v.handle, t)&llama.TokenAttrByte != 0 {
			if p := v.piece(t, false); len(p) == 1 && !bytes[p[0]] {
				bytes[p[0]], n = true, n+1
			}
		}
		if n == len(bytes) {
			return nil
		}
	}
	for t := range llama.Token(v.size) { // an ASCII character's own token does as well
		if p := v.piece(t, false); len(p) == 1 && p[0] < utf8.RuneSelf {
			bytes[p[0]] = true
		}
	}
	if i := slices.Index(bytes[:], false); i >= 0 {
		return fmt.Errorf("llamacpp: the vocabulary of %s has no token for the byte %d: texts that need it cannot be tokenised", path, i)
	}
	return nil
}

// vocabulary reads llama.cpp's tokeniser. Its methods must not run after the
// model is freed.
type vocabulary struct {
	handle llama.Vocab
	size   int // tokens
	bos    llama.Token
	addBOS bool
	controls
}

// tokens tokenises a text as it is, control tokens recognised where special is true.
func (v vocabulary) tokens(text string, special bool) ([]llama.Token, error) {
	// llama.cpp takes a NUL for the end and throws on bytes that are not UTF-8.
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, fmt.Errorf("llamacpp: the text has a NUL character at byte %d", i)
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("llamacpp: the text is not valid UTF-8")
	}
	return llama.Tokenize(v.handle, text, false, special), nil
}

// promptTokens tokenises a rendered prompt: exactly one beginning-of-sequence
// token where the model wants one, whether or not the template wrote it.
func (v vocabulary) promptTokens(parts []part) ([]llama.Token, error) {
	var ts []llama.Token
	for _, p := range parts {
		some, err := v.tokensOf(p)
		if err != nil {
			return nil, err
		}
		ts = append(ts, some...)
	}
	if v.addBOS && v.bos != llama.TokenNull && (len(ts) == 0 || ts[0] != v.bos) {
		ts = append([]llama.Token{v.bos}, ts...)
	}
	return ts, nil
}

// tokensOf tokenises a part of a prompt.
func (v vocabulary) tokensOf(p part) ([]llama.Token, error) {
	if p.literal {
		return v.literalTokens(p.text)
	}
	return v.tokens(p.text, true)
}

// literalTokens tokenises a text without control tokens. SentencePiece
// vocabularies may put one together out of its pieces ("</" and "s>"): such a
// text is tokenised character by character.
func (v vocabulary) literalTokens(text string) ([]llama.Token, error) {
	ts, err := v.tokens(text, false)
	if err != nil || !slices.ContainsFunc(ts, func(t llama.Token) bool { return llama.VocabIsControl(v.handle, t) }) {
		return ts, err
	}
	var cut int
	if at := v.all.Find(text); len(at) > 0 && at[0][0] > 0 {
		cut = at[0][0]
	} else if _, cut = utf8.DecodeRuneInString(text); cut == len(text) {
		return ts, nil
	}
	if ts, err = v.literalTokens(text[:cut]); err != nil {
		return nil, err
	}
	rest, err := v.literalTokens(text[cut:])
	return append(ts, rest...), err
}

// piece returns the bytes of a token's text. Control tokens (<|im_end|>) have a
// text only when special is true.
func (v vocabulary) piece(t llama.Token, special bool) []byte {
	buf := make([]byte, 64)
	n := llama.TokenToPiece(v.handle, t, buf, 0, special)
	if n < 0 { // the needed size
		buf = make([]byte, -n)
		n = llama.TokenToPiece(v.handle, t, buf, 0, special)
	}
	return buf[:max(0, n)]
}

// text returns a token's text with control tokens shown, or "" for no token.
func (v vocabulary) text(t llama.Token) string {
	if t == llama.TokenNull {
		return ""
	}
	return string(v.piece(t, true))
}

// withText maps the text of every token that is not a control token to the
// tokens that have it: byte-fallback vocabularies have some texts twice.
func (v vocabulary) withText() map[string][]llama.Token {
	m := make(map[string][]llama.Token, v.size)
	for t := range llama.Token(v.size) {
		if p := v.piece(t, false); len(p) > 0 {
			m[string(p)] = append(m[string(p)], t)
		}
	}
	return m
}

func ids(tokens []llama.Token) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = int32(t)
	}
	return out
}
