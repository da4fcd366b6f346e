package cpu

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// sparseRandom returns features of which one in three is not zero, in more rows
// than a chunk has; row 1 is empty.
func sparseRandom(rows, cols int) *graph.Features {
	r := source(1)
	values := random[float32](r, rows, cols, 0).Data
	for i := range values {
		if r.IntN(3) != 0 || i/cols == 1 {
			values[i] = 0
		}
	}
	return graph.NewFeatures(rows, cols, values)
}

// denseOf returns a as a matrix, and fails unless its rows ascend and hold no zero.
func denseOf[T Float](t *testing.T, a *Sparse[T]) Matrix[T] {
	t.Helper()
	m := NewMatrix[T](a.Rows, a.Cols)
	if len(a.Indptr) != a.Rows+1 || int(a.Indptr[a.Rows]-a.Indptr[0]) != len(a.Indices) || len(a.Values) != len(a.Indices) {
		t.Fatalf("%d rows have %d row pointers, %d indices and %d values", a.Rows, len(a.Indptr), len(a.Indices), len(a.Values))
	}
	for i := range a.Rows {
		last := -1
		for p := a.Indptr[i]; p < a.Indptr[i+1]; p++ {
			if j := int(a.Indices[p]); j <= last || a.Values[p] == 0 {
				t.Fatalf("row %d has value %v in column %d after column %d", i, a.Values[p], j, last)
			}
			last = int(a.Indices[p])
			m.Row(i)[last] = a.Values[p]
		}
	}
	return m
}

// TestGatherSparse compares with Gather and Dropout of the dense rows, bit for bit.
func TestGatherSparse(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		testGatherSparse[float32](t, x)
		testGatherSparse[float64](t, x)
	})
}

func testGatherSparse[T Float](t *testing.T, x *Exec) {
	const rows, cols = 3*rowsPerChunk + 5, 37
	f := sparseRandom(rows, cols)
	src := NewSparse(f)
	values, _, _ := f.Float32s()
	sameBits(t, "NewSparse", denseOf(t, src), Dense(rows, cols, values))
	ids := make([]uint32, 2*rowsPerChunk+9)
	for i := range ids {
		ids[i] = uint32(i * 53 % rows)
	}
	for _, n := range []int{0, 1, rowsPerChunk, len(ids)} {
		for _, of := range [][]uint32{nil, ids} {
			for _, drop := range []*Dropped{nil, {Key: rng.New(3)}, {Key: rng.New(3), P: 0.4}, {Key: rng.New(3), P: 0.4, IDs: ids}} {
				want := NewMatrix[T](n, cols)
				Gather(x, want, Source[T]{Table: f, IDs: of})
				if drop != nil {
					Dropout(x, want, want, *drop)
				}
				got := &Sparse[T]{Rows: n, Indptr: slices.Repeat([]int64{-7}, n+1)}
				GatherSparse(x, got, src, of, drop, func(n int) ([]uint32, []T) { return make([]uint32, n), make([]T, n) })
				sameBits(t, fmt.Sprintf("%d rows, ids %t, dropped %+v", n, of != nil, drop), denseOf(t, got), want)
			}
		}
	}
}

// TestTransposeSparse compares with the dense transpose, and that with its definition.
func TestTransposeSparse(t *testing.T) {
	for _, shape := range [][2]int{{1, 1}, {5, 9}, {150, 37}} {
		rows, cols := shape[0], shape[1]
		a := NewSparse(sparseRandom(rows, cols))
		n := len(a.Indices)
		got := &Sparse[float32]{Indptr: slices.Repeat([]int64{-7}, cols+1), Indices: make([]uint32, n), Values: make([]float32, n)}
		TransposeSparse(got, a)
		eachExec(t, func(t *testing.T, x *Exec) {
			dense := denseOf(t, a)
			for _, accumulate := range []bool{false, true} {
				want := random[float32](source(2), cols, rows, 2)
				before := random[float32](source(2), cols, rows, 2)
				TransposeDense(x, want, dense, accumulate)
				for j := range cols {
					for i := range rows {
						v := dense.Row(i)[j]
						if accumulate {
							v += before.Row(j)[i]
						}
						if want.Row(j)[i] != v {
							t.Fatalf("%v: the dense transpose has %v at (%d, %d), want %v", shape, want.Row(j)[i], j, i, v)
						}
					}
				}
				if !accumulate {
					sameBits(t, fmt.Sprint(shape), denseOf(t, got), want)
				}
			}
		})
	}
}

// TestSparseProduct compares with sums in float64 over the dense matrix.
func TestSparseProduct(t *testing.T) {
	const rows, inner, cols = 2*rowsPerChunk + 3, 37, 21
	a := NewSparse(sparseRandom(rows, inner))
	// Row pointers that begin within other rows' entries.
	part := &Sparse[float32]{Rows: rows - 2, Cols: inner, Indptr: a.Indptr[2:], Indices: a.Indices, Values: a.Values}
	dense := denseOf(t, a)
	b, bias := random[float32](source(3), inner, cols, 3), random[float32](source(4), 1, cols, 0).Data
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, from := range []int{0, 2} {
			m := a
			if from == 2 {
				m = part
			}
			for _, e := range []Epilogue[float32]{{}, {Bias: bias}, {Accumulate: true}, {Bias: bias, Accumulate: true, Act: LeakyReLU}} {
				got := random[float32](source(5), rows-from, cols, 1)
				want, size := NewMatrix[float64](rows-from, cols), NewMatrix[float64](rows-from, cols)
				for i := range want.Rows {
					for j := range cols {
						sum, abs := 0.0, 1.0
						if e.Accumulate {
							sum = float64(got.Row(i)[j])
						}
						for k, v := range dense.Row(from + i) {
							sum += float64(v) * float64(b.Row(k)[j])
							abs += max(float64(v), -float64(v))
						}
						if e.Bias != nil {
							sum += float64(bias[j])
						}
						want.Row(i)[j], size.Row(i)[j] = activation(e.Act, sum), abs
					}
				}
				SparseProduct(x, got, m, b, e)
				near(t, fmt.Sprintf("from row %d, %+v", from, e), widenMatrix(got), want, size, 1e-6)
			}
		}
	})
}
