package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/ccmed/ccmed/bench/visible"
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

// tally counts one step. Its rates are those of this session: what was done before
// and what came out of the response cache took no time and would make them lie.
type tally struct {
	name              string
	total, done       int
	unscored, failed  int
	skipped, replayed int

	start       time.Time // of the step
	first, last time.Time // ends of samples that were worked for in this session
	worked      int
	tokens      int // that models evaluated and generated from first to last
}

func newTally(name string, total, done int, now time.Time) tally {
	return tally{name: name, total: total, done: done, start: now}
}

func (t *tally) add(s Sample, err error, now time.Time) {
	t.done++
	switch {
	case errors.Is(err, ErrSkipped):
		t.skipped++
		return
	case err != nil:
		t.failed++
	case s.Unscored != "":
		t.unscored++
	}
	if s.Usage.Replayed > 0 && s.Usage.Evaluated+s.Usage.Generated == 0 {
		t.replayed++
		return
	}
	// The first one may have waited for its model to load: time is taken from its end.
	t.worked++
	t.last = now
	if t.worked == 1 {
		t.first = now
		return
	}
	t.tokens += s.Usage.Evaluated + s.Usage.Generated
}

// counts names what is worth a word, each with a comma before it.
func (t *tally) counts() string {
	s := ""
	for _, c := range []struct {
		n    int
		what string
	}{{t.unscored, "unscored"}, {t.failed, "failed"}, {t.skipped, "skipped"}, {t.replayed, "from the response cache"}} {
		if c.n > 0 {
			s += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return s
}

// pace says how fast it goes and how long the rest takes at that rate, each with a
// comma before it; nothing where that is not known.
func (t *tally) pace() string {
	took := t.last.Sub(t.first)
	if t.worked < 2 || took <= 0 {
		return ""
	}
	s := ""
	if t.tokens > 0 {
		s = fmt.Sprintf(", %.0f tokens/s", float64(t.tokens)/took.Seconds())
	}
	rest := took / time.Duration(t.worked-1) * time.Duration(t.total-t.done)
	if rest >= time.Second {
		s += ", about " + brieftime(rest) + " left"
	}
	return s
}

// brieftime gives a duration in at most two units: 42s, 3m20s, 5h10m.
func brieftime(d time.Duration) string {
	if d >= time.Hour {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.Round(time.Second).String()
}

// Lines returns a Progress for logs: one line at the start of a step, one at
// least every tenth of it, and one a failure.
func Lines(w io.Writer) Progress { return &lines{w: w, now: time.Now} }

type lines struct {
	w     io.Writer
	now   func() time.Time
	tally tally
	tenth int
}

func (l *lines) Step(name string, total, done int) {
	l.tally = newTally(name, total, done, l.now())
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
	now := l.now()
	l.tally.add(s, err, now)
	if err != nil && !errors.Is(err, ErrSkipped) {
		fmt.Fprintf(l.w, "%s failed: %v\n", k, err)
	}
	t := &l.tally
	if n := tenths(t.done, t.total); n > l.tenth {
		l.tenth = n
		fmt.Fprintf(l.w, "%s: %d of %d (%d %%)%s, %s%s\n", t.name, t.done, t.total, t.done*100/t.total, t.counts(),
			now.Sub(t.start).Round(100*time.Millisecond), t.pace())
	}
}

func (l *lines) End() {}

// Bar returns a Progress for terminals: one bar a step, and one line a failure.
func Bar(w io.Writer) Progress { return &bar{w: w, now: time.Now, columns: terminalColumns(w)} }

type bar struct {
	w       io.Writer
	now     func() time.Time
	columns func() int // of the terminal; 0 where it has none
	tally   tally
	b       *progressbar.ProgressBar
}

// terminalColumns asks anew each time, for a window may change.
func terminalColumns(w io.Writer) func() int {
	f, ok := w.(*os.File)
	return func() int {
		if !ok {
			return 0
		}
		columns, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return columns
	}
}

const widestBar, narrowestBar = 24, 3

// barWidth is what a line has left beside its words: a line that wraps cannot be
// drawn over.
func (p *bar) barWidth(text string) int {
	columns := p.columns()
	if columns == 0 {
		return widestBar
	}
	words := fmt.Sprintf("%s 100%% || (%d/%d) ", text, p.tally.total, p.tally.total)
	return min(widestBar, max(narrowestBar, columns-1-len(words)))
}

func (p *bar) Step(name string, total, done int) {
	p.End()
	p.tally = newTally(name, total, done, p.now())
	p.b = progressbar.NewOptions(total,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(name),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(false), // it would count what was done before
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(p.barWidth(name)),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(p.w) }))
	// An error of the bar is one of writing to the terminal: nothing to tell.
	_ = p.b.Set(done)
}

func (p *bar) Done(k Key, s Sample, err error) {
	p.tally.add(s, err, p.now())
	if err != nil && !errors.Is(err, ErrSkipped) {
		_ = p.b.Clear()
		fmt.Fprintf(visible.Writer(p.w), "%s failed: %v\n", k, err)
	}
	// Not Describe, which would draw the bar before it moves.
	text := p.tally.name + p.tally.counts() + p.tally.pace()
	progressbar.OptionSetDescription(text)(p.b)
	progressbar.OptionSetWidth(p.barWidth(text))(p.b)
	_ = p.b.Add(1)
}

func (p *bar) End() {
	if p.b != nil && !p.b.IsFinished() {
		_ = p.b.Exit()
		fmt.Fprintln(p.w)
	}
	p.b = nil
}
