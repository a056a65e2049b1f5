package mediation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ccmed/ccmed/bench/published"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Result is a mediation run's result.
type Result struct {
	Scored   Metrics
	in       task.Input
	settings settings
	samples  func() ([]run.Sample, error)
}

// RuleReference is the public code's rule by which raw answers become labels.
const RuleReference = "reference"

// Score scores a run, or takes its stored metrics.
func (Bench) Score(_ context.Context, in task.Input) (task.Result, error) {
	set, err := task.Settings[settings](in.Identity())
	if err != nil {
		return nil, err
	}
	r := &Result{in: in, settings: set}
	r.samples = sync.OnceValues(r.readSamples)
	m, ok, err := task.Decode[Metrics](in)
	if err != nil || ok {
		r.Scored = m
		return r, err
	}
	samples, err := r.samples()
	if err != nil {
		return nil, err
	}
	if r.Scored, err = Score(samples, ScoreOptions{Seed: in.Seed, ReferenceRule: in.Rule == RuleReference, Recorded: set.LabelReliability}); err != nil {
		return nil, err
	}
	med, lab := in.Identity().Models[RoleMediator], in.Identity().Models[RoleLabeller]
	r.Scored.Notes = append(r.Scored.Notes, fmt.Sprintf("labelled by %s; levels are not comparable with published ones", lab.Name))
	if med.Digest != "" && med.Digest == lab.Digest {
		r.Scored.Notes = append(r.Scored.Notes, "mediator and labeller are the same model; its labels may be biased")
	}
	return r, nil
}

// readSamples reads the run's samples, with the baselines and the card of the run that it
// borrows them from.
func (r *Result) readSamples() ([]run.Sample, error) {
	samples, err := task.Collect(r.in.Samples())
	if err != nil || r.settings.Baselines == "" {
		return samples, err
	}
	base, err := openBaselines(r.in.Run, r.settings)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, k := range r.in.Identity().Items {
		wanted[k] = true
	}
	for x, err := range base.Samples() {
		if err != nil {
			return nil, err
		}
		if x.Condition == Card || wanted[x.Item] && slices.Contains(Baselines, x.Condition) {
			samples = append(samples, x)
		}
	}
	return samples, nil
}

// openBaselines opens the run whose baselines a run uses.
func openBaselines(r *task.Run, s settings) (*task.Run, error) {
	base, err := r.Archive.Open(s.Baselines)
	if err != nil {
		return nil, fmt.Errorf("open the run with the baselines: %w", err)
	}
	return base, sameBaselines(base.Manifest(), r.Identity())
}

// Inputs are the samples of the run whose baselines are used.
func (Bench) Inputs(r *task.Run) (map[string]string, error) {
	s, err := task.Settings[settings](r.Identity())
	if err != nil || s.Baselines == "" {
		return nil, err
	}
	base, err := openBaselines(r, s)
	if err != nil {
		return nil, err
	}
	return map[string]string{"baselines": base.Manifest().SamplesHash}, nil
}

// Metrics is the content of metrics.json.
func (r *Result) Metrics() any { return r.Scored }

// Sections are the tables and figures.
func (r *Result) Sections(context.Context) ([]report.Section, error) {
	sections := Sections(r.Scored)
	m := r.in.Identity().Models
	o := published.Options{Models: []string{m[RoleMediator].Name}, Labeller: m[RoleLabeller].Name, Judge: m[RoleJudge].Name}
	if beside, ok := PublishedSection(r.Scored, o); ok {
		sections = append(sections, beside)
	}
	return sections, nil
}

// Measures are the headline metrics of each dialogue and condition.
func (r *Result) Measures(context.Context) ([]stats.Measure, []string, error) {
	samples, err := r.samples()
	if err != nil {
		return nil, nil, err
	}
	return Measures(samples, r.settings.LabelReliability)
}

// Cautions are what a reader must know before a number is cited.
func (r *Result) Cautions(ctx context.Context) ([]string, error) {
	return slices.Concat(r.Scored.cautions(), roleCautions(r.in.Identity().Models), r.in.LeakCautions(ctx)), nil
}

