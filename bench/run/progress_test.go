package run

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
)

// clock is a time that a test moves.
type clock struct{ now time.Time }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

var (
	answered = Sample{Usage: infer.Usage{Prompt: 100, Evaluated: 90, Cached: 10, Generated: 10}}
	replayed = Sample{Usage: infer.Usage{Replayed: 100}}
	lost     = Sample{Unscored: "no digit", Usage: answered.Usage}
)

// Rates and the time left are those of this session's own work.
func TestPace(t *testing.T) {
	const second = time.Second
	type event struct {
		after time.Duration
		s     Sample
		err   error
	}
	for _, c := range []struct {
		name        string
		total, done int
		events      []event
		counts      string
		pace        string
	}{
		{"one sample tells no rate", 10, 0, []event{{9 * second, answered, nil}}, "", ""},
		{"loading the model is no work", 10, 0, []event{{60 * second, answered, nil}, {2 * second, answered, nil}}, "", ", 50 tokens/s, about 16s left"},
		{"what was done before took no time", 1000, 900, []event{{60 * second, answered, nil}, {2 * second, answered, nil}}, "", ", 50 tokens/s, about 3m16s left"},
		{"nor did what was replayed", 10, 0, []event{{0, replayed, nil}, {0, replayed, nil}, {second, answered, nil}, {0, replayed, nil}, {4 * second, answered, nil}},
			", 3 from the response cache", ", 25 tokens/s, about 20s left"},
		{"all replayed", 10, 0, []event{{0, replayed, nil}, {second, replayed, nil}, {second, replayed, nil}}, ", 3 from the response cache", ""},
		{"skipped samples take no time", 6, 0, []event{{second, answered, nil}, {second, answered, nil}, {0, Sample{}, ErrSkipped}}, ", 1 skipped", ", 100 tokens/s, about 3s left"},
		{"failures take time and give no tokens", 6, 0, []event{{second, answered, nil}, {3 * second, Sample{}, errors.New("refused")}, {second, lost, nil}},
			", 1 unscored, 1 failed", ", 25 tokens/s, about 6s left"},
		{"hours", 3602, 0, []event{{second, answered, nil}, {10 * second, answered, nil}}, "", ", 10 tokens/s, about 10h0m left"},
		{"steps without a model", 4, 0, []event{{0, Sample{}, nil}, {time.Millisecond, Sample{}, nil}}, "", ""},
		{"the last one leaves nothing", 2, 0, []event{{second, answered, nil}, {second, answered, nil}}, "", ", 100 tokens/s"},
	} {
		now := clock{time.Unix(0, 0)}
		y := newTally("label", c.total, c.done, now.now)
		for _, e := range c.events {
			now.pass(e.after)
			y.add(e.s, e.err, now.now)
		}
		if got := y.counts(); got != c.counts {
			t.Errorf("%s: counts %q, want %q", c.name, got, c.counts)
		}
		if got := y.pace(); got != c.pace {
			t.Errorf("%s: pace %q, want %q", c.name, got, c.pace)
		}
		if y.done != c.done+len(c.events) {
			t.Errorf("%s: %d done", c.name, y.done)
		}
	}
}

func TestLinesSayTheTruth(t *testing.T) {
	var b bytes.Buffer
	now := clock{time.Unix(0, 0)}
	p := &lines{w: &b, now: func() time.Time { return now.now }}
	p.Step("label", 40, 20)
	for i := range 20 {
		now.pass(3 * time.Second)
		s := answered
		if i == 4 {
			s = lost
		}
		p.Done(Key{}, s, nil)
	}
	got := strings.Split(strings.TrimSpace(b.String()), "\n")
	want := []string{"label: 20 to do, 20 of 40 done before",
		"label: 24 of 40 (60 %), 12s, 33 tokens/s, about 48s left",
		"label: 28 of 40 (70 %), 1 unscored, 24s, 33 tokens/s, about 36s left"}
	for i, w := range want {
		if i >= len(got) || got[i] != w {
			t.Fatalf("lines:\n%s\nwant line %d to be\n%s", b.String(), i+1, w)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d lines, want one a tenth:\n%s", len(got), b.String())
	}
}

// The bar of a run that goes on knows no rate yet, although 900 are there.
func TestBarSaysTheTruth(t *testing.T) {
	var b bytes.Buffer
	now := clock{time.Unix(0, 0)}
	p := &bar{w: &b, now: func() time.Time { return now.now }, columns: func() int { return 80 }}
	p.Step("label", 1000, 900)
	now.pass(time.Minute)
	p.Done(Key{}, answered, nil)
	if s := b.String(); strings.Contains(s, "left") || strings.Contains(s, "/s") {
		t.Errorf("a rate without work: %q", s)
	}
	time.Sleep(120 * time.Millisecond) // the bar is drawn ten times a second
	now.pass(2 * time.Second)
	p.Done(Key{}, lost, nil)
	p.End()
	frames := strings.Split(b.String(), "\r")
	if last := frames[len(frames)-1]; !strings.Contains(last, "label, 1 unscored, 50 tokens/s, about 3m16s left") || !strings.Contains(last, "902/1000") {
		t.Errorf("last frame %q", last)
	}
	for _, f := range frames {
		if n := len([]rune(strings.TrimSpace(f))); n > 79 {
			t.Errorf("%d columns on a terminal of 80: %q", n, f)
		}
	}
}
