package linear

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestProductAgreesWithTheDefinition(t *testing.T) {
	kernels := map[string]func(int, []float32, []float32, []float32, int){"portable": kernelGo, "this machine's": kernel}
	defer func(k func(int, []float32, []float32, []float32, int)) { kernel = k }(kernel)
	rng := rand.New(rand.NewPCG(4, 4))
	for name, k := range kernels {
		for _, size := range [][3]int{{1, 1, 1}, {6, 16, 256}, {7, 17, 257}, {30, 5, 600}, {13, 40, 3}} {
			rows, columns, depth := size[0], size[1], size[2]
			kernel = k
			a, b := newPanels(rows, depth, panelA), newPanels(columns, depth, panelB)
			x, y := drawRows(rng, rows, depth), drawRows(rng, columns, depth)
			for i, row := range x {
				setRow(a, i, row)
			}
			for j, row := range y {
				setRow(b, j, row)
			}
			c := newProduct(rows, columns)
			c.multiply(a, b, false)
			for i := range rows {
				for j := range columns {
					want := 0.0
					for q := range depth {
						want += float64(x[i][q]) * float64(y[j][q])
					}
					near(t, fmt.Sprintf("%s kernel, %v, element %d,%d", name, size, i, j), float64(c.row(i)[j]), want, 1e-4)
				}
			}
			// Packed by columns it is the same.
			byColumn := newPanels(rows, depth, panelA)
			for q := range depth {
				column := make([]float32, roundUp(rows, panelA))
				for i := range x {
					column[i] = x[i][q]
				}
				byColumn.setColumn(q, column)
			}
			for i, v := range byColumn.data {
				if v != a.data[i] {
					t.Fatalf("%v: packed by columns, value %d is %v, not %v", size, i, v, a.data[i])
				}
			}
		}
	}
}

func drawRows(rng *rand.Rand, n, d int) [][]float32 {
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = make([]float32, d)
		for j := range rows[i] {
			rows[i][j] = float32(rng.NormFloat64())
		}
	}
	return rows
}

func BenchmarkProduct(b *testing.B) {
	const n, d = 1203, 4096
	rng := rand.New(rand.NewPCG(4, 4))
	l, r := newPanels(n, d, panelA), newPanels(n, d, panelB)
	for i, row := range drawRows(rng, n, d) {
		setRow(l, i, row)
		setRow(r, i, row)
	}
	c := newProduct(n, n)
	for b.Loop() {
		c.multiply(l, r, true)
	}
	b.ReportMetric(float64(n)*n/2*d*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}
