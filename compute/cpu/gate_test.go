package cpu

import (
	"fmt"
	"math"
	"testing"
)

// TestGate checks that a gated gradient has the bits of one that goes through
// ReLU's backward pass after it is whole, also in parts of columns.
func TestGate(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		r := source(80)
		const dst, src = 150, 170
		b := randomBlock(r, dst, src, 60)
		w, self := random[float32](r, 1, len(b.Indices), 0).Data, random[float32](r, 1, dst, 0).Data
		var tr Transpose
		tr.Build(x, b)
		for _, cols := range []int{1, 19, 130} {
			dy, start, gate := random[float32](r, dst, cols, 3), random[float32](r, src, cols, 1), random[float32](r, src, cols, 2)
			gate.Row(3)[0], gate.Row(4)[0], gate.Row(5)[0] = float32(math.NaN()), 0, float32(math.Copysign(0, -1))
			arg := make([]uint32, dst*cols)
			Aggregate(x, NewMatrix[float32](dst, cols), b, Source[float32]{Dense: start}, AggregateOptions[float32]{Reduce: Max, Argmax: arg})
			dyFlat := clone(Dense(dst, cols, make([]float32, dst*cols)))
			for i := range dst {
				copy(dyFlat.Row(i), dy.Row(i))
			}
			for _, o := range []AggregateOptions[float32]{{}, {Reduce: Mean, Self: self}, {Weights: w}, {Reduce: Max, Argmax: arg}} {
				for _, accumulate := range []bool{false, true} {
					for _, cache := range []int{0, 45_000} {
						withSecondLevel(t, cache)
						o.Accumulate = accumulate
						want, got := clone(start), clone(start)
						AggregateBackward(x, want, &tr, dyFlat, o)
						ActivateBackward(x, ReLU, want, want, gate)
						gated := o
						gated.Gate = gate
						AggregateBackward(x, got, &tr, dyFlat, gated)
						sameBits(t, fmt.Sprintf("%v, %d columns, accumulate %v, cache %d", o.Reduce, cols, accumulate, cache), want, got)
					}
				}
			}
		}
		for name, f := range map[string]func(){
			"forward": func() {
				Aggregate(x, NewMatrix[float32](dst, 2), b, Source[float32]{Dense: NewMatrix[float32](src, 2)}, AggregateOptions[float32]{Gate: NewMatrix[float32](src, 2)})
			},
			"shape": func() {
				AggregateBackward(x, NewMatrix[float32](src, 2), &tr, NewMatrix[float32](dst, 2), AggregateOptions[float32]{Gate: NewMatrix[float32](src, 3)})
			},
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", name)
					}
				}()
				f()
			}()
		}
	})
}
