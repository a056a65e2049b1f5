package stats

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// exactGroups is the largest number of groups that differ whose signs are
// enumerated.
const exactGroups = 15

// rounding is the relative difference that counts as a tie between a permuted
// statistic and the observed one: both are sums of the same numbers in another
// order.
const rounding = 1e-9

// SignFlip tests, two-sided, whether the mean of paired differences is zero. It
// flips the signs of whole groups, which is exact where a group's differences
// are symmetric around zero when nothing differs; nil groups make every item its
// own. Where up to 15 groups differ at all, every sign pattern is enumerated, the
// observed one among them; above, p = (b+1)/(m+1) with b of m random patterns at
// least as extreme (Phipson and Smyth 2010).
func SignFlip(d []float64, groups []string, resamples int, seed uint64) (float64, error) {
	if err := finite("difference", d); err != nil {
		return 0, err
	}
	cs, err := clusters(len(d), groups)
	if err != nil {
		return 0, err
	}
	// The number of items is the same under every pattern, so sums do for means; a
	// group whose sum is zero changes none.
	var sums []float64
	observed, size := 0.0, 0.0
	for _, c := range cs {
		sum := 0.0
		for _, i := range c {
			sum += d[i]
			size += math.Abs(d[i])
		}
		if sum != 0 {
			sums = append(sums, sum)
		}
		observed += sum
	}
	least := math.Abs(observed) - rounding*size
	if len(sums) <= exactGroups {
		return exactSignFlip(sums, least), nil
	}
	if resamples < 1 {
		return 0, fmt.Errorf("%d resamples; at least 1 is needed, 10000 are usual", resamples)
	}
	r := generator(seed)
	extreme := 0
	for range resamples {
		total := 0.0
		var word uint64
		for k, s := range sums {
			if k%64 == 0 {
				word = r.Uint64()
			}
			if word&1 == 1 {
				s = -s
			}
			word >>= 1
			total += s
		}
		if math.Abs(total) >= least {
			extreme++
		}
	}
	return permutationP(extreme, resamples), nil
}

// exactSignFlip walks the patterns in Gray code order, one flip a step.
func exactSignFlip(sums []float64, least float64) float64 {
	signed := slices.Clone(sums)
	patterns := 1 << len(sums)
	extreme := 0
	for i := range patterns {
		if i > 0 {
			k := bits.TrailingZeros(uint(i))
			signed[k] = -signed[k]
		}
		total := 0.0
		for _, s := range signed {
			total += s
		}
		if math.Abs(total) >= least {
			extreme++
		}
	}
	return float64(extreme) / float64(patterns)
}

func permutationP(extreme, resamples int) float64 {
	return float64(extreme+1) / float64(resamples+1)
}

// McNemar is the exact two-sided p that two paired raters of independent items
// are right equally often: a binomial test of b, where only the first is right,
// against c, where only the second is. Without any such item it is 1.
func McNemar(b, c int) float64 {
	n := b + c
	if b < 0 || c < 0 || n == 0 {
		return 1
	}
	p := 0.0
	for k := range min(b, c) + 1 {
		p += math.Exp(logChoose(n, k) - float64(n)*math.Ln2)
	}
	return min(1, 2*p)
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// z95 is the 97.5 % point of the normal distribution.
const z95 = 1.959963984540054

// Wilson is the 95 % score interval of k successes among n independent items
// (Wilson 1927). Without items it is 0 to 1.
func Wilson(k, n int) (lo, hi float64) {
	if n <= 0 {
		return 0, 1
	}
	k = min(max(k, 0), n)
	p, m := float64(k)/float64(n), float64(n)
	centre := p + z95*z95/(2*m)
	half := z95 * math.Sqrt(p*(1-p)/m+z95*z95/(4*m*m))
	scale := 1 + z95*z95/m
	lo, hi = (centre-half)/scale, (centre+half)/scale
	// At the ends the interval starts and stops exactly.
	if k == 0 {
		lo = 0
	}
	if k == n {
		hi = 1
	}
	return lo, hi
}

// Holm adjusts the p values of one family for multiple tests (Holm 1979), in
// their own order. The results rise with the inputs and stay at most 1.
func Holm(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(ps[i], ps[j]) })
	out := make([]float64, len(ps))
	largest := 0.0
	for rank, i := range order {
		largest = max(largest, min(1, ps[i]*float64(len(ps)-rank)))
		out[i] = largest
	}
	return out
}

