package sampling

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
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

func prepareFastGCN(p *Prepared) error {
	if err := p.checkLayerNodes(); err != nil {
		return err
	}
	// q(u) ∝ Σ_{v≠u} Â_vu².
	q := make([]float64, p.g.NumNodes())
	total := 0.0
	for v := range q {
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
	table := newAlias(len(q), func(i int) float64 { return q[i] })
	p.factory = func() Sampler { return p.newLayerwise(&fastGCN{table: table, q: q}) }
	return nil
}

func prepareLadies(p *Prepared) error {
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
	// draw puts about size nodes into the empty set s, given the destinations,
	// and appends the raw weight of an entry from each to weights.
	draw(s *nodeSet, weights []float64, key rng.Key, dst []uint32, size int) []float64
	// normalized reports whether weights are divided by their sum over a row,
	// in place of d(v).
	normalized() bool
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
		v := b.nodes[r]
		begin := g.Indptr[v]
		row := g.InNeighbors(v)
		hits, local := s.inducer.scan(s.set, row)
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

func (f *fastGCN) normalized() bool { return false }

// ladies draws nodes without replacement from the neighbours of the destinations
// and the destinations, with q(u) ∝ Σ_{v∈dst} Â_vu², and takes the destinations
// too (Zou et al., 2019). Entries weigh 1/q(u); rows are normalised.
type ladies struct {
	g     *graph.Graph
	sums  candidates
	at    []uint32  // where sums has the candidates, in the order of their first entries
	nodes []uint32  // they,
	q     []float64 // and their q
	entry []uint32  // sources of entries that are still to be counted,
	share []float64 // Â_vv of their rows; 0 of loops
	local []uint32  // where sums has them
	lines []int64
	best  smallest[float64]
}

func (l *ladies) draw(s *nodeSet, weights []float64, key rng.Key, dst []uint32, size int) []float64 {
	l.at, l.nodes = l.at[:0], l.nodes[:0]
	l.find(dst)
	for _, at := range l.at {
		c := &l.sums.slots[at]
		inv := 1 / float64(c.size)
		c.q = inv * inv
	}
	for i, v := range dst {
		if i%groupRows == 0 { // row pointers two groups ahead, rows one
			prefetchRows(l.g.Indptr, within(dst, i+2*groupRows))
			l.lines = prefetchStarts(l.lines, l.g, within(dst, i+groupRows))
		}
		inv := 1 / float64(l.g.Degree(v)+1)
		for row := l.g.InNeighbors(v); len(row) > 0; {
			piece := row[:min(len(row), groupEntries)]
			row = row[len(piece):]
			l.entry = append(l.entry, piece...)
			for _, u := range piece {
				share := inv
				if u == v {
					share = 0
				}
				l.share = append(l.share, share)
			}
			if len(l.entry) >= groupEntries {
				l.count()
			}
		}
	}
	l.count()
	l.best.reset(size)
	l.q = resize(l.q, len(l.at))
	for i, at := range l.at {
		u, q := l.nodes[i], l.sums.slots[at].q
		l.q[i], l.sums.slots[at] = q, candidate{}
		// −ln x ≥ 1 − x: most nodes are out without a logarithm. What is added is
		// far above the errors of rounding.
		draw := key.Uint64(uint64(u))
		if h := l.best.heap; len(h) == size && 1-unit(draw) > h[0].key*q*(1+1e-9) {
			continue
		}
		l.best.offer(exponential(draw)/q, uint32(i))
	}
	take := func(i uint32) {
		if s.add(l.nodes[i]) {
			weights = append(weights, 1/l.q[i])
		}
	}
	for i := range dst {
		take(uint32(i))
	}
	for _, e := range l.best.heap {
		take(e.item)
	}
	return weights
}

// count adds the entries to the sums.
func (l *ladies) count() {
	l.find(l.entry)
	for i, at := range l.local {
		c := &l.sums.slots[at]
		c.q += l.share[i] / float64(c.size)
	}
	l.entry, l.share = l.entry[:0], l.share[:0]
}

// find makes local the places of the nodes, which it puts where there are none.
func (l *ladies) find(nodes []uint32) {
	l.reserve(len(nodes))
	l.sums.prefetch(nodes)
	l.local = resize(l.local, len(nodes))
	slots, shift, known := l.sums.slots, l.sums.shift, len(l.at)
	mask := uint32(len(slots) - 1)
	for i, u := range nodes {
		h := u * hashMultiplier >> shift
		for slots[h&mask].size != 0 && slots[h&mask].node != u {
			h++
		}
		h &= mask
		l.local[i] = h
		if c := &slots[h]; c.size == 0 {
			*c = candidate{node: u, size: 1}
			l.at, l.nodes = append(l.at, h), append(l.nodes, u)
		}
	}
	prefetchRows(l.g.Indptr, l.nodes[known:])
	for i, at := range l.at[known:] {
		slots[at].size = uint32(l.g.Degree(l.nodes[known+i]) + 1)
	}
}

// reserve makes room for so many candidates more.
func (l *ladies) reserve(more int) {
	need := 2 * (len(l.at) + more)
	if need <= len(l.sums.slots) {
		return
	}
	old := l.sums.slots
	l.sums = newCandidates(need)
	mask := uint32(len(l.sums.slots) - 1)
	for i, at := range l.at {
		c := old[at]
		h := c.node * hashMultiplier >> l.sums.shift & mask
		for l.sums.slots[h].size != 0 {
			h = (h + 1) & mask
		}
		l.sums.slots[h], l.at[i] = c, h
	}
}

// candidates is an open-addressing table with linear probing, at most half full:
// one line of a cache for each entry of a row.
type candidates struct {
	slots []candidate
	shift uint32
}

type candidate struct {
	q    float64 // the sum so far
	node uint32
	size uint32 // of its row, with a self-loop; 0: nobody is here
}

// newCandidates returns a table of at least size slots.
func newCandidates(size int) candidates {
	log := bits.Len(uint(max(size, minSlots) - 1))
	return candidates{make([]candidate, 1<<log), uint32(32 - log)}
}

// prefetch asks for the slots where the search for ids begins.
func (c *candidates) prefetch(ids []uint32) {
	if len(ids) > 0 { // a slot is two words, of which the hash with one bit more names one
		prefetchHash((*uint64)(unsafe.Pointer(&c.slots[0])), &ids[0], len(ids), c.shift-1)
	}
}

func (l *ladies) normalized() bool { return true }
