package linear

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// peer is what testdata/bench_sklearn.py writes.
type peer struct {
	Samples, Width, Layers, Folds, Classes, Jobs int
	Cs                                           []float64
	Sets                                         [][]int
	Float32, Float64                             struct {
		Seconds    float64
		Objectives []float64
	}
}

// BenchmarkAgainstScikitLearn runs the job of testdata/bench_sklearn.py on its
// data and reports how many times longer scikit-learn took, and the largest
// relative excess of an objective over scikit-learn's (negative: all are lower).
func BenchmarkAgainstScikitLearn(b *testing.B) {
	dir := os.Getenv("CCMED_BENCH_SKLEARN")
	if dir == "" {
		b.Skip("CCMED_BENCH_SKLEARN does not name a folder written by testdata/bench_sklearn.py")
	}
	text, err := os.ReadFile(filepath.Join(dir, "sklearn.json"))
	if err != nil {
		b.Fatal(err)
	}
	var want peer
	if err := json.Unmarshal(text, &want); err != nil {
		b.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "layers.f32"))
	if err != nil {
		b.Fatal(err)
	}
	values := make([]float32, len(raw)/4)
	if _, err := binary.Decode(raw, binary.LittleEndian, values); err != nil {
		b.Fatal(err)
	}
	var sets []Labels
	for _, y := range want.Sets {
		sets = append(sets, Labels{Y: y})
	}
	folds := make([]int, want.Samples)
	for i := range folds {
		folds[i] = i / want.Classes % want.Folds
	}
	objectives := make([]float64, len(want.Float64.Objectives))
	var seconds float64
	for b.Loop() {
		start := time.Now()
		g, ctx := errgroup.WithContext(b.Context())
		g.SetLimit(want.Jobs)
		for task := range want.Layers * want.Folds {
			g.Go(func() error {
				layer := values[task/want.Folds*want.Samples*want.Width:][:want.Samples*want.Width]
				return want.task(ctx, layer, sets, folds, task, objectives)
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		seconds += time.Since(start).Seconds()
	}
	seconds /= float64(b.N)
	excess := func(objectives, theirs []float64) float64 {
		worst := math.Inf(-1)
		for i, v := range theirs {
			worst = math.Max(worst, objectives[i]/v-1)
		}
		return worst
	}
	b.ReportMetric(want.Float32.Seconds/seconds, "x-f32")
	b.ReportMetric(want.Float64.Seconds/seconds, "x-f64")
	b.ReportMetric(excess(objectives, want.Float32.Objectives), "excess-f32")
	b.ReportMetric(excess(objectives, want.Float64.Objectives), "excess-f64")
}

func (p peer) task(ctx context.Context, layer []float32, sets []Labels, folds []int, task int, objectives []float64) error {
	x, err := NewDense32(p.Samples, p.Width, layer)
	if err != nil {
		return err
	}
	train, test := Split(folds, task%p.Folds)
	part, err := NewPart(ctx, x, train, test)
	if err != nil {
		return err
	}
	fits, err := part.Path(ctx, sets, p.Classes, p.Cs, PathOptions{Tol: 1e-9})
	if err != nil {
		return err
	}
	for s := range fits {
		for k, f := range fits[s] {
			objectives[(task*len(sets)+s)*len(p.Cs)+k] = f.Objective
		}
	}
	return nil
}
