package activation

import (
	"fmt"
	"testing"
)

// SmolLM2's size on the released training records: 1,503 samples of width 576;
// and, of Gemma 2 9B's, 1,500 of width 3,584, two of its 42 blocks.
var benchSizes = []Spec{
	{Layers: []string{"block.1", "block.2"}, Samples: 1503, Width: 576},
	{Layers: []string{"block.1", "block.2"}, Samples: 1500, Width: 3584},
}

func eachSize(b *testing.B, do func(b *testing.B, s Spec)) {
	for _, s := range benchSizes {
		for _, d := range []DType{F32, F16} {
			s := s
			s.Model, s.Cell, s.DType = spec(d).Model, spec(d).Cell, d
			b.Run(fmt.Sprintf("%s/width=%d", d, s.Width), func(b *testing.B) {
				b.ReportAllocs()
				do(b, s)
			})
		}
	}
}

// One row of one layer, as the model hands it over.
func BenchmarkPut(b *testing.B) {
	eachSize(b, func(b *testing.B, s Spec) {
		f := mustCreate(b, b.TempDir(), s)
		x := state(1, 1, s.Width)
		b.SetBytes(f.rowBytes())
		i := 0
		for b.Loop() {
			if err := f.Put(i%2, i/2%s.Samples, x); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}

// One layer as float32, from the page cache.
func BenchmarkRows(b *testing.B) {
	eachSize(b, func(b *testing.B, s Spec) {
		f := mustCreate(b, b.TempDir(), s)
		putAll(b, f)
		b.SetBytes(f.rowBytes() * int64(s.Samples))
		for b.Loop() {
			if _, err := f.Rows("block.2"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A file of two layers, marks and sync included.
func BenchmarkCreate(b *testing.B) {
	eachSize(b, func(b *testing.B, s Spec) {
		b.SetBytes(s.bytes())
		for b.Loop() {
			f := mustCreate(b, b.TempDir(), s)
			if err := f.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
