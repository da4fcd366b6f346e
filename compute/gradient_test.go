package compute

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// checkGradient compares the gradient of f's output, weighted by random
// numbers, with central differences in float64 at every element of every input.
// f is called with fresh leaves, whose gradients go to the tape's memory or, in a
// second pass, to the caller's, which holds NaN before; kinks (ReLU, max) are avoided by inputs that
// are far from them with respect to the step of 1e-6.
func checkGradient(t *testing.T, inputs []cpu.Matrix[float64], f func(tape *Tape[float64], in []*Value[float64]) *Value[float64]) {
	t.Helper()
	tape := NewTape[float64](testExec(t, 2, cpu.Go), true)
	leaves := func(grads []cpu.Matrix[float64]) (in []*Value[float64]) {
		tape.Reset()
		for k, m := range inputs {
			in = append(in, tape.Leaf(m, true, grads[k]))
		}
		return in
	}
	run := func() (*Value[float64], []*Value[float64]) {
		in := leaves(make([]cpu.Matrix[float64], len(inputs)))
		return f(tape, in), in
	}
	var dy cpu.Matrix[float64]
	objective := func() float64 {
		y, _ := run()
		m, s := y.Matrix(), 0.0
		for i := range m.Rows {
			for j, v := range m.Row(i) {
				s += v * dy.Row(i)[j]
			}
		}
		return s
	}
	y, in := run()
	dy = randomMatrix[float64](y.Rows(), y.Cols(), 99)
	tape.SetGrad(y, dy)
	tape.Backward()
	var grads [][]float64
	for k, v := range in {
		g := make([]float64, len(inputs[k].Data))
		if m := v.Grad(); m.Data != nil {
			copy(g, m.Data)
		}
		grads = append(grads, g)
	}
	given := make([]cpu.Matrix[float64], len(inputs))
	for k, m := range inputs {
		given[k] = cpu.NewMatrix[float64](m.Rows, m.Cols)
		for i := range given[k].Data {
			given[k].Data[i] = math.NaN()
		}
	}
	in = leaves(given)
	tape.SetGrad(f(tape, in), dy)
	tape.Backward()
	for k, v := range in {
		if v.hasGrad && !slices.Equal(given[k].Data, grads[k]) {
			t.Fatalf("input %d: gradient in the caller's memory %v, in the tape's %v", k, given[k].Data, grads[k])
		}
	}
	const h = 1e-6
	for k, m := range inputs {
		scale := 1e-3
		for _, v := range grads[k] {
			scale = max(scale, math.Abs(v))
		}
		for i, v := range m.Data {
			m.Data[i] = v + h
			up := objective()
			m.Data[i] = v - h
			down := objective()
			m.Data[i] = v
			if want := (up - down) / (2 * h); !(math.Abs(grads[k][i]-want) <= 1e-6*scale) {
				t.Fatalf("input %d (%d×%d), element %d: gradient %g, by differences %g", k, m.Rows, m.Cols, i, grads[k][i], want)
			}
		}
	}
}

type opCheck struct {
	name   string
	inputs []cpu.Matrix[float64]
	f      func(*Tape[float64], []*Value[float64]) *Value[float64]
}