// exactLabels is the largest number of ways to label groups that are enumerated.
const exactLabels = 1 << 15

// PermuteLabels tests, two-sided, whether two independent samples have the same
// mean. It deals the groups out to the samples anew, as many to each as there were,
// and compares Welch's t of the means, with variances between groups. That is exact
// where nothing at all differs, and right in large samples where only the means are
// equal (Janssen 1997; Chung and Romano 2013). Groups of one name are two groups, one
// in each sample. Up to 32,768 ways are enumerated; above, p = (b+1)/(m+1) as in
// SignFlip.
func PermuteLabels(x []float64, xGroups []string, y []float64, yGroups []string, resamples int, seed uint64) (float64, error) {
	var all []total
	var sizes [2]int
	for i, s := range []struct {
		v      []float64
		groups []string
	}{{x, xGroups}, {y, yGroups}} {
		if err := finite("value", s.v); err != nil {
			return 0, err
		}
		cs, err := clusters(len(s.v), s.groups)
		if err != nil {
			return 0, err
		}
		if len(cs) < 2 {
			return 0, ErrOneGroup
		}
		for _, c := range cs {
			t := total{n: float64(len(c))}
			for _, j := range c {
				t.sum += s.v[j]
			}
			all = append(all, t)
		}
		sizes[i] = len(cs)
	}
	observed := math.Abs(welchT(all[:sizes[0]], all[sizes[0]:]))
	least := observed * (1 - rounding)
	if ways := combinations(len(all), sizes[0]); ways <= exactLabels {
		extreme := 0
		eachSplit(all, sizes[0], func(a, b []total) {
			if math.Abs(welchT(a, b)) >= least {
				extreme++
			}
		})
		return float64(extreme) / float64(ways), nil
	}
	if resamples < 1 {
		return 0, fmt.Errorf("%d resamples; at least 1 is needed, 10000 are usual", resamples)
	}
	r := generator(seed)
	extreme := 0
	for range resamples {
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if math.Abs(welchT(all[:sizes[0]], all[sizes[0]:])) >= least {
			extreme++
		}
	}
	return permutationP(extreme, resamples), nil
}

// total is a group's sum and size.
type total struct{ sum, n float64 }

// welchT is the difference of two means over its standard error, the variance of a
// mean being that of a ratio of group totals. It is infinite where all groups agree
// and the means differ.
func welchT(x, y []total) float64 {
	mx, vx := ratio(x)
	my, vy := ratio(y)
	d := my - mx
	if math.Abs(d) <= rounding*(math.Abs(mx)+math.Abs(my)) {
		return 0
	}
	return d / math.Sqrt(vx+vy)
}

// ratio is the mean of all items and its variance by groups (Cochran 1977, section
// 9A.3).
func ratio(ts []total) (m, v float64) {
	sum, n := 0.0, 0.0
	for _, t := range ts {
		sum, n = sum+t.sum, n+t.n
	}
	m = sum / n
	for _, t := range ts {
		e := t.sum - t.n*m
		v += e * e
	}
	k := float64(len(ts))
	return m, v * k / (k - 1) / (n * n)
}

// combinations is n over k, exactLabels + 1 for anything larger.
func combinations(n, k int) int {
	c := 1
	for i := 1; i <= min(k, n-k); i++ {
		if c = c * (n - i + 1) / i; c > exactLabels {
			return exactLabels + 1
		}
	}
	return c
}

// eachSplit calls f with every way to take k of all, and what is left.
func eachSplit(all []total, k int, f func(taken, left []total)) {
	taken, left := make([]total, 0, k), make([]total, 0, len(all)-k)
	var from func(i int)
	from = func(i int) {
		if i == len(all) {
			f(taken, left)
			return
		}
		if len(taken) < k {
			taken = append(taken, all[i])
			from(i + 1)
			taken = taken[:len(taken)-1]
		}
		if len(left) < cap(left) {
			left = append(left, all[i])
			from(i + 1)
			left = left[:len(left)-1]
		}
	}
	from(0)
}
