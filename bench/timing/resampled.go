package timing

import (
	"cmp"
	"slices"
)

// resampled gives what calibration measures of resamples of whole contexts without
// sorting their turns anew: the turns are sorted once, and a resample is how often each
// context was drawn.
type resampled struct {
	bins    int
	p, y    []float64 // by rising probability
	context []int     // of each turn
	edges   []float64 // scratch

	n, squares, conflicts []float64 // sums by context
}

func newResampled(p, y []float64, context []int, bins int) *resampled {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	contexts := slices.Max(context) + 1
	r := &resampled{bins: bins, edges: make([]float64, bins-1), n: make([]float64, contexts), squares: make([]float64, contexts), conflicts: make([]float64, contexts)}
	for _, i := range order {
		r.p, r.y, r.context = append(r.p, p[i]), append(r.y, y[i]), append(r.context, context[i])
	}
	for i, k := range context {
		r.n[k]++
		r.squares[k] += (p[i] - y[i]) * (p[i] - y[i])
		r.conflicts[k] += y[i]
	}
	return r
}

// sums are the number of turns of a resample, of their squared distances from the
// truth, and of conflict turns.
func (r *resampled) sums(times []int) (n, squares, conflicts float64) {
	for k, t := range times {
		w := float64(t)
		n, squares, conflicts = n+w*r.n[k], squares+w*r.squares[k], conflicts+w*r.conflicts[k]
	}
	return n, squares, conflicts
}

// calibrationError is that of reliability's bins of a resample.
func (r *resampled) calibrationError(times []int) float64 {
	total := 0
	for _, k := range r.context {
		total += times[k]
	}
	r.quantiles(times, total)
	sum, b := 0.0, 0
	meant, conflicts := 0.0, 0.0
	for j, v := range r.p {
		w := float64(times[r.context[j]])
		if w == 0 {
			continue
		}
		if b < len(r.edges) && r.edges[b] < v {
			sum += max(meant-conflicts, conflicts-meant)
			meant, conflicts = 0, 0
			for b < len(r.edges) && r.edges[b] < v {
				b++
			}
		}
		meant, conflicts = meant+w*v, conflicts+w*r.y[j]
	}
	sum += max(meant-conflicts, conflicts-meant)
	return sum / float64(total)
}

// quantiles sets the inner edges of the bins, as the function of that name does.
func (r *resampled) quantiles(times []int, total int) {
	j, below := -1, 0 // turns before j, each as often as it was drawn
	at := func(i int) float64 {
		for below <= i {
			j++
			below += times[r.context[j]]
		}
		return r.p[j]
	}
	for b := range r.edges {
		h := float64(b+1) / float64(r.bins) * float64(total-1)
		i := int(h)
		// The next one up is looked at first for this edge alone: edges rise, and at
		// cannot go back.
		low := at(i)
		k, n := j, below
		high := at(min(i+1, total-1))
		r.edges[b] = low + (h-float64(i))*(high-low)
		j, below = k, n
	}
}
