package sft

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
)

// Event is one line that the trainer tells. Which fields it has depends on Event:
// "start", "step", "eval", "checkpoint", "interrupted", "done" or "error".
type Event struct {
	Event string `json:"event"`
	Validation
	Steps       int    `json:"steps"`
	Examples    int    `json:"examples"`
	Trainable   int64  `json:"trainable"` // values
	Device      string `json:"device"`
	MemoryBytes int64  `json:"memory_bytes"`

	Loss            float64 `json:"loss"`
	LR              float64 `json:"lr"`
	Tokens          int64   `json:"tokens"`
	TokensPerSecond float64 `json:"tokens_per_second"`

	Path    string  `json:"path"`
	Seconds float64 `json:"seconds"`
	Kind    string  `json:"kind"` // of an error: oom, nan, too_long, disk, data, other
	Message string  `json:"message"`
}

// Supervision says how the trainer is run and watched.
type Supervision struct {
	Environment Environment
	// Processes train together, one a GPU, through torchrun; up to 1 means one
	// without it.
	Processes int
	// Stall is how long the trainer may say nothing before it is stopped.
	Stall time.Duration
	// Grace is how long it may take to save a checkpoint after an interrupt.
	Grace time.Duration
	// Soft asks for a checkpoint and an end; the context ends the trainer at once.
	Soft     <-chan struct{}
	Progress TrainProgress
	// Note is told what the user should know that is no progress; may be nil.
	Note func(string)
	Now  func() time.Time // nil is time.Now
}

// TrainError reports a training that did not end well.
type TrainError struct {
	// Kind is that of the trainer's own error event, or stalled, crash or killed.
	Kind    string
	Message string // a sentence
	Step    int    // the last one told
	Log     string // where the trainer's own words are
}

// Error says what happened, where and where to read on.
func (e *TrainError) Error() string {
	at := "before its first step"
	if e.Step > 0 {
		at = fmt.Sprintf("after step %d", e.Step)
	}
	return fmt.Sprintf("training failed %s: %s; its log is %s", at, strings.TrimRight(e.Message, ". "), e.Log)
}

// InterruptedError reports a training that was asked to stop. It can be resumed.
type InterruptedError struct {
	Dir  string
	Step int // of the newest checkpoint of this session; 0 where none was saved
	Err  error
}

func (e *InterruptedError) Error() string {
	return "interrupted; the training in " + e.Dir + " can be resumed"
}

func (e *InterruptedError) Unwrap() error { return e.Err }

// What a supervisor adds to the kinds of the trainer's errors.
const (
	kindStalled = "stalled"
	kindCrash   = "crash"
	kindKilled  = "killed"
	kindOOM     = "oom"
	kindNaN     = "nan"
)

// lessMemory says which flags lower the memory that training takes.
const lessMemory = "lower it with --batch 1, --max-length, --gradient-checkpointing, --rank or --load-in-4bit"

// Execute runs the trainer to its end and keeps the run's files. A training that
// fails is a *TrainError, one that is stopped an *InterruptedError; both can be
// resumed from the newest checkpoint. No process outlives the call.
func (t *TrainingRun) Execute(ctx context.Context, s Supervision) (*TrainResult, error) {
	if s.Now == nil {
		s.Now = time.Now
	}
	resume, err := t.resumable()
	if err != nil {
		return nil, err
	}
	m := &t.manifest
	m.Config.Resume = resume
	m.Status, m.Result = TrainStarted, nil
	m.Sessions = append(m.Sessions, TrainSession{Started: s.Now().UTC(), Status: TrainStarted, Resumed: resume, Processes: max(1, s.Processes), Environment: s.Environment})
	if err := errors.Join(writeJSON(filepath.Join(t.dir, ConfigFile), m.Config), t.save()); err != nil {
		return nil, err
	}
	result, err := t.supervise(ctx, s)
	session := &m.Sessions[len(m.Sessions)-1]
	session.Ended = s.Now().UTC()
	var interrupted *InterruptedError
	switch {
	case err == nil:
		m.Status, m.Result = TrainDone, result
	case errors.As(err, &interrupted):
		m.Status = TrainInterrupted
	default:
		m.Status, session.Error = TrainFailed, err.Error()
	}
	session.Status = m.Status
	if keep := errors.Join(t.writeCurve(), t.save()); keep != nil {
		return nil, errors.Join(err, keep)
	}
	return result, err
}

// command is the trainer's command line.
func (t *TrainingRun) command(s Supervision) (*exec.Cmd, error) {
	scripts, err := UnpackScripts()
	if err != nil {
		return nil, err
	}
	var args []string
	if s.Processes > 1 {
		args = []string{"-m", "torch.distributed.run", "--standalone", "--nproc-per-node", fmt.Sprint(s.Processes)}
	}
	args = append(args, filepath.Join(scripts, "train_dual_head.py"), "--config", filepath.Join(t.dir, ConfigFile))
	cmd := exec.Command(s.Environment.Python, args...)
	// Nothing is fetched: the base is a folder.
	cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1", "TOKENIZERS_PARALLELISM=false", "HF_HUB_OFFLINE=1")
	ownGroup(cmd)
	return cmd, nil
}

