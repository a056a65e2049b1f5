package llamacpp

import "github.com/hybridgroup/yzma/pkg/llama"

// EndOfTurn returns the token that ends a turn of the assistant: the
// vocabulary's end-of-turn token, or its end-of-sequence token where it has no
// other; -1 when it has neither.
func (e *Engine) EndOfTurn() int32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.model == 0 {
		return -1
	}
	if t := llama.VocabEOT(e.handle); t >= 0 {
		return int32(t)
	}
	return int32(llama.VocabEOS(e.handle))
}
