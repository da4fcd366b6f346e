package cpu

import (
	"fmt"
	"math"
	"testing"
)

var activations = []Activation{Linear, ReLU, LeakyReLU, ELU}

// activation is f's definition, and slope its derivative.
func activation(f Activation, v float64) float64 {
	switch {
	case f == Linear || v > 0 || v != v:
		return v
	case f == LeakyReLU:
		return LeakySlope * v
	case f == ELU:
		return math.Expm1(v)
	}
	return 0
}

func slope(f Activation, v float64) float64 {
	switch {
	case f == Linear || v > 0 || v != v:
		return 1
	case f == LeakyReLU:
		return LeakySlope
	case f == ELU:
		return math.Exp(v)
	}
	return 0
}

// extremes are values at which kernels go wrong.
var extremes = []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), -1e-30, 1e-30, -1e-5, -0.3, -87, -87.4, -100, -1e30, 1e30, 88, 5}

func testActivation[T Float](t *testing.T, x *Exec, tol float64) {
	for _, f := range activations {
		for _, n := range []int{1, 7, 8, 16, 47, 300} {
			a, dy := random[T](source(uint64(n)), 3, n, 1), random[T](source(9), 3, n, 0)
			for k := range min(n, len(extremes)) {
				a.Row(1)[n-1-k] = T(extremes[k])
			}
			for i := range a.Rows {
				for j := range a.Row(i) {
					a.Row(i)[j] *= 4
				}
			}
			y, dx := NewMatrix[T](3, n), NewMatrix[T](3, n)
			Activate(x, f, y, a)
			ActivateBackward(x, f, dx, dy, y)
			for i := range a.Rows {
				for j, v := range a.Row(i) {
					v := float64(v)
					for k, c := range [][2]float64{{float64(y.Row(i)[j]), activation(f, v)}, {float64(dx.Row(i)[j]), slope(f, v) * float64(dy.Row(i)[j])}} {
						got, want := c[0], c[1]
						size := math.Abs(want)
						if k == 1 && f == ELU {
							size += math.Abs(float64(dy.Row(i)[j]))
						}
						if math.Abs(got-want) > tol*size && got != want || (got != got) != (want != want) {
							t.Fatalf("%v(%v): got %v, want %v", f, v, got, want)
						}
					}
				}
			}
		}
	}
}

// TestActivate compares every activation and its gradient with the definition,
// NaN and infinities included, relative to the result. ELU's slope is read off
// its result, y+1, so its gradient errs in proportion to dy.
func TestActivate(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		testActivation[float32](t, x, 4e-7)
		testActivation[float64](t, x, 1e-15)
	})
}

// TestActivateSets checks that all sets agree bit by bit, but for the sign of a
// zero out of ReLU.
func TestActivateSets(t *testing.T) {
	a := random[float32](source(3), 1, 4096, 0)
	for i := range a.Data {
		a.Data[i] *= 120
	}
	for k, v := range extremes {
		a.Data[k] = float32(v)
	}
	dy := random[float32](source(4), 1, 4096, 0)
	for _, f := range activations {
		want, slope := NewMatrix[float32](1, 4096), NewMatrix[float32](1, 4096)
		x := newExec(t, Go, 1)
		Activate(x, f, want, a)
		ActivateBackward(x, f, slope, dy, want)
		for _, set := range sets() {
			got := NewMatrix[float32](1, 4096)
			x := newExec(t, set, 2)
			Activate(x, f, got, a)
			for i, v := range got.Data {
				if w := want.Data[i]; v != w && !(v != v && w != w) {
					t.Fatalf("%v, %v(%v): %v, want %v", set, f, a.Data[i], v, w)
				}
			}
			ActivateBackward(x, f, got, dy, want)
			for i, v := range got.Data {
				if w := slope.Data[i]; v != w {
					t.Fatalf("%v, gradient of %v(%v): %v, want %v", set, f, a.Data[i], v, w)
				}
			}
		}
	}
}

// TestActivationEpilogue checks that a product with an activation has the bits
// of the product followed by it: split or not, without terms, accumulated.
func TestActivationEpilogue(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, shape := range [][3]int{{1, 1, 1}, {37, 21, 300}, {70, 47, 9}, {5, 3, 0}, {6, 5, 9000}} {
			m, n, k := shape[0], shape[1], shape[2]
			a, b := random[float32](source(1), k, m, 0), random[float32](source(2), k, n, 0)
			e := Epilogue[float32]{Bias: random[float32](source(3), 1, n, 0).Data, Accumulate: true}
			for _, f := range activations {
				want, got := random[float32](source(4), m, n, 2), random[float32](source(4), m, n, 2)
				e.Act = Linear
				Gemm(x, want, a, true, b, false, e)
				Activate(x, f, want, want)
				e.Act = f
				Gemm(x, got, a, true, b, false, e)
				near(t, fmt.Sprint(f, shape), got, want, want, 0)
			}
		}
	})
}
