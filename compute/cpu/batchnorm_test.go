package cpu

import (
	"fmt"
	"math"
	"testing"
)

// batchShapes cross the bounds of chunks of rows and of vectors.
var batchShapes = [][2]int{{1, 1}, {2, 7}, {3, 8}, {255, 47}, {256, 33}, {257, 100}, {1000, 64}}

// TestMoments compares with the definition in float64, on columns whose mean is
// a thousand times their deviation.
func TestMoments(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, shape := range batchShapes {
			a := random[float32](source(1), shape[0], shape[1], 1)
			for i := range a.Rows {
				for j := range a.Row(i) {
					a.Row(i)[j] += float32(1000 * (j % 3))
				}
			}
			mean, variance := make([]float32, a.Cols), make([]float32, a.Cols)
			Moments(x, a, mean, variance)
			for j := range a.Cols {
				var mu, square float64
				for i := range a.Rows {
					mu += float64(a.Row(i)[j]) / float64(a.Rows)
				}
				for i := range a.Rows {
					square += math.Pow(float64(a.Row(i)[j])-mu, 2) / float64(a.Rows)
				}
				if math.Abs(float64(mean[j])-mu) > 1e-6*math.Abs(mu)+1e-6 || math.Abs(float64(variance[j])-square) > 1e-4*square+1e-6 {
					t.Fatalf("%v: column %d: mean %v and variance %v, want %v and %v", shape, j, mean[j], variance[j], mu, square)
				}
			}
		}
	})
}

func TestMomentsWithoutRows(t *testing.T) {
	mean, variance := []float32{5, 5}, []float32{5, 5}
	Moments(newExec(t, Go, 1), NewMatrix[float32](0, 2), mean, variance)
	if mean[0] != 0 || variance[1] != 0 {
		t.Errorf("mean %v, variance %v, want 0", mean, variance)
	}
}

// batch runs BatchNorm forward and backward and returns y, da, dγ and dβ.
func batch[T Float](x *Exec, a, dy Matrix[T], gamma, beta []T, eps float64) (y, da Matrix[T], dgamma, dbeta []T) {
	mean, variance := make([]T, a.Cols), make([]T, a.Cols)
	Moments(x, a, mean, variance)
	y, da = NewMatrix[T](a.Rows, a.Cols), NewMatrix[T](a.Rows, a.Cols)
	BatchNorm(x, y, a, gamma, beta, eps, mean, variance)
	dgamma, dbeta = make([]T, a.Cols), make([]T, a.Cols)
	BatchNormBackward(x, da, dy, a, gamma, eps, mean, variance, dgamma, dbeta)
	return y, da, dgamma, dbeta
}

// TestBatchNormGradient compares every gradient with finite differences of
// Σ y∘dy in float64.
func TestBatchNormGradient(t *testing.T) {
	x := newExec(t, Go, 2)
	for _, shape := range [][2]int{{1, 3}, {2, 2}, {7, 5}, {300, 2}} {
		rows, cols := shape[0], shape[1]
		a, dy := random[float64](source(1), rows, cols, 1), random[float64](source(2), rows, cols, 0)
		gamma, beta := random[float64](source(3), 1, cols, 0).Data, random[float64](source(4), 1, cols, 0).Data
		const eps, h = 1e-2, 1e-6
		loss := func() float64 {
			y, _, _, _ := batch(x, a, dy, gamma, beta, eps)
			return Dot(x, y, dy)
		}
		_, da, dgamma, dbeta := batch(x, a, dy, gamma, beta, eps)
		check := func(what string, p *float64, got float64) {
			v := *p
			*p = v + h
			up := loss()
			*p = v - h
			down := loss()
			*p = v
			if want := (up - down) / (2 * h); math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%v: gradient of %s is %v, difference quotient %v", shape, what, got, want)
			}
		}
		for i := 0; i < rows; i += 1 + rows/7 {
			for j := range cols {
				check(fmt.Sprintf("a(%d, %d)", i, j), &a.Row(i)[j], da.Row(i)[j])
			}
		}
		for j := range cols {
			check("γ", &gamma[j], dgamma[j])
			check("β", &beta[j], dbeta[j])
		}
	}
}

