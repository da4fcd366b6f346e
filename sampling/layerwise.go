package sampling

import (
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

// A layer-wise sampler draws one set of nodes for a whole layer and keeps the
// entries of the destinations' rows whose sources are in it, in the order of
// the graph. The weights follow the convention of all blocks: their products
// with the sources, averaged over a row's entries, estimate the mean over N(v).
// With the raw weight 1/π(u) of an entry, π the expected number of times that u
// is drawn, that is |S(v)|/(d(v)·π(u)).
//
// A model adds a destination's own row itself (in GCN, the self-loop of Â). So
// nodes need not be drawn for the sake of their own self-loops, and are drawn
// with the loops left out of q: where many nodes are isolated, loops would take
// most of the draws.

func prepareFastGCN(p *Prepared, stop *interrupt.Poll) error {
	if err := p.checkLayerNodes(); err != nil {
		return err
	}
	// q(u) ∝ Σ_{v≠u} Â_vu².
	q := make([]float64, p.g.NumNodes())
	total := 0.0
	for v := range q {
		if stop.Ended() {
			break
		}
		inv := 1 / float64(p.g.Degree(uint32(v))+1)
		for _, u := range p.g.InNeighbors(uint32(v)) {
			if int(u) != v {
				q[u] += inv
			}
		}
	}
	for u := range q {
		q[u] /= float64(p.g.Degree(uint32(u)) + 1)
		total += q[u]
	}
	for u := range q {
		q[u] /= math.Max(total, math.SmallestNonzeroFloat64)
	}
	table := newAlias(stop, len(q), func(i int) float64 { return q[i] })
	p.factory = func() Sampler { return p.newLayerwise(&fastGCN{table: table, q: q}) }
	return nil
}

func prepareLadies(p *Prepared, _ *interrupt.Poll) error {
	if err := p.checkLayerNodes(); err != nil {
		return err
	}
	p.factory = func() Sampler { return p.newLayerwise(&ladies{g: p.g}) }
	return nil
}

func (p *Prepared) checkLayerNodes() error {
	if err := p.checkFanouts(); err != nil {
		return err
	}
	for i, n := range p.spec.Fanouts {
		if n < 1 {
			return fmt.Errorf("fan-out %d is %d; it is the number of nodes of the layer and must be at least 1", i+1, n)
		}
	}
	return nil
}

func (p *Prepared) newLayerwise(d layerDrawer) *layerwise {
	return &layerwise{
		p: p, drawer: d, set: newNodeSet(p.g.NumNodes(), bitsLimit),
		inducer: inducer{g: p.g},
	}
}

// layerDrawer draws the nodes of a layer.
type layerDrawer interface {
	// begin is told of a new batch.
	begin()
	// draw puts about size nodes into the empty set s, given the destinations,
	// and appends the raw weight of an entry from each to weights. The
	// destinations are those of the layer before, and then its sources.
	draw(s *nodeSet, weights []float64, key rng.Key, dst []uint32, size int) []float64
	// normalized reports whether weights are divided by their sum over a row,
	// in place of d(v).
	normalized() bool
	// row is told which nodes of the set, by their ids there, v has entries from,
	// one destination after the other.
	row(v uint32, local []uint32)
}

type layerwise struct {
	p       *Prepared
	drawer  layerDrawer
	ids     idMap
	set     *nodeSet
	raw     []float64 // raw weight of each node of set, in the order of its ids
	inducer inducer
}

// Sample implements Sampler.
func (s *layerwise) Sample(b *Batch, key rng.Key, seeds []uint32) error {
	s.ids.clear()
	s.drawer.begin()
	layers := len(s.p.spec.Fanouts)
	b.start(layers)
	var err error
	if b.nodes, err = s.ids.seed(seeds, b.nodes, s.p.g.NumNodes()); err != nil {
		return err
	}
	for hop, size := range s.p.spec.Fanouts {
		s.set.clear()
		s.raw = s.drawer.draw(s.set, s.raw[:0], key.With(uint64(hop)), b.nodes, size)
		s.layer(b, layers-1-hop)
	}
	finish(b, len(seeds))
	return nil
}

// layer writes block i: the entries of all destinations whose sources are in
// the set.
func (s *layerwise) layer(b *Batch, i int) {
	g := s.p.g
	s.set.number()
	out := &b.scratch[i]
	rows := len(b.nodes)
	out.indptr = resize(out.indptr, rows+1)
	out.indptr[0] = 0
	out.indices, out.edgeIDs, out.weights = out.indices[:0], out.edgeIDs[:0], out.weights[:0]
	for r := range rows {
		if r%groupRows == 0 {
			prefetchRows(g.Indptr, within(b.nodes[:rows], r+groupRows))
		}
		if next := r + scanAhead; next < rows {
			prefetchStart(g, b.nodes[next])
		}
		v := b.nodes[r]
		begin := g.Indptr[v]
		row := g.InNeighbors(v)
		hits, local := s.inducer.scan(s.set, row)
		s.drawer.row(v, local)
		w := len(out.indices)
		out.indices = reserve(out.indices, len(hits))
		out.weights = reserve(out.weights, len(hits))
		total := 0.0
		for j, h := range hits {
			out.indices = append(out.indices, row[h])
			out.weights = append(out.weights, float32(s.raw[local[j]]))
			total += float64(out.weights[len(out.weights)-1])
			if s.p.edgeIDs() {
				out.edgeIDs = append(out.edgeIDs, begin+int64(h))
			}
		}
		if !s.drawer.normalized() {
			total = float64(len(row))
		}
		for e := w; e < len(out.weights); e++ {
			out.weights[e] = float32(float64(out.weights[e]) / total * float64(len(hits)))
		}
		s.ids.reserve(b.nodes, len(hits))
		b.nodes = s.ids.number(out.indices[w:], reserve(b.nodes, len(hits)))
		out.indptr[r+1] = int64(len(out.indices))
	}
	b.Blocks[i] = graph.Block{NumDst: rows, NumSrc: len(b.nodes), Indptr: out.indptr, Indices: out.indices, Weights: out.weights}
	if s.p.edgeIDs() {
		b.Blocks[i].EdgeIDs = out.edgeIDs
	}
}

// fastGCN draws nodes independently with q(u) ∝ Σ_v Â_vu², the same for every
// layer (Chen, Ma and Xiao, 2018). A node drawn c times has the weight c/(s·q).
type fastGCN struct {
	table  *alias
	q      []float64
	counts []uint32
}

func (f *fastGCN) draw(s *nodeSet, weights []float64, key rng.Key, _ []uint32, size int) []float64 {
	if f.table == nil {
		return weights
	}
	for i := range size {
		s.add(f.table.draw(key, uint64(i)))
	}
	s.number()
	f.counts = resize(f.counts, len(s.nodes))
	clear(f.counts)
	for i := range size {
		id, _ := s.ids.get(f.table.draw(key, uint64(i)))
		f.counts[id]++
	}
	for i, u := range s.nodes {
		weights = append(weights, float64(f.counts[i])/(float64(size)*f.q[u]))
	}
	return weights
}

func (f *fastGCN) begin() {}

func (f *fastGCN) row(uint32, []uint32) {}

func (f *fastGCN) normalized() bool { return false }

// ladies draws nodes without replacement from the neighbours of the destinations
// and the destinations, with q(u) ∝ Σ_{v∈dst} Â_vu², and takes the destinations
// too (Zou et al., 2019). Entries weigh 1/q(u); rows are normalised.
//
// A layer's destinations are those of the layer before and its nodes, so that its
// sums go on where those of the layer before ended: only the rows of new
// destinations are read. A sum begins with the destination's own Â_vv², though:
// those of nodes that were drawn begin anew, with the entries that row is told of.
type ladies struct {
	g     *graph.Graph
	ids   idMap
	nodes []uint32    // the candidates, in the order in which they were seen
	sums  []candidate // theirs, but for those seen last
	rows  int         // destinations whose entries are counted
	kept  []uint32    // candidates that were drawn last, and destinations, in the order of the set
	own   []candidate // their sums that begin with Â_uu²
	parts [3]rowPart  // on their way to the sums
	best  smallest[float64]
}

// candidate has the sum so far, and the length of the node's row with a self-loop.
type candidate struct{ q, size float64 }

// rowPart is some entries of rows: their sources, which become candidates' numbers, and Â_vv of
// their rows, 0 of loops.
type rowPart struct {
	nodes []uint32
	share []float64
}

func (l *ladies) begin() {
	l.ids.clear()
	l.nodes, l.sums, l.rows, l.kept, l.own = l.nodes[:0], l.sums[:0], 0, l.kept[:0], l.own[:0]
}

// loop returns the sum of a node that is a destination and has no entries.
func (l *ladies) loop(u uint32) candidate {
	size := float64(l.g.Degree(u) + 1)
	return candidate{1 / size * (1 / size), size}
}

func (l *ladies) draw(s *nodeSet, weights []float64, key rng.Key, dst []uint32, size int) []float64 {
	for i, c := range l.kept {
		l.sums[c] = l.own[i]
	}
	if l.rows == 0 {
		for i, v := range dst {
			l.nodes, l.sums, l.kept = append(l.nodes, v), append(l.sums, l.loop(v)), append(l.kept, uint32(i))
		}
		l.ids.reserve(nil, len(dst))
		for _, v := range dst {
			l.ids.put(v)
		}
	}
	l.count(dst[l.rows:])
	l.rows = len(dst)
	l.best.reset(size)
	for i, c := range l.sums {
		// −ln x ≥ 1 − x: most nodes are out without a logarithm. What is added is
		// far above the errors of rounding.
		draw := key.Uint64(uint64(l.nodes[i]))
		if h := l.best.heap; len(h) == size && 1-unit(draw) > h[0].key*c.q*(1+1e-9) {
			continue
		}
		l.best.offer(exponential(draw)/c.q, uint32(i))
	}
	for _, c := range l.kept { // the destinations
		s.add(l.nodes[c])
	}
	for _, e := range l.best.heap {
		if s.add(l.nodes[e.item]) {
			l.kept = append(l.kept, e.item)
		}
	}
	l.own = l.own[:0]
	for _, c := range l.kept {
		weights = append(weights, 1/l.sums[c].q)
		l.own = append(l.own, l.loop(l.nodes[c]))
	}
	return weights
}

// row implements layerDrawer.
func (l *ladies) row(v uint32, local []uint32) {
	inv := 1 / float64(l.g.Degree(v)+1)
	for _, i := range local {
		if l.nodes[l.kept[i]] != v {
			l.own[i].q += inv / l.own[i].size
		}
	}
}

// count adds the entries of nodes' rows to the sums.
func (l *ladies) count(nodes []uint32) {
	prefetchRows(l.g.Indptr, within(nodes, 0))
	for i, v := range nodes {
		if i%groupRows == 0 {
			prefetchRows(l.g.Indptr, within(nodes, i+groupRows))
		}
		if next := i + scanAhead; next < len(nodes) {
			prefetchStart(l.g, nodes[next])
		}
		inv := 1 / float64(l.g.Degree(v)+1)
		for row := l.g.InNeighbors(v); len(row) > 0; {
			to := &l.parts[0]
			piece := row[:min(len(row), partEntries-len(to.nodes))]
			row = row[len(piece):]
			to.nodes = append(to.nodes, piece...)
			for _, u := range piece {
				share := inv
				if u == v {
					share = 0
				}
				to.share = append(to.share, share)
			}
			if len(to.nodes) == partEntries {
				l.advance()
			}
		}
	}
	for range l.parts {
		l.advance()
	}
}

const partEntries = 64

// advance takes each part one step further: asks for where the table has the
// first part's sources; numbers those of the second, and asks for their sums and
// the rows' ends of the new ones among them; adds the third's to the sums.
func (l *ladies) advance() {
	first, second, third := &l.parts[0], &l.parts[1], &l.parts[2]
	l.ids.reserve(l.nodes, 2*partEntries)
	prefetchSlots(&l.ids, first.nodes)
	for _, u := range l.nodes[len(l.sums):] { // new in the part that is the third now
		l.sums = append(l.sums, candidate{size: float64(l.g.Degree(u) + 1)})
	}
	l.nodes = l.ids.number(second.nodes, reserve(l.nodes, len(second.nodes)))
	prefetchRows(l.g.Indptr, l.nodes[len(l.sums):])
	prefetchCandidates(l.sums, second.nodes)
	for i, c := range third.nodes {
		sum := &l.sums[c]
		sum.q += third.share[i] / sum.size
	}
	third.nodes, third.share = third.nodes[:0], third.share[:0]
	l.parts[0], l.parts[1], l.parts[2] = *third, *first, *second
}

func (l *ladies) normalized() bool { return true }
