// Package activation stores hidden states: which vector every layer held at one
// position of every sample. It is where extraction writes and where probes read.
//
//	f, err := activation.Create(ctx, runDir, activation.Spec{
//		Model:  activation.ModelOf(model),
//		Cell:   activation.Cell{Context: "D", Text: "own-D", Position: "prompt_end"},
//		Layers: []string{"embed", "block.1", "block.2", "final_norm"}, Samples: 1503, Width: 576, DType: activation.F16,
//	})
//	err = f.Put(layer, sample, x) // as the model evaluates, from any goroutine
//	err = f.Close()
//
//	f, err = activation.Open(filepath.Join(runDir, cell.File()))
//	block, err := f.Layer("block.2") // *tensor.Dense, 1503 x 576
//
// # The file
//
// A file is one safetensors file a cell, named context.text.position.kind.safetensors,
// with one tensor "states" of shape (layers, samples, width): a layer is one
// contiguous piece. Its __metadata__ holds schema, model, digest, quantization,
// architecture, context, text, position, kind, and the names of the layers as a
// JSON array. In Python one layer is read by
//
//	x = safetensors.safe_open("D.own-D.prompt_end.residual.safetensors", "numpy").get_slice("states")[2]
//
// # Missing, written, not finite
//
// The file has its full size from the start and is written in place, so memory
// stays flat and a killed run goes on where it was. Every value starts as the
// missing mark, a NaN with a payload of its own (F32 0x7FC0CC3D, F16 0x7E3D).
// Put stores any NaN that the model gave as the plain one (F32 0x7FC00000,
// F16 0x7E00). So the data itself tells a missing row from a written one that is
// not finite, with no second table that could contradict it: a row that holds
// the mark anywhere, the rest of a torn write included, is missing. Everywhere
// else it reads as NaN, never as zeros.
//
// Values that are not finite, and in F16 those beyond ±65,504, which are stored
// as infinities, make Rows and Layer fail for that layer, by name; the other
// layers can be used.
//
// # Who belongs to a row
//
// The samples of the run do not hold vectors but Places: cell, row, token, and the
// row's checksum, which readers compare (File.Holds, Audit.Check). Index puts them in
// the order of rows.
//
// The weights of fitted probes are kept beside a card, see Probe.
package activation
