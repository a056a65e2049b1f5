package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe"
)

// smallSample is the number of items below which a report warns.
const smallSample = 100

// cautions are what a reader must know of a run, from its data.
func cautions(m run.Manifest, found any) []string {
	var out []string
	if m.Status != run.StatusDone {
		out = append(out, "the run is not finished ("+m.Status+")")
	}
	if n := len(m.Identity.Items); n < smallSample {
		out = append(out, fmt.Sprintf("%d dialogues: intervals are wide, and an interval of a group even more so", n))
	}
	unscored := func(reasons map[string]int, what string) {
		for _, why := range slices.Sorted(maps.Keys(reasons)) {
			out = append(out, fmt.Sprintf("%d %s unscored: %s", reasons[why], what, why))
		}
	}
	switch f := found.(type) {
	case timingFound:
		if f.DegenerateAnswer != "" {
			out = append(out, "degenerate: constant answer ("+f.DegenerateAnswer+")")
		}
		unscored(f.Unscored, "dialogues")
		best := 0.0
		name := ""
		for _, b := range f.Baselines {
			if b.Accuracy > best {
				best, name = b.Accuracy, b.Name
			}
		}
		if f.Scored > 0 && best >= float64(f.Correct)/float64(f.Scored) && best > 0 {
			out = append(out, fmt.Sprintf("a baseline without any language model (%s) does as well or better: %.1f %%", name, 100*best))
		}
	case mediation.Metrics:
		if f.PipelineCheck {
			out = append(out, mediation.PipelineCheck)
		}
		if f.Labeller == nil {
			out = append(out, "there is no labeller card: nobody knows what the stage labels are worth")
		} else if !f.Labeller.Qualified {
			out = append(out, "the labeller is not qualified: "+strings.Join(f.Labeller.Why, "; "))
		}
		out = append(out, f.Degenerate...)
		for _, c := range f.Conditions {
			if c.Condition == mediation.D {
				out = append(out, "under D the prompt names the conflict's stage")
			}
			unscored(c.Unscored[mediation.AUC], c.Condition+" dialogues")
		}
	case *probe.Findings:
		if f.Verdict != nil && f.Verdict.Sentence != probe.Collapse {
			out = append(out, "the probes allow: "+f.Verdict.Sentence)
		}
		if f.Left > 0 {
			out = append(out, fmt.Sprintf("%d dialogues are left out of the probes: a text or a state is missing", f.Left))
		}
	}
	return out
}
