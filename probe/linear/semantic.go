package linear

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// LatentSemantic embeds texts by TF-IDF and a truncated singular value
// decomposition (Deerwester et al. 1990), both fitted on the training texts: words
// as FitVectorizer reads them, idf = ln((1+n)/(1+df)) + 1, rows of length 1, as
// scikit-learn's TfidfVectorizer and TruncatedSVD have them. It returns one row a
// text of up to dims values, fewer where the training texts have a smaller rank.
// The signs of its columns are arbitrary. The error wraps ErrNoTerms for training
// texts without words.
func LatentSemantic(ctx context.Context, texts []string, train []int, dims int) (*Dense, error) {
	v, err := FitVectorizer(At(texts, train), VectorizerOptions{})
	if err != nil {
		return nil, err
	}
	x := v.Transform(texts)
	x.weighByRarity(train)
	n := len(train)
	// With fewer training texts than words the Gram matrix is the smaller one; its
	// eigenvectors U and eigenvalues S² give the projection X·Xᵀ·U/S.
	gram := mat.NewSymDense(n, nil)
	dense := make([]float64, x.d)
	products := make([]float64, len(texts)*n)
	for k, i := range train {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("linear: embedding %d texts: %w", len(texts), err)
		}
		clear(dense)
		x.AddScaled(dense, 1, i)
		for j := range texts {
			products[j*n+k] = x.Dot(j, dense)
		}
		for l := range k + 1 {
			gram.SetSym(k, l, products[train[l]*n+k])
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(gram, true) {
		return nil, fmt.Errorf("linear: the Gram matrix of %d texts has no decomposition", n)
	}
	values := eigen.Values(nil) // ascending
	var vectors mat.Dense
	eigen.VectorsTo(&vectors)
	slices.Reverse(values)
	kept := 0
	for kept < min(dims, n) && values[kept] > 1e-10*values[0] {
		kept++
	}
	projection := mat.NewDense(n, max(1, kept), nil)
	for c := range kept {
		for k := range n {
			projection.Set(k, c, vectors.At(k, n-1-c)/math.Sqrt(values[c]))
		}
	}
	var out mat.Dense
	out.Mul(mat.NewDense(len(texts), n, products), projection)
	return NewDense(len(texts), max(1, kept), out.RawMatrix().Data)
}

// weighByRarity multiplies counts by the inverse document frequency of their
// term in the given rows and gives every row length 1.
func (x *Sparse) weighByRarity(rows []int) {
	docs := make([]float64, x.d)
	for _, i := range rows {
		for _, j := range x.index[i] {
			docs[j]++
		}
	}
	for i, index := range x.index {
		square := 0.0
		for k, j := range index {
			x.value[i][k] *= math.Log((1+float64(len(rows)))/(1+docs[j])) + 1
			square += x.value[i][k] * x.value[i][k]
		}
		for k := range index {
			x.value[i][k] /= math.Sqrt(square)
		}
	}
}
