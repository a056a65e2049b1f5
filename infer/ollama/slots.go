package ollama

import (
	"math"
	"sync"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/prefix"
)

// slots follows what the server's prompt caches hold. The server reports
// prompt_eval_count, which is the same cold and cached; what it really evaluates
// is the prompt after its longest common prefix with a free slot's content, and
// at least one token. A model with a sliding window or a recurrent state reuses
// less than that, and a server that others use too.
type slots struct {
	mu sync.Mutex
	s  []slot
}

type slot struct {
	busy   bool
	units  []int32 // of the prompt and what was generated after it
	prompt int     // how many of them are the prompt's
	text   string  // of the prompt
	tokens int     // of the prompt, as the server counts
	more   int     // tokens generated after it that stayed
}

// take reserves the free slot that the server will choose: that with the longest
// common prefix, the first of equals. It returns a copy of it and that length.
func (s *slots) take(units []int32) (at int, held slot, common int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, common = -1, -1
	for i := range s.s {
		if s.s[i].busy {
			continue
		}
		if n := prefix.Common(s.s[i].units, units); n > common {
			at, common = i, n
		}
	}
	s.s[at].busy = true // places admits at most len(s.s) callers
	return at, s.s[at], common
}

// put frees a slot with its new content.
func (s *slots) put(at int, held slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held.busy = false
	s.s[at] = held
}

// density is the mean number of tokens of a unit, from what the slots hold; 1
// before anything is known, which is about right for English.
func (s *slots) density() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens, units := 0, 0
	for _, h := range s.s {
		tokens, units = tokens+h.tokens, units+h.prompt
	}
	if units == 0 {
		return 1
	}
	return float64(tokens) / float64(units)
}

// shared converts a common prefix in units into tokens: exactly where it is the
// whole prompt held, else in proportion.
func (h slot) shared(common int) int {
	proportion := func(units, of, tokens int) int {
		if of == 0 {
			return 0
		}
		return int(math.Round(float64(units) * float64(tokens) / float64(of)))
	}
	if common <= h.prompt {
		return proportion(common, h.prompt, h.tokens)
	}
	return h.tokens + proportion(common-h.prompt, len(h.units)-h.prompt, h.more)
}

// usage computes one request's usage from the common prefix, in tokens, with
// what a slot held.
func usage(prompt, shared, generated int) infer.Usage {
	evaluated := max(1, prompt-shared)
	return infer.Usage{Prompt: prompt, Unique: prompt, Evaluated: evaluated, Cached: max(0, prompt-evaluated),
		Generated: generated, Estimated: true}
}