func TestOpGradients(t *testing.T) {
	type val = *Value[float64]
	type tape = *Tape[float64]
	mat := randomMatrix[float64]
	for _, n := range []int{1, 2, 7, 13} {
		g := randomGraph(n, 2, false, uint64(n))
		b := graph.WholeGraph(g)
		sampled := sampleBlocks(g, []uint32{uint32(n / 2)}, 1, 2, 3)[0]
		entryWeights := mat(1, len(b.Indices), 5).Data
		self := mat(1, n, 6).Data
		drop := cpu.Dropped{Key: rng.New(4), P: 0.4}
		checks := []opCheck{
			{"linear", []cpu.Matrix[float64]{mat(n, 5, 1), mat(3, 5, 2), mat(1, 3, 3)},
				func(t tape, in []val) val { return t.Linear(in[0], in[1], in[2], cpu.Linear) }},
			{"linear relu without bias", []cpu.Matrix[float64]{mat(n, 5, 1), mat(3, 5, 2)},
				func(t tape, in []val) val { return t.Linear(in[0], in[1], nil, cpu.ReLU) }},
			{"linear add", []cpu.Matrix[float64]{mat(n, 5, 1), mat(3, 5, 2), mat(1, 3, 3), mat(n, 4, 4), mat(3, 4, 5)},
				func(t tape, in []val) val {
					return t.LinearAdd(t.Linear(in[0], in[1], nil, cpu.Linear), in[3], in[4], in[2], cpu.ReLU)
				}},
			{"linear sum", []cpu.Matrix[float64]{mat(n, 5, 1), mat(3, 5, 2), mat(1, 3, 3), mat(n, 4, 4), mat(3, 4, 5)},
				func(t tape, in []val) val { return t.LinearSum(in[0], in[1], in[2], in[3], in[4], cpu.ReLU) }},
			{"linear sum of one value and one weight", []cpu.Matrix[float64]{mat(n, 5, 1), mat(3, 5, 2)},
				func(t tape, in []val) val { return t.LinearSum(in[0], in[1], nil, in[0], in[1], cpu.Linear) }},
			{"bias relu", []cpu.Matrix[float64]{mat(n, 5, 1), mat(n, 5, 2), mat(1, 5, 3)},
				func(t tape, in []val) val { return t.BiasAct(t.Add(in[0], in[1]), in[2], cpu.ReLU) }},
			{"value used three times, once in part", []cpu.Matrix[float64]{mat(n, 4, 1), mat(4, 4, 2)},
				func(t tape, in []val) val {
					a := t.Linear(in[0], in[1], nil, cpu.Linear)
					h := t.Linear(t.Head(a, n/2), in[1], nil, cpu.Linear)
					return t.LinearAdd(h, t.Head(t.Add(a, in[0]), n/2), in[1], nil, cpu.Linear)
				}},
			{"first rows of a leaf", []cpu.Matrix[float64]{mat(n, 3, 1)},
				func(t tape, in []val) val { return t.BiasAct(t.Head(in[0], (n+1)/2), nil, cpu.Linear) }},
			{"sum", []cpu.Matrix[float64]{mat(n, 3, 1)},
				func(t tape, in []val) val { return t.Aggregate(&b, in[0], cpu.Sum, nil, nil) }},
			{"weighted sum with self", []cpu.Matrix[float64]{mat(n, 3, 1)},
				func(t tape, in []val) val { return t.Aggregate(&b, in[0], cpu.Sum, entryWeights, self) }},
			{"weighted mean", []cpu.Matrix[float64]{mat(n, 3, 1)},
				func(t tape, in []val) val { return t.Aggregate(&b, in[0], cpu.Mean, entryWeights, nil) }},
			{"max", []cpu.Matrix[float64]{mat(n, 3, 1)},
				func(t tape, in []val) val { return t.Aggregate(&b, in[0], cpu.Max, nil, nil) }},
			{"mean on a sampled block, twice", []cpu.Matrix[float64]{mat(sampled.NumSrc, 3, 1)},
				func(t tape, in []val) val {
					return t.Add(t.Aggregate(&sampled, in[0], cpu.Mean, nil, nil), t.Aggregate(&sampled, in[0], cpu.Max, nil, nil))
				}},
			{"columns, concatenated twice over", []cpu.Matrix[float64]{mat(n, 5, 1), mat(n, 2, 2)},
				func(t tape, in []val) val { return t.Concat(t.Columns(in[0], 1, 3), in[1], t.Columns(in[0], 2, 5)) }},
			{"largest of three", []cpu.Matrix[float64]{mat(n, 4, 1), mat(n, 4, 2), mat(n, 4, 3)},
				func(t tape, in []val) val { return t.Max(in[0], in[1], in[2]) }},
			{"layer norm", []cpu.Matrix[float64]{mat(n, 5, 1), mat(1, 5, 2), mat(1, 5, 3)},
				func(t tape, in []val) val { return t.LayerNorm(in[0], in[1], in[2], 1e-5) }},
			{"bias elu", []cpu.Matrix[float64]{mat(n, 5, 1), mat(n, 5, 2), mat(1, 5, 3)},
				func(t tape, in []val) val { return t.BiasAct(t.Add(in[0], in[1]), in[2], cpu.ELU) }},
			{"linear leaky relu", []cpu.Matrix[float64]{mat(n, 5, 1), mat(3, 5, 2), mat(1, 3, 3)},
				func(t tape, in []val) val { return t.Linear(in[0], in[1], in[2], cpu.LeakyReLU) }},
			{"batch norm", []cpu.Matrix[float64]{mat(n, 5, 1), mat(1, 5, 2), mat(1, 5, 3)},
				func(t tape, in []val) val {
					c := &Context[float64]{Tape: t, params: []val{in[2], nil, nil, nil, in[1]}}
					return c.BatchNorm(in[0], 0)
				}},
			{"add scaled", []cpu.Matrix[float64]{mat(n, 3, 1), mat(n, 3, 2), mat(1, 1, 3)},
				func(t tape, in []val) val { return t.AddScaled(t.Add(in[0], in[1]), in[1], in[2]) }},
			{"add scaled twice", []cpu.Matrix[float64]{mat(n, 3, 1), mat(n, 3, 2), mat(1, 1, 3)},
				func(t tape, in []val) val {
					return t.AddScaled(t.AddScaled(t.Add(in[0], in[1]), in[1], in[2]), in[0], in[2])
				}},
			{"rows, some several times", []cpu.Matrix[float64]{mat(n, 3, 1)},
				func(t tape, in []val) val { return t.Add(t.Rows(in[0], b.Indices), t.Rows(in[0], b.Indices)) }},
			{"entries summed", []cpu.Matrix[float64]{mat(len(b.Indices), 3, 1)},
				func(t tape, in []val) val { return t.SumEntries(&b, in[0], cpu.Sum) }},
			{"mean of entries, twice", []cpu.Matrix[float64]{mat(len(b.Indices), 3, 1)},
				func(t tape, in []val) val {
					return t.Add(t.SumEntries(&b, in[0], cpu.Mean), t.SumEntries(&b, in[0], cpu.Mean))
				}},
			{"dot products of rows", []cpu.Matrix[float64]{mat(n, 3, 1), mat(n, 3, 2)},
				func(t tape, in []val) val { return t.RowSums(t.Multiply(in[0], t.Add(in[0], in[1]))) }},
			{"folded heads", []cpu.Matrix[float64]{mat(2, 3, 1), mat(6, 5, 2)},
				func(t tape, in []val) val { return t.FoldHeads(in[0], in[1]) }},
			{"mean of heads, twice", []cpu.Matrix[float64]{mat(n, 6, 1)},
				func(t tape, in []val) val { return t.Add(t.MeanHeads(in[0], 3), t.MeanHeads(in[0], 3)) }},
			{"attention", []cpu.Matrix[float64]{mat(n, 6, 1), mat(n, 2, 2), mat(n, 2, 3), mat(len(b.Indices), 2, 4)},
				func(t tape, in []val) val {
					return t.Attend(&b, in[0], Attention[float64]{Heads: 2, Slope: 0.2, Loops: true, Src: in[1], Dst: in[2], Edge: in[3], Drop: &drop})
				}},
			{"attention without loops", []cpu.Matrix[float64]{mat(n, 6, 1), mat(n, 2, 2), mat(n, 2, 3)},
				func(t tape, in []val) val {
					return t.Attend(&b, in[0], Attention[float64]{Heads: 2, Slope: 0.2, Src: in[1], Dst: in[2]})
				}},
			{"dynamic attention", []cpu.Matrix[float64]{mat(n, 6, 1), mat(n, 6, 2), mat(2, 3, 3)},
				func(t tape, in []val) val {
					return t.Attend(&b, in[0], Attention[float64]{Heads: 2, Slope: 0.2, Loops: true, Right: in[1], Att: in[2]})
				}},
			{"dropout", []cpu.Matrix[float64]{mat(n, 9, 1)},
				func(t tape, in []val) val { return t.Dropout(in[0], drop) }},
			{"dropout in place after relu", []cpu.Matrix[float64]{mat(n, 4, 1), mat(9, 4, 2)},
				func(t tape, in []val) val {
					return t.dropoutInPlace(t.Linear(in[0], in[1], nil, cpu.ReLU), drop)
				}},
		}
		for _, c := range checks {
			t.Run(fmt.Sprintf("%s/%d", c.name, n), func(t *testing.T) { checkGradient(t, c.inputs, c.f) })
		}
	}
}

