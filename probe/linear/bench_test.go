package linear

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The size of machines.md's scikit-learn figure: 1,503 samples, 4,096 features,
// three classes.
func BenchmarkFit(b *testing.B) {
	const n, classes = 1503, 3
	for _, d := range []int{576, 4096} {
		x, y := drawn(b, n, d, classes, 1)
		design, err := Prepare(b.Context(), x)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("prepare/d=%d", d), func(b *testing.B) {
			for b.Loop() {
				if _, err := Prepare(b.Context(), x); err != nil {
					b.Fatal(err)
				}
			}
		})
		for name, design := range map[string]*Design{"prepared": design, "direct": direct(x)} {
			b.Run(fmt.Sprintf("%s/d=%d", name, d), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					m, err := design.Fit(b.Context(), y, classes, Options{})
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(m.Iterations), "iterations")
				}
			})
		}
	}
}

// drawn returns standard normal samples whose labels depend on a few features.
func drawn(t testing.TB, n, d, classes int, seed uint64) (*Dense, []int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	data, y := make([]float64, n*d), make([]int, n)
	for i := range y {
		y[i] = i % classes
		row := data[i*d : (i+1)*d]
		for j := range row {
			row[j] = rng.NormFloat64()
		}
		row[y[i]%d]++
	}
	x, err := NewDense(n, d, data)
	if err != nil {
		t.Fatal(err)
	}
	return x, y
}
