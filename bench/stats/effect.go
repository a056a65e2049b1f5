package stats

import "math"

// Effect is a standardised difference and the word for its size.
type Effect struct {
	D    float64 `json:"d"`
	Word string  `json:"word"`
}

// PairedEffect is Cohen's d_z of paired differences, their mean over their standard
// deviation (Cohen 1988, section 2.3.5; Lakens 2013, equation 6). It is nil where
// they are all equal, since there is nothing to divide by.
func PairedEffect(d []float64) *Effect {
	return effect(mean(d), math.Sqrt(variance(d)))
}

// IndependentEffect is Cohen's d of B − A, the difference of the means over the
// pooled standard deviation (Cohen 1988, equation 2.5.2). It is nil where that is
// 0.
func IndependentEffect(a, b []float64) *Effect {
	m, n := float64(len(a)), float64(len(b))
	if m+n < 3 {
		return nil
	}
	pooled := ((m-1)*variance(a) + (n-1)*variance(b)) / (m + n - 2)
	return effect(mean(b)-mean(a), math.Sqrt(pooled))
}

func effect(difference, sd float64) *Effect {
	// Equal values leave a remainder of rounding.
	if !(sd > rounding*math.Abs(difference)) || sd == 0 {
		return nil
	}
	d := difference / sd
	return &Effect{d, SizeWord(d)}
}

// SizeWord says how large a standardised difference is: small from 0.2, medium
// from 0.5 and large from 0.8 (Cohen 1988, section 2.2.3, which offers them where
// nothing better is known), below that negligible.
func SizeWord(d float64) string {
	switch d = math.Abs(d); {
	case d < 0.2:
		return "negligible"
	case d < 0.5:
		return "small"
	case d < 0.8:
		return "medium"
	}
	return "large"
}

// variance is that of a sample, with n − 1; of a single value it is 0.
func variance(v []float64) float64 {
	if len(v) < 2 {
		return 0
	}
	m, s := mean(v), 0.0
	for _, x := range v {
		s += (x - m) * (x - m)
	}
	return s / float64(len(v)-1)
}
