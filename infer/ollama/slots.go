package ollama

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/prefix"
)

// slots follows what the server's prompt caches hold. The server reports
// prompt_eval_count, which is the same cold and cached; what it really evaluates
// is the prompt after its longest common prefix with a free slot's content, and
// at least one token. A model with a sliding window or a recurrent state reuses
// less than that, and a server that others use too.
//
// A server with several slots gives a prompt the free one with the longest common
// prefix, the first of equals. All dialogues begin with the same system message,
// so that the first prompt of a dialogue fits each slot equally well, and would
// take that of a dialogue whose next prompt is just on its way. Therefore a prompt
// that no slot fits best waits until the slots of other calls are in use, and a
// moment more, in which requests overtake each other. The server frees a slot
// before its answer arrives, and gives slots in the order of arrival between two
// evaluations.
type slots struct {
	mu      sync.Mutex
	s       []slot
	changed chan struct{} // closed at every take and put, and made anew
	last    time.Time     // of the last take or put
	mean    time.Duration // of a request, with more weight on later and on shorter ones
}

// call is one call of Chat or Choose, which holds a place for all its requests.
type call struct{ at time.Time } // a struct of no size would have no address of its own

type slot struct {
	busy   bool
	since  time.Time // it is busy
	owner  *call     // who asked last; nil when that call has ended
	units  []int32   // of the prompt and what was generated after it
	prompt int       // how many of them are the prompt's
	text   string    // of the prompt
	tokens int       // of the prompt, as the server counts
	more   int       // tokens generated after it that stayed
}

func newSlots(n int) slots { return slots{s: make([]slot, n), changed: make(chan struct{})} }

// take reserves the free slot that the server will choose, and waits where it
// might choose another call's. It returns a copy of the slot, the length of the
// common prefix, and whether no other slot fits as well.
func (s *slots) take(ctx context.Context, by *call, units []int32) (at int, held slot, common int, sure bool, err error) {
	for start := time.Now(); ; {
		s.mu.Lock()
		var pause time.Duration
		if at, common, sure, pause = s.choose(by, units, time.Since(start)); pause <= 0 {
			h := &s.s[at]
			h.busy, h.since, h.owner = true, time.Now(), by
			held = *h
			s.event()
			s.mu.Unlock()
			return at, held, common, sure, nil
		}
		s.disown(by) // no slot of the call's fits: what it holds is over
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, slot{}, 0, false, ctx.Err()
		}
	}
}

// choose returns the slot that the server will choose, and how long to wait
// before looking again; 0 means that it is certain enough, or was waited for as
// long as a request takes.
func (s *slots) choose(by *call, units []int32, waited time.Duration) (at, common int, sure bool, pause time.Duration) {
	at, common = -1, -1
	equals, rival := 0, false
	for i, h := range s.s {
		if h.busy {
			continue
		}
		others := h.owner != nil && h.owner != by
		switch n := prefix.Common(h.units, units); {
		case n > common:
			at, common, equals, rival = i, n, 1, others
		case n == common:
			equals++
			if rival && !others {
				at = i
			}
			rival = rival || others
		}
	}
	longest := min(s.mean, 10*time.Second)
	settle := max(longest/20, time.Millisecond)
	quiet := time.Since(s.last)
	sure = len(s.s) == 1 || !rival && equals == 1
	switch {
	case sure, waited > longest, !rival && quiet >= settle:
		return at, common, sure, 0
	case rival:
		return at, common, sure, longest - waited + time.Millisecond
	}
	return at, common, sure, settle - quiet
}

func (s *slots) event() {
	s.last = time.Now()
	close(s.changed)
	s.changed = make(chan struct{})
}

// end gives up what a call owns.
func (s *slots) end(by *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disown(by)
	s.event()
}

func (s *slots) disown(by *call) {
	for i := range s.s {
		if s.s[i].owner == by {
			s.s[i].owner = nil
		}
	}
}

// put frees a slot with its new content.
func (s *slots) put(at int, held slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.s[at]
	took := time.Since(was.since)
	switch {
	case s.mean == 0:
		s.mean = took
	case took < s.mean: // the first request also loads the model
		s.mean = (s.mean + took) / 2
	default:
		s.mean += (took - s.mean) / 8
	}
	held.busy, held.owner = false, was.owner
	s.s[at] = held
	s.event()
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
