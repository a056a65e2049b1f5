package llamacpp

import (
	"fmt"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// Piece returns the bytes that a token adds to generated text, none for a control
// token, which may be part of a character only; and whether generation ends at
// it.
func (e *Engine) Piece(token int32) (text []byte, ends bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.model == 0 {
		return nil, false, ErrClosed
	}
	if token < 0 || int(token) >= e.size {
		return nil, false, fmt.Errorf("llamacpp: token %d, and the vocabulary has %d", token, e.size)
	}
	t := llama.Token(token)
	return e.piece(t, false), llama.VocabIsEOG(e.handle, t), nil
}
