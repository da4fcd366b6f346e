package sampling

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// nodeSet collects distinct nodes. It takes one bit per node of the graph, or,
// above bitsLimit nodes, only the hash table that it needs anyway: where the bits
// do not fit a near cache, the table of a subgraph's nodes often does.
type nodeSet struct {
	bits  []uint64 // nil: ids tells who is in the set
	nodes []uint32
	ids   idMap

	// Rows are searched in a filter: a small table of bits that fits a near cache
	// however many nodes the graph has. It lets some nodes through that are not
	// in the set; ids tells. Where bits is small, it is the filter, an exact one.
	own    []uint64
	filter filter
	rank   []uint32 // after sort, with an exact filter: nodes of the set before each word of bits
}

// filter is a table of bits: u's is u*multiplier>>shift.
type filter struct {
	bits              []uint64
	multiplier, shift uint32
}

const (
	bitsLimit   = 1 << 22
	filterRatio = 64      // bits of the filter per node of the set: at most one in as many is let through
	nearWords   = 1 << 15 // 256 KiB lie in a near cache anyway
)

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

// addAll adds nodes, of which it asks for what add looks at a group ahead.
func (s *nodeSet) addAll(nodes []uint32) {
	for i, u := range nodes {
		if i%groupRows == 0 {
			for _, next := range nodes[min(i+groupRows, len(nodes)):min(i+2*groupRows, len(nodes))] {
				s.prefetch(next)
			}
		}
		s.add(u)
	}
}

// prefetch asks for what add looks at.
func (s *nodeSet) prefetch(u uint32) {
	if s.bits != nil {
		word := u / 64
		prefetch8((*int64)(unsafe.Pointer(&s.bits[0])), &word, 1)
	}
}

// clip drops random nodes until their number is a multiple of m, as long as
// that leaves any (node clipping, Zeng et al.): every subset of a size is equally
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
	if !s.ranked() {
		slices.Sort(s.nodes)
	}
	s.index()
}

// index numbers the nodes, in any order. With a bit for each node that is a matter
// of counting bits, which puts them in increasing order.
func (s *nodeSet) index() {
	if !s.ranked() {
		s.number()
		return
	}
	s.filter = filter{s.bits, 1, 0}
	s.rank = resize(s.rank, len(s.bits))
	n := 0
	for i, w := range s.bits {
		s.rank[i] = uint32(n)
		for ; w != 0; w &= w - 1 {
			s.nodes[n] = uint32(64*i + bits.TrailingZeros64(w))
			n++
		}
	}
}

// ranked reports whether nodes are numbered by counting bits: unless the counts would
// take more room than the table of ids.
func (s *nodeSet) ranked() bool { return s.exact() && len(s.bits) <= 8*len(s.nodes) }

// id returns the number of u and whether it is in the set, which must be numbered.
func (s *nodeSet) id(u uint32) (uint32, bool) {
	if len(s.rank) == 0 {
		return s.ids.get(u)
	}
	w := s.bits[u/64]
	return s.rank[u/64] + uint32(onesBelow(w, u%64)), w>>(u%64)&1 != 0
}

// filterWords is the size of a filter for the nodes.
func (s *nodeSet) filterWords() int {
	return 1 << bits.Len(uint(max(filterRatio*len(s.nodes), 64)/64-1))
}

// exact reports whether the bits are small enough to be the filter.
func (s *nodeSet) exact() bool {
	return s.bits != nil && len(s.bits) <= max(s.filterWords(), nearWords)
}

// number gives the nodes their local ids, in the order they stand in.
func (s *nodeSet) number() {
	s.rank = s.rank[:0]
	s.ids.clear()
	s.ids.reserve(nil, 2*len(s.nodes))
	for _, u := range s.nodes {
		s.ids.put(u)
	}
	if s.exact() {
		s.filter = filter{s.bits, 1, 0}
		return
	}
	words := s.filterWords()
	s.own = resize(s.own, words)
	clear(s.own)
	s.filter = filter{s.own, hashMultiplier, uint32(32 - bits.TrailingZeros(uint(64*words)))}
	for _, u := range s.nodes {
		h := u * hashMultiplier >> s.filter.shift
		s.own[h/64] |= 1 << (h % 64)
	}
}

// inducer writes the subgraph that a set of nodes induces.
type inducer struct {
	g       *graph.Graph
	edgeIDs bool
	lines   []int64
	hits    []uint32 // positions within a row of the entries that stay
	local   []uint32 // their local ids
}

