package stats

import (
	"math"
	"testing"
)

// sklearn.metrics.roc_auc_score(y, s, sample_weight=w), scikit-learn 1.9, with
//
//	s = [.1, .4, .35, .8, .4, .4, .9, .1]; y = [0, 0, 1, 1, 1, 0, 0, 1]; w of each group below
func TestRankedAgainstScikitLearn(t *testing.T) {
	s := []float64{.1, .4, .35, .8, .4, .4, .9, .1}
	y := []bool{false, false, true, true, true, false, false, true}
	group := []int{0, 0, 1, 1, 2, 2, 3, 3}
	r, err := NewRanked(s, y, group)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		times []int
		want  float64
	}{
		{[]int{1, 1, 1, 1}, 0.40625},
		{[]int{2, 0, 1, 1}, 0.375},
		{[]int{0, 3, 1, 0}, 0.5},
		{[]int{5, 1, 2, 7}, 0.24641148325358858},
		{[]int{0, 2, 0, 0}, math.NaN()}, // positives alone
		{[]int{0, 0, 0, 0}, math.NaN()},
	} {
		if got := r.AUROC(c.times); math.Abs(got-c.want) > 1e-12 || math.IsNaN(got) != math.IsNaN(c.want) {
			t.Errorf("groups taken %v times: %v, want %v", c.times, got, c.want)
		}
	}
	if _, err := NewRanked([]float64{math.NaN()}, []bool{true}, []int{0}); err == nil {
		t.Error("a score that is not a number is ranked")
	}
}
