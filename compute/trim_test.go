package compute

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// trimCase is a batch with few targets on the whole graph or a part of it.
type trimCase struct {
	name   string
	blocks []graph.Block
}

func trimCases(g *graph.Graph, layers int) []trimCase {
	var some []uint32
	for v := range uint32(g.NumNodes()) {
		if v%3 != 1 {
			some = append(some, v)
		}
	}
	weighted := subgraphBlocks(g, some, layers)
	w := randomMatrix[float32](1, len(weighted[0].Indices), 3).Data
	for l := range weighted {
		weighted[l].Weights = w
	}
	return []trimCase{{"whole", wholeBlocks(g, layers)}, {"subgraph", subgraphBlocks(g, some, layers)}, {"weighted subgraph", weighted}}
}

// inputOf returns in with the given targets, of class 1, on blocks.
func inputOf(ds *graph.Dataset, m *Model, blocks []graph.Block, targets []uint32) *Input {
	in := &Input{Key: 7, Blocks: blocks, Features: ds.NodeFeatures, Rows: blocks[0].SrcIDs, Edges: edgeFeatures(m), Targets: targets}
	for i := range targets {
		in.Labels = append(in.Labels, 1)
		in.Weights = append(in.Weights, float32(i+1))
	}
	return in
}

// within returns how many nodes of the block are at most so many hops from a
// target, and which.
func within(b *graph.Block, targets []uint32, hops int) (n int, near []bool) {
	near = make([]bool, b.NumSrc)
	for _, v := range targets {
		near[v] = true
	}
	for range hops {
		next := slices.Clone(near)
		for v := range near {
			for _, u := range b.Indices[b.Indptr[v]:b.Indptr[v+1]] {
				next[u] = next[u] || near[v]
			}
		}
		near = next
	}
	for _, is := range near {
		if is {
			n++
		}
	}
	return n, near
}

// TestRowsThatNobodyNeeds checks, for every variant, that a batch's gradient is
// what it is with all rows computed, that no more rows are computed than the
// targets depend on, and that the others are not even read.
func TestRowsThatNobodyNeeds(t *testing.T) {
	ds := testDataset(160, 1, 9, false)
	spoilt := *ds
	for name, spec := range variants {
		spec := sized(spec, 2, 9, 18, 3)
		spec.Dropout, spec.InputDropout = 0.4, 0.2
		m := mustModel(t, spec, ds.Graph)
		params := randomParams(m, 4)
		all, grad := make([]float32, len(params)), make([]float32, len(params))
		for _, c := range trimCases(ds.Graph, m.Blocks()) {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				x := testExec(t, 2, cpu.Go)
				targets := []uint32{91, 5, 40}
				in := inputOf(ds, m, c.blocks, targets)
				e := m.NewEngine(x)
				want, err := e.gradient(all, params, in, func(y *Value[float32]) (func() Stats, error) { return e.core.loss(y, in) })
				if err != nil {
					t.Fatal(err)
				}
				got, err := e.Gradient(grad, params, in)
				if err != nil {
					t.Fatal(err)
				}
				if math.Abs(got.Loss-want.Loss) > 1e-5*want.Loss || got.Correct != want.Correct || got.Weight != want.Weight || got.Count != want.Count {
					t.Errorf("%+v, with all rows computed %+v", got, want)
				}
				for _, p := range m.layout.Tensors() {
					closeTo(t, p.Name, grad[p.Offset:p.Offset+p.Len], all[p.Offset:p.Offset+p.Len], 2e-5)
				}
				b := &c.blocks[0]
				keeps := spec.Norm == "batch" || spec.GCNNorm == "block"
				for l, rows := range e.Rows() {
					want, _ := within(b, targets, m.Blocks()-1-l)
					if keeps {
						want = b.NumDst
					}
					if rows != want {
						t.Errorf("block %d: %d rows were computed, want %d", l, rows, want)
					}
				}
				if keeps {
					return
				}
				_, near := within(b, targets, m.Blocks())
				values := make([]float32, 9*ds.Graph.NumNodes())
				for v := range ds.Graph.NumNodes() {
					ds.NodeFeatures.Row(values[9*v:9*v+9], v)
				}
				for i, is := range near {
					if v := int(global(b, uint32(i))); !is {
						for j := range 9 {
							values[9*v+j] = float32(math.NaN())
						}
					}
				}
				spoilt.NodeFeatures = graph.NewFeatures(ds.Graph.NumNodes(), 9, values)
				if _, err := e.Gradient(all, params, inputOf(&spoilt, m, c.blocks, targets)); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(all, grad) {
					t.Error("the gradient depends on the features of nodes that no target depends on")
				}
			})
		}
	}
}

