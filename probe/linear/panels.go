package linear

// Products of float32 matrices. A matrix is packed into panels of a few rows,
// interleaved along its depth, so that one small kernel reads both factors in
// order from the caches and keeps a 6 by 16 piece of the product in registers
// (Goto and van de Geijn 2008). Sums run over at most panelDepth terms before
// they are added to the product, which keeps rounding near that of the terms.

const (
	panelA     = 6   // rows of a panel of the left factor
	panelB     = 16  // rows of a panel of the right factor, which is given transposed
	panelDepth = 256 // 16 by 256 values are 16 KiB, half of a first-level cache
)

// kernel adds a·bᵀ to the 6 by 16 piece of the product that starts at c, whose
// rows are stride apart; a and b are panels of the same depth, at least 1.
var kernel = kernelGo

func kernelGo(depth int, a, b, c []float32, stride int) {
	var sum [panelA][panelB]float32
	for k := range depth {
		bk := (*[panelB]float32)(b[k*panelB:])
		for i, v := range a[k*panelA : (k+1)*panelA] {
			row := &sum[i]
			for j, w := range bk {
				row[j] += v * w
			}
		}
	}
	for i := range sum {
		row := c[i*stride : i*stride+panelB]
		for j, v := range sum[i] {
			row[j] += v
		}
	}
}

// panels is a packed matrix: blocks of panelDepth columns, in each of them every
// panel of width rows, in it the values of one column together. Rows beyond the
// last are zero.
type panels struct {
	rows, depth, width int
	data               []float32
}

func newPanels(rows, depth, width int) *panels {
	return &panels{rows, depth, width, make([]float32, roundUp(rows, width)*depth)}
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// panel returns panel p of the block of columns k0 ≤ k < k0+depth.
func (m *panels) panel(p, k0, depth int) []float32 {
	at := k0*roundUp(m.rows, m.width) + p*depth*m.width
	return m.data[at : at+depth*m.width]
}

// blocks calls f for every block of columns.
func (m *panels) blocks(f func(k0, depth int)) {
	for k0 := 0; k0 < m.depth; k0 += panelDepth {
		f(k0, min(panelDepth, m.depth-k0))
	}
}

// setRow packs row i.
func setRow[F float32 | float64](m *panels, i int, row []F) {
	p, r := i/m.width, i%m.width
	m.blocks(func(k0, depth int) {
		dst := m.panel(p, k0, depth)
		for k, v := range row[k0 : k0+depth] {
			dst[k*m.width+r] = float32(v)
		}
	})
}

// setColumn packs column k, one value a row.
func (m *panels) setColumn(k int, column []float32) {
	k0 := k / panelDepth * panelDepth
	depth := min(panelDepth, m.depth-k0)
	for p := 0; p*m.width < m.rows; p++ {
		copy(m.panel(p, k0, depth)[(k-k0)*m.width:(k-k0+1)*m.width], column[p*m.width:])
	}
}

// row unpacks row i.
func (m *panels) row(i int, dst []float32) {
	p, r := i/m.width, i%m.width
	m.blocks(func(k0, depth int) {
		src := m.panel(p, k0, depth)
		for k := range depth {
			dst[k0+k] = src[k*m.width+r]
		}
	})
}

// product is a row-major matrix with room for whole pieces.
type product struct {
	stride int
	data   []float32
}

func newProduct(rows, columns int) *product {
	stride := roundUp(columns, panelB)
	return &product{stride, make([]float32, roundUp(rows, panelA)*stride)}
}

func (c *product) row(i int) []float32 { return c.data[i*c.stride : (i+1)*c.stride] }

// multiply sets c to a·bᵀ, a packed by panelA and b by panelB. With upper, only
// pieces with some element on or above the diagonal.
func (c *product) multiply(a, b *panels, upper bool) {
	clear(c.data)
	a.blocks(func(k0, depth int) {
		for j := 0; j < b.rows; j += panelB {
			bj := b.panel(j/panelB, k0, depth)
			for i := 0; i < a.rows && !(upper && i > j+panelB-1); i += panelA {
				kernel(depth, a.panel(i/panelA, k0, depth), bj, c.data[i*c.stride+j:], c.stride)
			}
		}
	})
}

// mirror copies what is above the diagonal of the first n rows below it.
func (c *product) mirror(n int) {
	for i := range n {
		for j := range i {
			c.data[i*c.stride+j] = c.data[j*c.stride+i]
		}
	}
}
