package export

import (
	"math"
	"slices"
)

// aggregate is a mean over the scored units of one metric under one condition.
type aggregate struct {
	metric, condition string
	binary            bool // its mean is an accuracy
	lower             bool // is better
	scored, unscored  int
	mean              float64
	stderr            *float64 // nil where there is none
}

// aggregates takes the mean of every metric by condition, in the order of
// conditions and of the metrics in a unit.
func (x *Run) aggregates() []aggregate {
	type sums struct {
		aggregate
		values   []float64
		clusters []string
	}
	var all []*sums
	at := map[[2]string]*sums{}
	for _, u := range x.table.Rows {
		for _, s := range u.Scores {
			k := [2]string{u.Key.Condition, s.Metric}
			a := at[k]
			if a == nil {
				a = &sums{aggregate: aggregate{metric: s.Metric, condition: u.Key.Condition, binary: s.Binary, lower: s.LowerIsBetter}}
				at[k] = a
				all = append(all, a)
			}
			if s.Unscored != "" {
				a.unscored++
				continue
			}
			a.scored++
			a.values, a.clusters = append(a.values, s.Value), append(a.clusters, u.Cluster)
		}
	}
	out := make([]aggregate, len(all))
	for i, a := range all {
		a.mean, a.stderr = clusteredMean(a.values, a.clusters)
		if x.table.Constant {
			a.stderr = nil
		}
		out[i] = a.aggregate
	}
	return out
}

// clusteredMean returns the mean and its cluster-robust standard error, nil for fewer
// than two clusters and where all clusters are alike, so that nothing tells of others:
//
//	se = sqrt(C/(C-1) * sum over clusters of (sum of deviations)^2) / n
//
// as in Miller, "Adding Error Bars to Evals" (arXiv:2411.00640), appendix A, with
// the finite-cluster correction that Inspect's stderr(cluster=...) makes.
func clusteredMean(values []float64, clusters []string) (mean float64, stderr *float64) {
	n := float64(len(values))
	if n == 0 {
		return 0, nil
	}
	for _, v := range values {
		mean += v
	}
	mean /= n // of shares at most 1, which a sum of parts of n need not be
	var names []string
	deviation := map[string]float64{}
	for i, c := range clusters {
		if !slices.Contains(names, c) {
			names = append(names, c)
		}
		deviation[c] += values[i] - mean
	}
	k := float64(len(names))
	if k < 2 {
		return mean, nil
	}
	sum := 0.0
	for _, c := range names { // not over the map: the sum must not depend on its order
		sum += deviation[c] * deviation[c]
	}
	se := math.Sqrt(sum*k/(k-1)) / n
	if se <= 1e-12*(1+math.Abs(mean)) { // what rounding leaves
		return mean, nil
	}
	return mean, &se
}
