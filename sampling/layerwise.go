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
	if p.here != nil {
		all, err := gathered[float64](stop.Context(), p.here, columnFastGCN)
		if err != nil {
			return err
		}
		copy(q, all) // others make samplers of them, too
	} else {
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
		}
	}
	for u := range q {
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
		inducer: inducer{g: p.g}, asker: p.newAsker(),
	}
}

// layerDrawer draws the nodes of a layer.
type layerDrawer interface {
	// begin is told of a new batch.
	begin()
	// draw puts about size nodes into the empty set s, given the destinations,
	// indexes it, and returns the raw weight of an entry from each in the order of s,
	// in the memory of weights. The destinations are the sources of last, the block of
	// the layer before, and begin with its destinations; a batch's first layer has none.
	draw(s *nodeSet, weights []float64, key rng.Key, dst []uint32, last *graph.Block, size int) []float64
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
	local   []uint32  // the batch's id of each node of set plus 1; 0: it has none yet
	inducer inducer
	asker   *asker // of a divided graph
}

func (s *layerwise) asks() *asker { return s.asker }

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
	var last *graph.Block
	for hop, size := range s.p.spec.Fanouts {
		s.set.clear()
		s.raw = s.drawer.draw(s.set, s.raw, key.With(uint64(hop)), b.nodes, last, size)
		if err := s.layer(b, layers-1-hop); err != nil {
			return err
		}
		last = &b.Blocks[layers-1-hop]
	}
	finish(b, len(seeds))
	return nil
}

// layer writes block i: the entries of all destinations whose sources are in
// the set.
func (s *layerwise) layer(b *Batch, i int) error {
	out := &b.scratch[i]
	rows := len(b.nodes)
	out.indptr = resize(out.indptr, rows+1)
	out.indptr[0] = 0
	out.indices, out.edgeIDs, out.weights = out.indices[:0], out.edgeIDs[:0], out.weights[:0]
	s.local = resize(s.local, len(s.set.nodes))
	clear(s.local)
	for r, v := range b.nodes {
		if id, ok := s.set.id(v); ok {
			s.local[id] = uint32(r) + 1
		}
	}
	b.nodes = reserve(b.nodes, len(s.set.nodes))
	if s.asker != nil {
		err := s.asker.among(b.ID, b.nodes, s.set, func(r int, ids []uint32, edgeIDs []int64, degree int) {
			s.row(b, out, r, ids, degree)
			out.edgeIDs = append(out.edgeIDs, edgeIDs...)
		})
		if err != nil {
			return err
		}
	} else {
		s.rows(b, out, rows)
	}
	b.Blocks[i] = graph.Block{NumDst: rows, NumSrc: len(b.nodes), Indptr: out.indptr, Indices: out.indices, Weights: out.weights}
	if s.p.edgeIDs() {
		b.Blocks[i].EdgeIDs = out.edgeIDs
	}
	return nil
}

// rows writes the first rows of b's nodes.
func (s *layerwise) rows(b *Batch, out *block, rows int) {
	g := s.p.g
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
		hits, ids := s.inducer.scan(s.set, row)
		s.row(b, out, r, ids, len(row))
		if s.p.edgeIDs() {
			for _, h := range hits {
				out.edgeIDs = append(out.edgeIDs, begin+int64(h))
			}
		}
	}
}

// row writes row r: entries from those of the set with the given ids, of a row of so many.
func (s *layerwise) row(b *Batch, out *block, r int, ids []uint32, degree int) {
	w := len(out.indices)
	out.indices = reserve(out.indices, len(ids))
	out.weights = reserve(out.weights, len(ids))
	total := 0.0
	for _, id := range ids {
		local := s.local[id]
		if local == 0 {
			b.nodes = append(b.nodes, s.set.nodes[id])
			local = uint32(len(b.nodes))
			s.local[id] = local
		}
		weight := float32(s.raw[id])
		out.indices = append(out.indices, local-1)
		out.weights = append(out.weights, weight)
		total += float64(weight)
	}
	if !s.drawer.normalized() {
		total = float64(degree)
	}
	for e := w; e < len(out.weights); e++ {
		out.weights[e] = float32(float64(out.weights[e]) / total * float64(len(ids)))
	}
	out.indptr[r+1] = int64(len(out.indices))
}

// fastGCN draws nodes independently with q(u) ∝ Σ_v Â_vu², the same for every
// layer (Chen, Ma and Xiao, 2018). A node drawn c times has the weight c/(s·q).
type fastGCN struct {
	table  *alias
	q      []float64
	counts []uint32
}

