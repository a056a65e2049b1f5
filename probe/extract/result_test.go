package extract

import (
	"strings"
	"testing"

	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

// Every caution has findings that it stands beside, and some like them that it does not.
func TestCautions(t *testing.T) {
	said := func(f *probe.Findings) string {
		cs, err := (&Result{Findings: &Findings{Cells: f}}).Cautions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(cs, "\n")
	}
	in := func(context string) *probe.Findings {
		return &probe.Findings{Cells: []probe.CellFindings{{Cell: activation.Cell{Context: context}}}}
	}
	for says, c := range map[string]struct{ with, without *probe.Findings }{
		"of own-D lines that states were read after end at their cap": {&probe.Findings{N: 100, Cut: map[string]int{"own-D": 6}}, &probe.Findings{N: 100, Cut: map[string]int{"own-D": 5}}},
		"the probes allow: D−ND":                                      {&probe.Findings{Verdict: &probe.Verdict{Sentence: "D−ND difference"}}, &probe.Findings{Verdict: &probe.Verdict{Sentence: probe.Collapse}}},
		"4 dialogues are left out":                                    {&probe.Findings{Left: 4}, &probe.Findings{}},
		"names the stage that the probes look for":                    {in(probe.ContextD), in(probe.ContextND)},
	} {
		if got := said(c.with); !strings.Contains(got, says) {
			t.Errorf("no %q in %q", says, got)
		}
		if got := said(c.without); strings.Contains(got, says) {
			t.Errorf("%q where it does not hold: %q", says, got)
		}
	}
	if cs, err := (&Result{}).Cautions(t.Context()); err != nil || len(cs) > 0 {
		t.Errorf("without findings: %q, %v", cs, err)
	}
}
