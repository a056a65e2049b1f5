package dualhead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/published"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/sft"
)

// Scored is what scoring a run of a decision head gives.
type Scored struct {
	timing.Scored
	Thresholds []ThresholdResult `json:"thresholds,omitempty"`
}

// Result is the result of a run of a decision head: that of a timing run, and what the
// tuned model's package says.
type Result struct {
	*timing.Result
	Thresholds []ThresholdResult
	settings   settings
	card       *sft.Card // nil where noCard says why
	noCard     error
}

// Score scores a run, or takes its stored metrics.
func (Bench) Score(ctx context.Context, in task.Input) (task.Result, error) {
	s, err := task.Settings[settings](in.Identity())
	if err != nil {
		return nil, err
	}
	r := &Result{settings: s}
	if r.Result, err = timing.NewResult(ctx, in, s.reword()); err != nil {
		return nil, err
	}
	if r.card, r.noCard = cardOf(in.Identity(), s); r.card != nil {
		r.AlsoNamed = []string{r.card.Base.Name}
	}
	stored, ok, err := task.Decode[Scored](in)
	if err != nil || ok {
		r.Thresholds = stored.Thresholds
		return r, err
	}
	a, err := r.Answers()
	if err != nil {
		return nil, err
	}
	r.Thresholds, err = thresholds(s, a, timing.ScoreOptions{Seed: in.Seed})
	return r, err
}

// cardOf reads the card of the package that a run was made with, which must be of the
// model that predicted.
func cardOf(id run.Identity, s settings) (*sft.Card, error) {
	if s.Package == "" {
		return nil, errors.New("the run names no package")
	}
	card, err := sft.ReadCard(s.Package)
	if err != nil {
		return nil, err
	}
	if id.Models[timing.Role].Digest != card.Digest {
		return nil, fmt.Errorf("%s now holds another model than the one that predicted", s.Package)
	}
	return card, nil
}

// Metrics is the content of metrics.json.
func (r *Result) Metrics() any { return Scored{r.Scored, r.Thresholds} }

// Sections are the tables and figures.
func (r *Result) Sections(ctx context.Context) ([]report.Section, error) {
	sections, err := r.Result.Sections(ctx)
	if err != nil {
		return nil, err
	}
	if r.card != nil {
		if ds, err := r.Input().Dialogues(ctx, r.Input().At); err == nil {
			sections = append(sections, r.heldOut(ds)...)
		}
	}
	return append(sections, thresholdSection(r.Thresholds)), nil
}

// trainedOn is the export that a package's card describes.
func trainedOn(card *sft.Card) (sft.Export, error) {
	var x struct {
		Description sft.Export `json:"description"`
	}
	err := json.Unmarshal(card.Export, &x)
	return x.Description, err
}

// heldOut puts the turn accuracy on held-out dialogues beside the published ones; there
// is none unless all dialogues of the run were held out from training.
func (r *Result) heldOut(ds []dialogue.Dialogue) []report.Section {
	x, err := trainedOn(r.card)
	m := r.Scored.Metrics
	if err != nil || len(ds) == 0 || m.TurnAcc == nil || slices.ContainsFunc(ds, func(d dialogue.Dialogue) bool { return !x.Holdout.Holds(d) }) {
		return nil
	}
	id := map[sft.Holdout]string{sft.HoldoutDimension: published.HoldoutDimension, sft.HoldoutTemplate: published.HoldoutTemplate,
		sft.HoldoutCountry: published.HoldoutCountry}[x.Holdout.Kind]
	t, ok := published.Table(published.FineTuning, map[string]published.Measured{id: m.Measured()}, published.Options{})
	if !ok {
		return nil
	}
	t.Title = ""
	return []report.Section{{Title: "Held out from training", Tables: []report.Table{t},
		Notes: []string{fmt.Sprintf("no training dialogue has the %s of any of these: %s", x.Holdout.Kind, strings.Join(x.Holdout.Keys, "; "))}}}
}

// Cautions are what a reader must know before a number is cited.
func (r *Result) Cautions(ctx context.Context) ([]string, error) {
	out := r.OwnCautions()
	if c := r.settings.caution(); c != "" {
		out = append(out, c)
	}
	return slices.Concat(out, r.Input().LeakCautions(ctx), r.packageCautions()), nil
}

// caution warns of a threshold that may have been chosen to fit.
func (s settings) caution() string {
	if s.ThresholdFrom != "" || s.Threshold == fixedThreshold {
		return ""
	}
	return fmt.Sprintf("the threshold %g was given by hand: if it was chosen on these dialogues, the accuracy flatters", s.Threshold)
}

// packageCautions say what the package tells of the training, and of its proofs.
func (r *Result) packageCautions() []string {
	if r.card == nil {
		return []string{"what the tuned model was trained on is unknown: " + r.noCard.Error()}
	}
	var out []string
	if export, err := trainedOn(r.card); err != nil {
		out = append(out, "what the tuned model was trained on is unknown: its card does not say it")
	} else if e, ok := export.Leaks["evaluation"]; !ok {
		out = append(out, "what the tuned model's training shares with the evaluation records is unknown: there were none when it was exported")
	} else if e.Contexts.Shared > 0 {
		out = append(out, fmt.Sprintf("the tuned model was trained on the scenario context of %s of the evaluation dialogues, says its card", report.Pct(e.Contexts.Shared, e.Contexts.Of)))
	}
	for _, p := range r.card.Proofs {
		switch {
		case p.NotRun != "":
			out = append(out, fmt.Sprintf("the proof %q of the package was not made: %s", p.Name, p.NotRun))
		case !p.OK:
			out = append(out, fmt.Sprintf("the proof %q of the package failed: %s", p.Name, p.Detail))
		}
	}
	return out
}
