//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph/generate"
)

// Optimisers leave the processor's bits in parameters and state, over several steps, of vectors
// of odd lengths and of parts of them.
func TestOptimizers(t *testing.T) {
	b := newBench(t)
	type step func(x *cpu.Exec, p, m, v, g []float32, i int)
	adam := func(a compute.Adam) step {
		return func(x *cpu.Exec, p, m, v, g []float32, i int) {
			a.Step(p, g, &compute.AdamState{Step: i, M: m, V: v}, x)
		}
	}
	sgd := func(o compute.SGD) step {
		return func(x *cpu.Exec, p, m, v, g []float32, i int) {
			o.Step(p, g, &compute.SGDState{Step: i, Velocity: m}, x)
		}
	}
	decayed := compute.DefaultAdam(0.01)
	decayed.WeightDecay = 0.1
	decoupled := decayed
	decoupled.Decoupled = true
	for name, f := range map[string]step{
		"adam": adam(compute.DefaultAdam(0.003)), "adam with decay": adam(decayed), "adamw": adam(decoupled),
		"sgd": sgd(compute.SGD{LR: 0.1}), "sgd with decay": sgd(compute.SGD{LR: 0.1, WeightDecay: 0.05}),
		"momentum": sgd(compute.SGD{LR: 0.1, Momentum: 0.9, WeightDecay: 0.05}),
		"nesterov": sgd(compute.SGD{LR: 0.1, Momentum: 0.9, Nesterov: true}),
		"clipped": func(x *cpu.Exec, p, m, v, g []float32, i int) {
			compute.ClipNorm(g, 0.5, x)
			sgd(compute.SGD{LR: 0.1, Momentum: 0.9})(x, p, m, v, g, i)
		},
	} {
		for _, n := range []int{1, 255, 3000} {
			var vectors, want [4]f32 // parameters, two of state, gradient
			for i := range vectors {
				want[i] = b.random(1, n, 0)
				if i == 1 || i == 2 {
					clear(want[i].Data)
				}
				vectors[i] = b.device(want[i])
			}
			at := n / 3
			for i := range 3 {
				g := b.random(1, n, 0)
				copy(want[3].Data, g.Data)
				b.q.Upload(vectors[3].Data, g.Data)
				d, w := vectors, want
				f(b.x, d[0].Data[at:], d[1].Data[at:], d[2].Data[at:], d[3].Data[at:], i)
				f(b.host, w[0].Data[at:], w[1].Data[at:], w[2].Data[at:], w[3].Data[at:], i)
				for k, what := range []string{"parameters", "first state", "second state"} {
					b.same(fmt.Sprintf("%s, step %d of %d: %s", name, i, n, what), vectors[k], want[k], 0)
				}
			}
		}
	}
}

// The mean of gradients, and what batch norms saw in them, are the processor's to the bit; a
// gradient that carries no statistics leaves them alone.
func TestMeanAndStatistics(t *testing.T) {
	b := newBench(t)
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 5, Edges: 100, FeatureDim: 4, Classes: 3, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	m, err := compute.NewModel(compute.Spec{Model: "gcn", Norm: "batch", Layers: 3, InDim: 4, Hidden: 300, OutDim: 3}, ds.Graph)
	if err != nil {
		t.Fatal(err)
	}
	n := m.Layout().Len()
	params := b.random(1, n, 0)
	device := b.device(params)
	for _, micro := range []int{1, 2, 5} {
		var parts, want [][]float32
		for i := range micro {
			g := b.random(1, n, 0)
			for _, p := range m.Layout().Tensors() {
				if p.Statistic && p.Len == 1 {
					g.Data[p.Offset] = float32(i % 2)
				}
			}
			d := b.device(g)
			m.Observe(params.Data, g.Data, b.host)
			m.Observe(device.Data, d.Data, b.x)
			b.same(fmt.Sprintf("statistics after gradient %d of %d", i, micro), device, params, 0)
			b.same(fmt.Sprintf("gradient %d of %d without them", i, micro), d, g, 0)
			parts, want = append(parts, d.Data), append(want, g.Data)
		}
		for _, weight := range []float64{37, 0} {
			got, sum := compute.Mean(slices.Clone(parts), weight, b.x), compute.Mean(slices.Clone(want), weight, b.host)
			b.same(fmt.Sprintf("mean of %d over %v", micro, weight), cpu.Dense(1, n, got), cpu.Dense(1, n, sum), 0)
		}
	}
}
