package sft

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/ccmed/ccmed/bench/visible"
)

// TrainProgress is told how far a training is.
type TrainProgress interface {
	// Event is called for every event, in order.
	Event(Event)
	// End follows the last event, whatever it was.
	End()
}

// QuietProgress returns a TrainProgress that says nothing.
func QuietProgress() TrainProgress { return quiet{} }

type quiet struct{}

func (quiet) Event(Event) {}
func (quiet) End()        {}

// LineProgress returns a TrainProgress for logs: one line at the start, one every
// tenth of the steps and one a validation.
func LineProgress(w io.Writer) TrainProgress { return &trainLines{w: w, pace: pace{now: time.Now}} }

// pace estimates the time left from the steps of this session alone.
type pace struct {
	now   func() time.Time
	steps int
	first int // the step that this session began after
	start time.Time
}

func (p *pace) begin(e Event) { p.steps, p.first, p.start = e.Steps, e.Step, p.now() }

func (p *pace) left(step int) time.Duration {
	if step <= p.first {
		return 0
	}
	return (p.now().Sub(p.start) * time.Duration(p.steps-step) / time.Duration(step-p.first)).Round(time.Second)
}

type trainLines struct {
	w io.Writer
	pace
	tenth int
}

func (l *trainLines) Event(e Event) {
	switch e.Event {
	case "start":
		l.begin(e)
		l.tenth = tenths(e.Step, e.Steps)
		fmt.Fprintln(l.w, startLine(e))
	case "step":
		if t := tenths(e.Step, l.steps); t > l.tenth {
			l.tenth = t
			fmt.Fprintf(l.w, "training: step %d of %d (%d %%), %s, %s left\n", e.Step, l.steps, e.Step*100/max(1, l.steps), stepText(e), l.left(e.Step))
		}
	case "eval", "heldout":
		fmt.Fprintln(l.w, evalLine(e))
	}
}

func (l *trainLines) End() {}

func tenths(step, steps int) int {
	if steps == 0 {
		return 10
	}
	return step * 10 / steps
}

// BarProgress returns a TrainProgress for terminals: one bar, and one line a
// validation.
func BarProgress(w io.Writer) TrainProgress { return &trainBar{w: w, pace: pace{now: time.Now}} }

type trainBar struct {
	w io.Writer
	pace
	b *progressbar.ProgressBar
}

func (p *trainBar) Event(e Event) {
	switch e.Event {
	case "start":
		p.End()
		p.begin(e)
		fmt.Fprintln(visible.Writer(p.w), startLine(e))
		p.b = progressbar.NewOptions(e.Steps,
			progressbar.OptionSetWriter(p.w),
			progressbar.OptionSetDescription("training"),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false), // it would count the steps before a resume
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetWidth(24),
			progressbar.OptionOnCompletion(func() { fmt.Fprintln(p.w) }))
		_ = p.b.Set(e.Step) // an error of the bar is one of writing to the terminal
	case "step":
		if p.b != nil {
			p.b.Describe(fmt.Sprintf("%s, %s left", stepText(e), p.left(e.Step)))
			_ = p.b.Set(e.Step)
		}
	case "eval", "heldout":
		if p.b != nil && !p.b.IsFinished() {
			_ = p.b.Clear()
		}
		fmt.Fprintln(visible.Writer(p.w), evalLine(e))
	}
}

func (p *trainBar) End() {
	if p.b != nil && !p.b.IsFinished() {
		_ = p.b.Exit()
		fmt.Fprintln(p.w)
	}
	p.b = nil
}

func startLine(e Event) string {
	done := ""
	if e.Step > 0 {
		done = fmt.Sprintf(", %d of them done before", e.Step)
	}
	return fmt.Sprintf("training: %d steps%s, %d examples, on %s, %.3g million trainable values", e.Steps, done, e.Examples, e.Device, float64(e.Trainable)/1e6)
}

func stepText(e Event) string {
	return fmt.Sprintf("loss %.4g (LM %.4g, BCE %.4g), %.0f tokens/s, %.1f GB", e.Loss, e.LM, e.BCE, e.TokensPerSecond, float64(e.MemoryBytes)/1e9)
}

func evalLine(e Event) string {
	what := "validation"
	if e.Event == "heldout" {
		what = "held out"
	}
	return fmt.Sprintf("%s at step %d: TurnAcc %.1f %% of %d, LM %.4g, BCE %.4g", what, e.Step, 100*e.TurnAcc, e.N, e.LM, e.BCE)
}
