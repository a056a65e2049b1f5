package stats_test

import (
	"fmt"

	"github.com/ccmed/ccmed/bench/stats"
)

// Two models on eight dialogues of four scenario contexts.
func Example() {
	d := []float64{1, 1, 0, 1, 0, 1, 1, 0} // first minus second, per dialogue
	contexts := []string{"a", "a", "b", "b", "c", "c", "d", "d"}

	e, err := stats.Bootstrap{Resamples: 10_000, Seed: 1}.Mean(d, contexts)
	fmt.Printf("%.3f [%.3f, %.3f], n = %d in %d contexts, %v\n", e.Value, e.Lo, e.Hi, e.N, e.Groups, err)

	p, err := stats.SignFlip(d, contexts, 10_000, 1)
	fmt.Println(p, err) // all 16 sign patterns
	// Output:
	// 0.625 [0.500, 0.875], n = 8 in 4 contexts, <nil>
	// 0.125 <nil>
}

// Two runs of the same dialogues: how much more often the second is right.
func ExampleCompare() {
	hits := func(right ...float64) stats.Measure {
		m := stats.Measure{Name: "TurnAcc", Binary: true}
		for i, v := range right {
			m.Observations = append(m.Observations, stats.Observation{Item: fmt.Sprint(i), Group: fmt.Sprint("context ", i), Value: v})
		}
		return m
	}
	c, err := stats.Compare(hits(0, 1, 0, 0, 0, 0, 0, 0), hits(1, 1, 1, 1, 0, 1, 1, 1), stats.Resampling{Resamples: 10_000, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%+.2f, p %.3f, %d pairs, %d changed\n", c.Difference.Value, c.P, c.Difference.N, len(c.Changes))
	// Output: +0.75, p 0.031, 8 pairs, 6 changed
}
