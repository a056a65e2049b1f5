package sft

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// trainer writes a shell script that stands in for Python: what follows is run
// with $out, the run folder, and $resume, the setting of the configuration.
func trainer(t *testing.T, body string) Environment {
	t.Helper()
	t.Setenv("CCMED_CACHE", t.TempDir())
	file := filepath.Join(t.TempDir(), "python")
	script := `#!/bin/sh
config=$3
out=$(dirname "$config")
resume=$(sed -n 's/.*"resume": \([a-z]*\).*/\1/p' "$config")
say() { printf '%s\n' "$1"; }
save() { mkdir -p "$out/checkpoints/step-$1"; say "{\"event\":\"checkpoint\",\"step\":$1,\"path\":\"$out/checkpoints/step-$1\"}"; }
step() { say "{\"event\":\"step\",\"step\":$1,\"loss\":$2,\"lm\":1,\"bce\":0.5,\"lr\":0.001,\"tokens\":100,\"tokens_per_second\":50,\"memory_bytes\":1000$1}"; }
say '{"event":"start","steps":4,"examples":9,"trainable":1000,"device":"cpu","memory_bytes":5}'
` + body
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return Environment{Python: file}
}

func newRun(t *testing.T) *TrainingRun {
	t.Helper()
	c, err := Preset("small")
	if err != nil {
		t.Fatal(err)
	}
	c.Out = t.TempDir()
	run, err := CreateTraining(Manifest{Config: c, Export: &Export{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() })
	return run
}

func supervision(e Environment) Supervision {
	return Supervision{Environment: e, Stall: time.Minute, Grace: time.Minute, Progress: QuietProgress()}
}

const finish = `
step 1 4; step 2 3; step 3 2.5; step 4 2
say '{"event":"eval","step":4,"n":20,"turn_acc":0.75,"lm":1.5,"bce":0.25,"threshold":0.4,"threshold_turn_acc":0.8}'
say '{"event":"heldout","step":4,"n":10,"turn_acc":0.5,"right":["a","b","c","d","e"],"lm":1.6,"bce":0.5,"threshold":0.4,"threshold_turn_acc":0.6}'
mkdir -p "$out/final"; say "{\"event\":\"done\",\"path\":\"$out/final\",\"steps\":4,\"seconds\":1.5}"
`

func TestTrainingToItsEnd(t *testing.T) {
	env := trainer(t, "echo 'a library that talks'; echo warning >&2\n"+finish)
	run := newRun(t)
	var b bytes.Buffer
	s := supervision(env)
	s.Progress = LineProgress(&b)
	r, err := run.Execute(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Validation; r.Steps != 4 || r.Final != filepath.Join(run.Dir(), "final") || v == nil || v.TurnAcc != 0.75 || v.N != 20 || v.Threshold != 0.4 || r.PeakMemory != 10004 {
		t.Errorf("result %+v, validation %+v", r, r.Validation)
	}
	if h := r.HeldOut; h == nil || h.N != 10 || h.TurnAcc != 0.5 || len(h.Right) != 5 || h.ThresholdTurnAcc != 0.6 {
		t.Errorf("held out: %+v", h)
	}
	m, err := ReadTraining(run.Dir())
	if err != nil || m.Status != TrainDone || m.Result.Steps != 4 || m.Sessions[0].Status != TrainDone || m.Sessions[0].Resumed {
		t.Errorf("manifest %+v, %v", m, err)
	}
	want := `step,loss,lm,bce,lr,tokens_per_second,memory_bytes,valid_lm,valid_bce,valid_n,valid_turn_acc
1,4,1,0.5,0.001,50,10001,,,,
2,3,1,0.5,0.001,50,10002,,,,
3,2.5,1,0.5,0.001,50,10003,,,,
4,2,1,0.5,0.001,50,10004,1.5,0.25,20,0.75
`
	if got := read(t, run.Dir(), LossFile); got != want {
		t.Errorf("losses:\n%s", got)
	}
	if log := read(t, run.Dir(), TrainLog); !strings.Contains(log, "a library that talks") || !strings.Contains(log, "warning") {
		t.Errorf("log:\n%s", log)
	}
	for line := range strings.Lines(read(t, run.Dir(), EventsFile)) {
		var e struct{ Time, Event string }
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Time == "" || e.Event == "" {
			t.Errorf("event %q: %v", line, err)
		}
	}
	if out := b.String(); !strings.Contains(out, "4 steps, 9 examples, on cpu") || !strings.Contains(out, "step 4 of 4 (100 %)") || !strings.Contains(out, "TurnAcc 75.0 % of 20") ||
		!strings.Contains(out, "held out at step 4: TurnAcc 50.0 % of 10") {
		t.Errorf("progress:\n%s", out)
	}
}

func TestTrainingFailures(t *testing.T) {
	for name, c := range map[string]struct {
		body, kind string
		step       int
		says       string
	}{
		"its own error": {`step 1 2; say '{"event":"error","kind":"too_long","message":"dialogue 7 has 900 tokens, leave it out."}'; exit 1`, "too_long", 1, "training failed after step 1: dialogue 7 has 900 tokens, leave it out; its log is "},
		"a crash":       {`echo 'Traceback' >&2; echo 'ValueError: bad shape' >&2; exit 1`, kindCrash, 0, "before its first step: the trainer ended with exit status 1: ValueError: bad shape"},
		"a GPU's memory": {`step 2 1; echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB' >&2; exit 1`, kindOOM, 2,
			"--gradient-checkpointing"},
		"the machine's memory":   {`step 1 1; kill -9 $$`, kindKilled, 1, "the system does when memory runs out"},
		"a fault":                {`step 1 1; kill -11 $$`, kindCrash, 1, "segmentation fault"},
		"a full disk":            {`echo 'OSError: [Errno 28] No space left on device' >&2; exit 1`, "disk", 0, "the disk is full"},
		"a loss without a value": {`step 1 NaN; sleep 60`, kindNaN, 0, "lower --lr-adapter"},
		"no event":               {`say '{"event":"step","step":}'; sleep 60`, kindCrash, 0, "is no event"},
		"an end without result":  {`step 1 1`, kindCrash, 1, "ended without a result"},
		"an error after its end": {finish + "echo 'double free' >&2; exit 3", kindCrash, 4, "exit status 3: double free"},
	} {
		t.Run(name, func(t *testing.T) {
			env := trainer(t, c.body+"\n")
			run := newRun(t)
			s := supervision(env)
			s.Grace = 5 * time.Second
			r, err := run.Execute(t.Context(), s)
			var failed *TrainError
			if r != nil || !errors.As(err, &failed) || failed.Kind != c.kind || failed.Step != c.step || !strings.Contains(err.Error(), c.says) ||
				!strings.HasSuffix(err.Error(), filepath.Join(run.Dir(), TrainLog)) {
				t.Errorf("result %v, error %v", r, err)
			}
			m, err := ReadTraining(run.Dir())
			if err != nil || m.Status != TrainFailed || m.Sessions[0].Error == "" || m.Sessions[0].Ended.IsZero() {
				t.Errorf("manifest %+v, %v", m, err)
			}
		})
	}
}

func TestTrainerThatDoesNotStart(t *testing.T) {
	t.Setenv("CCMED_CACHE", t.TempDir())
	_, err := newRun(t).Execute(t.Context(), supervision(Environment{Python: "/nowhere/python"}))
	if err == nil || !strings.Contains(err.Error(), "/nowhere/python") {
		t.Errorf("error %v", err)
	}
}

// closing closes a channel when the file appears, and with it a test's wait.
func closing(t *testing.T, file string) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		for t.Context().Err() == nil {
			if _, err := os.Stat(file); err == nil {
				close(c)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return c
}

// saving is a trainer that saves and ends at SIGINT, as the real one does, until
// it has done all.
const saving = `
trap 'save $n; say "{\"event\":\"interrupted\",\"step\":$n}"; exit 130' INT
n=1; [ "$resume" = true ] && n=3
step $n $n
[ "$resume" = true ] || { touch "$out/ready"; while :; do sleep 0.02; done; }
` + finish

func TestInterruptSavesAndResumes(t *testing.T) {
	env := trainer(t, saving)
	run := newRun(t)
	s := supervision(env)
	s.Soft = closing(t, filepath.Join(run.Dir(), "ready"))
	_, err := run.Execute(t.Context(), s)
	var interrupted *InterruptedError
	if !errors.As(err, &interrupted) || interrupted.Step != 1 || interrupted.Dir != run.Dir() || errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if m, err := ReadTraining(run.Dir()); err != nil || m.Status != TrainInterrupted {
		t.Fatalf("manifest %+v, %v", m, err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := ResumeTraining(run.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Execute(t.Context(), supervision(env)); err != nil {
		t.Fatal(err)
	}
	m := again.Manifest()
	if m.Status != TrainDone || len(m.Sessions) != 2 || !m.Sessions[1].Resumed || m.Sessions[0].Resumed {
		t.Errorf("manifest %+v", m)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ResumeTraining(run.Dir()); err == nil || !strings.Contains(err.Error(), "is done: 4 steps") {
		t.Errorf("a finished run is resumed: %v", err)
	}
}

// alive says whether a process runs; one that ended and is not yet waited for does
// not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(after, "Z")
}

// TestNoProcessIsLeft ends a trainer in every way; one that ignores being asked
// and has a child of its own.
func TestNoProcessIsLeft(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("processes are looked up in /proc, which is not here: ", err)
	}
	deaf := `
trap '' INT TERM
sleep 300 & echo $! > "$out/child"
echo $$ > "$out/pid"
step 1 1; touch "$out/ready"
`
	hang := "while :; do sleep 0.05; done\n"
	for name, c := range map[string]struct {
		body  string
		end   func(*Supervision, string) context.Context
		stops bool
	}{
		"it ends alone": {finish, nil, false},
		"it crashes":    {"exit 1\n", nil, false},
		"it is asked and does not listen": {hang, func(s *Supervision, ready string) context.Context {
			s.Soft, s.Grace = closing(t, ready), 50*time.Millisecond
			return t.Context()
		}, true},
		"it is ended at once": {hang, func(s *Supervision, ready string) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			c := closing(t, ready)
			go func() { <-c; cancel() }()
			return ctx
		}, true},
		"it is silent": {hang, func(s *Supervision, ready string) context.Context {
			s.Stall, s.Grace = 3*time.Second, 50*time.Millisecond // after it has begun, on a busy machine too
			return t.Context()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			env := trainer(t, deaf+c.body)
			run := newRun(t)
			s, ctx := supervision(env), t.Context()
			if c.end != nil {
				ctx = c.end(&s, filepath.Join(run.Dir(), "ready"))
			}
			_, err := run.Execute(ctx, s)
			var interrupted *InterruptedError
			if errors.As(err, &interrupted) != c.stops {
				t.Errorf("error %v", err)
			}
			for _, file := range []string{"pid", "child"} {
				pid, err := strconv.Atoi(strings.TrimSpace(read(t, run.Dir(), file)))
				if err != nil {
					t.Fatal(err)
				}
				for limit := time.Now().Add(20 * time.Second); alive(pid); time.Sleep(5 * time.Millisecond) {
					if time.Now().After(limit) {
						t.Fatalf("the %s process %d is left behind", file, pid)
					}
				}
			}
		})
	}
}

func TestSilenceIsTold(t *testing.T) {
	env := trainer(t, "step 1 1; sleep 60\n")
	run := newRun(t)
	s := supervision(env)
	s.Stall = 300 * time.Millisecond
	_, err := run.Execute(t.Context(), s)
	var failed *TrainError
	if !errors.As(err, &failed) || failed.Kind != kindStalled || !strings.Contains(err.Error(), "said nothing for 300ms") {
		t.Errorf("error %v", err)
	}
}

func TestOneTrainingAtATime(t *testing.T) {
	run := newRun(t)
	if _, err := ResumeTraining(run.Dir()); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a locked run is opened: %v", err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateTraining(Manifest{Config: Config{Out: run.Dir()}}); err == nil || !strings.Contains(err.Error(), "--resume") {
		t.Errorf("a run is begun in another's folder: %v", err)
	}
}

// A process that was killed while it wrote leaves a file of its own in the folder: what
// it began can be begun again.
func TestKilledBeforeItBegan(t *testing.T) {
	dir := t.TempDir()
	left := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		left  string
		place func(string) error
	}{
		{".train.json157835", vacant},
		{".export.json157835", func(dir string) error { return exportPlace(dir, true) }},
		{".card.json157835", func(dir string) error { return packagePlace(dir, true) }},
	} {
		dir = t.TempDir()
		left(c.left)
		if err := c.place(dir); err != nil {
			t.Errorf("%s: %v", c.left, err)
		}
		left(".notes.txt1")
		if err := c.place(dir); err == nil || !strings.Contains(err.Error(), ".notes.txt1") {
			t.Errorf("another's file beside %s: %v", c.left, err)
		}
	}
}

func TestResumeNamesWhatChanged(t *testing.T) {
	run := newRun(t)
	c := run.Manifest().Config
	c.SaveSteps, c.Threads, c.Out = 7, 1, "elsewhere"
	if err := run.Same(c); err != nil {
		t.Errorf("settings that change no weight: %v", err)
	}
	c.Rank, c.Targets = 4, []string{"q_proj"}
	if err := run.Same(c); err == nil || !strings.Contains(err.Error(), `--rank 4, was 8`) || !strings.Contains(err.Error(), `--targets ["q_proj"], was`) || strings.Contains(err.Error(), "save") {
		t.Errorf("error %v", err)
	}
}

// TestCurveCountsTheLastTime reads events of a run that was killed at step 3 and
// went on from step 1.
func TestCurveCountsTheLastTime(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	for _, s := range []struct{ step, loss int }{{1, 9}, {2, 8}, {3, 7}, {2, 5}, {3, 4}, {4, 3}} {
		fmt.Fprintf(&b, `{"event":"step","step":%d,"loss":%d}`+"\n", s.step, s.loss)
		if s.loss == 8 {
			b.WriteString(`{"event":"eval","step":2,"n":3,"turn_acc":1}` + "\n")
		}
	}
	b.WriteString(`{"event":"step","st`)
	if err := os.WriteFile(filepath.Join(dir, EventsFile), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	points, err := ReadCurve(dir)
	if err != nil {
		t.Fatal(err)
	}
	var losses []float64
	for _, p := range points {
		losses = append(losses, p.Train.Loss)
		if p.Valid != nil {
			t.Errorf("step %d keeps the validation of weights that were given up", p.Step)
		}
	}
	if !slices.Equal(losses, []float64{9, 5, 4, 3}) {
		t.Errorf("losses %v", losses)
	}
	if first, last, n := Ends(points); n != 1 || first.Loss != 9 || last.Loss != 3 {
		t.Errorf("ends %v %v over %d", first, last, n)
	}
}

func TestLinesAfterAResume(t *testing.T) {
	var b bytes.Buffer
	clock := time.Unix(0, 0)
	l := &trainLines{w: &b, pace: pace{now: func() time.Time { return clock }}}
	l.Event(Event{Event: "start", Steps: 100, Validation: Validation{Step: 40}})
	for step := 41; step <= 60; step++ {
		clock = clock.Add(3 * time.Second)
		l.Event(Event{Event: "step", Validation: Validation{Step: step}})
	}
	if s := b.String(); strings.Count(s, "\n") != 3 || !strings.Contains(s, "100 steps, 40 of them done before") ||
		!strings.Contains(s, "step 50 of 100 (50 %)") || !strings.Contains(s, " 2m30s left") || !strings.Contains(s, " 2m0s left") {
		t.Errorf("progress:\n%s", s)
	}
}

func TestCommandOfSeveralProcesses(t *testing.T) {
	t.Setenv("CCMED_CACHE", t.TempDir())
	run := newRun(t)
	for n, want := range map[int]string{0: "python PROGRAM --config CONFIG", 2: "python -m torch.distributed.run --standalone --nproc-per-node 2 PROGRAM --config CONFIG"} {
		cmd, err := run.command(Supervision{Environment: Environment{Python: "python"}, Processes: n})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(cmd.Args, " ")
		i := strings.Index(got, cmd.Args[len(cmd.Args)-3])
		got = strings.NewReplacer(cmd.Args[len(cmd.Args)-3], "PROGRAM", filepath.Join(run.Dir(), ConfigFile), "CONFIG").Replace(got)
		if got != want || i < 0 || filepath.Base(cmd.Args[len(cmd.Args)-3]) != "train_dual_head.py" {
			t.Errorf("%d processes: %s", n, got)
		}
	}
}

// TestLossFigure draws more steps than can be told apart.
func TestLossFigure(t *testing.T) {
	var points []Point
	for step := 1; step <= 450; step++ {
		p := Point{Step: step, Train: &Event{Loss: 3, Validation: Validation{LM: float64(step), BCE: 1}}}
		if step == 450 {
			p.Valid = &Event{Validation: Validation{Step: step, LM: 7, BCE: 2}}
		}
		points = append(points, p)
	}
	f := lossFigure(points)
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	lm := f.Lines.Series[0]
	if len(f.Lines.Series) != 4 || len(lm.X) != 150 || lm.X[0] != 3 || lm.Y[0] != 2 || lm.X[149] != 450 || lm.Y[149] != 449 || len(f.Notes) != 1 {
		t.Errorf("figure %+v", f.Lines)
	}
}

func TestBarIsClean(t *testing.T) {
	var b bytes.Buffer
	for _, p := range []TrainProgress{BarProgress(&b), QuietProgress(), LineProgress(io.Discard)} {
		p.End() // nothing began
		p.Event(Event{Event: "start", Steps: 10})
		p.Event(Event{Event: "step", Validation: Validation{Step: 5}})
		p.End()
		p.End()
	}
	if !strings.HasSuffix(b.String(), "\n") {
		t.Errorf("the bar leaves its line open: %q", b.String())
	}
}

// The bar's time left is that of the steps since the resume.
func TestBarAfterAResume(t *testing.T) {
	var b bytes.Buffer
	clock := time.Unix(0, 0)
	p := &trainBar{w: &b, pace: pace{now: func() time.Time { return clock }}}
	p.Event(Event{Event: "start", Steps: 100, Validation: Validation{Step: 90}})
	clock = clock.Add(20 * time.Second)
	time.Sleep(150 * time.Millisecond) // the bar is drawn ten times a second at most
	p.Event(Event{Event: "step", Validation: Validation{Step: 92}})
	p.End()
	if !strings.Contains(b.String(), "1m20s left") {
		t.Errorf("8 steps of 10 seconds are left: %q", b.String())
	}
}
