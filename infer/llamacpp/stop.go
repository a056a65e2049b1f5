package llamacpp

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ebitengine/purego"
)

// A stop ends llama.cpp's work when a context.Context ends: while it loads a
// model, which asks after every tensor, and while the CPU computes, which asks
// after every step of the graph. (A GPU does not ask: there work ends with the
// tokens that are computed together.)
type stop struct {
	id  uintptr // the callbacks' user data
	ctx atomic.Pointer[context.Context]
}

// stops holds every stop in use, by its id.
var (
	stops   sync.Map
	stopIDs atomic.Uintptr
)

// newStop returns a stop that must be released.
func newStop() *stop {
	s := &stop{id: stopIDs.Add(1)}
	stops.Store(s.id, s)
	return s
}

func (s *stop) release() { stops.Delete(s.id) }

// with lets ctx end the work that f calls for. Only one f runs at a time.
func (s *stop) with(ctx context.Context, f func()) {
	s.ctx.Store(&ctx)
	defer s.ctx.Store(nil)
	f()
}

func stopped(id uintptr) bool {
	s, ok := stops.Load(id)
	if !ok {
		return false
	}
	ctx := s.(*stop).ctx.Load()
	return ctx != nil && (*ctx).Err() != nil
}

// stopCallbacks returns the C functions that llama.cpp asks: bool abort(void *)
// and bool progress(float, void *), which goes on at true. purego never frees a
// callback: each is made once a process.
var stopCallbacks = sync.OnceValues(func() (abort, progress uintptr) {
	abort = purego.NewCallback(func(id uintptr) bool { return stopped(id) })
	progress = purego.NewCallback(func(_ float32, id uintptr) bool { return !stopped(id) })
	return abort, progress
})
