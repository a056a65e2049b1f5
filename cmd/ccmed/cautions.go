package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/published"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/sft"
)

// smallSample is the number of items below which a report warns.
const smallSample = 100

// caution is what a reader must know of a run.
type caution struct{ run, text string }

// told lists cautions as sentences. One that several runs have is told once, with the
// names of all of them, where the first of them has it.
func told(cs []caution) []string {
	runs := map[string][]string{}
	var order []string
	for _, c := range cs {
		if runs[c.text] == nil {
			order = append(order, c.text)
		}
		runs[c.text] = append(runs[c.text], c.run)
	}
	for i, text := range order {
		order[i] = strings.Join(runs[text], ", ") + ": " + text
	}
	return order
}

// scoredRun is a run with what scoring it gave: timingFound, mediation.Metrics or
// *probe.Findings.
type scoredRun struct {
	name     string
	manifest run.Manifest
	samples  []run.Sample // of a timing run
	found    any
	leak     leak
}

// leak is what the evaluated dialogues share with training data. A nil count with a
// reason is not known; without one there is nothing to know.
type leak struct {
	contexts *sft.Overlap // dialogues whose scenario context the training records hold
	unknown  string
	// card is the package of a tuned model, which says what it was trained on.
	card   *sft.Card
	noCard string
}

// leakOf finds out what a run's dialogues share with training data, from the records
// and from the package of a tuned model, as far as both can still be read.
func (a *app) leakOf(ctx context.Context, dir *run.Dir) leak {
	var l leak
	m := dir.Manifest()
	if m.Identity.Task == "extract" {
		return l // probes learn on folds of the run's own dialogues
	}
	quiet := *a
	quiet.quiet = true
	eval, training, err := quiet.baselineData(ctx, dir, scoreFlags{})
	switch {
	case err != nil:
		l.unknown = err.Error()
	case len(eval) == 0:
		l.unknown = "the records cannot be read again"
	case len(training) > 0:
		l.contexts = &sft.Overlap{}
		l.contexts.Shared, l.contexts.Of = dialogue.SharedContexts(eval, training)
	}
	if m.Identity.Options["mode"] == string(timing.DualHead) {
		if l.card, err = cardOf(m); err != nil {
			l.noCard = err.Error()
		}
	}
	return l
}

// cardOf reads the card of the package that a prediction was made with. The place
// comes from the run's command, and the card must be of the model that predicted.
func cardOf(m run.Manifest) (*sft.Card, error) {
	if len(m.Sessions) == 0 {
		return nil, fmt.Errorf("the run names no command")
	}
	s := m.Sessions[0]
	model, head := flagValue(s.Command, "model"), flagValue(s.Command, "head")
	dir := model
	if head != "" {
		dir = filepath.Dir(head)
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(s.Dir, dir)
	}
	card, err := sft.ReadCard(dir)
	if err != nil {
		return nil, err
	}
	if used := m.Identity.Models[timing.Role].Digest; used != card.Digest {
		return nil, fmt.Errorf("%s now holds another model than the one that predicted", dir)
	}
	return card, nil
}

// trainedOn is the export that a package's card describes.
func trainedOn(card *sft.Card) (sft.Export, error) {
	var x struct {
		Description sft.Export `json:"description"`
	}
	err := json.Unmarshal(card.Export, &x)
	return x.Description, err
}

// heldOutSections put the turn accuracy on held-out dialogues beside the published
// ones; there is none unless all dialogues of the run were held out from training.
func heldOutSections(card *sft.Card, ds []dialogue.Dialogue, m timing.Metrics) []report.Section {
	x, err := trainedOn(card)
	if err != nil || len(ds) == 0 || m.TurnAcc == nil || slices.ContainsFunc(ds, func(d dialogue.Dialogue) bool { return !x.Holdout.Holds(d) }) {
		return nil
	}
	id := map[sft.Holdout]string{sft.HoldoutDimension: published.HoldoutDimension, sft.HoldoutTemplate: published.HoldoutTemplate, sft.HoldoutCountry: published.HoldoutCountry}[x.Holdout.Kind]
	t, ok := published.Table(published.FineTuning, map[string]published.Measured{id: m.Measured()}, published.Options{})
	if !ok {
		return nil
	}
	t.Title = ""
	return []report.Section{{Title: "Held out from training", Tables: []report.Table{t},
		Notes: []string{fmt.Sprintf("no training dialogue has the %s of any of these: %s", x.Holdout.Kind, strings.Join(x.Holdout.Keys, "; "))}}}
}

