package run

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Progress is told how far a run is. The executor makes one call at a time.
type Progress interface {
	// Step begins a step over total samples, of which done are there already.
	Step(name string, total, done int)
	// Done reports one more sample; err is not nil when it failed or, with
	// ErrSkipped, was not tried.
	Done(k Key, s Sample, err error)
	// End follows the last Done, whether or not the run is complete.
	End()
}

// Silent returns a Progress that says nothing.
func Silent() Progress { return silent{} }

type silent struct{}

func (silent) Step(string, int, int)   {}
func (silent) Done(Key, Sample, error) {}
func (silent) End()                    {}

// Lines returns a Progress for logs: one line at the start of a step, one at
// least every tenth of it, and one a failure.
func Lines(w io.Writer) Progress { return &lines{w: w, now: time.Now} }

type lines struct {
	w                                             io.Writer
	now                                           func() time.Time
	name                                          string
	total, done, tenth, unscored, failed, skipped int
	start                                         time.Time
}

func (l *lines) Step(name string, total, done int) {
	l.name, l.total, l.done, l.start = name, total, done, l.now()
	l.unscored, l.failed, l.skipped = 0, 0, 0
	l.tenth = tenths(done, total)
	if done == 0 {
		fmt.Fprintf(l.w, "%s: %d to do\n", name, total)
	} else {
		fmt.Fprintf(l.w, "%s: %d to do, %d of %d done before\n", name, total-done, done, total)
	}
}

func tenths(done, total int) int {
	if total == 0 {
		return 10
	}
	return done * 10 / total
}

func (l *lines) Done(k Key, s Sample, err error) {
	l.done++
	switch {
	case errors.Is(err, ErrSkipped):
		l.skipped++
	case err != nil:
		l.failed++
		fmt.Fprintf(l.w, "%s failed: %v\n", k, err)
	case s.Unscored != "":
		l.unscored++
	}
	if t := tenths(l.done, l.total); t > l.tenth {
		l.tenth = t
		fmt.Fprintf(l.w, "%s: %d of %d (%d %%)%s, %s\n", l.name, l.done, l.total, l.done*100/l.total, l.counts(),
			l.now().Sub(l.start).Round(100*time.Millisecond))
	}
}

func (l *lines) counts() string {
	s := ""
	for _, c := range []struct {
		n    int
		what string
	}{{l.unscored, "unscored"}, {l.failed, "failed"}, {l.skipped, "skipped"}} {
		if c.n > 0 {
			s += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return s
}

func (l *lines) End() {}

// Bar returns a Progress for terminals: one bar a step, and one line a failure.
func Bar(w io.Writer) Progress { return &bar{w: w} }

type bar struct {
	w        io.Writer
	name     string
	unscored int
	b        *progressbar.ProgressBar
}

func (p *bar) Step(name string, total, done int) {
	p.End()
	p.name, p.unscored = name, 0
	p.b = progressbar.NewOptions(total,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(name),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(24),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(p.w) }))
	// An error of the bar is one of writing to the terminal: nothing to tell.
	_ = p.b.Set(done)
}

func (p *bar) Done(k Key, s Sample, err error) {
	switch {
	case err != nil && !errors.Is(err, ErrSkipped):
		_ = p.b.Clear()
		fmt.Fprintf(p.w, "%s failed: %v\n", k, err)
	case s.Unscored != "":
		p.unscored++
		p.b.Describe(fmt.Sprintf("%s (%d unscored)", p.name, p.unscored))
	}
	_ = p.b.Add(1)
}

func (p *bar) End() {
	if p.b != nil && !p.b.IsFinished() {
		_ = p.b.Exit()
		fmt.Fprintln(p.w)
	}
	p.b = nil
}
