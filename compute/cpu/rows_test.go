package cpu

import (
	"math"
	"testing"
)

// TestRowKernels checks the kernels of rows and entries against loops in Go, on enough rows for several
// chunks, of which some have no entries, and matrices with gaps between their rows.
func TestRowKernels(t *testing.T) {
	for _, workers := range []int{1, 3} {
		t.Run("float32", func(t *testing.T) { testRowKernels[float32](t, newExec(t, Go, workers)) })
		t.Run("float64", func(t *testing.T) { testRowKernels[float64](t, newExec(t, Go, workers)) })
	}
}

func testRowKernels[T Float](t *testing.T, x *Exec) {
	const n, cols = 2*rowsPerChunk + 9, 5
	r := source(31)
	equal := func(what string, got, want Matrix[T]) {
		t.Helper()
		for i := range got.Rows {
			for j, w := range want.Row(i) {
				if g := got.Row(i)[j]; g != w && (g == g || w == w) {
					t.Fatalf("%s: row %d, column %d is %v, want %v", what, i, j, g, w)
				}
			}
		}
	}
	a := random[T](r, n, cols, 2)

	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = r.Uint32N(n)
	}
	got, want := random[T](r, n, cols, 1), NewMatrix[T](n, cols)
	for i, id := range ids {
		copy(want.Row(i), a.Row(int(id)))
	}
	TakeRows(x, got, a, ids)
	equal("TakeRows", got, want)
	for i := range n {
		for j, v := range a.Row(i) {
			want.Row(i)[j] = v / 3
		}
	}
	Divide(x, got, a, 3)
	equal("Divide", got, want)

	indptr := make([]int64, n+1)
	for i := range n {
		indptr[i+1] = indptr[i] + r.Int64N(4)
	}
	entries := random[T](r, int(indptr[n]), cols, 3)
	for _, mean := range []bool{false, true} {
		share := func(i int) T {
			if d := indptr[i+1] - indptr[i]; mean && d > 0 {
				return 1 / T(d)
			}
			return 1
		}
		got, want := random[T](r, n, cols, 1), NewMatrix[T](n, cols)
		for i := range n {
			for e := indptr[i]; e < indptr[i+1]; e++ {
				for j, v := range entries.Row(int(e)) {
					want.Row(i)[j] += T(share(i) * v)
				}
			}
		}
		SumEntries(x, got, indptr, entries, mean)
		equal("SumEntries", got, want)
		for _, accumulate := range []bool{false, true} {
			got, want := random[T](r, entries.Rows, cols, 1), NewMatrix[T](entries.Rows, cols)
			for i := range n {
				for e := int(indptr[i]); e < int(indptr[i+1]); e++ {
					for j, v := range a.Row(i) {
						if want.Row(e)[j] = T(share(i) * v); accumulate {
							want.Row(e)[j] += got.Row(e)[j]
						}
					}
				}
			}
			SpreadEntries(x, got, indptr, a, mean, accumulate)
			equal("SpreadEntries", got, want)
		}
	}

	sums := make([]T, n)
	RowSums(x, sums, a)
	for i, s := range sums {
		w := T(0)
		for _, v := range a.Row(i) {
			w += v
		}
		if s != w {
			t.Fatalf("RowSums: row %d is %v, want %v", i, s, w)
		}
	}
	for _, accumulate := range []bool{false, true} {
		got, want := random[T](r, n, cols, 1), NewMatrix[T](n, cols)
		for i, s := range sums {
			for j := range want.Row(i) {
				if want.Row(i)[j] = s; accumulate {
					want.Row(i)[j] += got.Row(i)[j]
				}
			}
		}
		SpreadRows(x, got, sums, accumulate)
		equal("SpreadRows", got, want)
	}

	// Three matrices, of which the second has NaN and the third what the first has, in some elements.
	parts := []Matrix[T]{random[T](r, n, cols, 0), random[T](r, n, cols, 1), random[T](r, n, cols, 2)}
	most, from, whose := NewMatrix[T](n, cols), make([]uint32, n*cols), make([]uint32, n*cols)
	for i := range n {
		parts[1].Row(i)[i%cols] = T(math.NaN())
		parts[2].Row(i)[(i+1)%cols] = parts[0].Row(i)[(i+1)%cols]
		for j := range cols {
			most.Row(i)[j] = parts[0].Row(i)[j]
			for k := uint32(1); k < 3; k++ { // the first of equals, and of NaN
				if v := parts[k].Row(i)[j]; most.Row(i)[j] == most.Row(i)[j] && !(v <= most.Row(i)[j]) {
					most.Row(i)[j], whose[i*cols+j] = v, k
				}
			}
			from[i*cols+j] = 7 // which the first call overwrites
		}
	}
	got = random[T](r, n, cols, 1)
	for i := range n {
		copy(got.Row(i), parts[0].Row(i))
	}
	for k := uint32(1); k < 3; k++ {
		Larger(x, got, parts[k], from, k)
	}
	equal("Larger", got, most)
	for i, k := range from {
		if k != whose[i] {
			t.Fatalf("Larger: element %d is of matrix %d, want %d", i, k, whose[i])
		}
	}
	for k := range uint32(3) {
		got, want := random[T](r, n, cols, 1), NewMatrix[T](n, cols)
		for i := range n {
			for j := range cols {
				if whose[i*cols+j] == k {
					want.Row(i)[j] = a.Row(i)[j]
				}
			}
		}
		Where(x, got, a, from, k)
		equal("Where", got, want)
	}
}
