package sampling

import (
	"math"
	"sync/atomic"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
)

// NewParallelSampler returns a sampler whose every batch is worked on by all of
// pool's workers: for large batches and for inference, where there are fewer
// batches than workers. Its batches are the same, bit for bit, as
// NewSampler's, which is what a pool of one worker gets: it need not share the
// table of ids with others. ok is false when the sampler has no such variant:
// those that are not node-wise.
func (p *Prepared) NewParallelSampler(workers *pool.Pool) (s Sampler, ok bool) {
	first, ok := p.factory().(*fused)
	switch {
	case !ok:
		return nil, false
	case workers.Size() == 1:
		return &guarded{first, uint32(p.g.NumNodes())}, true
	}
	return &guarded{p.newParallel(first, workers), uint32(p.g.NumNodes())}, true
}

// Parallel reports whether there is a NewParallelSampler.
func (p *Prepared) Parallel() bool {
	_, ok := p.factory().(*fused)
	return ok
}

func (p *Prepared) newParallel(first *fused, workers *pool.Pool) *parallel {
	ps := &parallel{pool: workers, workers: []*fused{first}}
	for len(ps.workers) < workers.Size() {
		ps.workers = append(ps.workers, p.factory().(*fused))
	}
	return ps
}

// parallel is the deterministic Fused-Map within one batch (docs/algorithms.md §2): per
// new node, workers keep the smallest position at which it occurs, by an atomic
// minimum; local ids are then the ranks of these positions. So the numbering is
// that of one worker which reads the entries in order.
type parallel struct {
	pool    *pool.Pool
	workers []*fused
	ids     idMap
	chunks  []chunk
}

// chunk is a run of rows that one worker takes at a time.
type chunk struct {
	block                // its rows, sources as global ids
	rows, entry int      // where it begins in the layer
	first, rank int      // its new nodes: how many, and the local id of the first
	candidates  []uint32 // entries that inserted a node or lowered its position
}

const (
	chunkRows  = 1024
	lookupSize = 256 // entries whose slots are fetched at once
)

// Sample implements Sampler.
func (s *parallel) Sample(b *Batch, key rng.Key, seeds []uint32) error {
	f := s.workers[0]
	s.ids.clear()
	b.start(len(f.fanouts))
	var err error
	if b.nodes, err = s.ids.seed(seeds, b.nodes, f.g.NumNodes()); err != nil {
		return err
	}
	for hop, k := range f.fanouts {
		for _, w := range s.workers {
			w.picker.start(b.ID, key, hop)
		}
		s.layer(b, len(f.fanouts)-1-hop, k)
	}
	finish(b, len(seeds))
	return nil
}

func (s *parallel) layer(b *Batch, i, k int) {
	f := s.workers[0]
	rows := len(b.nodes)
	n := (rows + chunkRows - 1) / chunkRows
	for len(s.chunks) < n {
		s.chunks = append(s.chunks, chunk{})
	}
	chunks := s.chunks[:n]
	s.pool.For(n, func(worker, c int) {
		lo, hi := c*chunkRows, min((c+1)*chunkRows, rows)
		s.workers[worker].collect(&chunks[c].block, b.nodes[lo:hi], k)
	})
	entries := 0
	for c := range chunks {
		chunks[c].rows, chunks[c].entry = c*chunkRows, entries
		entries += len(chunks[c].indices)
	}

	out := &b.scratch[i]
	out.indptr = resize(out.indptr, rows+1)
	out.indices = resize(out.indices, entries)
	out.indptr[0] = 0
	if f.edgeIDs {
		out.edgeIDs = resize(out.edgeIDs, entries)
	}
	if f.weights {
		out.weights = resize(out.weights, entries)
	}
	s.reserve(b.nodes, entries)
	s.pool.For(n, func(_, c int) {
		chunks[c].place(out)
		s.insert(&chunks[c], out.indices, uint32(rows))
	})
	s.pool.For(n, func(_, c int) { s.confirm(&chunks[c], out.indices, uint32(rows)) })
	total := 0
	for c := range chunks {
		chunks[c].rank = rows + total
		total += chunks[c].first
	}
	b.nodes = reserve(b.nodes, total)[:rows+total]
	s.pool.For(n, func(_, c int) { s.assign(&chunks[c], out.indices, b.nodes) })
	s.pool.For(n, func(_, c int) { s.resolve(&chunks[c], out.indices) })
	s.ids.count = uint32(len(b.nodes))

	b.Blocks[i] = graph.Block{NumDst: rows, NumSrc: len(b.nodes), Indptr: out.indptr, Indices: out.indices}
	if f.edgeIDs {
		b.Blocks[i].EdgeIDs = out.edgeIDs
	}
	if f.weights {
		b.Blocks[i].Weights = out.weights
	}
}