// TestInPlaceAfterProducts checks that what the backward pass of a product reads
// cannot be changed in place afterwards.
func TestInPlaceAfterProducts(t *testing.T) {
	refused := func(f func()) (refused bool) {
		defer func() { refused = recover() != nil }()
		f()
		return false
	}
	tape := NewTape[float64](testExec(t, 1, cpu.Go), true)
	leaf := func() *Value[float64] { return tape.Leaf(cpu.NewMatrix[float64](3, 3), true, cpu.Matrix[float64]{}) }
	made := func() *Value[float64] { return tape.Add(leaf(), leaf()) }
	for name, factors := range map[string][2]*Value[float64]{"first": {made(), leaf()}, "second": {leaf(), made()}} {
		y := tape.LinearSum(factors[0], leaf(), nil, factors[1], leaf(), cpu.Linear)
		for _, x := range factors {
			if !refused(func() { tape.ReLU(x) }) {
				t.Errorf("%s: a factor of a sum of products was changed", name)
			}
		}
		if refused(func() { tape.ReLU(y) }) {
			t.Errorf("%s: a sum without an activation cannot be changed", name)
		}
		y = tape.LinearSum(factors[0], leaf(), nil, factors[1], leaf(), cpu.ReLU)
		if !refused(func() { tape.ReLU(y) }) {
			t.Errorf("%s: the output of an activation was changed", name)
		}
	}
	x := made()
	block := &graph.Block{NumDst: 3, NumSrc: 3, Indptr: []int64{0, 1, 2, 3}, Indices: []uint32{0, 1, 2}}
	column := func() *Value[float64] { return tape.Leaf(cpu.NewMatrix[float64](3, 1), true, cpu.Matrix[float64]{}) }
	ones := func() *Value[float64] { return tape.Add(column(), column()) }
	src, dst, edge := ones(), ones(), ones()
	tape.Attend(block, x, Attention[float64]{Heads: 1, Src: src, Dst: dst, Edge: edge})
	for name, v := range map[string]*Value[float64]{"values": x, "scores of sources": src, "of destinations": dst, "of entries": edge} {
		if !refused(func() { tape.ReLU(v) }) {
			t.Errorf("%s that attention reads were changed", name)
		}
	}
	a, b := made(), made()
	tape.Multiply(a, b)
	if !refused(func() { tape.ReLU(a) }) || !refused(func() { tape.ReLU(b) }) {
		t.Error("a factor of a product by elements was changed")
	}
}

