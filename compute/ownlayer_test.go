package compute

import (
	"fmt"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// The layers below are written in the stages of NN-TGAR as a caller would, but
// in both precisions. Between them they use every op that Context offers.

// gate weighs each source's row, column by column, by a function of both ends.
type gate[T cpu.Float] struct{ in, out int }

func (l gate[T]) Params() []Param {
	return []Param{
		{Name: "bias", Shape: []int{l.out}},
		{Name: "gate.bias", Shape: []int{l.out}},
		{Name: "gate.dst", Shape: []int{l.out, l.in}},
		{Name: "gate.src", Shape: []int{l.out, l.out}},
		{Name: "self.weight", Shape: []int{l.out, l.in}},
		{Name: "weight", Shape: []int{l.out, l.in}},
	}
}

func (l gate[T]) Transform(c *Context[T], x *Value[T]) []*Value[T] {
	h := c.Linear(x, c.Param(5), nil, cpu.Linear)
	return []*Value[T]{h, c.Linear(h, c.Param(3), nil, cpu.Linear)}
}

func (l gate[T]) Gather(c *Context[T], x *Value[T], h []*Value[T]) Message[T] {
	dst := c.Linear(x, c.Param(2), c.Param(1), cpu.Linear)
	open := c.ReLU(c.Add(c.FromSources(h[1]), c.FromDestinations(dst)))
	return Message[T]{Entries: c.Multiply(open, c.FromSources(h[0])), Reduce: cpu.Mean}
}

func (l gate[T]) Apply(c *Context[T], x, a *Value[T], act cpu.Activation) *Value[T] {
	return c.LinearAdd(a, x, c.Param(4), c.Param(0), act)
}

// scored sums its sources' rows, each times the dot product of both ends and the
// edge's features, then norms by columns and adds a learnt part of the old row.
type scored[T cpu.Float] struct{ in, out int }

func (l scored[T]) Params() []Param {
	return append([]Param{
		{Name: "dst", Shape: []int{l.out, l.in}},
		{Name: "edge", Shape: []int{l.out, 2}},
		{Name: "eps", Shape: []int{1}},
		{Name: "spread", Shape: []int{l.out, 1}},
		{Name: "src", Shape: []int{l.out, l.in}},
	}, BatchNormParams("zz_norm.", l.out)...)
}

func (l scored[T]) Transform(c *Context[T], x *Value[T]) []*Value[T] {
	return []*Value[T]{c.Linear(x, c.Param(4), nil, cpu.LeakyReLU)}
}

func (l scored[T]) Gather(c *Context[T], x *Value[T], h []*Value[T]) Message[T] {
	src, dst := c.FromSources(h[0]), c.FromDestinations(c.Linear(x, c.Param(0), nil, cpu.Linear))
	score := c.Linear(c.RowSums(c.Multiply(src, dst)), c.Param(3), nil, cpu.Linear)
	edge := c.Linear(c.EdgeFeatures(), c.Param(1), nil, cpu.Linear)
	return Message[T]{Entries: c.Multiply(c.Add(score, edge), src), Reduce: cpu.Sum}
}

func (l scored[T]) Apply(c *Context[T], x, a *Value[T], act cpu.Activation) *Value[T] {
	old := c.Linear(x, c.Param(0), nil, cpu.Linear)
	return c.BiasAct(c.BatchNorm(c.AddScaled(a, old, c.Param(2)), 5), nil, act)
}

// headed attends with two heads over all but the last of its columns, which go
// past the attention as they are; the larger of that and a product of the old row
// is normed.
type headed[T cpu.Float] struct{ in, out int }

func (l headed[T]) Params() []Param {
	return []Param{
		{Name: "a.dst", Shape: []int{2, l.out}},
		{Name: "a.edge", Shape: []int{2, 2}},
		{Name: "a.src", Shape: []int{2, l.out}},
		{Name: "join", Shape: []int{l.out, l.out + 1}},
		{Name: "norm.bias", Shape: []int{l.out}},
		{Name: "norm.weight", Shape: []int{l.out}},
		{Name: "self", Shape: []int{l.out, l.in}},
		{Name: "weight", Shape: []int{2 * l.out, l.in}},
	}
}

func (l headed[T]) Transform(c *Context[T], x *Value[T]) []*Value[T] {
	h := c.Linear(x, c.Param(7), nil, cpu.Linear)
	return []*Value[T]{h, c.Linear(x, c.FoldHeads(c.Param(2), c.Param(7)), nil, cpu.Linear)}
}

func (l headed[T]) Gather(c *Context[T], x *Value[T], h []*Value[T]) Message[T] {
	return Message[T]{Value: h[0], Attention: &Attention[T]{
		Heads: 2, Slope: 0.2,
		Src:  h[1],
		Dst:  c.Linear(x, c.FoldHeads(c.Param(0), c.Param(7)), nil, cpu.Linear),
		Edge: c.Linear(c.EdgeFeatures(), c.Param(1), nil, cpu.Linear),
	}}
}

func (l headed[T]) Apply(c *Context[T], x, a *Value[T], act cpu.Activation) *Value[T] {
	mean := c.MeanHeads(a, 2)
	wide := c.Concat(mean, c.Columns(x, 0, 1))
	y := c.Max(c.Linear(wide, c.Param(3), nil, cpu.Linear), c.Linear(x, c.Param(6), nil, cpu.Linear))
	return c.BiasAct(c.LayerNorm(y, c.Param(5), c.Param(4), 1e-5), nil, act)
}

// plain sums sources' rows with the sampler's weights and the destination's own
// twice over.
type plain[T cpu.Float] struct{ in, out int }

func (l plain[T]) Params() []Param { return []Param{{Name: "weight", Shape: []int{l.out, l.in}}} }

func (l plain[T]) Transform(c *Context[T], x *Value[T]) []*Value[T] {
	return []*Value[T]{c.Linear(x, c.Param(0), nil, cpu.ELU)}
}

func (l plain[T]) Gather(c *Context[T], x *Value[T], h []*Value[T]) Message[T] {
	self := make([]T, c.Block.NumDst)
	for i := range self {
		self[i] = 2
	}
	return Message[T]{Value: h[0], Reduce: cpu.Sum, Weights: c.SumWeights(), Self: self}
}

func (l plain[T]) Apply(c *Context[T], x, a *Value[T], act cpu.Activation) *Value[T] {
	return c.BiasAct(a, nil, act)
}

// ownLayer returns one of the layers above.
func ownLayer[T cpu.Float](kind string, in, out int) Layer[T] {
	switch kind {
	case "gate":
		return gate[T]{in, out}
	case "scored":
		return scored[T]{in, out}
	case "headed":
		return headed[T]{in, out}
	}
	return plain[T]{in, out}
}

// ownModel returns a model of layers of that kind, and them in float64.
func ownModel(t *testing.T, kind string, spec Spec, g *graph.Graph) (*Model, []placedLayer[float64]) {
	t.Helper()
	spec.Model, spec.EdgeDim = "own", 2
	m, err := NewCustomModel(spec, g, func(_, in, out int) Layer[float32] { return ownLayer[float32](kind, in, out) })
	if err != nil {
		t.Fatal(err)
	}
	var layers []placedLayer[float64]
	for i, l := range newLayers[float32](m) {
		in, out := spec.Hidden, spec.Hidden
		if i == 0 {
			in = spec.InDim
		}
		if l.output {
			out = spec.OutDim
		}
		layers = append(layers, placedLayer[float64]{
			Layer: ownLayer[float64](kind, in, out), prefix: l.prefix, output: l.output, norm: l.norm, residual: l.residual,
		})
	}
	return m, layers
}

var ownKinds = []string{"gate", "scored", "headed", "plain"}

// TestOwnLayerGradients checks the gradients of models of layers of one's own by
// differences in float64, on ordinary graphs and blocks and on degenerate ones.
func TestOwnLayerGradients(t *testing.T) {
	for _, kind := range ownKinds {
		for i, d := range degenerate {
			t.Run(kind+"/"+d.name, func(t *testing.T) {
				g := graphOf(d.rows)
				m, layers := ownModel(t, kind, Spec{Layers: 2, InDim: 5, Hidden: 3, OutDim: 3}, g)
				checkCore(t, newCoreOf(m, layers, testExec(t, 2, cpu.Go), true), blocksOf(i, g, 2), d.targets)
			})
		}
		for _, n := range []int{7, 13} {
			t.Run(fmt.Sprintf("%s/%d nodes", kind, n), func(t *testing.T) {
				g := randomGraph(n, 3, false, 8)
				spec := Spec{Layers: 2, InDim: 5, Hidden: 7, OutDim: 3, Dropout: 0.3, InputDropout: 0.2, Norm: "layer", JumpingKnowledge: "cat", Residual: true, ScaleSums: true}
				m, layers := ownModel(t, kind, spec, g)
				checkCore(t, newCoreOf(m, layers, testExec(t, 2, cpu.Go), true), wholeBlocks(g, 2), 3)
				blocks := sampleBlocks(g, []uint32{3, 0, 4}, 2, 2, 5)
				for l := range blocks {
					blocks[l].Weights = randomMatrix[float32](1, len(blocks[l].Indices), uint64(l)).Data
				}
				checkCore(t, newCoreOf(m, layers, testExec(t, 2, cpu.Go), true), blocks, 3)
			})
		}
	}
}
