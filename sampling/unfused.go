package sampling

import (
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// NewUnfusedSampler returns a sampler of the same batches, bit for bit, as NewSampler's
// that does without fusing: the baseline that fused sampling is measured against. ok is
// false when the sampler has no such variant: those that are not node-wise.
func (p *Prepared) NewUnfusedSampler() (s Sampler, ok bool) {
	f, ok := p.factory().(*fused)
	if !ok {
		return nil, false
	}
	return &guarded{&unfused{fused: f}, uint32(p.g.NumNodes())}, true
}

// unfused samples a layer in two passes with an edge list in between, as Mostafa and Grabowski
// describes the frameworks that it compares with: the first draws the edges of all rows,
// the second turns the list into a block: it numbers the ids at both ends, counts the
// entries of the rows, and puts each in its place. Loads are asked for ahead as in fused.
type unfused struct {
	*fused
	edges   block    // the layer's edges: sources, global ids
	targets []uint32 // their other ends
	next    []int64  // where a row's next entry comes
}

// Sample implements Sampler.
func (s *unfused) Sample(b *Batch, key rng.Key, seeds []uint32) error {
	return s.sample(b, key, seeds, func(b *Batch, i, k int) {
		s.list(b.nodes, k)
		s.toBlock(b, i)
	})
}

// list draws the edges into the rows of nodes.
func (s *unfused) list(nodes []uint32, k int) {
	s.collect(&s.edges, nodes, k)
	s.targets = reserve(s.targets[:0], len(s.edges.indices))
	for r, v := range nodes {
		for range s.edges.indptr[r+1] - s.edges.indptr[r] {
			s.targets = append(s.targets, v)
		}
	}
}

// toBlock makes block i of the list.
func (s *unfused) toBlock(b *Batch, i int) {
	rows, entries := len(b.nodes), len(s.edges.indices)
	for at := range (entries + lookupSize - 1) / lookupSize {
		part := s.edges.indices[at*lookupSize : min((at+1)*lookupSize, entries)]
		prefetchSlots(&s.ids, part)
		b.nodes = s.number(part, b.nodes)
	}
	out := &b.scratch[i]
	out.indptr = resize(out.indptr, rows+1)
	clear(out.indptr)
	for e, v := range s.targets {
		r, _ := s.ids.get(v)
		s.targets[e] = r
		out.indptr[r+1]++
	}
	for r := range rows {
		out.indptr[r+1] += out.indptr[r]
	}
	s.next = append(s.next[:0], out.indptr[:rows]...)
	out.indices = resize(out.indices, entries)
	out.edgeIDs, out.weights = resize(out.edgeIDs, len(s.edges.edgeIDs)), resize(out.weights, len(s.edges.weights))
	for e, r := range s.targets {
		to := s.next[r]
		s.next[r]++
		out.indices[to] = s.edges.indices[e]
		if s.edgeIDs {
			out.edgeIDs[to] = s.edges.edgeIDs[e]
		}
		if s.weights {
			out.weights[to] = s.edges.weights[e]
		}
	}
	b.Blocks[i] = graph.Block{NumDst: rows, NumSrc: len(b.nodes), Indptr: out.indptr, Indices: out.indices}
	if s.edgeIDs {
		b.Blocks[i].EdgeIDs = out.edgeIDs
	}
	if s.weights {
		b.Blocks[i].Weights = out.weights
	}
}