// TestModelGradients checks the loss gradient of whole models, dropout and loss
// weights included, with respect to every parameter and input feature, on whole
// graphs, sampled blocks with weights, and degenerate ones.
func TestModelGradients(t *testing.T) {
	for v, name := range slices.Sorted(maps.Keys(variants)) {
		for i, shape := range []struct {
			name            string
			n, degree       int
			weighted        bool
			fanout, targets int // fanout -2: the whole graph, -3: of some nodes
		}{
			{"whole", 11, 2, false, -2, 4},
			{"whole weighted", 11, 2, true, -2, 11},
			{"full fan-out", 13, 2, false, -1, 3},
			{"sampled", 15, 3, false, 2, 3},
			{"sampled weighted", 15, 3, true, 1, 2},
			{"subgraph", 16, 3, false, -3, 3},
			{"subgraph weighted", 16, 3, true, -3, 9},
			{"single node", 1, 0, false, -2, 1},
			{"no edges", 3, 0, false, -2, 2},
		} {
			// Both orders of products, by turns.
			if dims := [][3]int{{5, 3, 2}, {2, 6, 5}}[(v+i)%2]; shape.degree > 0 || dims[0] > dims[2] {
				t.Run(fmt.Sprintf("%s/%s/%v", name, shape.name, dims), func(t *testing.T) {
					g := randomGraph(shape.n, shape.degree, shape.weighted, 8)
					spec := sized(variants[name], 2, dims[0], dims[1], dims[2])
					spec.Dropout, spec.InputDropout = 0.3, 0.2
					m := mustModel(t, spec, g)
					blocks := wholeBlocks(g, m.Blocks())
					switch shape.fanout {
					case -2:
					case -3:
						blocks = subgraphBlocks(g, []uint32{14, 3, 2, 9, 0, 7, 11, 12, 5}, m.Blocks())
					default:
						seeds := make([]uint32, shape.n)
						rng.New(5).Perm(seeds)
						blocks = sampleBlocks(g, seeds[:shape.targets], m.Blocks(), shape.fanout, 6)
						for l := range blocks {
							blocks[l].Weights = randomMatrix[float32](1, len(blocks[l].Indices), uint64(l)).Data
						}
					}
					checkModel(t, m, blocks, shape.targets)
				})
			}
		}
	}
}

