package cpu

import (
	"fmt"
	"math"
	"testing"
)

// TestLayerNorm compares with the definition in float64, on rows that are 30 times
// their deviation away from zero.
func TestLayerNorm(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		testLayerNorm[float32](t, x, 2e-5)
		testLayerNorm[float64](t, x, 1e-12)
	})
}

func testLayerNorm[T Float](t *testing.T, x *Exec, tol float64) {
	const eps = 0.01
	for _, cols := range []int{1, 7, 8, 19, 64} {
		const rows = rowsPerChunk + 3
		a := random[T](source(1), rows, cols, 2)
		for i := range rows {
			for j := range a.Row(i) {
				a.Row(i)[j] += T(20 * (i % 2))
			}
		}
		gamma, beta := random[T](source(2), 1, cols, 0).Data, random[T](source(3), 1, cols, 0).Data
		mean, rstd := make([]T, rows), make([]T, rows)
		y := random[T](source(4), rows, cols, 1)
		LayerNorm(x, y, a, gamma, beta, eps, mean, rstd)
		for i := range rows {
			mu, variance := 0.0, 0.0
			for _, v := range a.Row(i) {
				mu += float64(v) / float64(cols)
			}
			for _, v := range a.Row(i) {
				variance += math.Pow(float64(v)-mu, 2) / float64(cols)
			}
			r := 1 / math.Sqrt(variance+eps)
			if math.Abs(float64(mean[i])-mu) > tol || math.Abs(float64(rstd[i])-r) > 10*tol*r {
				t.Fatalf("%d columns: row %d has mean %v and scale %v, want %v and %v", cols, i, mean[i], rstd[i], mu, r)
			}
			for j, v := range a.Row(i) {
				want := float64(gamma[j])*(float64(v)-mu)*r + float64(beta[j])
				if math.Abs(float64(y.Row(i)[j])-want) > 20*tol {
					t.Fatalf("%d columns: (%d, %d) = %v, want %v", cols, i, j, y.Row(i)[j], want)
				}
			}
		}
	}
}

// TestLayerNormGradient compares with finite differences of Σ y∘dy in float64, and
// float32 with float64, in place and not.
func TestLayerNormGradient(t *testing.T) {
	const rows, eps, h = rowsPerChunk + 3, 0.01, 1e-6
	x := newExec(t, Go, 2)
	for _, cols := range []int{2, 7, 8, 19} {
		a, dy := random[float64](source(1), rows, cols, 2), random[float64](source(4), rows, cols, 1)
		gamma, beta := random[float64](source(2), 1, cols, 0).Data, random[float64](source(3), 1, cols, 0).Data
		mean, rstd := make([]float64, rows), make([]float64, rows)
		loss := func() float64 {
			y := NewMatrix[float64](rows, cols)
			LayerNorm(x, y, a, gamma, beta, eps, mean, rstd)
			return Dot(x, y, dy)
		}
		loss()
		da, terms := NewMatrix[float64](rows, cols), random[float64](source(5), rows, cols, 1)
		LayerNormBackward(x, da, dy, a, gamma, mean, rstd, terms)
		dgamma := make([]float64, cols)
		ColumnSums(x, dgamma, terms, false)
		check := func(what string, p *float64, got float64) {
			t.Helper()
			v := *p
			*p = v + h
			up := loss()
			*p = v - h
			down := loss()
			*p = v
			if want := (up - down) / (2 * h); math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
				t.Fatalf("%d columns: %s is %v, difference quotient %v", cols, what, got, want)
			}
		}
		for j := range cols {
			check(fmt.Sprintf("the gradient of γ[%d]", j), &gamma[j], dgamma[j])
			for _, i := range []int{0, 1, rowsPerChunk - 1, rowsPerChunk, rows - 1} {
				check(fmt.Sprintf("the gradient at (%d, %d)", i, j), &a.Row(i)[j], da.Row(i)[j])
			}
		}
		loss()
		in := narrowMatrix(dy) // in place, without terms
		LayerNormBackward(x, in, in, narrowMatrix(a), narrowMatrix(Dense(1, cols, gamma)).Data,
			narrowMatrix(Dense(1, rows, mean)).Data, narrowMatrix(Dense(1, rows, rstd)).Data, Matrix[float32]{})
		near(t, "in float32", widenMatrix(in), da, filled(rows, cols, 10.0), 1e-5)
	}
}

func narrowMatrix(m Matrix[float64]) Matrix[float32] {
	out := NewMatrix[float32](m.Rows, m.Cols)
	for i := range m.Rows {
		for j, v := range m.Row(i) {
			out.Row(i)[j] = float32(v)
		}
	}
	return out
}

func filled[T Float](rows, cols int, v T) Matrix[T] {
	m := NewMatrix[T](rows, cols)
	for i := range m.Data {
		m.Data[i] = v
	}
	return m
}

// TestDot compares with a plain sum in float64.
func TestDot(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, shape := range [][2]int{{0, 3}, {3, 0}, {1, 1}, {2, 7}, {3, 8}, {sumRows, 9}, {2*sumRows + 1, 19}} {
			a, b := random[float32](source(1), shape[0], shape[1], 1), random[float32](source(2), shape[0], shape[1], 0)
			want := 0.0
			for i := range a.Rows {
				for j, v := range a.Row(i) {
					want += float64(v) * float64(b.Row(i)[j])
				}
			}
			if got := Dot(x, a, b); math.Abs(got-want) > 1e-9 {
				t.Errorf("%v: %v, want %v", shape, got, want)
			}
		}
	})
}
