package run

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

// BenchmarkExecute measures the executor's own cost a sample, with a backend
// that answers at once and a prompt of its own for every sample. heap-MB is what is
// in use at the last sample, less what the units took before: a place in the file
// and a prompt's hash for each sample, and no sample itself.
func BenchmarkExecute(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			data, err := json.Marshal(map[string]any{"p": []float64{0.1, 0.2, 0.3, 0.4}, "text": "an answer of some length, as a mediator gives it"})
			if err != nil {
				b.Fatal(err)
			}
			task := Task[int]{Name: "bench", Units: make([]Unit[int], n)}
			for i := range task.Units {
				task.Units[i] = Unit[int]{Item: fmt.Sprint(i), Group: fmt.Sprint(i / 10)}
			}
			var before, after runtime.MemStats
			task.Steps = []Step[int]{{Name: "ask", Role: "r", Do: func(ctx context.Context, m infer.Backend, u Unit[int], _ Lookup) (Sample, error) {
				if _, err := m.Chat(ctx, infer.Prompt{Raw: "question " + u.Item}, infer.Params{}); err != nil {
					return Sample{}, err
				}
				if u.Item == fmt.Sprint(n-1) {
					runtime.GC()
					runtime.ReadMemStats(&after)
				}
				return Sample{Data: data}, nil
			}}}
			for b.Loop() {
				b.StopTimer()
				runtime.GC()
				runtime.ReadMemStats(&before)
				d, err := Create(filepath.Join(b.TempDir(), "run"), identity(), nil)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				sum, err := Execute(b.Context(), d, task, Options{Workers: (&echo{}).workers(2)})
				if err != nil || sum.Scored != n {
					b.Fatalf("%+v, %v", sum, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/sample")
			b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/1e6, "heap-MB")
		})
	}
}
