package compute

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// TestRowsOfEntries checks what an entry of a block reads of its two ends and of
// its edge, value by value: on the whole graph, on sampled blocks and on a
// subgraph, from values that an op made and from a feature table.
func TestRowsOfEntries(t *testing.T) {
	g := randomGraph(23, 3, false, 5)
	edges := graph.NewFeatures(len(g.Indices), 2, randomMatrix[float32](len(g.Indices), 2, 8).Data)
	seeds := []uint32{9, 4, 0, 17} // 4 has no in-neighbours
	for name, b := range map[string]graph.Block{
		"whole":    graph.WholeGraph(g),
		"all":      sampleBlocks(g, seeds, 1, -1, 3)[0],
		"sampled":  sampleBlocks(g, seeds, 1, 1, 3)[0],
		"subgraph": subgraphBlocks(g, []uint32{1, 2, 8, 11, 13, 21}, 1)[0],
		"no edges": {NumDst: 2, NumSrc: 2, Indptr: []int64{0, 0, 0}, SrcIDs: []uint32{4, 9}},
	} {
		t.Run(name, func(t *testing.T) {
			values := randomMatrix[float32](b.NumSrc, 3, 4)
			var reversed []uint32 // rows of a table
			for i := range b.NumSrc {
				reversed = append(reversed, uint32(b.NumSrc-1-i))
			}
			tape := NewTape[float32](testExec(t, 2, cpu.Go), true)
			c := &Context[float32]{Tape: tape, Block: &b, edges: edges}
			table := graph.NewFeatures(values.Rows, 3, values.Data)
			for kind, v := range map[string]*Value[float32]{
				"dense": tape.Leaf(values, true, cpu.Matrix[float32]{}),
				"table": tape.Table(table, b.NumSrc, nil),
				"rows":  tape.Table(table, b.NumSrc, reversed),
			} {
				row := func(i uint32) []float32 {
					if kind == "rows" {
						i = reversed[i]
					}
					return values.Row(int(i))
				}
				src, dst := c.FromSources(v).Matrix(), c.FromDestinations(tape.Head(v, b.NumDst)).Matrix()
				if src.Rows != len(b.Indices) || dst.Rows != len(b.Indices) {
					t.Fatalf("%s: %d and %d rows for %d entries", kind, src.Rows, dst.Rows, len(b.Indices))
				}
				for i := range uint32(b.NumDst) {
					for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
						if got, want := src.Row(int(e)), row(b.Indices[e]); !slices.Equal(got, want) {
							t.Errorf("%s: entry %d has %v of its source %d, want %v", kind, e, got, b.Indices[e], want)
						}
						if got, want := dst.Row(int(e)), row(i); !slices.Equal(got, want) {
							t.Errorf("%s: entry %d has %v of its destination %d, want %v", kind, e, got, i, want)
						}
					}
				}
			}
			got, want := c.EdgeFeatures().Matrix(), make([]float32, 2)
			if got.Rows != len(b.Indices) {
				t.Fatalf("%d rows of edge features for %d entries", got.Rows, len(b.Indices))
			}
			for i := range uint32(b.NumDst) {
				for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
					v, u := global(&b, i), global(&b, b.Indices[e])
					edge := e
					if b.EdgeIDs != nil {
						edge = b.EdgeIDs[e]
					}
					if g.Indices[edge] != u || edge < g.Indptr[v] || edge >= g.Indptr[v+1] {
						t.Fatalf("entry %d, from node %d to %d, is said to be edge %d", e, u, v, edge)
					}
					if edges.Row(want, int(edge)); !slices.Equal(got.Row(int(e)), want) {
						t.Errorf("entry %d has the edge features %v, want %v", e, got.Row(int(e)), want)
					}
				}
			}
		})
	}
}

// edgeSum is a layer whose result is the sum over a node's entries of the
// features of their edges, times one parameter: what it computes is known.
type edgeSum[T cpu.Float] struct{ out int }

func (l edgeSum[T]) Params() []Param {
	return []Param{{Name: "weight", Shape: []int{l.out, 2}, Init: Glorot}}
}

func (l edgeSum[T]) Transform(_ *Context[T], x *Value[T]) []*Value[T] { return []*Value[T]{x} }

