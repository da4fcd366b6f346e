package cpu

import (
	"math"
	"testing"
)

// lossOptions are those that TestLossOptions tries, of four classes.
var lossOptions = map[string]LossOptions{
	"weights":               {ClassWeights: []float64{0.5, 2, 0, 1.25}},
	"smoothing":             {Smoothing: 0.2},
	"weights and smoothing": {ClassWeights: []float64{0.5, 2, 0, 1.25}, Smoothing: 0.3},
	"focal 2":               {Gamma: 2},
	"focal 0.5, weights":    {Gamma: 0.5, ClassWeights: []float64{0.5, 2, 0, 1.25}},
}

// TestLossOptions compares losses with their definitions, as PyTorch's documentation of CrossEntropyLoss and
// BCEWithLogitsLoss and the paper on the focal loss have them, and gradients with finite differences; more rows than a chunk has.
func TestLossOptions(t *testing.T) {
	const rows, cols = lossRows + 9, 4
	x := newExec(t, Go, 2)
	for name, o := range lossOptions {
		weight := func(j int) float64 {
			if o.ClassWeights == nil {
				return 1
			}
			return o.ClassWeights[j]
		}
		t.Run(name, func(t *testing.T) {
			r := source(5)
			z, d := random[float64](r, rows, cols, 1), random[float64](r, rows, cols, 0)
			for i := range rows {
				for j := range cols {
					z.Row(i)[j] *= 4
				}
			}
			labels, weights, multi := make([]int32, rows), random[float64](r, 1, rows, 0).Data, make([]uint8, rows*cols)
			for i := range rows {
				labels[i] = int32(r.IntN(cols+1)) - 1
			}
			for i := range multi {
				multi[i] = uint8(r.IntN(2))
			}
			soft, sigmoid := 0.0, 0.0
			for i, class := range labels {
				if class < 0 {
					continue
				}
				sum := 0.0
				for _, v := range z.Row(i) {
					sum += math.Exp(v)
				}
				for j, v := range z.Row(i) {
					p, target := math.Exp(v)/sum, o.Smoothing/cols
					if j == int(class) {
						target += 1 - o.Smoothing
					}
					soft -= weights[i] * weight(j) * target * math.Pow(1-p, o.Gamma) * math.Log(p)

					p = 1 / (1 + math.Exp(-v))
					yes, no := math.Pow(1-p, o.Gamma)*math.Log(p)*weight(j), math.Pow(p, o.Gamma)*math.Log(1-p)
					y := float64(multi[int(class)*cols+j])*(1-o.Smoothing) + o.Smoothing/2
					sigmoid -= weights[i] / cols * (y*yes + (1-y)*no)
				}
			}
			check := func(what string, want float64, f func(d Matrix[float64]) float64) {
				t.Helper()
				if got := f(d); math.Abs(got-want) > 1e-9 {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
				const h = 1e-5
				for i := 0; i < rows; i += 3 {
					for j := range cols {
						p := &z.Row(i)[j]
						v := *p
						*p = v + h
						up := f(Matrix[float64]{})
						*p = v - h
						down := f(Matrix[float64]{})
						*p = v
						if got := d.Row(i)[j]; math.Abs(got-(up-down)/(2*h)) > 1e-7 {
							t.Fatalf("%s: gradient (%d, %d) is %v, difference quotient %v", what, i, j, got, (up-down)/(2*h))
						}
					}
				}
			}
			check("softmax", soft, func(d Matrix[float64]) float64 {
				loss, _ := SoftmaxLoss(x, z, labels, weights, d, o)
				return loss
			})
			check("sigmoid", sigmoid, func(d Matrix[float64]) float64 {
				loss, _ := SigmoidLoss(x, z, labels, multi, weights, d, o)
				return loss
			})

			// Far from zero nothing overflows, and in place is the same.
			for _, far := range []float64{-900, 900} {
				for i := range rows {
					z.Row(i)[1] = far
				}
				SoftmaxLoss(x, z, labels, weights, d, o)
				same := NewMatrix[float64](rows, cols)
				for i := range rows {
					copy(same.Row(i), z.Row(i))
				}
				loss, _ := SoftmaxLoss(x, same, labels, weights, same, o)
				sameBits(t, "in place", d, same)
				if math.IsNaN(loss) || math.IsInf(loss, 0) {
					t.Errorf("logits of %v: softmax %v", far, loss)
				}
				loss, _ = SigmoidLoss(x, z, labels, multi, weights, d, o)
				for i := range rows {
					for j, v := range append(d.Row(i), same.Row(i)...) {
						if v-v != 0 || loss-loss != 0 {
							t.Fatalf("logits of %v: loss %v, gradient %v at (%d, %d)", far, loss, v, i, j)
						}
					}
				}
			}
		})
	}
}
