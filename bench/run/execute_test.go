package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
)

// echo answers at once with the prompt's own text.
type echo struct {
	infer.Backend
	calls  atomic.Int64
	closed atomic.Int64
}

func (e *echo) Chat(_ context.Context, p infer.Prompt, _ infer.Params) (infer.Reply, error) {
	e.calls.Add(1)
	return infer.Reply{Text: p.Raw, Rendered: "<" + p.Raw + ">", Usage: infer.Usage{Prompt: 3, Evaluated: 2, Cached: 1, Generated: 1}}, nil
}

func (e *echo) Choose(_ context.Context, ps []infer.Prompt, as []infer.Answer, _ infer.Params) ([]infer.Choice, error) {
	e.calls.Add(1)
	cs := make([]infer.Choice, len(ps))
	for i := range cs {
		cs[i] = infer.Choice{P: make([]float64, len(as)), Usage: infer.Usage{Prompt: 5, Unique: 4, Estimated: true}}
	}
	return cs, nil
}

func (e *echo) Close() error { e.closed.Add(1); return nil }

func (e *echo) workers(n int) func(context.Context, string) ([]infer.Backend, error) {
	return func(context.Context, string) ([]infer.Backend, error) {
		return slices.Repeat([]infer.Backend{e}, n), nil
	}
}

func say(ctx context.Context, b infer.Backend, u Unit[int], _ Lookup) (Sample, error) {
	r, err := b.Chat(ctx, infer.Prompt{Raw: u.Item}, infer.Params{MaxTokens: 1})
	if err != nil {
		return Sample{}, err
	}
	data, err := json.Marshal(r.Text)
	return Sample{Data: data}, err
}

func length(_ context.Context, b infer.Backend, u Unit[int], look Lookup) (Sample, error) {
	if b != nil {
		return Sample{}, errors.New("a step without a role has a backend")
	}
	s, ok := look("say")
	if !ok {
		return Sample{}, errors.New("no earlier sample")
	}
	var text string
	if err := json.Unmarshal(s.Data, &text); err != nil {
		return Sample{}, err
	}
	data, err := json.Marshal(len(text))
	return Sample{Data: data}, err
}

// words is a task of n units in groups of three: say, then length.
func words(n int) Task[int] {
	t := Task[int]{Name: "words", Steps: []Step[int]{{Name: "say", Role: "speaker", Do: say}, {Name: "length", Role: "", Do: length}}}
	for i := range n {
		t.Units = append(t.Units, Unit[int]{Item: fmt.Sprintf("item-%03d", i), Group: fmt.Sprint("group ", i/3), Value: i})
	}
	return t
}

func identity() Identity {
	return Identity{Task: "words", Version: "1", Seed: 1, Options: map[string]any{"limit": 20},
		Models: map[string]infer.Model{"speaker": {Backend: "echo", Name: "echo", Digest: "sha256:00", Server: "1.0"}}}
}

func create(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Create(path, identity(), []string{"words"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(StatusFailed) })
	return d
}

func resume(t *testing.T, path string) *Dir {
	t.Helper()
	d, warnings, err := Resume(path, identity(), []string{"words"})
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) > 0 {
		t.Errorf("resuming on the same machine warns: %q", warnings)
	}
	t.Cleanup(func() { d.Close(StatusFailed) })
	return d
}

// content is what a run holds, without order and times.
func content(t *testing.T, path string) map[Key]string {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[Key]string{}
	for s, err := range d.All() {
		if err != nil {
			t.Fatal(err)
		}
		if _, dup := out[s.Key]; dup {
			t.Errorf("%s occurs twice", s.Key)
		}
		out[s.Key] = string(s.Data) + " " + s.Unscored + " " + strings.Join(s.Prompts, " ")
	}
	return out
}

