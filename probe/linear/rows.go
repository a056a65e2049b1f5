package linear

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// Rows is a matrix of n samples by d features that is read row by row. Row and
// column numbers start at 0; one out of range panics, as indexing a slice does.
// Implementations do not change after they are made and are safe for concurrent
// use.
type Rows interface {
	// Dims returns the number of samples and of features.
	Dims() (n, d int)
	// Dot returns the inner product of row i and w, which has length d.
	Dot(i int, w []float64) float64
	// AddScaled adds a times row i to dst, which has length d.
	AddScaled(dst []float64, a float64, i int)
	// Take returns the given rows in the given order, without copying values.
	Take(rows []int) Rows
	// Check returns a *ValueError for the first value that is not finite.
	Check() error
}

// ValueError says where a value sat that cannot be used.
type ValueError struct {
	Row, Col int
	Value    float64
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("linear: row %d, column %d is %v; every feature must be finite", e.Row, e.Col, e.Value)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Dense holds every value.
type Dense struct {
	d    int
	rows [][]float64
}

// NewDense returns the n by d matrix whose row-major values are data, which it
// keeps and which must not be changed any more.
func NewDense(n, d int, data []float64) (*Dense, error) {
	if n < 0 || d < 0 || len(data) != n*d {
		return nil, fmt.Errorf("linear: %d values cannot be a matrix of %d by %d", len(data), n, d)
	}
	x := &Dense{d: d, rows: make([][]float64, n)}
	for i := range x.rows {
		x.rows[i] = data[i*d : (i+1)*d : (i+1)*d]
	}
	return x, nil
}

// Dims returns the number of rows and of columns.
func (x *Dense) Dims() (n, d int) { return len(x.rows), x.d }

// Dot returns the inner product of row i and w.
func (x *Dense) Dot(i int, w []float64) float64 { return floats.Dot(x.rows[i], w) }

// AddScaled adds a times row i to dst.
func (x *Dense) AddScaled(dst []float64, a float64, i int) { floats.AddScaled(dst, a, x.rows[i]) }

// Take returns a *Dense of the given rows, which shares their values.
func (x *Dense) Take(rows []int) Rows {
	t := &Dense{d: x.d, rows: make([][]float64, len(rows))}
	for k, i := range rows {
		t.rows[k] = x.rows[i]
	}
	return t
}

// Row returns row i, which must not be changed.
func (x *Dense) Row(i int) []float64 { return x.rows[i] }

// Check looks for values that are not finite.
func (x *Dense) Check() error {
	for i, row := range x.rows {
		for j, v := range row {
			if !finite(v) {
				return &ValueError{i, j, v}
			}
		}
	}
	return nil
}

// Sparse holds the values that are not zero.
type Sparse struct {
	d     int
	index [][]int
	value [][]float64
}

// NewSparse returns a matrix of d columns in compressed sparse row form: row i
// has value[k] in column index[k] for start[i] ≤ k < start[i+1]. A column that
// is named twice counts twice. The slices are kept and must not be changed.
func NewSparse(d int, start, index []int, value []float64) (*Sparse, error) {
	if len(start) == 0 || start[0] != 0 || start[len(start)-1] != len(index) || len(index) != len(value) {
		return nil, fmt.Errorf("linear: a sparse matrix of %d column numbers and %d values needs row starts from 0 to that number",
			len(index), len(value))
	}
	n := len(start) - 1
	x := &Sparse{d: d, index: make([][]int, n), value: make([][]float64, n)}
	for i := range n {
		lo, hi := start[i], start[i+1]
		if lo > hi || hi > len(index) {
			return nil, fmt.Errorf("linear: row %d of a sparse matrix goes from %d to %d of %d values", i, lo, hi, len(index))
		}
		for _, j := range index[lo:hi] {
			if j < 0 || j >= d {
				return nil, fmt.Errorf("linear: row %d of a sparse matrix names column %d of %d", i, j, d)
			}
		}
		x.index[i], x.value[i] = index[lo:hi:hi], value[lo:hi:hi]
	}
	return x, nil
}

// Beside returns a matrix with the columns of more to the right of x's. Both have
// the same number of rows.
func (x *Sparse) Beside(more *Dense) (*Sparse, error) {
	n, d := more.Dims()
	if n != len(x.index) {
		return nil, fmt.Errorf("linear: %d rows beside %d", n, len(x.index))
	}
	out := &Sparse{d: x.d + d, index: make([][]int, n), value: make([][]float64, n)}
	for i := range n {
		out.index[i], out.value[i] = slices.Clone(x.index[i]), slices.Clone(x.value[i])
		for j, v := range more.Row(i) {
			if v != 0 {
				out.index[i], out.value[i] = append(out.index[i], x.d+j), append(out.value[i], v)
			}
		}
	}
	return out, nil
}

// Dims returns the number of rows and of columns.
func (x *Sparse) Dims() (n, d int) { return len(x.index), x.d }

// Dot returns the inner product of row i and w.
func (x *Sparse) Dot(i int, w []float64) float64 {
	value, sum := x.value[i], 0.0
	for k, j := range x.index[i] {
		sum += value[k] * w[j]
	}
	return sum
}

// AddScaled adds a times row i to dst.
func (x *Sparse) AddScaled(dst []float64, a float64, i int) {
	value := x.value[i]
	for k, j := range x.index[i] {
		dst[j] += a * value[k]
	}
}

// Take returns a *Sparse of the given rows, which shares their values.
func (x *Sparse) Take(rows []int) Rows {
	t := &Sparse{d: x.d, index: make([][]int, len(rows)), value: make([][]float64, len(rows))}
	for k, i := range rows {
		t.index[k], t.value[k] = x.index[i], x.value[i]
	}
	return t
}

// Check looks for values that are not finite.
func (x *Sparse) Check() error {
	for i, row := range x.value {
		for k, v := range row {
			if !finite(v) {
				return &ValueError{i, x.index[i][k], v}
			}
		}
	}
	return nil
}
