package compute_test

import (
	"fmt"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
)

type (
	context = compute.Context[float32]
	value   = compute.Value[float32]
	message = compute.Message[float32]
)

// gated is a layer of one's own: every edge carries its source's row, gated by
// a neural function of both ends, ReLU(W₁[x_u ‖ x_v]); destinations add the mean
// of their messages to a product with their own row.
type gated struct{ in, out int }

func (l gated) Params() []compute.Param {
	return []compute.Param{
		{Name: "gate.weight", Shape: []int{l.in, 2 * l.in}, Init: compute.Glorot},
		{Name: "message.weight", Shape: []int{l.out, l.in}, Init: compute.Glorot},
		{Name: "self.weight", Shape: []int{l.out, l.in}, Init: compute.Glorot},
		{Name: "bias", Shape: []int{l.out}},
	}
}

func (l gated) Transform(_ *context, x *value) []*value { return []*value{x} }

func (l gated) Gather(c *context, x *value, h []*value) message {
	source := c.FromSources(h[0])
	gate := c.Linear(c.Concat(source, c.FromDestinations(x)), c.Param(0), nil, cpu.ReLU)
	return message{Entries: c.Multiply(gate, source), Reduce: cpu.Mean}
}

func (l gated) Apply(c *context, x, a *value, act cpu.Activation) *value {
	y := c.Linear(a, c.Param(1), nil, cpu.Linear)
	return c.LinearAdd(y, x, c.Param(2), c.Param(3), act)
}

// A layer of one's own, in the four stages of NN-TGAR. Its gradient follows from
// the ops that it calls.
func ExampleNewCustomModel() {
	// A ring of six nodes, each with one neighbour; the classes alternate.
	g := &graph.Graph{Indptr: []int64{0, 1, 2, 3, 4, 5, 6}, Indices: []uint32{5, 0, 1, 2, 3, 4}}
	x := graph.NewFeatures(6, 2, []float32{1, 0, 0, 1, 1, 0.2, 0.1, 1, 0.9, 0, 0, 0.8})
	spec := compute.Spec{Model: "gated", Layers: 2, InDim: 2, Hidden: 8, OutDim: 2}
	model, err := compute.NewCustomModel(spec, g, func(_, in, out int) compute.Layer[float32] { return gated{in, out} })
	if err != nil {
		fmt.Println(err)
		return
	}
	p := pool.New(2)
	defer p.Close()
	exec := cpu.NewExec(p, cpu.Go)
	engine, params, adam := model.NewEngine(exec), model.Init(1), compute.NewAdamState(model.Layout().Len())
	grad := make([]float32, len(params))
	in := &compute.Input{
		Blocks: []graph.Block{graph.WholeGraph(g), graph.WholeGraph(g)}, Features: x, Labels: []int32{0, 1, 0, 1, 0, 1},
	}
	var stats compute.Stats
	for range 100 {
		if stats, err = engine.Gradient(grad, params, in); err != nil {
			fmt.Println(err)
			return
		}
		compute.DefaultAdam(0.05).Step(params, grad, adam, exec)
	}
	fmt.Printf("%d of %d right\n", stats.Correct, stats.Count)
	// Output: 6 of 6 right
}
