package sampling

import (
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

func prepareEdge(p *Prepared, stop *interrupt.Poll) error {
	n := p.g.NumNodes()
	var out *graph.Graph
	if !p.g.Symmetric() {
		if n > math.MaxInt32 {
			return fmt.Errorf("the graph has %d nodes and edges without their reverse; of such graphs nodes may number at most %d", n, math.MaxInt32)
		}
		out = transpose(stop, p.g)
	}
	columns := n
	if out != nil {
		columns = 2 * n
	}
	table := newAlias(stop, columns, func(i int) float64 {
		if i < n {
			return float64(min(1, p.g.Degree(uint32(i))))
		}
		u := uint32(i - n)
		return float64(out.Degree(u)) / float64(max(1, p.g.Degree(u)))
	})
	budget := p.spec.Budget
	return p.prepareSubgraph(stop, func(*asker) drawer {
		return &edgeDrawer{in: p.g, out: out, table: table, drawn: make([]uint32, budget), ends: make([]uint32, 0, 2*budget)}
	})
}

// edgeDrawer draws edges independently with P(u, v) ∝ 1/d(u) + 1/d(v) and takes
// both ends. It draws a node first, so that its table has a column or two per
// node and not one per edge: 1/d(v) sums up to 1 over the edges into v, and
// 1/d(u) to out(u)/d(u) over those out of u. So an edge is drawn by drawing v
// among all nodes that edges lead to, and one of these; or u with weight
// out(u)/d(u), and one of its outgoing edges.
type edgeDrawer struct {
	in    *graph.Graph
	out   *graph.Graph // rows of targets; nil when the graph is symmetric, and both ways are the same
	table *alias       // of v, then of NumNodes + u
	drawn []uint32
	pos   [2 * edgeGroup]int64
	ends  []uint32
}

const edgeGroup = 256

func (d *edgeDrawer) draw(s *nodeSet, _ ID, key rng.Key) error {
	if d.table == nil {
		return nil
	}
	d.table.draws(d.drawn, key.With(0))
	entry := key.With(1)
	d.ends = d.ends[:0]
	// A group's row pointers are asked for while the group before it is drawn
	// from, its entries while those of the group before are read.
	d.prefetch(0)
	for begin := 0; begin < len(d.drawn)+edgeGroup; begin += edgeGroup {
		d.prefetch(begin + edgeGroup)
		for i := begin; i < min(begin+edgeGroup, len(d.drawn)); i++ {
			g, v := d.row(d.drawn[i])
			first := g.Indptr[v]
			d.pos[i%len(d.pos)] = first + int64(entry.Uintn(uint64(i), uint64(g.Indptr[v+1]-first)))
			prefetch4(&g.Indices[0], &d.pos[i%len(d.pos)], 1)
		}
		for i := max(begin-edgeGroup, 0); i < min(begin, len(d.drawn)); i++ {
			g, v := d.row(d.drawn[i])
			d.ends = append(d.ends, v, g.Indices[d.pos[i%len(d.pos)]])
		}
	}
	s.addAll(d.ends)
	return nil
}

// row returns where the row of a column is.
func (d *edgeDrawer) row(column uint32) (*graph.Graph, uint32) {
	if n := uint32(d.in.NumNodes()); d.out != nil && column >= n {
		return d.out, column - n
	}
	return d.in, column
}

// prefetch asks for the row pointers of the group that begins at i.
func (d *edgeDrawer) prefetch(i int) {
	for _, column := range d.drawn[min(i, len(d.drawn)):min(i+edgeGroup, len(d.drawn))] {
		g, v := d.row(column)
		prefetchRow(g, v)
	}
}

// transpose returns the graph whose row u lists the targets of u's edges, in
// increasing order.
func transpose(stop *interrupt.Poll, g *graph.Graph) *graph.Graph {
	n := g.NumNodes()
	// Filling row u moves its pointer from where the row begins to where the next
	// one does: they are kept one further on.
	t := &graph.Graph{Indptr: make([]int64, n+2), Indices: make([]uint32, len(g.Indices))}
	for _, u := range g.Indices {
		if stop.Ended() {
			break
		}
		t.Indptr[u+2]++
	}
	for u := range n {
		t.Indptr[u+2] += t.Indptr[u+1]
	}
	for v := range n {
		if stop.Ended() {
			break
		}
		for _, u := range g.InNeighbors(uint32(v)) {
			t.Indices[t.Indptr[u+1]] = uint32(v)
			t.Indptr[u+1]++
		}
	}
	t.Indptr = t.Indptr[:n+1]
	return t
}
