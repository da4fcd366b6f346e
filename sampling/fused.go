package sampling

import (
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// picker chooses a row's entries. It belongs to one sampler.
type picker interface {
	// start begins a layer; hop counts from the seeds outward.
	start(id ID, key rng.Key, hop int)
	// pick appends to the group the positions, and for samplers with weights
	// the weights, of the entries chosen for node v, whose row is [begin,
	// begin+d) with d > 0. k is the fan-out, -1 for all.
	pick(to *group, v uint32, begin int64, d, k int)
}

// prefetcher is a picker with data of its own per row.
type prefetcher interface {
	prefetchAhead(nodes []uint32) // rows of the group after the next
	prefetchNext(nodes []uint32)  // rows of the next group
}

// fused is node-wise sampling fused with the id map, in one pass (Mostafa and Grabowski):
// entries are chosen, their sources written straight into the block and
// numbered there; there is no edge list in between.
type fused struct {
	g       *graph.Graph
	first   uint32 // id of its first node in the whole graph
	fanouts []int
	edgeIDs bool
	weights bool    // entries have importance weights
	scans   *uint32 // the values of 4 bytes, one an edge, of which the picker reads whole rows; nil: it reads none
	picker  picker
	fetch   prefetcher // the picker, if it is one
	ids     idMap
	ahead   [2]group
}

// group is a run of rows on its way through the pipeline of a layer. While the
// sources of one group are read, and those of the one before numbered, the
// positions of the next are drawn, and the row pointers of the one after that
// are fetched: every load from memory was asked for one group earlier.
type group struct {
	rows    int
	pos     []int64 // positions of the entries in the graph, row after row
	weights []float32
}

const (
	groupRows    = 32
	groupEntries = 256 // a group takes no further row when it has this many entries
)

func (p *Prepared) newFused(fanouts []int, pk picker) *fused {
	fetch, _ := pk.(prefetcher)
	s := &fused{g: p.g, fanouts: fanouts, edgeIDs: p.edgeIDs(), picker: pk, fetch: fetch}
	if p.rows != nil {
		s.first = p.rows.First
	}
	return s
}

// Sample implements Sampler.
func (s *fused) Sample(b *Batch, key rng.Key, seeds []uint32) error {
	return s.sample(b, key, seeds, s.layer)
}

// sample is Sample with another way to block i: that of k neighbours of b's nodes.
func (s *fused) sample(b *Batch, key rng.Key, seeds []uint32, layer func(b *Batch, i, k int)) error {
	s.ids.clear()
	b.start(len(s.fanouts))
	var err error
	if b.nodes, err = s.ids.seed(seeds, b.nodes, s.g.NumNodes()); err != nil {
		return err
	}
	for hop, k := range s.fanouts {
		s.picker.start(b.ID, key, hop)
		layer(b, len(s.fanouts)-1-hop, k)
	}
	finish(b, len(seeds))
	return nil
}

// finish points the seeds and the layers' sources at the list of nodes, which
// has stopped moving.
func finish(b *Batch, seeds int) {
	b.Seeds = b.nodes[:seeds:seeds]
	for i := range b.Blocks {
		n := b.Blocks[i].NumSrc
		b.Blocks[i].SrcIDs = b.nodes[:n:n]
	}
}

// layer samples block i, whose destinations are the nodes so far.
func (s *fused) layer(b *Batch, i int, k int) {
	rows := len(b.nodes)
	out := &b.scratch[i]
	out.indptr = resize(out.indptr, rows+1)
	out.indptr[0] = 0
	out.indices, out.edgeIDs, out.weights = out.indices[:0], out.edgeIDs[:0], out.weights[:0]

	perGroup := rowsPerGroup(k)
	mapped := 0
	s.begin(b.nodes[:rows], perGroup)
	for r, turn := 0, 0; ; turn++ {
		// Draw the next group.
		cur, prev := &s.ahead[turn&1], &s.ahead[turn&1^1]
		r = s.drawNext(cur, out.indptr, b.nodes[:rows], r, perGroup, k)
		// Number the group before the previous one, then read the previous one.
		b.nodes = s.number(out.indices[mapped:], b.nodes)
		mapped = len(out.indices)
		s.read(prev, out)
		prefetchSlots(&s.ids, out.indices[mapped:])
		if cur.rows == 0 && mapped == len(out.indices) {
			break
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

// rowsPerGroup returns how many rows a group has at most.
func rowsPerGroup(k int) int {
	if k > 0 {
		return max(1, min(groupRows, groupEntries/k))
	}
	return groupRows
}

// scanAhead is how many rows before a row is read its first lines are asked
// for, scanLines how many, which is as far as kernels look ahead in a row.
const scanAhead, scanLines = 8, 32

// begin asks for what drawing the first rows of nodes reads first.
func (s *fused) begin(nodes []uint32, perGroup int) {
	s.ahead[0].empty()
	s.ahead[1].empty()
	s.prefetchAhead(nodes, 0, perGroup)
	if s.scans != nil {
		prefetchRows(s.g.Indptr, nodes[:min(scanAhead, len(nodes))])
	}
}

// drawNext chooses the entries of the group of rows from r on, asks for them and
// for what drawing the next group reads first, and returns where that begins.
func (s *fused) drawNext(to *group, indptr []int64, nodes []uint32, r, perGroup, k int) int {
	r = s.draw(to, indptr, nodes, r, min(r+perGroup, len(nodes)), k)
	if s.scans == nil {
		prefetchIndices(s.g.Indices, to.pos)
	}
	s.prefetchAhead(nodes, r, perGroup)
	return r
}

// draw chooses the entries of rows r to end of a layer, fewer if they are long,
// and returns the row after the last one.
func (s *fused) draw(to *group, indptr []int64, nodes []uint32, r, end, k int) int {
	if s.fetch != nil {
		s.fetch.prefetchNext(nodes[r:end])
	}
	i := r
	for ; i < end && len(to.pos) < groupEntries; i++ {
		if s.scans != nil && i+scanAhead < len(nodes) {
			v := nodes[i+scanAhead]
			if d := s.g.Degree(v); d > 0 {
				prefetchRow4(s.scans, s.g.Indptr[v], min(d, 16*scanLines))
			}
		}
		v := nodes[i]
		begin := s.g.Indptr[v]
		if d := s.g.Degree(v); d > 0 {
			before := len(to.pos)
			s.picker.pick(to, s.first+v, begin, d, k)
			indptr[i+1] = indptr[i] + int64(len(to.pos)-before)
		} else {
			indptr[i+1] = indptr[i]
		}
	}
	to.rows = i - r
	return i
}

// prefetchAhead asks for what tells where the rows of the group from r on are.
func (s *fused) prefetchAhead(nodes []uint32, r, perGroup int) {
	group := nodes[r:min(r+perGroup, len(nodes))]
	if s.fetch != nil {
		s.fetch.prefetchAhead(group)
	}
	if s.scans != nil { // draw looks ahead
		group = nodes[min(r+scanAhead, len(nodes)):min(r+scanAhead+perGroup, len(nodes))]
	}
	prefetchRows(s.g.Indptr, group)
}

// read appends the sources at a group's positions to the block and empties the
// group.
func (s *fused) read(from *group, out *block) {
	if len(from.pos) > 0 {
		w := len(out.indices)
		out.indices = reserve(out.indices, len(from.pos))[:w+len(from.pos)]
		gather(out.indices[w:], s.g.Indices, from.pos)
		if s.edgeIDs {
			out.edgeIDs = append(reserve(out.edgeIDs, len(from.pos)), from.pos...)
		}
		if s.weights {
			out.weights = append(reserve(out.weights, len(from.weights)), from.weights...)
		}
	}
	from.empty()
}

// number turns global ids into local ones and adds new ids to nodes.
func (s *fused) number(ids, nodes []uint32) []uint32 {
	s.ids.reserve(nodes, len(ids))
	return s.ids.number(ids, reserve(nodes, len(ids)))
}

// gather sets dst[i] = src[pos[i]].
func gather(dst, src []uint32, pos []int64) {
	dst = dst[:len(pos)]
	for i, p := range pos {
		dst[i] = src[p]
	}
}

func (g *group) empty() { g.rows, g.pos, g.weights = 0, g.pos[:0], g.weights[:0] }

// extend appends n undefined positions and returns them.
func (g *group) extend(n int) []int64 {
	w := len(g.pos)
	g.pos = reserve(g.pos, n)[:w+n]
	return g.pos[w:]
}

// all appends the whole row.
func (g *group) all(begin int64, d int) {
	dst := g.extend(d)
	for i := range dst {
		dst[i] = begin + int64(i)
	}
}