// TestTrimmedBits checks that a gradient's bits depend neither on the number of
// threads, nor on whether the layers' blocks are one or copies that came through
// messages, nor on what the engine computed before.
func TestTrimmedBits(t *testing.T) {
	ds := testDataset(160, 1, 9, true)
	for name, spec := range variants {
		m := mustModel(t, sized(spec, 2, 9, 18, 3), ds.Graph)
		m.BindFeatures(ds.NodeFeatures)
		params := randomParams(m, 4)
		for _, c := range trimCases(ds.Graph, m.Blocks()) {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				copied := make([]graph.Block, len(c.blocks))
				for l, b := range c.blocks {
					b.Indptr, b.Indices, b.EdgeIDs = slices.Clone(b.Indptr), slices.Clone(b.Indices), slices.Clone(b.EdgeIDs)
					b.Weights, b.SrcIDs = slices.Clone(b.Weights), slices.Clone(b.SrcIDs)
					copied[l] = b
				}
				in, same := inputOf(ds, m, c.blocks, []uint32{3, 50}), inputOf(ds, m, copied, []uint32{3, 50})
				turned := inputOf(ds, m, c.blocks, []uint32{50, 3})
				slices.Reverse(turned.Weights)
				other, all := inputOf(ds, m, c.blocks, []uint32{50, 3, 20}), inputOf(ds, m, c.blocks, nil)
				for i := range c.blocks[0].NumDst {
					all.Labels = append(all.Labels, int32(i%3))
				}
				var want []float32
				for _, threads := range []int{1, 3} {
					e := m.NewEngine(testExec(t, threads, cpu.Go))
					for i, b := range []*Input{in, in, turned, in, other, in, same, in, all, in, in} {
						grad := make([]float32, len(params))
						if _, err := e.Gradient(grad, params, b); err != nil {
							t.Fatal(err)
						}
						if b == other || b == all {
							continue
						}
						if want == nil {
							want = grad
						}
						if !slices.Equal(grad, want) {
							t.Fatalf("%d threads, batch %d: other bits", threads, i)
						}
						if c.name == "whole" && spec.Norm != "batch" && spec.GCNNorm != "block" && i < 4 && e.core.trimmer.repeated != i {
							t.Errorf("batch %d has the targets of those before, which were %d", i, e.core.trimmer.repeated)
						}
					}
				}
			})
		}
	}
}

// TestTargetsOfASubgraph checks what trimming leaves to others: targets that
// occur twice, or not at all.
func TestTargetsOfASubgraph(t *testing.T) {
	ds := testDataset(60, 1, 5, false)
	m := mustModel(t, Spec{Model: "sage", Layers: 2, InDim: 5, Hidden: 4, OutDim: 3}, ds.Graph)
	params := randomParams(m, 4)
	grad := make([]float32, len(params))
	e := m.NewEngine(testExec(t, 2, cpu.Go))
	for _, c := range trimCases(ds.Graph, 2) {
		if _, err := e.Gradient(grad, params, inputOf(ds, m, c.blocks, []uint32{4, 9, 4})); err == nil {
			t.Errorf("%s: a target twice is no error", c.name)
		}
		for i := range grad {
			grad[i] = float32(math.NaN())
		}
		stats, err := e.Gradient(grad, params, inputOf(ds, m, c.blocks, nil))
		if err != nil || stats.Count != 0 || slices.ContainsFunc(grad, func(g float32) bool { return g != 0 }) {
			t.Errorf("%s: without targets: %+v, %v, gradient %v", c.name, stats, err, grad)
		}
	}
}

// Blocks are one square block only if every array of theirs is the same.
func TestSameSquare(t *testing.T) {
	block := func() graph.Block {
		return graph.Block{NumDst: 2, NumSrc: 2, Indptr: []int64{0, 1, 2}, Indices: []uint32{0, 1},
			Weights: []float32{1, 2}, EdgeIDs: []int64{5, 6}, SrcIDs: []uint32{8, 9}}
	}
	if !sameSquare([]graph.Block{block(), block(), block()}) {
		t.Error("three copies of a block are not the same")
	}
	for name, change := range map[string]func(b *graph.Block){
		"NumDst":  func(b *graph.Block) { b.NumDst = 1 },
		"NumSrc":  func(b *graph.Block) { b.NumSrc = 3 },
		"Indptr":  func(b *graph.Block) { b.Indptr[1] = 0 },
		"Indices": func(b *graph.Block) { b.Indices[0] = 1 },
		"Weights": func(b *graph.Block) { b.Weights[1] = 3 },
		"EdgeIDs": func(b *graph.Block) { b.EdgeIDs[0] = 7 },
		"SrcIDs":  func(b *graph.Block) { b.SrcIDs = nil },
	} {
		other := block()
		if change(&other); sameSquare([]graph.Block{block(), block(), other}) {
			t.Errorf("blocks that differ by %s are the same", name)
		}
	}
	if wide := (graph.Block{NumDst: 2, NumSrc: 3, Indptr: []int64{0, 1, 2}, Indices: []uint32{0, 1}}); sameSquare([]graph.Block{wide}) {
		t.Error("a block with more sources than destinations is square")
	}
}

// BenchmarkTrim times a step of GraphSAGE on a random graph where a part of the
// nodes are targets, with trimming and with every row computed.
func BenchmarkTrim(b *testing.B) {
	ds := testDataset(20000, 10, 64, false)
	m := mustModel(b, Spec{Model: "sage", Layers: 2, InDim: 64, Hidden: 128, OutDim: 16}, ds.Graph)
	params := randomParams(m, 4)
	grad := make([]float32, len(params))
	set, err := cpu.Detect()
	if err != nil {
		b.Fatal(err)
	}
	for _, every := range []int{2, 5, 100} {
		var targets []uint32
		for v := uint32(0); v < 20000; v += uint32(every) {
			targets = append(targets, v)
		}
		in := inputOf(ds, m, wholeBlocks(ds.Graph, 2), targets)
		e := m.NewEngine(testExec(b, 2, set))
		for name, step := range map[string]func() (Stats, error){
			"trimmed": func() (Stats, error) { return e.Gradient(grad, params, in) },
			"all": func() (Stats, error) {
				return e.gradient(grad, params, in, func(y *Value[float32]) (func() Stats, error) { return e.core.loss(y, in) })
			},
		} {
			b.Run(fmt.Sprintf("1in%d/%s", every, name), func(b *testing.B) {
				for b.Loop() {
					if _, err := step(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