func same(a, b map[Key]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

func TestExecute(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	b := &echo{}
	sum, err := Execute(t.Context(), create(t, path), words(20), Options{Workers: b.workers(3)})
	if err != nil {
		t.Fatal(err)
	}
	sum.Seconds = 0
	want := Summary{Scored: 40, Usage: infer.Usage{Prompt: 60, Evaluated: 40, Cached: 20, Generated: 20}}
	if sum != want {
		t.Errorf("summary %+v, want %+v", sum, want)
	}
	if n := b.closed.Load(); n != 1 {
		t.Errorf("a backend shared by three workers was closed %d times", n)
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := d.Samples()
	if err != nil {
		t.Fatal(err)
	}
	lastSay, firstLength := 0, len(samples)
	for i, s := range samples {
		switch s.Step {
		case "say":
			lastSay = i
			if want := newAsked(infer.Prompt{}, "<"+s.Item+">").Hash; len(s.Prompts) != 1 || s.Prompts[0] != want {
				t.Errorf("prompts of %s are %v, want %s", s.Key, s.Prompts, want)
			}
		case "length":
			firstLength = min(firstLength, i)
			if string(s.Data) != "8" || s.Usage != (infer.Usage{}) || s.Prompts != nil {
				t.Errorf("length sample %+v", s)
			}
		}
		if s.Schema != SampleSchema || s.Group == "" {
			t.Errorf("%s has schema %d and group %q", s.Key, s.Schema, s.Group)
		}
	}
	if lastSay > firstLength {
		t.Error("a step began before the one before it was finished")
	}
	m := d.Manifest()
	if m.Status != StatusDone || m.Samples != 40 || len(m.Sessions) != 1 || m.Sessions[0].End.IsZero() {
		t.Errorf("manifest %+v", m)
	}
	if got, ok := m.LastSummary(); !ok || got.Scored != 40 {
		t.Errorf("last summary %+v, %v", got, ok)
	}
	if err := Verify(path, VerifyOptions{}); err != nil {
		t.Error(err)
	}
}

// Within a group the units keep their order, and no two workers share a group.
func TestGroupsStayTogether(t *testing.T) {
	var mu sync.Mutex
	busy := map[string]bool{}
	last := map[string]int{}
	task := words(90)
	task.Steps = []Step[int]{{Name: "say", Role: "speaker", Do: func(ctx context.Context, b infer.Backend, u Unit[int], l Lookup) (Sample, error) {
		mu.Lock()
		if busy[u.Group] || last[u.Group] > u.Value {
			t.Errorf("item %d of %s: group busy %v, after item %d", u.Value, u.Group, busy[u.Group], last[u.Group])
		}
		busy[u.Group], last[u.Group] = true, u.Value
		mu.Unlock()
		s, err := say(ctx, b, u, l)
		mu.Lock()
		busy[u.Group] = false
		mu.Unlock()
		return s, err
	}}}
	if _, err := Execute(t.Context(), create(t, filepath.Join(t.TempDir(), "run")), task, Options{Workers: (&echo{}).workers(8)}); err != nil {
		t.Fatal(err)
	}
}

// Each role's model is opened once for consecutive steps, and closed before
// another one is opened.
func TestRolesAreOpenedOnce(t *testing.T) {
	var events []string
	task := words(3)
	task.Steps = []Step[int]{{Name: "a", Role: "mediator", Do: say}, {Name: "b", Role: "mediator", Do: say}, {Name: "c", Role: "judge", Do: say}, {Name: "d", Role: "mediator", Do: say}}
	workers := func(_ context.Context, role string) ([]infer.Backend, error) {
		events = append(events, "open "+role)
		return []infer.Backend{&closing{func() { events = append(events, "close "+role) }}}, nil
	}
	if _, err := Execute(t.Context(), create(t, filepath.Join(t.TempDir(), "run")), task, Options{Workers: workers}); err != nil {
		t.Fatal(err)
	}
	want := "open mediator, close mediator, open judge, close judge, open mediator, close mediator"
	if got := strings.Join(events, ", "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

type closing struct{ onClose func() }

func (c *closing) Chat(context.Context, infer.Prompt, infer.Params) (infer.Reply, error) {
	return infer.Reply{Text: "x"}, nil
}
func (c *closing) Choose(context.Context, []infer.Prompt, []infer.Answer, infer.Params) ([]infer.Choice, error) {
	return nil, infer.ErrUnsupported
}
func (c *closing) Model(context.Context) (infer.Model, error) { return infer.Model{}, nil }
func (c *closing) Render(context.Context, infer.Prompt) (string, error) {
	return "", infer.ErrUnsupported
}
func (c *closing) Embed(context.Context, []string) ([][]float32, error) {
	return nil, infer.ErrUnsupported
}
func (c *closing) Close() error { c.onClose(); return nil }

// killed makes the manifest that of a run which was killed in its first session.
func killed(t *testing.T, path string) {
	t.Helper()
	m, err := readManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	m.Status, m.Samples, m.SamplesHash, m.Files, m.Sessions = StatusStarted, 0, "", nil, m.Sessions[:1]
	m.Sessions[0].Status, m.Sessions[0].Summary = StatusStarted, nil
	d := &Dir{path: path, manifest: m}
	if err := d.writeManifest(); err != nil {
		t.Fatal(err)
	}
}

// A kill at any byte of the last line loses that sample only, and resuming makes
// the run what it would have been.
func TestResumeAfterTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	if _, err := Execute(t.Context(), create(t, path), words(4), Options{Workers: (&echo{}).workers(1)}); err != nil {
		t.Fatal(err)
	}
	whole := content(t, path)
	for _, name := range []string{SamplesFile, PromptsFile} {
		file := filepath.Join(path, name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		start := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
		for cut := start; cut < len(text); cut++ {
			if err := os.WriteFile(file, text[:cut], 0o644); err != nil {
				t.Fatal(err)
			}
			killed(t, path)
			sum, err := Execute(t.Context(), resume(t, path), words(4), Options{Workers: (&echo{}).workers(1)})
			if err != nil {
				t.Fatalf("%s cut at byte %d of the last line: %v", name, cut-start, err)
			}
			if name == SamplesFile && sum.Reused != 7 {
				t.Fatalf("cut at byte %d: %d samples reused, want 7", cut-start, sum.Reused)
			}
			if !same(content(t, path), whole) {
				t.Fatalf("%s cut at byte %d of the last line: the run is not what it was", name, cut-start)
			}
		}
	}
}

// A finished run asks nothing when it is resumed, however often.
func TestResumeIsIdempotent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	if _, err := Execute(t.Context(), create(t, path), words(7), Options{Workers: (&echo{}).workers(2)}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(path, SamplesFile))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		sum, err := Execute(t.Context(), resume(t, path), words(7), Options{Workers: func(context.Context, string) ([]infer.Backend, error) {
			t.Error("a model was opened although nothing is left to do")
			return nil, errors.New("not reached")
		}})
		if err != nil || sum.Reused != 14 || sum.Scored != 14 {
			t.Fatalf("summary %+v, error %v", sum, err)
		}
	}
	after, err := os.ReadFile(filepath.Join(path, SamplesFile))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("resuming changed the samples (%v)", err)
	}
}

type poisoned struct{ item string }

func (p poisoned) Error() string    { return "no sense in the answer to " + p.item }
func (p poisoned) RawReply() string { return "Well, " + p.item + "!" }

// failing says like say, but fails for some items.
func failing(err func(item string) error) func(context.Context, infer.Backend, Unit[int], Lookup) (Sample, error) {
	return func(ctx context.Context, b infer.Backend, u Unit[int], l Lookup) (Sample, error) {
		if e := err(u.Item); e != nil {
			return Sample{}, fmt.Errorf("ask: %w", e)
		}
		return say(ctx, b, u, l)
	}
}

func TestFailureBudget(t *testing.T) {
	bad := func(item string) error {
		if item == "item-002" || item == "item-005" {
			return poisoned{item}
		}
		return nil
	}
	task := words(8)
	task.Steps[0].Do = failing(bad)
	for _, c := range []struct {
		max     int
		stops   bool
		summary Summary
	}{
		{2, false, Summary{Scored: 12, Failed: 2, Skipped: 2}},
		{1, true, Summary{Scored: 4, Failed: 2}},
		{0, true, Summary{Scored: 2, Failed: 1}},
	} {
		path := filepath.Join(t.TempDir(), "run")
		sum, err := Execute(t.Context(), create(t, path), task, Options{Workers: (&echo{}).workers(1), MaxFailures: c.max})
		var fe *FailuresError
		if errors.As(err, &fe) != c.stops {
			t.Fatalf("%d tolerated: error %v", c.max, err)
		}
		if c.stops && (fe.Failed != c.max+1 || fe.Max != c.max || !strings.Contains(fe.Error(), "item-002")) {
			t.Errorf("%d tolerated: %v", c.max, fe)
		}
		sum.Usage, sum.Seconds = infer.Usage{}, 0
		if sum != c.summary {
			t.Errorf("%d tolerated: summary %+v, want %+v", c.max, sum, c.summary)
		}
		for k := range content(t, path) {
			if bad(k.Item) != nil {
				t.Errorf("a failure became a sample: %s", k)
			}
		}
		d, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		fs, err := d.Failures()
		if err != nil || len(fs) != sum.Failed || fs[0].RawReply != "Well, item-002!" || fs[0].Attempt != 1 || fs[0].Step != "say" || fs[0].Time.IsZero() {
			t.Errorf("failures %+v, %v", fs, err)
		}
		// What failed is tried again, and then the run is whole.
		if _, err := Execute(t.Context(), resume(t, path), task, Options{Workers: (&echo{}).workers(1), MaxFailures: c.max}); errors.As(err, &fe) != c.stops {
			t.Errorf("resumed: %v", err)
		}
		if d, err = Open(path); err != nil {
			t.Fatal(err)
		}
		if fs, err = d.Failures(); err != nil || fs[len(fs)-1].Attempt != 2 {
			t.Errorf("the second attempt is %+v, %v", fs, err)
		}
		if _, err := Execute(t.Context(), resume(t, path), words(8), Options{Workers: (&echo{}).workers(1)}); err != nil {
			t.Errorf("mended and resumed: %v", err)
		}
		if n := len(content(t, path)); n != 16 {
			t.Errorf("mended and resumed: %d samples, want 16", n)
		}
	}
}

func TestMissingServiceStopsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	task := words(9)
	task.Steps[0].Do = failing(func(item string) error {
		if item == "item-004" {
			return &infer.MissingError{What: "the server is gone", Fix: "start it"}
		}
		return nil
	})
	_, err := Execute(t.Context(), create(t, path), task, Options{Workers: (&echo{}).workers(1), MaxFailures: 100})
	var missing *infer.MissingError
	if !errors.As(err, &missing) {
		t.Fatalf("error %v", err)
	}
	if n := len(content(t, path)); n != 4 {
		t.Errorf("%d samples, want the 4 before the server went", n)
	}
	if _, err := Execute(t.Context(), resume(t, path), words(9), Options{Workers: (&echo{}).workers(2)}); err != nil {
		t.Fatal(err)
	}
	if n := len(content(t, path)); n != 18 {
		t.Errorf("%d samples after resuming, want 18", n)
	}
}