func (m Metrics) cautions() []string {
	var out []string
	if m.PipelineCheck {
		out = append(out, PipelineCheck)
	}
	switch m.Grade {
	case NoCard:
		out = append(out, "there is no labeller card: nobody knows what the stage labels are worth")
	case DegenerateLabels:
		out = append(out, strings.Join(append([]string{"nothing rests on the labels"}, m.Labeller.Why...), "; "))
	case Weak:
		out = append(out, fmt.Sprintf("the labels are weak (kappa %.2f on %d recorded labels), and no number on them is a finding: %s", m.Labeller.Kappa, m.Labeller.N, strings.Join(m.Labeller.Why, "; ")))
	default:
		out = append(out, fmt.Sprintf("the labels are as reliable as the recorded ones (kappa %.2f on %d recorded labels), which is not agreement with people", m.Labeller.Kappa, m.Labeller.N))
	}
	out = append(out, m.Degenerate...)
	var cuts []task.Cut
	for _, c := range m.Conditions {
		if c.Condition == D {
			out = append(out, "under D the prompt names the conflict's stage")
		}
		out = append(out, task.UnscoredCautions(c.Unscored[AUC], c.Condition+" dialogues")...)
		lines, turns := c.Cut[StepUtterance], c.Cut[StepSimulate]
		cuts = append(cuts, task.Cut{What: c.Condition + " lines", K: lines.K, N: lines.N}, task.Cut{What: "simulated turns after " + c.Condition, K: turns.K, N: turns.N})
	}
	out = append(out, task.CutCaution(cuts...)...)
	for _, d := range m.Differences {
		if d.B == Generic && d.Metric == AUC && d.A != GroundTruth && (d.PHolm >= stats.Alpha || d.Value.Value <= 0) {
			out = append(out, fmt.Sprintf("a fixed line that fits any conflict does as well as %s: AUC difference %s, n=%d", d.A, report.Estimate(d.Value, 2), d.Value.N))
		}
	}
	return out
}

// roleCautions say which roles are played by one model or by one family.
func roleCautions(models map[string]infer.Model) []string {
	mediator, ok := models[RoleMediator]
	if !ok {
		return nil
	}
	var out []string
	for _, x := range []struct{ role, same, family string }{
		{RoleLabeller, "mediator and labeller are the same model; its labels may be biased", "mediator and labeller are of the same family (%s)"},
		{RoleJudge, "mediator and judge are the same model; its scores may be biased", "mediator and judge are of the same family (%s)"},
		{RoleSimulator, "mediator and simulator are the same model", ""},
	} {
		other, ok := models[x.role]
		switch {
		case !ok:
		case mediator.Digest != "" && mediator.Digest == other.Digest, mediator.Digest == "" && mediator.Name == other.Name:
			out = append(out, x.same)
		case x.family != "" && mediator.Family != "" && mediator.Family == other.Family:
			out = append(out, fmt.Sprintf(x.family, mediator.Family))
		}
	}
	return out
}

// Beside warns where the continuations of a run were drawn once: with runs of the same
// models, conditions and dialogues under another seed there is no caution.
func (r *Result) Beside(self task.Neighbour, all []task.Neighbour, _ int64) ([]report.Section, []string, error) {
	if r.settings.SimTemp <= 0 {
		return nil, nil, nil
	}
	seed := r.in.Identity().Seed
	for _, x := range all {
		if other, ok := x.Result.(*Result); ok && x.Run != self.Run && other.in.Identity().Seed != seed && other.drawnLike(r) {
			return nil, nil, nil
		}
	}
	return nil, []string{fmt.Sprintf("one seed (%d) only: the intervals hold what differs between dialogues, not between draws of their continuations", seed)}, nil
}

// drawnLike says whether two runs differ at most in their seed, and in what does not
// change how continuations are drawn.
func (r *Result) drawnLike(o *Result) bool {
	a, b := r.in.Identity(), o.in.Identity()
	return r.settings.SimTemp > 0 && a.ItemsHash == b.ItemsHash && slices.Equal(r.settings.Rubric, o.settings.Rubric) && r.settings.Turn == o.settings.Turn &&
		a.Models[RoleMediator].Digest == b.Models[RoleMediator].Digest && a.Models[RoleSimulator].Digest == b.Models[RoleSimulator].Digest
}