func (l edgeSum[T]) Gather(c *Context[T], _ *Value[T], _ []*Value[T]) Message[T] {
	return Message[T]{Entries: c.Linear(c.EdgeFeatures(), c.Param(0), nil, cpu.Linear), Reduce: cpu.Sum}
}

func (l edgeSum[T]) Apply(c *Context[T], _, a *Value[T], act cpu.Activation) *Value[T] {
	return c.BiasAct(a, nil, act)
}

// TestEdgesOfTrimmedBatches checks that a batch with few targets on the whole
// graph, whose entries are then no longer in the graph's order, reads each edge's
// own features.
func TestEdgesOfTrimmedBatches(t *testing.T) {
	ds := testDataset(60, 1, 4, false)
	ds.EdgeFeatures = graph.NewFeatures(len(ds.Graph.Indices), 2, randomMatrix[float32](len(ds.Graph.Indices), 2, 6).Data)
	m, err := NewCustomModel(Spec{Model: "edges", Layers: 1, InDim: 4, OutDim: 2, EdgeDim: 2}, ds.Graph,
		func(_, _, out int) Layer[float32] { return edgeSum[float32]{out} })
	if err != nil {
		t.Fatal(err)
	}
	params := []float32{1, 0, 0, 1}
	grad := make([]float32, 4)
	targets := []uint32{41, 3, 26}
	for name, blocks := range map[string][]graph.Block{"whole": wholeBlocks(ds.Graph, 1), "sampled": sampleBlocks(ds.Graph, targets, 1, -1, 1)} {
		t.Run(name, func(t *testing.T) {
			in := inputOf(ds, m, blocks, targets)
			in.Edges = ds.EdgeFeatures
			if name == "sampled" {
				in.Targets = nil
			}
			e := m.NewEngine(testExec(t, 2, cpu.Go))
			if _, err := e.Gradient(grad, params, in); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(e.Rows()); got != "[3]" {
				t.Fatalf("%s rows were computed, want 3", got)
			}
			// By hand: the sums s of the edges' features, softmax of s, class 1.
			byHand := make([]float32, 4)
			f := make([]float32, 2)
			for k, v := range targets {
				var s [2]float64
				for e := ds.Graph.Indptr[v]; e < ds.Graph.Indptr[v+1]; e++ {
					ds.EdgeFeatures.Row(f, int(e))
					s[0] += float64(f[0])
					s[1] += float64(f[1])
				}
				p := 1 / (1 + math.Exp(s[1]-s[0])) // of class 0
				for j := range 2 {
					byHand[j] += float32(p * s[j] * float64(k+1))
					byHand[2+j] -= float32(p * s[j] * float64(k+1))
				}
			}
			closeTo(t, "by hand", grad, byHand, 1e-5)
		})
	}
}

// The values themselves: a gradient check does not see a factor in both passes.
func TestSumEntriesValues(t *testing.T) {
	b := &graph.Block{NumDst: 3, NumSrc: 3, Indptr: []int64{0, 2, 2, 5}, Indices: []uint32{0, 1, 0, 1, 2}}
	tape := NewTape[float64](testExec(t, 1, cpu.Go), false)
	v := tape.Leaf(cpu.Matrix[float64]{Rows: 5, Cols: 1, Stride: 1, Data: []float64{1, 3, 5, 6, 10}}, false, cpu.Matrix[float64]{})
	for reduce, want := range map[cpu.Reduce][]float64{cpu.Sum: {4, 0, 21}, cpu.Mean: {2, 0, 7}} {
		m := tape.SumEntries(b, v, reduce).Matrix()
		for i, w := range want {
			if got := m.Row(i)[0]; got != w {
				t.Errorf("%v of row %d: %v, want %v", reduce, i, got, w)
			}
		}
	}
	m := tape.RowSums(tape.Leaf(cpu.Matrix[float64]{Rows: 2, Cols: 3, Stride: 3, Data: []float64{1, 2, 4, -1, 0, 0.5}}, false, cpu.Matrix[float64]{})).Matrix()
	if m.Row(0)[0] != 7 || m.Row(1)[0] != -0.5 {
		t.Errorf("sums of rows: %v and %v, want 7 and -0.5", m.Row(0)[0], m.Row(1)[0])
	}
}
