package cpu

import (
	"math"
	"slices"
	"testing"
)

// TestRegression compares losses with their definitions, as PyTorch's documentation has them, and gradients with finite differences.
func TestRegression(t *testing.T) {
	const rows = lossRows + 9
	x := newExec(t, Go, 2)
	for l, of := range map[RegressionLoss]func(d float64) float64{
		SquaredError:  func(d float64) float64 { return d * d },
		AbsoluteError: math.Abs,
		HuberError:    func(d float64) float64 { return min(d*d/2, math.Abs(d)-0.5+max(0, 1-math.Abs(d))*9) },
	} {
		r := source(3)
		out, d := random[float64](r, rows, 1, 2), random[float64](r, rows, 1, 0)
		of32, at, weights := make([]float32, 40), make([]int32, rows), random[float64](r, 1, rows, 0).Data
		for i := range of32 {
			of32[i] = float32(r.NormFloat64() * 2)
		}
		for i := range at {
			if at[i] = int32(r.IntN(40)); i%5 == 4 {
				at[i] = -1
			}
		}
		want := 0.0
		for i, k := range at {
			if k >= 0 {
				want += weights[i] * of(out.Row(i)[0]-float64(of32[k]))
			}
		}
		loss := Regression(x, out, at, of32, weights, d, l)
		if math.Abs(loss-want) > 1e-10 {
			t.Errorf("loss %d: %v, want %v", l, loss, want)
		}
		dLater := NewMatrix[float64](rows, 1)
		if later := RegressionLater(x, out, at, of32, weights, dLater, l)(); later != loss || !slices.Equal(dLater.Data, d.Data) {
			t.Errorf("loss %d: %v or another gradient, told later", l, later)
		}
		for i := range rows {
			const h = 1e-6
			p := &out.Row(i)[0]
			v := *p
			*p = v + h
			up := Regression(x, out, at, of32, weights, Matrix[float64]{}, l)
			*p = v - h
			down := Regression(x, out, at, of32, weights, Matrix[float64]{}, l)
			*p = v
			if got := d.Row(i)[0]; math.Abs(got-(up-down)/(2*h)) > 1e-6 {
				t.Fatalf("loss %d: gradient %d is %v, difference quotient %v", l, i, got, (up-down)/(2*h))
			}
		}
		ones := Regression(x, out, at, of32, nil, d, l)
		for i := range weights {
			weights[i] = 1
		}
		if same := Regression(x, out, at, of32, weights, d, l); same != ones {
			t.Errorf("loss %d: %v without weights, %v with ones", l, ones, same)
		}
	}
}