// flagValue finds a flag in a command line, in both of its spellings.
func flagValue(args []string, name string) string {
	for i, x := range args {
		if v, ok := strings.CutPrefix(x, "--"+name+"="); ok {
			return v
		}
		if x == "--"+name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// cautions are what a reader must know of a run, from its data.
func (r scoredRun) cautions() []string {
	var out []string
	id := r.manifest.Identity
	if r.manifest.Status != run.StatusDone {
		out = append(out, "the run is not finished ("+r.manifest.Status+")")
	}
	for _, c := range r.manifest.ModelChanges() {
		out = append(out, c.String()+": the samples may be of two models")
	}
	if n := len(id.Items); n < smallSample {
		few := fmt.Sprintf("%d dialogues", n)
		if n == 1 {
			few = "1 dialogue"
		}
		out = append(out, few+": intervals are wide, and an interval of a group even more so")
	}
	switch f := r.found.(type) {
	case timingFound:
		out = append(out, timingCautions(id, f)...)
	case mediation.Metrics:
		out = append(out, mediationCautions(f)...)
	case *probe.Findings:
		out = append(out, probeCautions(f)...)
	}
	out = append(out, roleCautions(id.Models)...)
	return append(out, r.leak.cautions()...)
}

func unscoredCautions(reasons map[string]int, what string) []string {
	var out []string
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		out = append(out, fmt.Sprintf("unscored %s: %d (%s)", what, reasons[why], why))
	}
	return out
}

// cutCaution warns of texts that end at their cap of tokens: what is made of them, or
// follows them, is about half sentences.
func cutCaution(what string, k, n int) []string {
	if n == 0 || float64(k) <= mediation.MostCut*float64(n) {
		return nil
	}
	return []string{fmt.Sprintf("%s of %s end at their cap of tokens, not where the model ended them", report.Pct(k, n), what)}
}

func timingCautions(id run.Identity, f timingFound) []string {
	var out []string
	if f.DegenerateAnswer != "" {
		out = append(out, timing.Degenerate+" ("+f.DegenerateAnswer+")")
	}
	out = append(out, unscoredCautions(f.Unscored, "dialogues")...)
	out = append(out, cutCaution("reasonings", f.Cut[timing.StepReason].K, f.Cut[timing.StepReason].N)...)
	out = append(out, cutCaution("lines", f.Cut[sft.StepUtterance].K, f.Cut[sft.StepUtterance].N)...)
	var best timing.BaselineResult
	for _, b := range f.Baselines {
		if b.Accuracy > best.Accuracy {
			best = b
		}
		if b.Name == timing.MarkerBaseline && 2*b.Accuracy >= 1 {
			out = append(out, "marker phrases are in the turns: a fixed list of them alone finds the conflict in "+b.Share())
		}
	}
	if f.Scored > 0 && best.Accuracy > 0 && best.Accuracy >= float64(f.Correct)/float64(f.Scored) {
		out = append(out, fmt.Sprintf("a baseline without any language model (%s) does as well or better: %s", best.Name, best.Share()))
	}
	t, _ := id.Options["threshold"].(float64)
	if from, _ := id.Options["threshold_from"].(string); f.Mode == timing.DualHead && from == "" && t != fixedThreshold {
		out = append(out, fmt.Sprintf("the threshold %g was given by hand: if it was chosen on these dialogues, the accuracy flatters", t))
	}
	return out
}

func mediationCautions(f mediation.Metrics) []string {
	var out []string
	if f.PipelineCheck {
		out = append(out, mediation.PipelineCheck)
	}
	switch {
	case f.Labeller == nil:
		out = append(out, "there is no labeller card: nobody knows what the stage labels are worth")
	case !f.Labeller.Qualified:
		out = append(out, "the labeller is not qualified: "+strings.Join(f.Labeller.Why, "; "))
	default:
		out = append(out, fmt.Sprintf("the labeller is qualified (kappa %.2f on %d recorded labels), which is not agreement with people", f.Labeller.Kappa, f.Labeller.N))
	}
	out = append(out, f.Degenerate...)
	for _, c := range f.Conditions {
		if c.Condition == mediation.D {
			out = append(out, "under D the prompt names the conflict's stage")
		}
		out = append(out, unscoredCautions(c.Unscored[mediation.AUC], c.Condition+" dialogues")...)
		lines, turns := c.Cut[mediation.StepUtterance], c.Cut[mediation.StepSimulate]
		out = append(out, cutCaution(c.Condition+" lines", lines.K, lines.N)...)
		out = append(out, cutCaution("simulated turns after "+c.Condition, turns.K, turns.N)...)
	}
	for _, d := range f.Differences {
		if d.B == mediation.Generic && d.Metric == mediation.AUC && d.A != mediation.GroundTruth && (d.PHolm >= mediation.Alpha || d.Value.Value <= 0) {
			out = append(out, fmt.Sprintf("a fixed line that fits any conflict does as well as %s: AUC difference %s, n=%d", d.A, difference(d.Value), d.Value.N))
		}
	}
	return out
}

func probeCautions(f *probe.Findings) []string {
	var out []string
	if f.Verdict != nil && f.Verdict.Sentence != probe.Collapse {
		out = append(out, "the probes allow: "+f.Verdict.Sentence)
	}
	if f.Left > 0 {
		out = append(out, fmt.Sprintf("%d dialogues are left out of the probes: a text or a state is missing", f.Left))
	}
	for _, text := range slices.Sorted(maps.Keys(f.Cut)) {
		out = append(out, cutCaution(text+" lines that states were read after", f.Cut[text], f.N)...)
	}
	for _, c := range f.Cells {
		if c.Cell.Context == probe.ContextD {
			out = append(out, "under D the prompt names the stage that the probes look for")
			break
		}
	}
	return out
}

// roleCautions say which roles are played by one model or by one family.
func roleCautions(models map[string]infer.Model) []string {
	mediator, ok := models[mediation.RoleMediator]
	if !ok {
		return nil
	}
	var out []string
	for _, x := range []struct{ role, same, family string }{
		{mediation.RoleLabeller, "mediator and labeller are the same model: it rates its own kind", "mediator and labeller are of the same family (%s)"},
		{mediation.RoleJudge, "mediator and judge are the same model: it rates its own lines", "mediator and judge are of the same family (%s)"},
		{mediation.RoleSimulator, "the simulator is the mediator's own model: it answers itself", ""},
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

func (l leak) cautions() []string {
	var out []string
	switch {
	case l.unknown != "":
		out = append(out, "whether these dialogues share scenario contexts with training records is unknown: "+l.unknown)
	case l.contexts != nil && l.contexts.Shared > 0:
		out = append(out, fmt.Sprintf("the training records hold the scenario context of %s of these dialogues: to what is trained on them the scenes are not new", report.Pct(l.contexts.Shared, l.contexts.Of)))
	}
	if l.noCard != "" {
		return append(out, "what the tuned model was trained on is unknown: "+l.noCard)
	}
	if l.card == nil {
		return out
	}
	if export, err := trainedOn(l.card); err != nil {
		out = append(out, "what the tuned model was trained on is unknown: its card does not say it")
	} else if e, ok := export.Leaks["evaluation"]; !ok {
		out = append(out, "what the tuned model's training shares with the evaluation records is unknown: there were none when it was exported")
	} else if e.Contexts.Shared > 0 {
		out = append(out, fmt.Sprintf("the tuned model was trained on the scenario context of %s of the evaluation dialogues, says its card", report.Pct(e.Contexts.Shared, e.Contexts.Of)))
	}
	for _, p := range l.card.Proofs {
		switch {
		case p.NotRun != "":
			out = append(out, fmt.Sprintf("the proof %q of the package was not made: %s", p.Name, p.NotRun))
		case !p.OK:
			out = append(out, fmt.Sprintf("the proof %q of the package failed: %s", p.Name, p.Detail))
		}
	}
	return out
}

// trainingCautions are what a reader must know of a training run.
func trainingCautions(m *sft.Manifest) []string {
	out := []string{"losses and validation of a training; whether it helped is said by its comparison with the base (ccmed sft bench)"}
	if m.Status != sft.TrainDone {
		out = append(out, "the training is not finished ("+m.Status+")")
	}
	if l := m.Export.Leaks["evaluation"]; l.Contexts.Shared > 0 {
		out = append(out, fmt.Sprintf("it was trained on the scenario context of %s of the evaluation dialogues", report.Pct(l.Contexts.Shared, l.Contexts.Of)))
	}
	return append(out, fmt.Sprintf("one training with one seed (%d): how far another would lie from it is not measured", m.Config.Seed))
}

// seedCautions name the runs whose continuations were drawn once: with runs of the
// same models, conditions and dialogues under another seed there is no caution.
func seedCautions(runs []scoredRun) []caution {
	seeds := map[string]map[int64]bool{}
	key := func(r scoredRun) string {
		id := r.manifest.Identity
		return strings.Join(append([]string{id.ItemsHash, fmt.Sprint(id.Options["rubric"], id.Options["turn"])}, id.Models[mediation.RoleMediator].Digest, id.Models[mediation.RoleSimulator].Digest), " ")
	}
	sampled := func(r scoredRun) bool {
		t, _ := r.manifest.Identity.Options["sim_temperature"].(float64)
		return r.manifest.Identity.Task == "mediation" && t > 0
	}
	for _, r := range runs {
		if sampled(r) {
			if seeds[key(r)] == nil {
				seeds[key(r)] = map[int64]bool{}
			}
			seeds[key(r)][r.manifest.Identity.Seed] = true
		}
	}
	var out []caution
	for _, r := range runs {
		if sampled(r) && len(seeds[key(r)]) == 1 {
			out = append(out, caution{r.name, fmt.Sprintf("one seed (%d) only: the intervals hold what differs between dialogues, not between draws of their continuations", r.manifest.Identity.Seed)})
		}
	}
	return out
}

func difference(e stats.Estimate) string { return report.Estimate(e, 2) }