// watch is a trainer that runs.
type watch struct {
	*TrainingRun
	s      Supervision
	cmd    *exec.Cmd
	events *os.File
	lines  <-chan []byte // of its standard output; closed at its end
	exited <-chan error
	kill   <-chan time.Time // when it must have ended

	step       int // the last one told
	checkpoint int // the last one saved
	peak       int64
	valid      *Validation
	heldOut    *Validation
	done       *Event
	failed     *TrainError
	stopped    bool // was asked to, or said so
	hard       error
	broken     error // our own files
}

func (t *TrainingRun) supervise(ctx context.Context, s Supervision) (*TrainResult, error) {
	cmd, err := t.command(s)
	if err != nil {
		return nil, err
	}
	log, err := disk.Append(filepath.Join(t.dir, TrainLog), 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the trainer's log: %w", err)
	}
	defer log.Close()
	fmt.Fprintf(log, "--- %s %s\n", s.Now().UTC().Format(time.RFC3339), strings.Join(cmd.Args, " "))
	events, err := disk.Append(filepath.Join(t.dir, EventsFile), 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the events: %w", err)
	}
	defer events.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the trainer: %w", err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = in, log
	exited, err := start(cmd)
	_ = in.Close() // the trainer has its own
	if err != nil {
		return nil, fmt.Errorf("start the trainer %s: %w", cmd.Path, err)
	}
	over := make(chan struct{})
	defer close(over)
	w := &watch{TrainingRun: t, s: s, cmd: cmd, events: events, lines: readLines(out, log, over), exited: exited}
	err = w.follow(ctx)
	s.Progress.End()
	return w.verdict(err)
}

// start runs a command on a thread of its own, to which the system ties the signal
// for a parent's death, and returns where its end is told.
func start(cmd *exec.Cmd) (<-chan error, error) {
	started, exited := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			exited <- cmd.Wait()
		}
	}()
	return exited, <-started
}

// maxLine caps a line of the trainer's output that is kept.
const maxLine = 1 << 20

// readLines sends the lines that look like events, until over is closed, and writes all
// others into the log.
func readLines(out io.Reader, log io.Writer, over <-chan struct{}) <-chan []byte {
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(out)
		s.Buffer(nil, maxLine)
		for s.Scan() {
			if b := bytes.TrimSpace(s.Bytes()); bytes.HasPrefix(b, []byte(`{"event"`)) {
				select {
				case lines <- bytes.Clone(b):
				case <-over:
					return
				}
			} else {
				fmt.Fprintf(log, "%s\n", s.Bytes())
			}
		}
		_, _ = io.Copy(io.Discard, out) // a line too long must not stop the trainer
	}()
	return lines
}

// drain is how long output may come after the trainer's end, from what it started.
const drain = 5 * time.Second

// follow takes events until the trainer has ended, and stops it where it must.
func (w *watch) follow(ctx context.Context) error {
	stall := time.NewTimer(w.s.Stall)
	defer stall.Stop()
	soft, hard := w.s.Soft, ctx.Done()
	for {
		select {
		case line, ok := <-w.lines:
			if !ok {
				w.lines = nil // closed its output; it may still be ending
				continue
			}
			if w.kill == nil {
				stall.Reset(w.s.Stall)
			}
			w.take(line)
		case <-soft:
			soft, w.stopped = nil, true
			w.note(fmt.Sprintf("saving a checkpoint, for which the trainer has %s; interrupt again to end at once", w.s.Grace))
			w.stop(syscall.SIGINT)
		case <-hard:
			hard, w.stopped, w.hard = nil, true, context.Cause(ctx)
			signalGroup(w.cmd, syscall.SIGKILL)
		case <-stall.C:
			w.fail(kindStalled, fmt.Sprintf("the trainer said nothing for %s and was stopped; allow more with --stall-timeout, or go on with --resume", w.s.Stall))
			w.stop(syscall.SIGTERM)
		case <-w.kill:
			if w.failed == nil {
				w.note(fmt.Sprintf("the trainer did not end within %s and was killed; what it saved before is kept", w.s.Grace))
			}
			signalGroup(w.cmd, syscall.SIGKILL)
		case err := <-w.exited:
			signalGroup(w.cmd, syscall.SIGKILL) // what it has left behind
			return errors.Join(err, w.rest())
		}
	}
}

