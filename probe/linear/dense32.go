package linear

import "fmt"

// Dense32 holds every value in single precision, as hidden states come.
type Dense32 struct {
	d    int
	rows [][]float32
}

// NewDense32 returns the n by d matrix whose row-major values are data, which it
// keeps and which must not be changed any more.
func NewDense32(n, d int, data []float32) (*Dense32, error) {
	if n < 0 || d < 0 || len(data) != n*d {
		return nil, fmt.Errorf("linear: %d values cannot be a matrix of %d by %d", len(data), n, d)
	}
	x := &Dense32{d: d, rows: make([][]float32, n)}
	for i := range x.rows {
		x.rows[i] = data[i*d : (i+1)*d : (i+1)*d]
	}
	return x, nil
}

// Dims returns the number of rows and of columns.
func (x *Dense32) Dims() (n, d int) { return len(x.rows), x.d }

// Row returns row i, which must not be changed.
func (x *Dense32) Row(i int) []float32 { return x.rows[i] }

// Dot returns the inner product of row i and w, summed in double precision.
func (x *Dense32) Dot(i int, w []float64) float64 {
	row, sum := x.rows[i], 0.0
	for j, v := range w[:len(row)] {
		sum += v * float64(row[j])
	}
	return sum
}

// AddScaled adds a times row i to dst.
func (x *Dense32) AddScaled(dst []float64, a float64, i int) {
	dst = dst[:x.d]
	for j, v := range x.rows[i] {
		dst[j] += a * float64(v)
	}
}

// Take returns a *Dense32 of the given rows, which shares their values.
func (x *Dense32) Take(rows []int) Rows {
	return &Dense32{d: x.d, rows: At(x.rows, rows)}
}

// Check looks for values that are not finite.
func (x *Dense32) Check() error {
	for i, row := range x.rows {
		for j, v := range row {
			if v-v != 0 {
				return &ValueError{i, j, float64(v)}
			}
		}
	}
	return nil
}
