package linear

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// span writes the rows of a wide matrix X (n×d, d > n) as X = L·Q with Q's r
// rows orthonormal: L comes from the pivoted Cholesky factor of X·Xᵀ, and Q is
// never formed, since r of the rows of X (the pivots) and the triangle U that
// belongs to them say the same: X[pivots] = Uᵀ·Q. Linearly dependent rows
// (centred data always have one) only lower the rank r.
type span struct {
	pivots *Dense            // r×d
	u      blas64.Triangular // r×r, upper
}

func newSpan(ctx context.Context, x *Dense) (*span, *Dense, error) {
	gram, err := gramMatrix(ctx, x)
	if err != nil {
		return nil, nil, err
	}
	n, _ := x.Dims()
	var f mat.PivotedCholesky
	f.Factorize(gram, -1)
	r := f.Rank()
	var tri mat.TriDense
	f.UTo(&tri)
	u := tri.RawTriangular()
	pivot := f.ColumnPivots(nil)

	rows, err := NewDense(n, r, make([]float64, n*r))
	if err != nil {
		return nil, nil, err
	}
	for k := range r {
		for i := k; i < n; i++ {
			rows.rows[pivot[i]][k] = u.Data[k*u.Stride+i]
		}
	}
	u.N = r
	return &span{pivots: x.Take(pivot[:r]).(*Dense), u: u}, rows, nil
}

// features returns the weights of the d features for weights v of the r
// coordinates: v·Q = (U⁻¹·v)ᵀ·X[pivots].
func (s *span) features(v []float64) []float64 {
	a := append([]float64(nil), v...)
	s.solve(blas.NoTrans, a)
	w := make([]float64, s.pivots.d)
	for i, c := range a {
		s.pivots.AddScaled(w, c, i)
	}
	return w
}

// coordinates projects weights of the features onto the span: w·Qᵀ =
// U⁻ᵀ·X[pivots]·w.
func (s *span) coordinates(w []float64) []float64 {
	v := make([]float64, s.u.N)
	for i := range v {
		v[i] = s.pivots.Dot(i, w)
	}
	s.solve(blas.Trans, v)
	return v
}

func (s *span) solve(t blas.Transpose, v []float64) {
	if len(v) > 0 { // all samples are zero otherwise, and BLAS wants a stride of at least 1
		blas64.Trsv(t, s.u, blas64.Vector{N: len(v), Inc: 1, Data: v})
	}
}

// Tile sizes for the Gram matrix: two tiles of 32 rows by 512 columns are 256
// KiB, which fits the second-level cache.
const (
	tileRows = 32
	tileCols = 512
)

// gramMatrix returns X·Xᵀ.
func gramMatrix(ctx context.Context, x *Dense) (*mat.SymDense, error) {
	n, d := x.Dims()
	g := mat.NewSymDense(n, nil)
	raw := g.RawSymmetric()
	for i0 := 0; i0 < n; i0 += tileRows {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("linear: preparing %d samples of %d features: %w", n, d, err)
		}
		i1 := min(i0+tileRows, n)
		for j0 := i0; j0 < n; j0 += tileRows {
			j1 := min(j0+tileRows, n)
			for c0 := 0; c0 < d; c0 += tileCols {
				c1 := min(c0+tileCols, d)
				for i := i0; i < i1; i++ {
					a, out := x.rows[i][c0:c1], raw.Data[i*raw.Stride:(i+1)*raw.Stride]
					for j := max(i, j0); j < j1; j++ {
						out[j] += floats.Dot(a, x.rows[j][c0:c1])
					}
				}
			}
		}
	}
	return g, nil
}