// induce fills out with the rows of the nodes of s, which must be sorted:
// entries whose source is in s too, by increasing local id; parallel edges
// keep their order.
func (d *inducer) induce(s *nodeSet, out *block) {
	g := d.g
	out.indptr = resize(out.indptr, len(s.nodes)+1)
	out.indptr[0] = 0
	out.indices, out.edgeIDs = out.indices[:0], out.edgeIDs[:0]
	prefetchRows(g.Indptr, within(s.nodes, 0))
	prefetchRows(g.Indptr, within(s.nodes, groupRows))
	d.lines = prefetchStarts(d.lines, g, within(s.nodes, 0))
	for i, v := range s.nodes {
		if i%groupRows == 0 { // row pointers two groups ahead, rows one
			prefetchRows(g.Indptr, within(s.nodes, i+2*groupRows))
			d.lines = prefetchStarts(d.lines, g, within(s.nodes, i+groupRows))
		}
		begin := g.Indptr[v]
		row := g.Indices[begin:g.Indptr[v+1]]
		hits, local := d.scan(s, row)
		if !slices.IsSorted(local) {
			slices.SortFunc(hits, func(a, b uint32) int {
				if row[a] != row[b] {
					return int(int64(row[a]) - int64(row[b]))
				}
				return int(int64(a) - int64(b))
			})
			slices.Sort(local)
		}
		out.indices = append(reserve(out.indices, len(local)), local...)
		if d.edgeIDs {
			for _, h := range hits {
				out.edgeIDs = append(out.edgeIDs, begin+int64(h))
			}
		}
		out.indptr[i+1] = int64(len(out.indices))
	}
}

// within returns the group of nodes that begins at i, or what there is of it.
func within(nodes []uint32, i int) []uint32 {
	return nodes[min(i, len(nodes)):min(i+groupRows, len(nodes))]
}

// prefetchStarts asks for the first two lines of the rows; the hardware sees to
// the rest. lines is room for their positions, which it returns.
func prefetchStarts(lines []int64, g *graph.Graph, nodes []uint32) []int64 {
	lines = lines[:0]
	for _, v := range nodes {
		if begin, end := g.Indptr[v], g.Indptr[v+1]; begin < end {
			lines = append(lines, begin, min(begin+16, end-1))
		}
	}
	prefetchIndices(g.Indices, lines)
	return lines
}

// scan returns the positions of the entries of row that are in s, and their
// local ids, until the next call. number must have been called.
func (d *inducer) scan(s *nodeSet, row []uint32) (hits, local []uint32) {
	d.hits = resize(d.hits, len(row)+8)
	n := s.filter.members(d.hits, row)
	d.local = resize(d.local, n)
	if len(s.rank) > 0 { // the filter lets none through that is not in the set
		for i, h := range d.hits[:n] {
			u := row[h]
			d.local[i] = s.rank[u/64] + uint32(onesBelow(s.bits[u/64], u%64))
		}
		return d.hits[:n], d.local[:n]
	}
	w := 0
	for _, h := range d.hits[:n] {
		id, ok := s.ids.get(row[h])
		d.hits[w], d.local[w] = h, id
		if ok {
			w++
		}
	}
	return d.hits[:w], d.local[:w]
}

// members writes the positions of the entries of row whose bits are set to
// dst, which has room for 8 more than row is long, and returns how
// many there are.
func (f filter) members(dst, row []uint32) int {
	if !simd {
		return f.membersGo(dst, row, 0)
	}
	n, whole := 0, len(row)&^7
	const most = 4096 // entries a call: assembly cannot be preempted
	for begin := 0; begin < whole; begin += most {
		end := min(begin+most, whole)
		found := membersAVX2(&dst[n], &row[begin], end-begin, &f.bits[0], f.multiplier, f.shift)
		if begin > 0 {
			for i := range dst[n : n+found] {
				dst[n+i] += uint32(begin)
			}
		}
		n += found
	}
	return n + f.membersGo(dst[n:], row[whole:], uint32(whole))
}

func (f filter) membersGo(dst, row []uint32, first uint32) int {
	w := 0
	for i, u := range row {
		h := u * f.multiplier >> f.shift
		dst[w] = first + uint32(i) // overwritten unless u may be in the set
		w += int(f.bits[h/64] >> (h % 64) & 1)
	}
	return w
}