func checkModel(t *testing.T, m *Model, blocks []graph.Block, targets int) {
	t.Helper()
	checkCore(t, newCore[float64](m, testExec(t, 2, cpu.Go), true), blocks, targets)
}

func checkCore(t *testing.T, c *core[float64], blocks []graph.Block, targets int) {
	t.Helper()
	m := c.model
	spec := m.spec
	x := randomMatrix[float64](blocks[0].NumSrc, spec.InDim, 1)
	params := randomMatrix[float64](1, m.layout.Len(), 2).Data
	grad := make([]float64, len(params))
	in := &Input{Key: 3, Blocks: blocks, Weights: randomMatrix[float32](1, targets, 4).Data}
	for i := range c.ctx {
		c.ctx[i].edges = edgeFeatures(m)
	}
	out := blocks[len(blocks)-1].NumDst
	for i := range targets {
		in.Labels = append(in.Labels, int32(i%spec.OutDim))
		in.Targets = append(in.Targets, uint32(out-1-i))
	}
	in = c.trimmed(in)
	loss := func(grad []float64) (float64, []float64) {
		c.tape.Reset()
		c.bind(params, grad)
		leaf := c.tape.Leaf(x, true, cpu.Matrix[float64]{})
		read := leaf
		if in.Rows != nil {
			read = c.tape.Rows(leaf, in.Rows)
		}
		later, err := c.loss(c.forward(in.Blocks, read, in.Key), in)
		if err != nil {
			t.Fatal(err)
		}
		stats := later()
		if grad == nil {
			return stats.Loss, nil
		}
		c.tape.Backward()
		c.collect(grad)
		dx := make([]float64, len(x.Data))
		copy(dx, leaf.Grad().Data)
		return stats.Loss, dx
	}
	_, dx := loss(grad)
	const h = 1e-6
	fixed := make([]bool, len(params))
	for _, p := range m.layout.Tensors() {
		for i := range p.Len {
			fixed[p.Offset+i] = p.Fixed
		}
	}
	for name, pair := range map[string][2][]float64{"parameter": {params, grad}, "input": {x.Data, dx}} {
		for i, v := range pair[0] {
			if name == "parameter" && fixed[i] {
				if pair[1][i] != 0 {
					t.Fatalf("fixed parameter %d has gradient %v", i, pair[1][i])
				}
				continue
			}
			pair[0][i] = v + h
			up, _ := loss(nil)
			pair[0][i] = v - h
			down, _ := loss(nil)
			pair[0][i] = v
			if want := (up - down) / (2 * h); !(math.Abs(pair[1][i]-want) <= 2e-7*max(1, math.Abs(want))) {
				t.Fatalf("%s %d: gradient %g, by differences %g", name, i, pair[1][i], want)
			}
		}
	}
}
