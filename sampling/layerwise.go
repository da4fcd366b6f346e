package sampling

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

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
	p.factory = func() Sampler { return p.newLayerwise(newLadies(p.g)) }
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

func (f *fastGCN) normalized() bool { return false }

// ladies draws nodes without replacement from the neighbours of the destinations
// and the destinations, with q(u) ∝ Σ_{v∈dst} Â_vu², and takes the destinations
// too (Zou et al., 2019). Entries weigh 1/q(u); rows are normalised.
//
// Entries are dealt to parts, by ranges of their sources' ids, before they are added
// up: what a part looks up lies in a near cache. A layer's destinations begin with
// those of the layer before: parts stay, and only the rows of new ones are dealt.
type ladies struct {
	g      *graph.Graph
	shift  int // u belongs to part u>>shift
	parts  [256]ladiesPart
	shares []float64   // 1/(d(v)+1) of the destinations
	bits   []uint64    // of a part's candidates; 0 between parts
	nodes  []uint32    // a part's candidates
	sums   []candidate // of a part's nodes; q is 0 between parts
	drawn  []drawn     // nodes of smallest keys so far
	keys   []float64
}

type ladiesPart struct {
	dst     []uint32 // destinations among its nodes
	entries []struct{ node, row uint32 }
}

// candidate has the sum so far, and the length of the node's row with a self-loop.
type candidate struct{ q, size float64 }

type drawn struct {
	key, q float64
	node   uint32
}

func newLadies(g *graph.Graph) *ladies {
	l := &ladies{g: g}
	l.shift = max(6, bits.Len(uint(max(1, g.NumNodes())-1))-bits.Len(uint(len(l.parts)-1)))
	l.sums, l.bits = make([]candidate, 1<<l.shift), make([]uint64, 1<<(l.shift-6))
	return l
}

func (l *ladies) begin() {
	l.shares = l.shares[:0]
	for i := range l.parts {
		p := &l.parts[i]
		p.dst, p.entries = p.dst[:0], p.entries[:0]
	}
}

func (l *ladies) draw(s *nodeSet, weights []float64, key rng.Key, dst []uint32, size int) []float64 {
	l.deal(dst)
	l.drawn = l.drawn[:0]
	limit := math.Inf(1) // of size nodes' keys
	for i := range l.parts {
		l.add(i)
		mask := uint32(len(l.sums) - 1)
		for _, v := range l.parts[i].dst {
			s.add(v)
			weights = append(weights, 1/l.sums[v&mask].q)
		}
		for _, u := range l.nodes {
			q := l.sums[u&mask].q
			l.sums[u&mask].q = 0
			// −ln x ≥ 1 − x: most nodes are out without a logarithm. What is added is
			// far above the errors of rounding.
			draw := key.Uint64(uint64(u))
			if 1-unit(draw) > limit*q*(1+1e-9) {
				continue
			}
			if k := exponential(draw) / q; k < limit {
				l.drawn = append(l.drawn, drawn{k, q, u})
			}
			if len(l.drawn) == 2*size {
				limit = l.least(size)
			}
		}
	}
	if len(l.drawn) > size {
		l.least(size)
	}
	for _, d := range l.drawn {
		if s.add(d.node) {
			weights = append(weights, 1/d.q)
		}
	}
	return weights
}

// least keeps the n nodes of smallest keys, and returns the largest of them.
func (l *ladies) least(n int) float64 {
	l.keys = l.keys[:0]
	for _, d := range l.drawn {
		l.keys = append(l.keys, d.key)
	}
	limit := kthSmallest(l.keys, n-1)
	l.drawn = slices.DeleteFunc(l.drawn, func(d drawn) bool { return d.key > limit })
	return limit
}

// deal gives the entries of new destinations' rows to the parts.
func (l *ladies) deal(dst []uint32) {
	nodes := dst[len(l.shares):]
	prefetchRows(l.g.Indptr, within(nodes, 0))
	for i, v := range nodes {
		if i%groupRows == 0 {
			prefetchRows(l.g.Indptr, within(nodes, i+groupRows))
		}
		if next := i + scanAhead; next < len(nodes) {
			prefetchStart(l.g, nodes[next])
		}
		row := uint32(len(l.shares))
		l.shares = append(l.shares, 1/float64(l.g.Degree(v)+1))
		to := &l.parts[v>>l.shift]
		to.dst = append(to.dst, v)
		for _, u := range l.g.InNeighbors(v) {
			if u != v {
				to := &l.parts[u>>l.shift]
				to.entries = append(to.entries, struct{ node, row uint32 }{u, row})
			}
		}
	}
}

// add finds the candidates of part i and their sums. A destination's begins with its
// own Â_vv².
func (l *ladies) add(i int) {
	p, sums, mask := &l.parts[i], l.sums, uint32(len(l.sums)-1)
	for _, v := range p.dst {
		l.bits[v&mask/64] |= 1 << (v % 64)
	}
	for _, e := range p.entries {
		l.bits[e.node&mask/64] |= 1 << (e.node % 64)
	}
	l.nodes = l.nodes[:0]
	for j, w := range l.bits {
		for ; w != 0; w &= w - 1 {
			u := uint32(i<<l.shift + 64*j + bits.TrailingZeros64(w))
			l.nodes = append(l.nodes, u)
			sums[u&mask].size = float64(l.g.Degree(u) + 1)
		}
	}
	clear(l.bits)
	for _, v := range p.dst {
		sum := &sums[v&mask]
		sum.q = 1 / sum.size * (1 / sum.size)
	}
	for _, e := range p.entries {
		sum := &sums[e.node&mask]
		sum.q += l.shares[e.row] / sum.size
	}
}

func (l *ladies) normalized() bool { return true }