// reserve makes room for the nodes of a layer, and for positions up to entries
// beside the values.
func (s *parallel) reserve(nodes []uint32, entries int) {
	m := &s.ids
	m.reserve(nodes, min(entries, s.workers[0].g.NumNodes()-len(nodes)))
	if uint64(m.base)+uint64(len(nodes))+uint64(entries) > math.MaxUint32 {
		clear(m.slots)
		m.base, m.count = 1, 0
		for _, u := range nodes {
			m.put(u)
		}
	}
}

// collect writes the entries of the rows of nodes to out, sources as global ids.
func (s *fused) collect(out *block, nodes []uint32, k int) {
	out.indptr = resize(out.indptr, len(nodes)+1)
	out.indptr[0] = 0
	out.indices, out.edgeIDs, out.weights = out.indices[:0], out.edgeIDs[:0], out.weights[:0]
	perGroup := rowsPerGroup(k)
	s.begin(nodes, perGroup)
	for r, turn := 0, 0; ; turn++ {
		cur, prev := &s.ahead[turn&1], &s.ahead[turn&1^1]
		r = s.drawNext(cur, out.indptr, nodes, r, perGroup, k)
		s.read(prev, out)
		if cur.rows == 0 {
			break
		}
	}
}

// place copies what needs no numbering to the layer.
func (c *chunk) place(out *block) {
	for i, p := range c.indptr[1:] {
		out.indptr[c.rows+1+i] = int64(c.entry) + p
	}
	if len(c.edgeIDs) > 0 {
		copy(out.edgeIDs[c.entry:], c.edgeIDs)
	}
	if len(c.weights) > 0 {
		copy(out.weights[c.entry:], c.weights)
	}
}

// insert looks up the chunk's sources and writes their slots to indices. The
// value of a new node is pending: it is the number of nodes numbered so far
// plus the smallest position seen, and so above all final values.
func (s *parallel) insert(c *chunk, indices []uint32, numbered uint32) {
	m := &s.ids
	mask := uint32(len(m.slots) - 1)
	pending := m.base + numbered + uint32(c.entry)
	to := indices[c.entry : c.entry+len(c.indices)]
	c.candidates = c.candidates[:0]
	prefetchSlots(m, c.indices[:min(lookupSize, len(c.indices))])
	for i, u := range c.indices {
		if i%lookupSize == 0 {
			next := min(i+lookupSize, len(c.indices))
			prefetchSlots(m, c.indices[next:min(next+lookupSize, len(c.indices))])
		}
		value := pending + uint32(i)
		h := u * hashMultiplier >> m.shift & mask
		for {
			old := atomic.LoadUint64(&m.slots[h])
			if uint32(old) >= m.base && uint32(old>>32) != u {
				h = (h + 1) & mask
				continue
			}
			if uint32(old) >= m.base && uint32(old) <= value {
				break
			}
			if atomic.CompareAndSwapUint64(&m.slots[h], old, uint64(u)<<32|uint64(value)) {
				c.candidates = append(c.candidates, uint32(i))
				break
			}
		}
		to[i] = h
	}
}

// confirm keeps the candidates that are their nodes' first entries.
func (s *parallel) confirm(c *chunk, indices []uint32, numbered uint32) {
	pending := s.ids.base + numbered + uint32(c.entry)
	n := 0
	for _, i := range c.candidates {
		if uint32(s.ids.slots[indices[c.entry+int(i)]]) == pending+i {
			c.candidates[n] = i
			n++
		}
	}
	c.candidates, c.first = c.candidates[:n], n
}

// assign numbers the chunk's new nodes.
func (s *parallel) assign(c *chunk, indices, nodes []uint32) {
	for j, i := range c.candidates {
		slot := &s.ids.slots[indices[c.entry+int(i)]]
		u := uint32(*slot >> 32)
		nodes[c.rank+j] = u
		*slot = uint64(u)<<32 | uint64(s.ids.base+uint32(c.rank+j))
	}
}

// resolve replaces slots by the local ids in them.
func (s *parallel) resolve(c *chunk, indices []uint32) {
	slots, base := s.ids.slots, s.ids.base
	for to := indices[c.entry : c.entry+len(c.indices)]; len(to) > 0; {
		part := to[:min(lookupSize, len(to))]
		if to = to[len(part):]; len(to) > 0 {
			prefetchSlotIndices(slots, to[:min(lookupSize, len(to))])
		}
		for i, h := range part {
			part[i] = uint32(slots[h]) - base
		}
	}
}
