package activation_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ccmed/ccmed/probe/activation"
)

// Two of three samples are extracted, and the second layer is read.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cell := activation.Cell{Context: "D", Text: "own-D", Position: "prompt_end"}
	f, err := activation.Create(ctx, dir, activation.Spec{
		Model:  activation.Model{Name: "smollm2", Digest: "sha256:2bd2"},
		Cell:   cell,
		Layers: []string{"embed", "block.1", "final_norm"}, Samples: 3, Width: 2, DType: activation.F16,
	})
	if err != nil {
		log.Fatal(err)
	}
	for layer := range 3 {
		for _, sample := range []int{0, 2} {
			if err := f.Put(layer, sample, []float32{float32(layer), float32(sample)}); err != nil {
				log.Fatal(err)
			}
		}
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}

	f, err = activation.Open(filepath.Join(dir, cell.File()))
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	x, err := f.Layer("block.1")
	if err != nil {
		log.Fatal(err)
	}
	audit, err := f.Audit(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(filepath.Base(f.Path()))
	fmt.Println(x.Data(), "missing", audit.Missing)
	// Output:
	// D.own-D.prompt_end.residual.safetensors
	// [1 0 NaN NaN 1 2] missing [1]
}
