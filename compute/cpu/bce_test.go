package cpu

import (
	"math"
	"testing"
)

// TestSigmoidCrossEntropy compares loss, gradient and decisions with their
// definitions, in more rows than a chunk has, some skipped and some alike.
func TestSigmoidCrossEntropy(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, weighted := range []bool{false, true} {
			testSigmoid[float32](t, x, weighted, 1e-6)
			testSigmoid[float64](t, x, weighted, 1e-13)
		}
	})
}

func testSigmoid[T Float](t *testing.T, x *Exec, weighted bool, tol float64) {
	const rows, cols, targets = 2*lossRows + 7, 5, 40
	r := source(1)
	z := random[T](r, rows, cols, 2)
	labels := make([]uint8, targets*cols)
	for i := range labels {
		labels[i] = uint8(r.IntN(2))
	}
	of := make([]int32, rows)
	for i := range of {
		if of[i] = int32(r.IntN(targets)); i%6 == 5 {
			of[i] = -1
			continue
		}
		for j := range cols { // most rows are right, and some values are far from zero
			v := &z.Row(i)[j]
			if *v = *v * 8; i%3 != 0 {
				*v = T(math.Copysign(float64(*v), float64(labels[int(of[i])*cols+j])-0.5))
			}
			if i%7 == 0 {
				*v *= 100
			}
			if (i+j)%11 == 0 {
				*v = 0
			}
		}
	}
	var weights []T
	if weighted {
		weights = random[T](r, 1, rows, 0).Data
	}
	want, counts, size := 0.0, Decisions{}, 1.0
	gradient := NewMatrix[float64](rows, cols)
	for i, target := range of {
		if target < 0 {
			continue
		}
		w, exact := 1.0/cols, true
		if weighted {
			w *= float64(weights[i])
		}
		for j, v := range z.Row(i) {
			v, y := float64(v), labels[int(target)*cols+j]
			yes := v > 0
			switch {
			case yes && y == 1:
				counts.TruePositive++
			case yes:
				counts.FalsePositive++
			case y == 1:
				counts.FalseNegative++
			}
			exact = exact && yes == (y == 1)
			// -log of what sigmoid says of the label; beyond 30 by its limit.
			far := v
			if y == 1 {
				far = -v
			}
			l := math.Log(1 + math.Exp(far))
			if far > 30 {
				l = far
			}
			want += w * l
			size += math.Abs(w * l)
			gradient.Row(i)[j] = w * (1/(1+math.Exp(-v)) - float64(y))
		}
		if exact {
			counts.Exact++
		}
	}
	d := random[T](source(2), rows, cols, 1)
	loss, got := SigmoidCrossEntropy(x, z, of, labels, weights, d)
	if math.Abs(loss-want) > 1e-12*size {
		t.Errorf("loss %v, want %v", loss, want)
	}
	if got != counts || counts.Exact == 0 || counts.FalsePositive == 0 || counts.FalseNegative == 0 {
		t.Errorf("decisions %+v, want %+v", got, counts)
	}
	near(t, "gradient", widenMatrix(d), gradient, filled(rows, cols, 1.0), tol)
	if again, same := SigmoidCrossEntropy(x, z, of, labels, weights, Matrix[T]{}); again != loss || same != got {
		t.Errorf("without a gradient: loss %v and %+v, want %v and %+v", again, same, loss, got)
	}
}
