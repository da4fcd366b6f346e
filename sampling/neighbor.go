package sampling

import (
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/rng"
)

func prepareNeighbor(p *Prepared) error {
	if len(p.spec.Fanouts) != p.spec.Depth() {
		return fmt.Errorf("%d fan-outs given for %d layers; give one per layer, from the seeds outward", len(p.spec.Fanouts), p.spec.Depth())
	}
	p.factory = func() Sampler { return newNeighbor(p, p.spec.Fanouts) }
	return nil
}

func prepareKHop(p *Prepared) error {
	if len(p.spec.Fanouts) != 0 {
		return fmt.Errorf("it takes all neighbours; give layers and no fan-outs")
	}
	fanouts := make([]int, p.spec.Depth())
	for i := range fanouts {
		fanouts[i] = -1
	}
	p.factory = func() Sampler { return newNeighbor(p, fanouts) }
	return nil
}

// neighbor is neighbour sampling (GraphSAGE) fused with the id map, in one
// pass (seeds/004): edges are chosen, their sources written straight into the
// block and numbered there. A destination with more than k edges in gets k of
// them, uniformly without replacement, in the order drawn.
type neighbor struct {
	g       *graph.Graph
	fanouts []int
	edgeIDs bool
	ids     idMap
	chooser chooser
	ahead   [2]group
}

// group is a run of rows on its way through the pipeline of a layer. While the
// sources of one group are read, and those of the one before numbered, the
// positions of the next are drawn, and the row pointers of the one after that
// are fetched: every load from memory was asked for one group earlier.
type group struct {
	rows int     // number of rows
	pos  []int64 // positions of the entries in the graph, row after row
}

const (
	groupRows    = 32
	groupEntries = 512 // rows of a group have about this many entries at most
)

func newNeighbor(p *Prepared, fanouts []int) *neighbor {
	return &neighbor{g: p.g, fanouts: fanouts, edgeIDs: p.edgeIDs()}
}

// Sample implements Sampler.
func (s *neighbor) Sample(b *Batch, key rng.Key, seeds []uint32) error {
	s.ids.clear()
	b.start(len(s.fanouts))
	var err error
	if b.nodes, err = s.ids.seed(seeds, b.nodes, s.g.NumNodes()); err != nil {
		return err
	}
	for hop, k := range s.fanouts {
		s.layer(b, len(s.fanouts)-1-hop, key.With(uint64(hop)), k)
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
func (s *neighbor) layer(b *Batch, i int, key rng.Key, k int) {
	rows := len(b.nodes)
	out := &b.scratch[i]
	out.indptr = resize(out.indptr, rows+1)
	out.indptr[0] = 0
	out.indices = out.indices[:0]
	out.edgeIDs = out.edgeIDs[:0]

	perGroup := groupRows
	if k > 0 {
		perGroup = max(1, min(groupRows, groupEntries/k))
	}
	mapped := 0
	prefetchRows(s.g.Indptr, b.nodes[:min(perGroup, rows)])
	s.ahead[0].pos, s.ahead[1].pos = s.ahead[0].pos[:0], s.ahead[1].pos[:0]
	for r, turn := 0, 0; ; turn++ {
		// Draw the next group.
		cur, prev := &s.ahead[turn&1], &s.ahead[turn&1^1]
		r = s.draw(cur, out.indptr, b.nodes, r, min(r+perGroup, rows), key, k)
		prefetchIndices(s.g.Indices, cur.pos)
		prefetchRows(s.g.Indptr, b.nodes[r:min(r+perGroup, rows)])
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
}

// draw chooses the entries of rows r to end of a layer, fewer if they are long,
// and returns the row after the last one.
func (s *neighbor) draw(to *group, indptr []int64, nodes []uint32, r, end int, key rng.Key, k int) int {
	pos := to.pos[:0]
	n := indptr[r]
	i := r
	for ; i < end && len(pos) < groupEntries; i++ {
		v := nodes[i]
		begin := s.g.Indptr[v]
		d := int(s.g.Indptr[v+1] - begin)
		take := d
		if k >= 0 && d > k {
			take = k
		}
		pos = reserve(pos, take)
		w := len(pos)
		pos = pos[:w+take]
		if take == d {
			for j := range pos[w:] {
				pos[w+j] = begin + int64(j)
			}
		} else {
			s.chooser.choose(pos[w:], key.With(uint64(v)), begin, k, d)
		}
		n += int64(take)
		indptr[i+1] = n
	}
	to.rows, to.pos = i-r, pos
	return i
}

// read appends the sources at a group's positions to the block and empties the
// group.
func (s *neighbor) read(from *group, out *block) {
	if len(from.pos) > 0 {
		w := len(out.indices)
		out.indices = reserve(out.indices, len(from.pos))[:w+len(from.pos)]
		gather(out.indices[w:], s.g.Indices, from.pos)
		if s.edgeIDs {
			out.edgeIDs = append(out.edgeIDs, from.pos...)
		}
	}
	from.pos = from.pos[:0]
}

// number turns global ids into local ones and adds new ids to nodes.
func (s *neighbor) number(ids, nodes []uint32) []uint32 {
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
