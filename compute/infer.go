package compute

import (
	"context"
	"fmt"
	"runtime"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// DefaultChunk is how many rows Infer computes at once unless told otherwise.
const DefaultChunk = 4096

// Infer returns the outputs of the model at params for the given nodes of ds
// (nil: all, in order; repeated ids give repeated rows), computed exactly: layer
// by layer over complete neighbourhoods, without dropout. The result is
// len(nodes)×OutDim and belongs to the caller.
//
// Rows are computed chunk at a time (chunk < 1: DefaultChunk), and only those
// of the nodes' L-hop neighbourhood. A row's bits depend neither on nodes, nor
// on chunk, nor on the number of threads. Besides the chunk's own, memory is
// needed for the hidden values of two layers of the neighbourhood and some 20
// bytes per node of it. x must not be used by anyone else meanwhile. Infer
// returns ctx's error soon after ctx is done: within the computation of one
// chunk.
func (m *Model) Infer(ctx context.Context, x *cpu.Exec, params []float32, ds *graph.Dataset, nodes []uint32, chunk int) (y cpu.Matrix[float32], err error) {
	return m.InferRows(ctx, x, params, ds, nodes, chunk, nil)
}

// InferRows is Infer, with feature rows that are not those of ds as they lie: rows is
// called once with the nodes whose features are needed, in increasing order, and returns a
// table that has theirs, row by row. nil: they are ds's.
func (m *Model) InferRows(ctx context.Context, x *cpu.Exec, params []float32, ds *graph.Dataset, nodes []uint32, chunk int, rows func(nodes []uint32) (*graph.Features, error)) (y cpu.Matrix[float32], err error) {
	err = graph.Guard(func() error {
		y, err = m.infer(ctx, x, params, ds, nodes, chunk, rows)
		return err
	})
	return y, err
}

func (m *Model) infer(ctx context.Context, x *cpu.Exec, params []float32, ds *graph.Dataset, nodes []uint32, chunk int, rows func([]uint32) (*graph.Features, error)) (cpu.Matrix[float32], error) {
	none := cpu.Matrix[float32]{}
	if err := m.checkInfer(params, ds, nodes); err != nil {
		return none, fmt.Errorf("compute: inference: %w", err)
	}
	if chunk < 1 {
		chunk = DefaultChunk
	}
	r := inference{core: newCore[float32](m, x, false), ctx: ctx, params: params, chunk: chunk, edges: ds.EdgeFeatures, values: ds.NodeFeatures, global: true}
	defer r.close()
	return r.run(ds, nodes, rows)
}

// run computes the outputs for nodes: infer says of what.
func (r *inference) run(ds *graph.Dataset, nodes []uint32, rows func([]uint32) (*graph.Features, error)) (cpu.Matrix[float32], error) {
	none, m, c := cpu.Matrix[float32]{}, r.model, r.core
	if cpu.DeviceOf[float32](c.tape.x) == nil {
		c.tape.settle()
	}
	sets, err := neighborhoods(r.ctx, m.graph, m.rows, nodes, len(c.layers))
	if err != nil {
		return none, fmt.Errorf("compute: inference: %w", err)
	}
	if rows != nil {
		if r.values, err = rows(sets[0].all()); err != nil {
			return none, fmt.Errorf("compute: inference: %w", err)
		}
		r.global = false
	}
	last := sets[len(c.layers)]
	for l := range c.layers {
		if err := r.layer(l, sets[l], sets[l+1]); err != nil {
			return none, fmt.Errorf("compute: inference: %w", err)
		}
		if m.spec.JumpingKnowledge != "" && !c.layers[l].inner {
			r.keep(sets[l+1], last)
		}
	}
	if m.spec.head() {
		if err := r.finish(last.n); err != nil {
			return none, fmt.Errorf("compute: inference: %w", err)
		}
	}
	if nodes == nil {
		return r.out, nil
	}
	y := cpu.NewMatrix[float32](len(nodes), m.spec.OutDim)
	for i, v := range nodes {
		copy(y.Row(i), r.out.Row(int(last.row(v))))
	}
	return y, nil
}

func (m *Model) checkInfer(params []float32, ds *graph.Dataset, nodes []uint32) error {
	switch {
	case len(params) != m.layout.Len():
		return fmt.Errorf("%d parameters given, the model has %d", len(params), m.layout.Len())
	case ds.Graph.NumNodes() != m.nodes || int(ds.Graph.NumEdges()) != m.edges:
		return fmt.Errorf("the data set has %d nodes and %d edges, but the model was made for %d and %d; make a model for this graph with NewModel",
			ds.Graph.NumNodes(), ds.Graph.NumEdges(), m.nodes, m.edges)
	case ds.NodeFeatures == nil:
		return fmt.Errorf("the data set has no node features; the model needs %d per node", m.spec.InDim)
	case ds.NodeFeatures.Cols != m.spec.InDim:
		return fmt.Errorf("nodes have %d features, the model needs %d", ds.NodeFeatures.Cols, m.spec.InDim)
	case ds.NodeFeatures.Rows < m.nodes:
		return fmt.Errorf("the feature table has %d rows for %d nodes", ds.NodeFeatures.Rows, m.nodes)
	}
	if err := m.checkEdges(ds.EdgeFeatures); err != nil {
		return err
	}
	for _, v := range nodes {
		if int(v) >= m.nodes {
			return fmt.Errorf("node %d is out of range [0, %d)", v, m.nodes)
		}
	}
	return nil
}

// inference runs one layer after the other.
type inference struct {
	*core[float32]
	ctx    context.Context
	params []float32
	chunk  int
	edges  *graph.Features

	values *graph.Features // of the present layer's sources
	global bool            // rows of values are global ids, not positions in the source set
	out    cpu.Matrix[float32]
	kept   []cpu.Matrix[float32] // results of the convolutions, for jumping knowledge
	rows   rowBlock
	ids    []uint32

	sized func(layer int, s InferenceSize) // told what layers took; nil: nobody asks
}

// begin prepares the tape for one chunk of layer l.
func (r *inference) begin(l int, b *graph.Block) (*Context[float32], error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	r.tape.Reset()
	r.bind(r.params, nil)
	c := &r.core.ctx[l]
	c.Block, c.whole, c.edges = b, true, r.edges
	return c, nil
}

// collectsFrom is of how many bytes what is left behind is for it to be collected before what follows: matrices of both would else lie side by
// side, until the collector happens to begin. Where layers are wide it takes an eighth of the time, for an eighth of the memory.
const collectsFrom = 4 << 20

// layer computes layer l for the nodes of dst from r.values, those of src, and
// puts the result there.
func (r *inference) layer(l int, src, dst *nodeSet) error {
	if l == 0 {
		r.renew(0)
	} else {
		r.renew(int64(len(r.values.Data)))
	}
	front := min(r.chunk, dst.n)
	sent, err := r.transform(l, src, front)
	if err != nil {
		return err
	}
	r.renew(0)
	r.out = cpu.Matrix[float32]{Cols: r.model.spec.OutDim, Stride: r.model.spec.OutDim}
	r.rows.compact = cpu.DeviceOf[float32](r.tape.x) != nil
	r.rows.reset(r.model.graph, src, dst, r.model.spec.EdgeDim > 0)
	err = r.pieces(dst, func(i, n int, rows *graph.Block) error {
		c, err := r.begin(l, r.rows.cut(i, n, rows))
		if err != nil {
			return err
		}
		where := r.rows.positions
		if r.global {
			where = r.rows.block.SrcIDs
		}
		x := r.input(r.values, r.rows.block.NumSrc, where)
		h := []*Value[float32]{x}
		if sent != nil {
			h = h[:0]
			for _, s := range sent {
				if s == nil {
					h = append(h, x)
				} else {
					h = append(h, r.sources(c, s, front, n))
				}
			}
		}
		r.put(l, c, c.Head(x, n), h, i, dst.n)
		return nil
	})
	if err != nil {
		return err
	}
	if r.sized != nil {
		r.sized(l, r.size(l, sent))
	}
	r.values, r.global = graph.NewFeatures(r.out.Rows, r.out.Cols, r.out.Data), false
	return nil
}

// renew has the tape begin anew where other sizes follow, and collects what it held with what else was left behind, so many bytes, if that is
// much. A device keeps what it has: allocating takes it long.
func (r *inference) renew(left int64) {
	if cpu.DeviceOf[float32](r.tape.x) == nil {
		left += r.tape.held()
		r.tape.release()
		left -= r.tape.held()
	}
	if left >= collectsFrom {
		runtime.GC()
	}
}

// sources returns the rows of sent, of which the first front are room for the n destinations' own, for the sources of the present block: on
// the processor where they lie.
func (r *inference) sources(c *Context[float32], sent *cpu.Matrix[float32], front, n int) *Value[float32] {
	if cpu.DeviceOf[float32](r.tape.x) != nil {
		all := sent.View(front, sent.Rows, 0, sent.Cols)
		return c.Table(graph.NewFeatures(all.Rows, all.Cols, all.Data), r.rows.block.NumSrc, r.rows.positions)
	}
	for k, at := range r.rows.positions[:n] {
		copy(sent.Row(front-n+k), sent.Row(front+int(at)))
	}
	return c.Leaf(sent.View(front-n, sent.Rows, 0, sent.Cols), false, cpu.Matrix[float32]{})
}

// put computes the rows of r.out from row i, of all in all, from the destinations' old values x and
// Transform's results h for the sources of c's block.
func (r *inference) put(l int, c *Context[float32], x *Value[float32], h []*Value[float32], i, all int) {
	r.store(r.apply(l, x, c.sum(r.layers[l].Gather(c, x, h))), i, all)
}

// store has y be the rows of r.out from row i, of all in all.
func (r *inference) store(y *Value[float32], i, all int) {
	if r.out.Data == nil {
		r.out = cpu.NewMatrix[float32](all, y.cols)
	}
	r.tape.fetch(r.out.View(i, i+y.rows, 0, y.cols), y.Matrix())
}

// pieces has use called for each chunk of dst, with the rows of its nodes if those lie elsewhere.
func (r *inference) pieces(dst *nodeSet, use func(i, n int, rows *graph.Block) error) error {
	if r.model.graph.Away() {
		return r.model.rows.Rows(r.ctx, dst.all(), r.chunk, r.rows.edgeIDs, func(i int, b *graph.Block) error { return use(i, b.NumDst, b) })
	}
	for i := 0; i < dst.n; i += r.chunk {
		if err := use(i, min(r.chunk, dst.n-i), nil); err != nil {
			return err
		}
	}
	return nil
}

// transform runs the Transform stage of layer l for the nodes of src. It
// returns one table per value that the stage makes, after room for front rows, nil where that is its input
// itself; nil if all are.
func (r *inference) transform(l int, src *nodeSet, front int) ([]*cpu.Matrix[float32], error) {
	var sent []*cpu.Matrix[float32]
	for i := 0; i < src.n; i += r.chunk {
		n := min(r.chunk, src.n-i)
		c, err := r.begin(l, &graph.Block{})
		if err != nil {
			return nil, err
		}
		r.ids = r.ids[:0]
		for k := i; k < i+n; k++ {
			id := uint32(k)
			if r.global {
				id = src.id(k)
			}
			r.ids = append(r.ids, id)
		}
		x := r.input(r.values, n, r.ids)
		h := r.layers[l].Transform(c, x)
		if i == 0 {
			sent = make([]*cpu.Matrix[float32], len(h))
			made := 0
			for k, v := range h {
				if v != x {
					m := cpu.NewMatrix[float32](front+src.n, v.cols)
					sent[k] = &m
					made++
				}
			}
			if made == 0 {
				return nil, nil
			}
		}
		for k, v := range h {
			if v != x {
				r.tape.fetch(sent[k].View(front+i, front+i+n, 0, v.cols), v.Matrix())
			}
		}
	}
	return sent, nil
}

// keep copies the rows of r.out, those of from, that belong to nodes of to.
func (r *inference) keep(from, to *nodeSet) {
	if from == to {
		r.kept = append(r.kept, r.out)
		return
	}
	m := cpu.NewMatrix[float32](to.n, r.out.Cols)
	for i := range to.n {
		copy(m.Row(i), r.out.Row(int(from.row(to.id(i)))))
	}
	r.kept = append(r.kept, m)
}

// finish runs the head over n rows of the convolutions' results.
func (r *inference) finish(n int) error {
	r.renew(0)
	x := r.out
	r.out = cpu.NewMatrix[float32](n, r.model.spec.OutDim)
	for i := 0; i < n; i += r.chunk {
		end := min(i+r.chunk, n)
		c, err := r.begin(len(r.layers)-1, &graph.Block{})
		if err != nil {
			return err
		}
		leaf := func(m cpu.Matrix[float32]) *Value[float32] {
			return c.Leaf(m.View(i, end, 0, m.Cols), false, cpu.Matrix[float32]{})
		}
		r.jumps = r.jumps[:0]
		for _, m := range r.kept {
			r.jumps = append(r.jumps, leaf(m))
		}
		y := r.head(leaf(x), r.jumps)
		r.tape.fetch(r.out.View(i, end, 0, y.cols), y.Matrix())
	}
	return nil
}
