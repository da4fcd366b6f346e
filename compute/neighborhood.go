package compute

import (
	"context"
	"math/bits"

	"github.com/gnnactor/gnnactor/graph"
)

// nodeSet is a set of nodes in ascending order.
type nodeSet struct {
	n    int
	ids  []uint32 // nil: all nodes
	bits []uint64 // one bit per node of the graph
	rank []uint32 // members before each word of bits
}

// id returns the member at position i.
func (s *nodeSet) id(i int) uint32 {
	if s.ids == nil {
		return uint32(i)
	}
	return s.ids[i]
}

// all returns the members.
func (s *nodeSet) all() []uint32 {
	if s.ids != nil {
		return s.ids
	}
	ids := make([]uint32, s.n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// row returns the position of member v.
func (s *nodeSet) row(v uint32) uint32 {
	if s.ids == nil {
		return v
	}
	w, b := v/64, v%64
	return s.rank[w] + uint32(bits.OnesCount64(s.bits[w]&(1<<b-1)))
}

// finish lists the members after bits was filled.
func (s *nodeSet) finish() *nodeSet {
	s.rank = make([]uint32, len(s.bits))
	for w, b := range s.bits {
		s.rank[w] = uint32(s.n)
		s.n += bits.OnesCount64(b)
	}
	s.ids = make([]uint32, 0, s.n)
	for w, b := range s.bits {
		for ; b != 0; b &= b - 1 {
			s.ids = append(s.ids, uint32(w*64+bits.TrailingZeros64(b)))
		}
	}
	return s
}

// neighborhoods returns the nodes whose values each of the layers reads: the
// last set is nodes itself, the one before it adds its in-neighbours, and so
// on. nodes nil: all. Of a graph that lies elsewhere rows has the neighbours.
func neighborhoods(ctx context.Context, g *graph.Graph, rows RowSource, nodes []uint32, layers int) ([]*nodeSet, error) {
	sets := make([]*nodeSet, layers+1)
	if nodes == nil {
		all := &nodeSet{n: g.NumNodes()}
		for l := range sets {
			sets[l] = all
		}
		return sets, nil
	}
	words := (g.NumNodes() + 63) / 64
	s := &nodeSet{bits: make([]uint64, words)}
	for _, v := range nodes {
		s.bits[v/64] |= 1 << (v % 64)
	}
	sets[layers] = s.finish()
	for l := layers - 1; l >= 0; l-- {
		s := &nodeSet{bits: make([]uint64, words)}
		copy(s.bits, sets[l+1].bits)
		if g.Away() {
			err := rows.Rows(ctx, sets[l+1].ids, DefaultChunk, false, func(_ int, b *graph.Block) error {
				for _, u := range b.SrcIDs {
					s.bits[u/64] |= 1 << (u % 64)
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			sets[l] = s.finish()
			continue
		}
		for _, v := range sets[l+1].ids {
			for _, u := range g.InNeighbors(v) {
				s.bits[u/64] |= 1 << (u % 64)
			}
		}
		sets[l] = s.finish()
	}
	return sets, nil
}

// rowBlock cuts the complete rows of some destinations into blocks over all
// sources. The destinations of a cut come first among its sources, as a block
// demands, and after them all members of the source set.
type rowBlock struct {
	block     graph.Block
	positions []uint32 // position in the source set of each source of block
	graph     *graph.Graph
	src, dst  *nodeSet
	ids       []uint32 // backs SrcIDs: room for a cut's destinations, then the set
	pos       []uint32 // the same for positions; both are filled from the end
	room      int
	edgeIDs   bool
	compact   bool     // the sources are a cut's own alone, and not the whole set: what a device needs of it goes over
	local     []uint32 // of a source of the set, 1 + where it is in a compact cut; 0: it is not
}

// reset prepares for cuts of the rows of dst over src; edgeIDs says whether
// they need EdgeIDs, which they also get if g has weights.
func (r *rowBlock) reset(g *graph.Graph, src, dst *nodeSet, edgeIDs bool) {
	r.graph, r.src, r.dst = g, src, dst
	r.edgeIDs = edgeIDs || g.Weights != nil
	r.room = 0
}

// cut returns the block of destinations [i, i+n) of dst, valid until the next
// cut; of a graph that lies elsewhere, rows are their rows, whose sources it names.
func (r *rowBlock) cut(i, n int, rows *graph.Block) *graph.Block {
	if rows != nil {
		for e, u := range rows.Indices {
			rows.Indices[e] = rows.SrcIDs[u]
		}
	}
	if r.room < n {
		r.room = n
		r.ids = resized(r.ids, n+r.src.n)
		r.pos = resized(r.pos, n+r.src.n)
		for k := 0; k < r.src.n && !r.compact; k++ {
			r.ids[n+k], r.pos[n+k] = r.src.id(k), uint32(k)
		}
	}
	b := &r.block
	b.NumDst, b.NumSrc = n, n+r.src.n
	b.SrcIDs, r.positions = r.ids[r.room-n:], r.pos[r.room-n:]
	b.Indptr = resized(b.Indptr, n+1)
	entries := r.entries(i, n, rows)
	b.Indices = resized(b.Indices, entries)[:0]
	if r.edgeIDs {
		b.EdgeIDs = resized(b.EdgeIDs, entries)[:0]
	}
	for k := range n {
		v := r.dst.id(i + k)
		b.SrcIDs[k], r.positions[k] = v, r.src.row(v)
		b.Indptr[k] = int64(len(b.Indices))
		var row []uint32
		if rows != nil {
			row = rows.Indices[rows.Indptr[k]:rows.Indptr[k+1]]
		} else {
			row = r.graph.InNeighbors(v)
		}
		for _, u := range row {
			if u == v {
				b.Indices = append(b.Indices, uint32(k)) // its own row, as a destination
				continue
			}
			b.Indices = append(b.Indices, uint32(n)+r.src.row(u))
		}
		switch {
		case !r.edgeIDs:
		case rows != nil:
			b.EdgeIDs = append(b.EdgeIDs, rows.EdgeIDs[rows.Indptr[k]:rows.Indptr[k+1]]...)
		default:
			for e := r.graph.Indptr[v]; e < r.graph.Indptr[v+1]; e++ {
				b.EdgeIDs = append(b.EdgeIDs, e)
			}
		}
	}
	b.Indptr[n] = int64(len(b.Indices))
	if r.compact {
		r.renumber(n)
	}
	return b
}

// renumber leaves of the block's sources the n destinations and those that it has entries of, in the order in which they come.
func (r *rowBlock) renumber(n int) {
	b, at := &r.block, n
	if len(r.local) < r.src.n {
		r.local = make([]uint32, r.src.n)
	}
	for e, u := range b.Indices {
		if int(u) < n {
			continue
		}
		k := u - uint32(n)
		if r.local[k] == 0 {
			b.SrcIDs[at], r.positions[at] = r.src.id(int(k)), k
			at++
			r.local[k] = uint32(at)
		}
		b.Indices[e] = r.local[k] - 1
	}
	b.NumSrc, b.SrcIDs, r.positions = at, b.SrcIDs[:at], r.positions[:at]
	for _, k := range r.positions[n:] {
		r.local[k] = 0
	}
}

// entries returns how many there are in the rows of a cut.
func (r *rowBlock) entries(i, n int, rows *graph.Block) (all int) {
	if rows != nil {
		return len(rows.Indices)
	}
	for k := i; k < i+n; k++ {
		v := r.dst.id(k)
		all += int(r.graph.Indptr[v+1] - r.graph.Indptr[v])
	}
	return all
}

// resized returns s with length n and unspecified content.
func resized[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
