package compute

import (
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// TestReLUPassesWithAggregate checks that the gradient of ReLU's argument has the
// same bits whether the aggregation that is the first to read ReLU's result passes it
// on, or a pass of its own follows, whatever else reads that result.
func TestReLUPassesWithAggregate(t *testing.T) {
	b := &graph.Block{NumDst: 4, NumSrc: 7, Indptr: []int64{0, 3, 3, 5, 9}, Indices: []uint32{0, 5, 6, 2, 4, 1, 3, 5, 6}}
	x1, x2, w1, w2, w3, w4 := randomMatrix[float32](7, 5, 1), randomMatrix[float32](7, 5, 2), randomMatrix[float32](6, 5, 3), randomMatrix[float32](6, 5, 4),
		randomMatrix[float32](3, 6, 5), randomMatrix[float32](3, 6, 6)
	for name, c := range map[string]struct {
		gated bool
		rest  func(tape *Tape[float32], y, w3, w4 *Value[float32]) *Value[float32]
	}{
		"and its head": {true, func(tape *Tape[float32], y, w3, w4 *Value[float32]) *Value[float32] {
			a := tape.Aggregate(b, y, cpu.Mean, nil, nil)
			return tape.LinearSum(a, w3, nil, tape.Head(y, 4), w4, cpu.Linear)
		}},
		"alone": {true, func(tape *Tape[float32], y, w3, _ *Value[float32]) *Value[float32] {
			return tape.Linear(tape.Aggregate(b, y, cpu.Sum, nil, []float32{1, 2, 3, 4}), w3, nil, cpu.Linear)
		}},
		"twice": {true, func(tape *Tape[float32], y, w3, w4 *Value[float32]) *Value[float32] {
			return tape.LinearSum(tape.Aggregate(b, y, cpu.Sum, nil, nil), w3, nil, tape.Aggregate(b, y, cpu.Max, nil, nil), w4, cpu.Linear)
		}},
		"behind its head": {false, func(tape *Tape[float32], y, w3, w4 *Value[float32]) *Value[float32] {
			z := tape.Linear(tape.Head(y, 4), w3, nil, cpu.Linear)
			return tape.LinearAdd(z, tape.Aggregate(b, y, cpu.Mean, nil, nil), w4, nil, cpu.Linear)
		}},
		"for nothing": {false, func(tape *Tape[float32], y, w3, _ *Value[float32]) *Value[float32] {
			tape.Aggregate(b, y, cpu.Mean, nil, nil)
			return tape.Linear(y, w3, nil, cpu.Linear)
		}},
		"after dropout in place": {false, func(tape *Tape[float32], y, w3, _ *Value[float32]) *Value[float32] {
			y = tape.dropoutInPlace(y, cpu.Dropped{P: 0.5})
			return tape.Linear(tape.Aggregate(b, y, cpu.Mean, nil, nil), w3, nil, cpu.Linear)
		}},
	} {
		var grads [2][]float32
		for pass := range 2 {
			tape := NewTape[float32](testExec(t, 1, cpu.Go), true)
			leaf := func(m cpu.Matrix[float32]) *Value[float32] { return tape.Leaf(m, true, cpu.Matrix[float32]{}) }
			v1, v2, v3, v4 := leaf(w1), leaf(w2), leaf(w3), leaf(w4)
			y := tape.LinearSum(leaf(x1), v1, nil, leaf(x2), v2, cpu.ReLU)
			y.relu = y.relu && pass == 0
			out := c.rest(tape, y, v3, v4)
			tape.SetGrad(out, randomMatrix[float32](out.Rows(), out.Cols(), 7))
			tape.Backward()
			if y.gated != (c.gated && pass == 0) {
				t.Errorf("%s, pass %d: gated %v", name, pass, y.gated)
			}
			for _, v := range []*Value[float32]{y, v1, v2, v3, v4} {
				if g := v.Grad(); g.Data != nil {
					for i := range g.Rows {
						grads[pass] = append(grads[pass], g.Row(i)...)
					}
				}
			}
		}
		if len(grads[0]) == 0 || !slices.Equal(grads[0], grads[1]) {
			t.Errorf("%s: gradients differ:\n%v\n%v", name, grads[0], grads[1])
		}
	}
}
