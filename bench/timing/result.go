package timing

import (
	"context"
	"fmt"
	"sync"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
)

// Scored is what scoring a timing run gives.
type Scored struct {
	Metrics
	// Baselines stand beside the run's own numbers; there are none where the records of
	// the run cannot be read again.
	Baselines []BaselineResult `json:"baselines"`
}

// Result is a timing run's result.
type Result struct {
	Scored
	// AlsoNamed are other models whose published numbers stand beside the run's.
	AlsoNamed []string
	// Reword is how the model's dialogues differ from the records; nil: they do not.
	Reword func(string) string

	in      task.Input
	answers func() (Answers, error)
}

// NewResult scores a run, or takes its stored metrics. reword changes the records as they
// were changed for the model; nil leaves them.
func NewResult(ctx context.Context, in task.Input, reword func(string) string) (*Result, error) {
	r := &Result{Reword: reword, in: in, answers: sync.OnceValues(func() (Answers, error) { return Read(in.Samples()) })}
	s, ok, err := task.Decode[Scored](in)
	if err != nil || ok {
		r.Scored = s
		return r, err
	}
	read := make(chan struct{})
	go func() { // the records, while the answers are read
		defer close(read)
		_, _ = in.Dialogues(ctx, in.At)
	}()
	a, err := r.answers()
	<-read
	if err != nil {
		return nil, err
	}
	o := ScoreOptions{Seed: in.Seed, Dimensions: map[string]string{}}
	if ds, err := in.Dialogues(ctx, in.At); err == nil {
		for _, d := range ds {
			o.Dimensions[d.Key()] = d.Dimension()
		}
	}
	if r.Scored.Metrics, err = Score(a, o); err != nil {
		return nil, err
	}
	set, err := task.Settings[settings](in.Identity())
	if err != nil {
		return nil, err
	}
	r.Baselines, err = baselines(ctx, in, set, r.Scored.Metrics, reword)
	return r, err
}

// Input is what the result was computed from.
func (r *Result) Input() task.Input { return r.in }

// Answers are the run's answers.
func (r *Result) Answers() (Answers, error) { return r.answers() }

// Metrics is the content of metrics.json.
func (r *Result) Metrics() any { return r.Scored }

// Sections are the tables and figures.
func (r *Result) Sections(context.Context) ([]report.Section, error) {
	return Sections(r.in.Identity().ModelNames(), r.Scored.Metrics, r.Baselines, r.AlsoNamed...), nil
}

// Measures are what the run says of each dialogue.
func (r *Result) Measures(context.Context) ([]stats.Measure, []string, error) {
	a, err := r.answers()
	if err != nil {
		return nil, nil, err
	}
	ms, notes := a.Measures()
	return ms, notes, nil
}

// Cautions are what a reader must know before a number is cited.
func (r *Result) Cautions(ctx context.Context) ([]string, error) {
	return append(r.OwnCautions(), r.in.LeakCautions(ctx)...), nil
}

// OwnCautions are those that the metrics and the baselines give.
func (r *Result) OwnCautions() []string {
	var out []string
	m := r.Scored.Metrics
	if m.DegenerateAnswer != "" {
		out = append(out, Degenerate+" "+m.DegenerateAnswer)
	}
	out = append(out, task.UnscoredCautions(m.Unscored, "dialogues")...)
	reasonings, lines := m.Cut[StepReason], m.Cut[StepUtterance]
	out = append(out, task.CutCaution(task.Cut{What: "reasonings", K: reasonings.K, N: reasonings.N}, task.Cut{What: "lines", K: lines.K, N: lines.N})...)
	best := r.bestBaseline()
	for _, b := range r.Baselines {
		if b.Name == MarkerBaseline && 2*b.Accuracy >= 1 {
			out = append(out, "marker phrases are in the turns: a fixed list of them alone finds the conflict in "+b.Share())
		}
	}
	if m.Scored > 0 && best.Accuracy > 0 && best.Accuracy >= float64(m.Correct)/float64(m.Scored) {
		out = append(out, fmt.Sprintf("a baseline without any language model (%s) does as well or better: %s", best.Name, best.Share()))
	}
	return out
}

// Lacks names the baselines where the records of the run could not be read again.
func (r *Result) Lacks() map[string]string {
	if len(r.Baselines) > 0 {
		return nil
	}
	return map[string]string{"baselines": "the records of this run cannot be read again"}
}
