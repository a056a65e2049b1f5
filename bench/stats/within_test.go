package stats_test

import (
	"math"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/stats"
)

// scikit-learn 1.9.1: roc_auc_score is 0.875 in group a and 0.75 in b, 0.8125 on
// average; c and d have one class each.
func TestAUROCWithin(t *testing.T) {
	scores := []float64{.1, .2, .4, .2, .4, .9, .8, .3, .5, .5}
	labels := []bool{false, false, false, true, true, true, true, false, true, true}
	groups := strings.Split("abababacdd", "") // a has .1 .4 .4 .8, b has .2 .2 .9
	w, err := stats.AUROCWithin(scores, labels, groups)
	if err != nil {
		t.Fatal(err)
	}
	if w.Groups != 2 || w.Missing != 2 {
		t.Errorf("%d groups went in and %d were missing, want 2 and 2", w.Groups, w.Missing)
	}
	near(t, "AUROC within", w.Value, 0.8125, 1e-12)
}

// What tells groups apart tells nothing within them.
func TestAUROCWithinIgnoresTheLevelOfAGroup(t *testing.T) {
	scores := []float64{1, 2, 11, 12, 21, 22}
	labels := []bool{false, true, false, true, false, true}
	groups := []string{"a", "a", "b", "b", "c", "c"}
	w, err := stats.AUROCWithin(scores, labels, groups)
	if err != nil {
		t.Fatal(err)
	}
	pooled, err := stats.AUROC(scores, labels)
	if err != nil {
		t.Fatal(err)
	}
	if w.Value != 1 || pooled >= 0.8 {
		t.Errorf("within %v, pooled %v; want 1 and less than 0.8", w.Value, pooled)
	}
}

func TestAUROCWithinErrors(t *testing.T) {
	for name, c := range map[string]struct {
		scores []float64
		labels []bool
		groups []string
	}{
		"nothing":         {},
		"missing label":   {[]float64{1, 2}, []bool{true}, []string{"a", "a"}},
		"missing group":   {[]float64{1, 2}, []bool{true, false}, []string{"a"}},
		"one class each":  {[]float64{1, 2}, []bool{true, false}, []string{"a", "b"}},
		"score not known": {[]float64{1, math.NaN()}, []bool{true, false}, []string{"a", "a"}},
	} {
		if w, err := stats.AUROCWithin(c.scores, c.labels, c.groups); err == nil {
			t.Errorf("%s: %+v and no error", name, w)
		}
	}
}
