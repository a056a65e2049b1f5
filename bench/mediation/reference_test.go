package mediation

import "testing"

// One value has no standard deviation.
func TestReferenceStats(t *testing.T) {
	if s := statsOf([]float64{3}); s.Std != nil || s.Mean == nil || *s.Mean != 3 {
		t.Errorf("one value has the standard deviation %v", s.Std)
	}
	if s := statsOf([]float64{3, 5}); s.Std == nil || *s.Std*(*s.Std) < 1.999 || *s.Std*(*s.Std) > 2.001 {
		t.Errorf("3 and 5 have the standard deviation %v, want that of the variance 2", s.Std)
	}
}
