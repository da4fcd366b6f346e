package sampling

import (
	"slices"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/rng"
)

// nodeSet collects distinct nodes. It takes one bit per node of the graph, or,
// above bitsLimit nodes, only the hash table that it needs anyway.
type nodeSet struct {
	bits  []uint64 // nil: ids tells who is in the set
	nodes []uint32
	ids   idMap
}

const bitsLimit = 1 << 28

func newNodeSet(n, limit int) *nodeSet {
	s := new(nodeSet)
	if n <= limit {
		s.bits = make([]uint64, (n+63)/64)
	}
	return s
}

// clear empties the set.
func (s *nodeSet) clear() {
	if s.bits != nil {
		for _, u := range s.nodes {
			s.bits[u/64] = 0
		}
	}
	s.nodes = s.nodes[:0]
	s.ids.clear()
}

// add puts u into the set and reports whether it is new.
func (s *nodeSet) add(u uint32) bool {
	if s.bits != nil {
		w, bit := &s.bits[u/64], uint64(1)<<(u%64)
		if *w&bit != 0 {
			return false
		}
		*w |= bit
	} else {
		s.ids.reserve(s.nodes, 1)
		if _, ok := s.ids.get(u); ok {
			return false
		}
		s.ids.put(u)
	}
	s.nodes = append(s.nodes, u)
	return true
}

// clip drops random nodes until their number is a multiple of m, as long as
// that leaves any (node clipping, seeds/000): every subset of a size is equally
// likely to go.
func (s *nodeSet) clip(m int, key rng.Key) {
	if m <= 1 || len(s.nodes) < m {
		return
	}
	for drop, i := len(s.nodes)%m, uint64(0); i < uint64(drop); i++ {
		j := key.Uintn(i, uint64(len(s.nodes)))
		last := len(s.nodes) - 1
		u := s.nodes[j]
		s.nodes[j] = s.nodes[last]
		s.nodes = s.nodes[:last]
		if s.bits != nil {
			s.bits[u/64] &^= 1 << (u % 64)
		}
	}
}

// sort puts the nodes in increasing order and numbers them.
func (s *nodeSet) sort() {
	slices.Sort(s.nodes)
	s.number()
}

// number gives the nodes their local ids, in the order they stand in.
func (s *nodeSet) number() {
	s.ids.clear()
	s.ids.reserve(nil, 2*len(s.nodes))
	for _, u := range s.nodes {
		s.ids.put(u)
	}
}

// inducer writes the subgraph that a set of nodes induces.
type inducer struct {
	g       *graph.Graph
	edgeIDs bool
	lines   []int64
	hits    []uint32 // positions within a row of the entries that stay
}

// induce fills out with the rows of the nodes of s, which must be sorted:
// entries whose source is in s too, by increasing local id; parallel edges
// keep their order.
func (d *inducer) induce(s *nodeSet, out *block) {
	g := d.g
	out.indptr = resize(out.indptr, len(s.nodes)+1)
	out.indptr[0] = 0
	out.indices, out.edgeIDs = out.indices[:0], out.edgeIDs[:0]
	group := func(i int) []uint32 {
		return s.nodes[min(i, len(s.nodes)):min(i+groupRows, len(s.nodes))]
	}
	prefetchRows(g.Indptr, group(0))
	prefetchRows(g.Indptr, group(groupRows))
	d.prefetchStarts(group(0))
	for i, v := range s.nodes {
		if i%groupRows == 0 { // row pointers two groups ahead, rows one
			prefetchRows(g.Indptr, group(i+2*groupRows))
			d.prefetchStarts(group(i + groupRows))
		}
		begin := g.Indptr[v]
		row := g.Indices[begin:g.Indptr[v+1]]
		hits := d.scan(s, row)
		w := len(out.indices)
		out.indices = reserve(out.indices, len(hits))[:w+len(hits)]
		local := out.indices[w:]
		for j, h := range hits {
			local[j], _ = s.ids.get(row[h])
		}
		if !slices.IsSorted(local) {
			slices.SortFunc(hits, func(a, b uint32) int {
				if row[a] != row[b] {
					return int(int64(row[a]) - int64(row[b]))
				}
				return int(int64(a) - int64(b))
			})
			slices.Sort(local)
		}
		if d.edgeIDs {
			for _, h := range hits {
				out.edgeIDs = append(out.edgeIDs, begin+int64(h))
			}
		}
		out.indptr[i+1] = int64(len(out.indices))
	}
}

// prefetchStarts asks for the first two lines of the rows; the hardware sees to
// the rest.
func (d *inducer) prefetchStarts(nodes []uint32) {
	d.lines = d.lines[:0]
	for _, v := range nodes {
		if begin, end := d.g.Indptr[v], d.g.Indptr[v+1]; begin < end {
			d.lines = append(d.lines, begin, min(begin+16, end-1))
		}
	}
	prefetchIndices(d.g.Indices, d.lines)
}

// scan returns the positions of the entries of row that are in s.
func (d *inducer) scan(s *nodeSet, row []uint32) []uint32 {
	d.hits = resize(d.hits, len(row)+8)
	if s.bits != nil {
		return d.hits[:members(d.hits, row, s.bits)]
	}
	w := 0
	for i, u := range row {
		if _, ok := s.ids.get(u); ok {
			d.hits[w] = uint32(i)
			w++
		}
	}
	return d.hits[:w]
}

// members writes the positions of the entries of row whose bits are set to dst,
// which has room for 8 more than row is long, and returns how many there are.
func members(dst, row []uint32, bits []uint64) int {
	if !simd {
		return membersGo(dst, row, 0, bits)
	}
	n, whole := 0, len(row)&^7
	const most = 4096 // entries a call: assembly cannot be preempted
	for begin := 0; begin < whole; begin += most {
		end := min(begin+most, whole)
		found := membersAVX2(&dst[n], &row[begin], end-begin, &bits[0])
		if begin > 0 {
			for i := range dst[n : n+found] {
				dst[n+i] += uint32(begin)
			}
		}
		n += found
	}
	return n + membersGo(dst[n:], row[whole:], uint32(whole), bits)
}

func membersGo(dst, row []uint32, first uint32, bits []uint64) int {
	w := 0
	for i, u := range row {
		dst[w] = first + uint32(i) // overwritten unless u is in the set
		w += int(bits[u/64] >> (u % 64) & 1)
	}
	return w
}
