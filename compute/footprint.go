package compute

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// What a model takes of memory is found by its own code: a gradient, and inference, are computed on random edges, as few as time
// allows and as many as keep the shares of destinations, sources and entries, and what they took is scaled up.

// trialWork is up to how many rows and entries, times the square of the widest layer, a trial has; and trialLeast how many it may always have.
const (
	trialWork  = 1 << 25
	trialLeast = 256
)

// BlockSize is what a block takes its memory by.
type BlockSize struct{ Dst, Src, Entries int64 }

// GradientSize is what an Engine holds for one batch.
type GradientSize struct {
	Bytes  int64 // of all that it holds
	Values int   // of these, activations and gradients: what Engine.Reserve takes
}

// GradientBytes returns what an Engine holds for the gradient of a batch of such blocks, the input layer's first, of which so many outputs are targets. square: all
// blocks are one subgraph's. It is the processor's, within a few percent, for a table of features that is not sparse.
func (m *Model) GradientBytes(x *cpu.Exec, blocks []BlockSize, targets int64, square bool) (size GradientSize, err error) {
	most := int64(0)
	for _, b := range blocks {
		most = max(most, b.Src+b.Entries)
	}
	parts := m.parts(most)
	small := make([]BlockSize, len(blocks))
	for i, b := range blocks {
		small[i] = BlockSize{part(b.Dst, parts), part(b.Src, parts), part(b.Entries, parts)}
		if i > 0 {
			small[i].Src = small[i-1].Dst
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	ds := m.trialData(random, small[0].Src, max(small[0].Entries, 1))
	of, err := m.onTrial(ds)
	if err != nil {
		return size, err
	}
	in := Input{Key: rng.New(1), Features: ds.NodeFeatures, Edges: ds.EdgeFeatures, Blocks: make([]graph.Block, len(small)), Rows: make([]uint32, small[0].Src)}
	for i := range in.Rows {
		in.Rows[i] = uint32(i)
	}
	for i, b := range small {
		if square && i > 0 {
			in.Blocks[i] = in.Blocks[0]
			continue
		}
		in.Blocks[i] = randomBlock(random, b, m.spec.EdgeDim > 0, ds.EdgeFeatures)
	}
	in.Labels = make([]int32, min(part(targets, parts), small[len(small)-1].Dst))
	e := of.NewEngine(x)
	defer e.Close()
	params := of.Init(1)
	grad := make([]float32, len(params))
	err = graph.Guard(func() error {
		in := e.core.trimmed(&in)
		_, err := e.gradient(grad, params, in, func(y *Value[float32]) (func() Stats, error) {
			e.core.tape.SetGrad(y, cpu.NewMatrix[float32](y.rows, y.cols))
			return func() Stats { return Stats{} }, nil
		})
		return err
	})
	if err != nil {
		return size, fmt.Errorf("compute: the size of a gradient: %w", err)
	}
	t := e.core.tape
	size.Bytes = t.asked(parts, arenaPiece) + e.core.trimmer.held()*parts
	size.Values = t.mem.asked * int(parts)
	for _, d := range append([]derived[float32]{t.ofWhole}, t.ofLasting...) {
		if d.transpose != nil {
			size.Bytes += d.transpose.Bytes() * parts
		}
	}
	return size, nil
}

// InferenceSize is what exact inference takes for one layer: Whole bytes for all nodes, and for each row and each entry of a chunk.
// Of Whole, Sent are the bytes of each matrix that lies in memory until the layer ends, and Out those of its outputs, which the next reads.
type InferenceSize struct {
	Whole      int64
	Row, Entry float64
	Sent       []int64
	Out        int64
}

// InferenceBytes returns what Infer takes for all nodes, layer by layer.
func (m *Model) InferenceBytes(ctx context.Context, x *cpu.Exec) ([]InferenceSize, error) {
	parts := m.parts(int64(m.nodes + m.edges))
	nodes := part(int64(m.nodes), parts)
	sizes := make([]InferenceSize, m.blocks)
	var taken [2][]InferenceSize // with the graph's entries, and with twice as many
	for k := range taken {
		ds := m.trialData(rand.New(rand.NewPCG(1, 1)), nodes, max(part(int64(m.edges), parts), 1)*int64(1+k))
		of, err := m.onTrial(ds)
		if err != nil {
			return nil, err
		}
		all := make([]uint32, nodes)
		for i := range all {
			all[i] = uint32(i)
		}
		r := inference{core: newCore[float32](of, x, false), ctx: ctx, params: of.Init(1), chunk: int(nodes), edges: ds.EdgeFeatures, values: ds.NodeFeatures, global: true}
		r.sized = func(_ int, s InferenceSize) { taken[k] = append(taken[k], s) }
		err = graph.Guard(func() error {
			_, err := r.run(ds, all, nil)
			return err
		})
		r.close()
		if err != nil {
			return nil, fmt.Errorf("compute: the size of inference: %w", err)
		}
		if k == 0 {
			entries := float64(ds.Graph.NumEdges())
			defer func() {
				for l := range sizes {
					a, b := taken[0][l], taken[1][l]
					sizes[l].Whole, sizes[l].Out = a.Whole*parts, a.Out*parts
					for _, bytes := range a.Sent {
						sizes[l].Sent = append(sizes[l].Sent, bytes*parts)
					}
					sizes[l].Entry = max(b.Row-a.Row, 0) * float64(nodes) / entries
					sizes[l].Row = max(a.Row-sizes[l].Entry*entries/float64(nodes), 0)
				}
			}()
		}
	}
	return sizes, nil
}

// size returns what layer l, the present one, holds: Row with all that its chunk does. The last one's outputs are copied in the order of the nodes asked for.
func (r *inference) size(l int, sent []*cpu.Matrix[float32]) InferenceSize {
	n := r.model.nodes
	whole := int64(0)
	for _, m := range append(r.kept[:len(r.kept):len(r.kept)], r.out) {
		whole += 4 * int64(len(m.Data))
	}
	if !r.global {
		whole += int64(len(r.values.Data))
	}
	if l == len(r.layers)-1 && !r.model.spec.head() {
		whole += 4 * int64(len(r.out.Data))
	}
	front := int64(0)
	var tables []int64
	for _, m := range sent {
		if m != nil {
			front += 4 * int64(r.chunk*m.Cols)
			tables = append(tables, 4*int64((m.Rows-r.chunk)*m.Cols))
			whole += tables[len(tables)-1]
		}
	}
	// Positions of sources, and the sets of nodes that layers read.
	whole += int64(8*n + (len(r.layers)+1)*(4*n+n/4))
	b := &r.rows.block
	taken := r.tape.asked(1, 0) // of a trial's few rows, what arenas allocate at the least would count for as many more as a chunk has
	taken += taken / settleRoom // Tape.settle
	chunk := front + taken + int64(8*n+8*len(b.Indptr)+4*len(b.Indices)+8*len(b.EdgeIDs))
	return InferenceSize{Whole: whole, Row: float64(chunk) / float64(n), Sent: tables, Out: 4 * int64(len(r.out.Data))}
}

// parts returns of how many parts a trial is one.
func (m *Model) parts(size int64) int64 {
	widest := int64(max(m.spec.InDim, m.spec.Hidden, m.spec.OutDim, 1))
	return max(1, size/max(trialWork/(widest*widest), trialLeast))
}

func part(n, parts int64) int64 { return (n + parts - 1) / parts }

// onTrial returns m for a trial's data.
func (m *Model) onTrial(ds *graph.Dataset) (*Model, error) {
	of, err := newModel(m.spec, ds.Graph, m.custom)
	if err == nil && m.sparse != nil {
		of.BindFeatures(ds.NodeFeatures)
	}
	return of, err
}

// trialData returns nodes with random edges, and features as wide as m reads, as sparse as those that it is bound to.
func (m *Model) trialData(random *rand.Rand, nodes, edges int64) *graph.Dataset {
	b := randomBlock(random, BlockSize{nodes, nodes, edges}, false, nil)
	x := make([]float32, nodes*int64(m.spec.InDim))
	every := 1
	if m.sparse != nil {
		every = max(m.sparse.Rows*m.sparse.Cols/max(len(m.sparse.Values), 1), sparseShare+1)
	}
	for i := 0; i < len(x); i += every {
		x[i] = 1
	}
	g := &graph.Graph{Indptr: b.Indptr, Indices: b.Indices}
	if m.graph.Weights != nil {
		g.Weights = make([]float32, edges)
		for i := range g.Weights {
			g.Weights[i] = 1
		}
	}
	ds := &graph.Dataset{Graph: g, NodeFeatures: graph.NewFeatures(int(nodes), m.spec.InDim, x)}
	if m.spec.EdgeDim > 0 {
		ds.EdgeFeatures = graph.NewFeatures(int(edges), m.spec.EdgeDim, make([]float32, edges*int64(m.spec.EdgeDim)))
	}
	return ds
}

// randomBlock returns a block whose entries are dealt out evenly, between random sources.
func randomBlock(random *rand.Rand, s BlockSize, edgeIDs bool, edges *graph.Features) graph.Block {
	b := graph.Block{NumDst: int(s.Dst), NumSrc: int(s.Src), Indptr: make([]int64, s.Dst+1), Indices: make([]uint32, s.Entries), SrcIDs: make([]uint32, s.Src)}
	for i := range b.SrcIDs {
		b.SrcIDs[i] = uint32(i)
	}
	for i := range b.Indptr {
		b.Indptr[i] = int64(i) * s.Entries / max(s.Dst, 1)
	}
	for e := range b.Indices {
		b.Indices[e] = uint32(random.Int64N(s.Src))
	}
	if edgeIDs {
		b.EdgeIDs = make([]int64, s.Entries)
		for e := range b.EdgeIDs {
			b.EdgeIDs[e] = int64(e % edges.Rows)
		}
	}
	return b
}