func (f *fastGCN) draw(s *nodeSet, weights []float64, key rng.Key, _ []uint32, _ *graph.Block, size int) []float64 {
	if f.table == nil {
		size = 0
	}
	for i := range size {
		s.add(f.table.draw(key, uint64(i)))
	}
	s.index()
	f.counts = resize(f.counts, len(s.nodes))
	clear(f.counts)
	for i := range size {
		id, _ := s.id(f.table.draw(key, uint64(i)))
		f.counts[id]++
	}
	weights = resize(weights, len(s.nodes))
	for i, u := range s.nodes {
		weights[i] = float64(f.counts[i]) / (float64(size) * f.q[u])
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
// those of the layer before: sums go on, and only the rows of new ones are dealt. But a
// destination's begins with its own Â_vv²: it is added up anew, from the last block,
// which has all entries of destinations.
type ladies struct {
	g       *graph.Graph
	shift   int // u belongs to part u>>shift
	most    int // rows dealt at once
	parts   []ladiesPart
	entries [][]uint32 // dealt to each part: the row of those dealt<<shift | the node of the part's
	shares  []float64  // 1/(d(v)+1) of the destinations
	sizes   []float64  // d(v)+1
	sums    []float64  // of the destinations
	at      []uint32   // of a part's nodes: 1 more than where they are among its candidates; 0 between parts
	fresh   []uint32   // a part's new candidates
	bits    []uint64   // of the same; 0 between parts
	hop     int
	limits  []float64 // of the keys of each hop's nodes: the largest of the last batch, and half of it more
	drawn   []drawn
	keys    []float64
}

// ladiesPart is what lies in a range of ids.
type ladiesPart struct {
	candidates []candidate
	dst        []destination
	found      int // of dst
}

// candidate has the sum so far, and the length of the node's row with a self-loop.
type candidate struct {
	q          float64
	node, size uint32
}

// destination's node is counted from the first of its part until it is found among the candidates.
type destination struct{ node, row uint32 }

type drawn struct {
	key, q float64
	node   uint32
}

// There are ladiesParts parts, or more: a node takes at most ladiesBits of an entry's 32.
const ladiesParts, ladiesBits = 256, 19

func newLadies(g *graph.Graph) *ladies {
	return ladiesOf(g, min(max(6, bits.Len(uint(max(1, g.NumNodes())-1))-bits.Len(ladiesParts-1)), ladiesBits))
}

// ladiesOf has parts of 1<<shift nodes, shift in [6, 32).
func ladiesOf(g *graph.Graph, shift int) *ladies {
	parts := g.NumNodes()>>shift + 1
	return &ladies{
		g: g, shift: shift, most: 1 << (32 - shift), parts: make([]ladiesPart, parts), entries: make([][]uint32, parts),
		at: make([]uint32, 1<<shift), fresh: make([]uint32, 1<<shift+1), bits: make([]uint64, 1<<(shift-6)),
	}
}

func (l *ladies) begin() {
	l.shares, l.sizes, l.hop = l.shares[:0], l.sizes[:0], 0
	for i := range l.parts {
		p := &l.parts[i]
		p.candidates, p.dst, p.found = p.candidates[:0], p.dst[:0], 0
	}
}

func (l *ladies) draw(s *nodeSet, weights []float64, key rng.Key, dst []uint32, last *graph.Block, size int) []float64 {
	if l.hop == len(l.limits) {
		l.limits = append(l.limits, math.Inf(1))
	}
	limit := &l.limits[l.hop]
	l.hop++
	l.drawn = l.drawn[:0]
	n := l.sum(dst, last, key, *limit)
	if len(l.drawn) < min(size, n) {
		l.drawn = l.drawn[:0]
		for i := range l.parts {
			l.below(l.parts[i].candidates, key, math.Inf(1))
		}
	}
	*limit = math.Inf(1)
	if len(l.drawn) > size {
		*limit = 1.5 * l.least(size)
	}
	for _, v := range dst {
		s.add(v)
	}
	for _, d := range l.drawn {
		s.add(d.node)
	}
	s.index()
	weights = resize(weights, len(s.nodes))
	for r, v := range dst {
		id, _ := s.id(v)
		weights[id] = 1 / l.sums[r]
	}
	for _, d := range l.drawn {
		id, _ := s.id(d.node)
		weights[id] = 1 / d.q
	}
	return weights
}

// sum brings the candidates' sums up to date with all of dst, draws those with keys
// below limit, and returns how many candidates there are.
func (l *ladies) sum(dst []uint32, last *graph.Block, key rng.Key, limit float64) int {
	from := len(l.shares)
	for i, v := range dst[from:] {
		if i%groupRows == 0 {
			prefetchRows(l.g.Indptr, within(dst[from:], i+groupRows))
		}
		size := float64(l.g.Degree(v) + 1)
		p := &l.parts[v>>l.shift]
		p.dst = append(p.dst, destination{v & uint32(len(l.at)-1), uint32(len(l.shares))})
		l.shares, l.sizes = append(l.shares, 1/size), append(l.sizes, size)
	}
	l.sums = resize(l.sums, len(dst))
	for i, share := range l.shares {
		l.sums[i] = share * share
	}
	if last != nil {
		for r, share := range l.shares[:last.NumDst] {
			for _, u := range last.Indices[last.Indptr[r]:last.Indptr[r+1]] {
				if int(u) != r {
					l.sums[u] += share / l.sizes[u]
				}
			}
		}
	}
	for {
		to := min(from+l.most, len(dst))
		l.deal(dst, from, to)
		n := 0
		for i := range l.parts {
			l.add(i, l.shares[from:to])
			if to == len(dst) {
				l.below(l.parts[i].candidates, key, limit)
			}
			n += len(l.parts[i].candidates)
		}
		if from = to; from == len(dst) {
			return n
		}
	}
}

// below draws candidates with keys below limit.
func (l *ladies) below(candidates []candidate, key rng.Key, limit float64) {
	for _, c := range candidates {
		// −ln x ≥ 1 − x: most nodes are out without a logarithm. What is added is
		// far above the errors of rounding.
		draw := key.Uint64(uint64(c.node))
		if 1-unit(draw) > limit*c.q*(1+1e-9) {
			continue
		}
		if k := exponential(draw) / c.q; k < limit {
			l.drawn = append(l.drawn, drawn{k, c.q, c.node})
		}
	}
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

// deal gives the entries of the rows of destinations from to to to the parts.
func (l *ladies) deal(dst []uint32, from, to int) {
	shift, mask := l.shift, uint32(len(l.at)-1)
	for r := from; r < to; r++ {
		if next := r + scanAhead; next < to {
			prefetchStart(l.g, dst[next])
		}
		v, row := dst[r], uint32(r-from)<<shift
		for _, u := range l.g.InNeighbors(v) {
			if u != v {
				to := &l.entries[u>>shift]
				*to = append(*to, row|u&mask)
			}
		}
	}
}

// add brings the sums of part i's candidates up to date. The shares are those of the rows dealt.
func (l *ladies) add(i int, shares []float64) {
	p, entries, shift, mask := &l.parts[i], l.entries[i], l.shift, uint32(len(l.at)-1)
	at, fresh := l.at, l.fresh
	for j, c := range p.candidates {
		at[c.node&mask] = uint32(j) + 1
	}
	// No branch depends on whether a node is new, which cannot be foreseen.
	known, n := uint32(len(p.candidates)), uint32(0)
	find := func(u uint32) uint32 {
		where := at[u]
		isNew := (where - 1) >> 31
		fresh[n] = u
		n += isNew
		where |= -isNew & (known + n)
		at[u] = where
		return where - 1
	}
	for j := p.found; j < len(p.dst); j++ {
		p.dst[j].node = find(p.dst[j].node)
	}
	p.found = len(p.dst)
	for j, e := range entries {
		entries[j] = e&^mask | find(e&mask)
	}
	// Row ends are read in the order of memory.
	for _, u := range fresh[:n] {
		l.bits[u/64] |= 1 << (u % 64)
	}
	p.candidates = reserve(p.candidates, int(n))[:known+n]
	for j, w := range l.bits {
		for ; w != 0; w &= w - 1 {
			u := uint32(64*j + bits.TrailingZeros64(w))
			node := uint32(i<<shift) + u
			p.candidates[at[u]-1] = candidate{0, node, uint32(min(l.g.Degree(node)+1, math.MaxUint32))}
		}
	}
	clear(l.bits)
	for _, d := range p.dst {
		p.candidates[d.node].q = l.sums[d.row]
	}
	for _, e := range entries {
		c := &p.candidates[e&mask]
		c.q += shares[e>>shift] / float64(c.size)
	}
	for _, d := range p.dst {
		l.sums[d.row] = p.candidates[d.node].q
	}
	for _, c := range p.candidates {
		at[c.node&mask] = 0
	}
	l.entries[i] = entries[:0]
}

func (l *ladies) normalized() bool { return true }