// TestBatchNormSets checks that every set and number of workers gives the same
// bits, and that they are near float64's.
func TestBatchNormSets(t *testing.T) {
	for _, shape := range batchShapes {
		rows, cols := shape[0], shape[1]
		a, dy := random[float32](source(1), rows, cols, 2), random[float32](source(2), rows, cols, 1)
		gamma, beta := random[float32](source(3), 1, cols, 0).Data, random[float32](source(4), 1, cols, 0).Data
		const eps = 1e-3
		y, da, dgamma, dbeta := batch(newExec(t, Go, 1), a, dy, gamma, beta, eps)
		wy, wda, wdgamma, wdbeta := batch(newExec(t, Go, 1), widenMatrix(a), widenMatrix(dy), widen(gamma), widen(beta), eps)
		one := Matrix[float64]{Rows: rows, Cols: cols, Data: make([]float64, cols)}
		for j := range one.Data {
			one.Data[j] = 40
		}
		near(t, fmt.Sprint(shape, " y"), widenMatrix(y), wy, one, 1e-6)
		near(t, fmt.Sprint(shape, " da"), widenMatrix(da), wda, one, 1e-5)
		one.Rows = 1
		one.Data = make([]float64, cols)
		for j := range one.Data {
			one.Data[j] = float64(rows)
		}
		near(t, fmt.Sprint(shape, " dγ"), Dense(1, cols, widen(dgamma)), Dense(1, cols, wdgamma), one, 1e-5)
		near(t, fmt.Sprint(shape, " dβ"), Dense(1, cols, widen(dbeta)), Dense(1, cols, wdbeta), one, 1e-5)
		for _, set := range sets() {
			for _, workers := range []int{1, 2} {
				y2, da2, dgamma2, dbeta2 := batch(newExec(t, set, workers), a, dy, gamma, beta, eps)
				what := fmt.Sprint(shape, set, workers)
				sameBits(t, what, y, y2)
				sameBits(t, what, da, da2)
				sameBits(t, what, Dense(1, cols, dgamma), Dense(1, cols, dgamma2))
				sameBits(t, what, Dense(1, cols, dbeta), Dense(1, cols, dbeta2))
			}
		}
	}
}

// TestBatchNormNaN checks that a NaN stays in its column.
func TestBatchNormNaN(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		a, dy := random[float32](source(1), 20, 9, 0), random[float32](source(2), 20, 9, 0)
		a.Row(3)[4] = float32(math.NaN())
		y, da, _, _ := batch(x, a, dy, nil, nil, 1e-5)
		for i := range a.Rows {
			for j := range a.Cols {
				if v, g := y.Row(i)[j], da.Row(i)[j]; (v != v) != (j == 4) || (g != g) != (j == 4) {
					t.Fatalf("(%d, %d): y %v, gradient %v", i, j, v, g)
				}
			}
		}
	})
}

func BenchmarkBatchNorm(b *testing.B) {
	const rows, cols = 65536, 256
	a, dy := random[float32](source(1), rows, cols, 0), random[float32](source(2), rows, cols, 0)
	mean, variance := make([]float32, cols), make([]float32, cols)
	for _, set := range sets() {
		for _, workers := range []int{1, 2} {
			x := newExec(b, set, workers)
			for name, f := range map[string]func(){
				"Moments":  func() { Moments(x, a, mean, variance) },
				"Forward":  func() { BatchNorm(x, dy, a, nil, nil, 1e-5, mean, variance) },
				"Backward": func() { BatchNormBackward(x, dy, dy, a, nil, 1e-5, mean, variance, nil, nil) },
			} {
				b.Run(fmt.Sprintf("%s/%v/%d", name, set, workers), func(b *testing.B) {
					b.SetBytes(rows * cols * 4)
					for b.Loop() {
						f()
					}
				})
			}
		}
	}
}

// TestBatchNormSingleRow checks that the gradient of a row that is alone is
// exactly 0, since its result is β.
func TestBatchNormSingleRow(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		a, dy := random[float32](source(1), 1, 37, 2), random[float32](source(2), 1, 37, 1)
		mean, variance, dgamma, dbeta := make([]float32, 37), make([]float32, 37), make([]float32, 37), make([]float32, 37)
		Moments(x, a, mean, variance)
		da := random[float32](source(3), 1, 37, 0)
		BatchNormBackward(x, da, dy, a, nil, 1e-5, mean, variance, dgamma, dbeta)
		for j, v := range da.Data {
			if v != 0 || dgamma[j] != 0 || dbeta[j] != dy.Data[j] {
				t.Errorf("column %d: gradient %v, of gamma %v, of beta %v with dy %v", j, v, dgamma[j], dbeta[j], dy.Data[j])
			}
		}
	})
}