// stop asks the trainer to end, and has it killed where it does not.
func (w *watch) stop(sig syscall.Signal) {
	signalGroup(w.cmd, sig)
	if w.kill == nil {
		w.kill = time.After(w.s.Grace)
	}
}

// rest takes the events that came before the trainer's end.
func (w *watch) rest() error {
	late := time.After(drain)
	for w.lines != nil {
		select {
		case line, ok := <-w.lines:
			if !ok {
				return nil
			}
			w.take(line)
		case <-late:
			return errors.New("a process that the trainer started holds its output open")
		}
	}
	return nil
}

// take keeps one event and tells it on.
func (w *watch) take(line []byte) {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		if bytes.Contains(line, []byte("NaN")) || bytes.Contains(line, []byte("Infinity")) {
			w.fail(kindNaN, "the loss is not a number; lower --lr-adapter and --lr-head, or use --dtype f32")
		} else {
			w.fail(kindCrash, fmt.Sprintf("the trainer told something that is no event: %s", report.Shorten(string(line), 120)))
		}
		w.stop(syscall.SIGTERM)
		return
	}
	if _, err := fmt.Fprintf(w.events, `{"time":%q,%s`+"\n", w.s.Now().UTC().Format(time.RFC3339), line[1:]); err != nil {
		if w.broken == nil {
			w.broken = fmt.Errorf("keep the trainer's events: %w", err)
		}
		w.stop(syscall.SIGTERM)
		return
	}
	w.step, w.peak = max(w.step, e.Step), max(w.peak, e.MemoryBytes)
	switch e.Event {
	case "eval":
		w.valid = &e.Validation
	case "heldout":
		w.heldOut = &e.Validation
	case "checkpoint":
		w.checkpoint = e.Step
	case "interrupted":
		w.stopped = true
	case "done":
		w.done = &e
	case "error":
		w.fail(e.Kind, e.Message)
	}
	w.s.Progress.Event(e)
}

// fail keeps the first thing that went wrong. What goes wrong while the trainer is
// being stopped is told, and no failure.
func (w *watch) fail(kind, message string) {
	switch {
	case w.stopped:
		w.note(message)
	case w.failed == nil:
		w.failed = &TrainError{Kind: kind, Message: message}
	}
}

func (w *watch) note(s string) {
	if w.s.Note != nil {
		w.s.Note(s)
	}
}

// verdict says what the trainer's end means.
func (w *watch) verdict(err error) (*TrainResult, error) {
	log := filepath.Join(w.dir, TrainLog)
	switch {
	case w.broken != nil:
		return nil, w.broken
	case w.failed != nil:
	case w.stopped && (w.done == nil || err != nil):
		return nil, &InterruptedError{Dir: w.dir, Step: w.checkpoint, Err: w.hard}
	case err != nil:
		w.failed = ended(err, log)
	case w.done == nil:
		w.failed = &TrainError{Kind: kindCrash, Message: "the trainer ended without a result"}
	default:
		return &TrainResult{Final: w.done.Path, Steps: w.done.Steps, Seconds: w.done.Seconds, Validation: w.valid, HeldOut: w.heldOut, PeakMemory: w.peak}, nil
	}
	w.failed.Step, w.failed.Log = w.step, log
	return nil, w.failed
}

// ended explains a trainer that ended with an error and did not say which.
func ended(err error, log string) *TrainError {
	last := lastLine(log)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			if status.Signal() == syscall.SIGKILL {
				return &TrainError{Kind: kindKilled, Message: "the trainer was killed, which the system does when memory runs out; " + lessMemory}
			}
			return &TrainError{Kind: kindCrash, Message: fmt.Sprintf("the trainer crashed (%s)", status.Signal())}
		}
	}
	low := strings.ToLower(last)
	switch {
	case strings.Contains(low, "out of memory") || strings.Contains(low, "outofmemory") || strings.HasPrefix(low, "memoryerror"):
		return &TrainError{Kind: kindOOM, Message: "memory ran out; " + lessMemory}
	case strings.Contains(low, "no space left"):
		return &TrainError{Kind: "disk", Message: "the disk is full; free some space, or choose another --out, and go on with --resume"}
	case last != "":
		return &TrainError{Kind: kindCrash, Message: fmt.Sprintf("the trainer ended with %v: %s", err, report.Shorten(last, 200))}
	}
	return &TrainError{Kind: kindCrash, Message: fmt.Sprintf("the trainer ended with %v", err)}
}

// lastLine returns the last line of a log that says something.
func lastLine(path string) string {
	f, err := disk.OpenEntry(path)
	if err != nil {
		return "" // the log is for explaining only
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > tailBytes {
		_, _ = f.Seek(-tailBytes, io.SeekEnd)
	}
	var t tail
	_, _ = io.Copy(&t, f)
	if s := t.last(); !strings.HasPrefix(s, "--- ") {
		return s
	}
	return ""
}