// An unscored sample is a result: it is counted, passed on and not made again.
func TestUnscoredIsPassedOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	task := words(3)
	task.Steps = []Step[int]{
		{Name: "say", Role: "", Do: func(context.Context, infer.Backend, Unit[int], Lookup) (Sample, error) {
			return Sample{Unscored: "no digit seen"}, nil
		}},
		{Name: "label", Role: "", Do: func(_ context.Context, _ infer.Backend, _ Unit[int], look Lookup) (Sample, error) {
			s, ok := look("say")
			if _, later := look("label"); later || !ok {
				return Sample{}, errors.New("wrong lookup")
			}
			return Sample{Unscored: s.Unscored}, nil
		}},
	}
	sum, err := Execute(t.Context(), create(t, path), task, Options{})
	if err != nil || sum.Unscored != 6 || sum.Scored != 0 || sum.Failed != 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if sum, err = Execute(t.Context(), resume(t, path), task, Options{}); err != nil || sum.Unscored != 6 || sum.Reused != 6 {
		t.Errorf("resumed: %+v, %v", sum, err)
	}
}

// What JSON cannot hold is the step's failure, not the disk's.
func TestDataThatIsNotJSON(t *testing.T) {
	task := words(2)
	task.Steps = []Step[int]{{Name: "say", Role: "", Do: func(_ context.Context, _ infer.Backend, u Unit[int], _ Lookup) (Sample, error) {
		return Sample{Data: json.RawMessage([]string{"NaN", "1"}[u.Value])}, nil
	}}}
	sum, err := Execute(t.Context(), create(t, filepath.Join(t.TempDir(), "run")), task, Options{MaxFailures: 1})
	if err != nil || sum.Failed != 1 || sum.Scored != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// The first interrupt lets the items in hand finish, the second drops them; both
// leave a run that becomes whole.
func TestInterrupt(t *testing.T) {
	for _, hard := range []bool{false, true} {
		t.Run(fmt.Sprintf("hard=%v", hard), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			soft := make(chan struct{})
			task := words(9)
			task.Steps[0].Do = func(ctx context.Context, b infer.Backend, u Unit[int], l Lookup) (Sample, error) {
				if u.Value == 4 {
					if hard {
						cancel()
						<-ctx.Done()
						return Sample{}, ctx.Err()
					}
					close(soft)
					time.Sleep(20 * time.Millisecond) // a request in flight when the stop is asked for
				}
				return say(ctx, b, u, l)
			}
			sum, err := Execute(ctx, create(t, path), task, Options{Workers: (&echo{}).workers(1), Soft: soft})
			var interrupted *InterruptedError
			if !errors.As(err, &interrupted) || interrupted.Path != path {
				t.Fatalf("error %v", err)
			}
			if errors.Is(err, context.Canceled) != hard {
				t.Errorf("error is context.Canceled: %v", !hard)
			}
			want := 5
			if hard {
				want = 4
			}
			if sum.Scored != want || sum.Failed != 0 {
				t.Errorf("summary %+v, want %d scored and no failure", sum, want)
			}
			d, err := Open(path)
			if err != nil || d.Manifest().Status != StatusInterrupted {
				t.Errorf("status %q, %v", d.Manifest().Status, err)
			}
			if _, err := Execute(t.Context(), resume(t, path), words(9), Options{Workers: (&echo{}).workers(2)}); err != nil {
				t.Fatal(err)
			}
			if n := len(content(t, path)); n != 18 {
				t.Errorf("%d samples after resuming, want 18", n)
			}
		})
	}
}

