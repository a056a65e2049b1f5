package mediation

import (
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/stats"
)

// TestGainSaysWhatTheIntervalAllows: a rise and a fall are said where the interval excludes
// 0, and nothing where it does not.
func TestGainSaysWhatTheIntervalAllows(t *testing.T) {
	for want, e := range map[string]stats.Estimate{
		"under ND the stage rises by 0.50 [0.20, 0.80]":                  {Value: 0.5, Lo: 0.2, Hi: 0.8, N: 100, Groups: 50},
		"under ND the stage falls by -0.50 [-0.80, -0.20]":               {Value: -0.5, Lo: -0.8, Hi: -0.2, N: 100, Groups: 50},
		"under ND the stage is not shown to change: 0.50 [-0.20, 1.20]":  {Value: 0.5, Lo: -0.2, Hi: 1.2, N: 100, Groups: 50},
		"under ND the stage is not shown to change: 0.50 (few contexts)": {Value: 0.5, Lo: 0.5, Hi: 0.5, N: 3, Groups: 3, NoInterval: stats.FewGroups},
	} {
		m := Metrics{Conditions: []ConditionMetrics{{Condition: Generic, Values: map[string]stats.Estimate{DAUC: {Value: 9}}}, {Condition: ND, Values: map[string]stats.Estimate{DAUC: e}}}}
		if got := m.gain(); !strings.Contains(got, want+" (ΔAUC, Paige scale).") || strings.Contains(got, Generic) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
	if got := (Metrics{}).gain(); got != "" {
		t.Errorf("without a measure: %q", got)
	}
}
