package stats

import "fmt"

// Within is the mean of the groups' own AUROCs.
type Within struct {
	Value  float64 `json:"value"`
	Groups int     `json:"groups"` // that have both classes and went in
	// Missing groups have only one class, so that their AUROC is undefined.
	Missing int `json:"missing"`
}

// AUROCWithin averages AUROC over groups, each of which counts the same: it
// compares items only within their group, such as turns within a dialogue. It is
// an error when no group has both classes.
func AUROCWithin(scores []float64, labels []bool, groups []string) (Within, error) {
	if len(scores) != len(labels) || len(scores) != len(groups) {
		return Within{}, fmt.Errorf("%d scores have %d labels and %d group names; each score needs one of both", len(scores), len(labels), len(groups))
	}
	cs, err := clusters(len(scores), groups)
	if err != nil {
		return Within{}, err
	}
	var w Within
	sum := 0.0
	for _, c := range cs {
		s, l := make([]float64, len(c)), make([]bool, len(c))
		positives := 0
		for k, i := range c {
			s[k], l[k] = scores[i], labels[i]
			if l[k] {
				positives++
			}
		}
		if positives == 0 || positives == len(c) {
			w.Missing++
			continue
		}
		a, err := AUROC(s, l)
		if err != nil {
			return Within{}, fmt.Errorf("group %q: %w", groups[c[0]], err)
		}
		sum += a
		w.Groups++
	}
	if w.Groups == 0 {
		return Within{}, fmt.Errorf("none of %d groups has both positive and negative items; AUROC needs both", w.Missing)
	}
	w.Value = sum / float64(w.Groups)
	return w, nil
}