func TestTaskFaults(t *testing.T) {
	twice := words(2)
	twice.Units[1].Item = twice.Units[0].Item
	steps := words(2)
	steps.Steps[1].Name = "say"
	for _, c := range []struct {
		name    string
		task    Task[int]
		options Options
		want    string
	}{
		{"two units with one key", twice, Options{Workers: (&echo{}).workers(1)}, "two units"},
		{"two steps with one name", steps, Options{Workers: (&echo{}).workers(1)}, "two steps"},
		{"no workers", words(2), Options{}, "speaker"},
		{"an empty worker list", words(2), Options{Workers: (&echo{}).workers(0)}, "no workers"},
		{"another shard than the run's", words(2), Options{Workers: (&echo{}).workers(1), Shard: "1/2"}, "shard"},
	} {
		_, err := Execute(t.Context(), create(t, filepath.Join(t.TempDir(), "run")), c.task, c.options)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "run")
	if _, err := Execute(t.Context(), create(t, path), words(4), Options{Workers: (&echo{}).workers(1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := Execute(t.Context(), resume(t, path), words(3), Options{Workers: (&echo{}).workers(1)}); err == nil || !strings.Contains(err.Error(), "item-003") {
		t.Errorf("a sample of another task: error %v", err)
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Execute(t.Context(), d, words(4), Options{}); err == nil {
		t.Error("a run that is open for reading was written to")
	}
}

func TestProgressLines(t *testing.T) {
	var b bytes.Buffer
	task := words(30)
	task.Steps[0].Do = failing(func(item string) error {
		if item == "item-004" {
			return errors.New("refused")
		}
		return nil
	})
	p := Lines(&b)
	p.(*lines).now = func() time.Time { return time.Unix(0, 0) }
	if _, err := Execute(t.Context(), create(t, filepath.Join(t.TempDir(), "run")), task, Options{Workers: (&echo{}).workers(1), MaxFailures: 1, Progress: p}); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(b.String()), "\n")
	for _, want := range []string{"say: 30 to do", "say of item item-004 failed: ask: refused", "say: 6 of 30 (20 %), 1 failed, 0s",
		"say: 30 of 30 (100 %), 1 failed, 0s", "length: 30 of 30 (100 %), 1 skipped, 0s"} {
		if !slices.Contains(got, want) {
			t.Errorf("no line %q in:\n%s", want, b.String())
		}
	}
	if len(got) != 2*(1+10)+1 {
		t.Errorf("%d lines, want a first one and ten a step and one for the failure:\n%s", len(got), b.String())
	}
}

func TestProgressBar(t *testing.T) {
	var b bytes.Buffer
	task := words(6)
	task.Steps[0].Do = failing(func(item string) error {
		if item == "item-004" {
			return errors.New("refused")
		}
		return nil
	})
	if _, err := Execute(t.Context(), create(t, filepath.Join(t.TempDir(), "run")), task, Options{Workers: (&echo{}).workers(1), MaxFailures: 1, Progress: Bar(&b)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"say of item item-004 failed: ask: refused\n", "(6/6", "length"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %q", want, b.String())
		}
	}
}

// A step that asks several roles has a backend of each, all open at once; what they cost
// and were asked is one sample's.
func TestStepOfSeveralRoles(t *testing.T) {
	t.Parallel()
	d, err := Create(filepath.Join(t.TempDir(), "run"), identity(), nil)
	if err != nil {
		t.Fatal(err)
	}
	party, mediator := &echo{}, &echo{}
	task := Task[int]{Name: "talk", Units: []Unit[int]{{Item: "a"}, {Item: "b"}}, Steps: []Step[int]{{Name: "talk", Roles: []string{"party", "mediator"},
		DoAll: func(ctx context.Context, bs map[string]infer.Backend, u Unit[int], _ Lookup) (Sample, error) {
			for _, role := range []string{"party", "mediator"} {
				if party.closed.Load()+mediator.closed.Load() > 0 {
					return Sample{}, errors.New("a model is closed while another one is asked")
				}
				if _, err := bs[role].Chat(ctx, infer.Prompt{Raw: role + u.Item}, infer.Params{}); err != nil {
					return Sample{}, err
				}
			}
			return Sample{Data: json.RawMessage(`"talked"`)}, nil
		}}}}
	var asked []string
	sum, err := Execute(context.Background(), d, task, Options{
		Together: func(_ context.Context, roles []string) ([]map[string]infer.Backend, error) {
			return []map[string]infer.Backend{{roles[0]: party, roles[1]: mediator}}, nil
		},
		Identify: func(_ context.Context, role string) (infer.Model, error) {
			asked = append(asked, role)
			return infer.Model{Digest: "other"}, nil
		}})
	if err != nil || sum.Scored != 2 || sum.Usage.Prompt != 12 || party.calls.Load() != 2 || mediator.calls.Load() != 2 {
		t.Errorf("%+v, %v; %d and %d calls", sum, err, party.calls.Load(), mediator.calls.Load())
	}
	if party.closed.Load() != 1 || mediator.closed.Load() != 1 {
		t.Errorf("closed %d and %d times", party.closed.Load(), mediator.closed.Load())
	}
	if len(asked) != 0 {
		t.Errorf("roles that the identity does not name were identified: %v", asked)
	}
	r, err := Open(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	for s, err := range r.All() {
		if err != nil || len(s.Prompts) != 2 {
			t.Errorf("sample %s has prompts %v, %v", s.Key, s.Prompts, err)
		}
	}
}

func TestRolesNeedWorkers(t *testing.T) {
	t.Parallel()
	d, err := Create(filepath.Join(t.TempDir(), "run"), identity(), nil)
	if err != nil {
		t.Fatal(err)
	}
	task := Task[int]{Name: "talk", Steps: []Step[int]{{Name: "talk", Roles: []string{"party", "mediator"}}}}
	if _, err := Execute(context.Background(), d, task, Options{}); err == nil || !strings.Contains(err.Error(), "needs the role party, mediator and no workers were given") {
		t.Errorf("the error is %v", err)
	}
}

// TestStepsOfSomeUnits: a step takes the units that it is for, later ones do not wait for it,
// and a run that goes on asks for nothing more.
func TestStepsOfSomeUnits(t *testing.T) {
	e := &echo{}
	task := words(6)
	even := func(u Unit[int]) bool { return u.Value%2 == 0 }
	task.Steps = []Step[int]{{Name: "say", Role: "speaker", Do: say, Only: even}, {Name: "length", Do: length, Only: even},
		{Name: "seen", Do: func(_ context.Context, _ infer.Backend, u Unit[int], look Lookup) (Sample, error) {
			_, ok := look("say")
			data, err := json.Marshal(ok == even(u))
			return Sample{Data: data}, err
		}}}
	path := filepath.Join(t.TempDir(), "run")
	for i, want := range []struct{ scored, reused int }{{12, 0}, {12, 12}} {
		d, err := Create(path, Identity{Task: "words"}, nil)
		if i > 0 {
			d, _, err = Resume(path, Identity{Task: "words"}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		sum, err := Execute(t.Context(), d, task, Options{Workers: e.workers(2)})
		if err != nil || sum.Scored != want.scored || sum.Reused != want.reused || sum.Skipped != 0 || e.calls.Load() != 3 {
			t.Errorf("session %d: %+v, %d calls, %v", i+1, sum, e.calls.Load(), err)
		}
	}
	b, err := os.ReadFile(filepath.Join(path, SamplesFile))
	if err != nil || strings.Count(string(b), `"data":true`) != 6 || strings.Contains(string(b), `"data":false`) {
		t.Errorf("%v:\n%s", err, b)
	}
}
