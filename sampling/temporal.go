package sampling

import (
	"fmt"
	"math/bits"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// Times date nodes and edges, in any unit.
type Times struct {
	Node []int64 // of each node: as a seed, it sees nothing newer than this
	Edge []int64 // of each edge; nil: an edge is as old as its source
}

// Option gives Prepare what a Spec cannot hold.
type Option func(*Prepared)

// WithTimes gives the times that a temporal Spec needs, in place of the data
// set's. They are not copied.
func WithTimes(t Times) Option { return func(p *Prepared) { p.times = &t } }

// checkTimes finds the times, and reports those that do not fit the graph.
func (p *Prepared) checkTimes() error {
	if p.times == nil && p.data.NodeTimes != nil {
		p.times = &Times{Node: p.data.NodeTimes, Edge: p.data.EdgeTimes}
	}
	switch t := p.times; {
	case t == nil:
		return fmt.Errorf("a temporal sampler needs the times of nodes; import them with the data, or give WithTimes")
	case len(t.Node) != p.g.NumNodes():
		return fmt.Errorf("%d times for %d nodes", len(t.Node), p.g.NumNodes())
	case t.Edge != nil && int64(len(t.Edge)) != p.g.NumEdges():
		return fmt.Errorf("%d times for %d edges", len(t.Edge), p.g.NumEdges())
	}
	return nil
}

// temporal is neighbour sampling under a temporal constraint: what is sampled
// for a seed, over all hops, uses no edge newer than that seed's time. The same
// node reached from seeds of different times aggregates different neighbours, so
// it gets a local id per time: SrcIDs may name a node more than once. A row with
// more than k eligible edges gets k of them, uniformly without replacement, in
// the order drawn, keyed by the time too.
type temporal struct {
	p       *Prepared
	fanouts []int
	ids     pairMap
	unique  idMap // of the seeds
	when    []int64
	fits    []int64 // positions of a row's eligible edges
	picked  []int64
	chooser
}

// Sample implements Sampler.
func (s *temporal) Sample(b *Batch, key rng.Key, seeds []uint32) error {
	g, t := s.p.g, s.p.times
	s.unique.clear()
	b.start(len(s.fanouts))
	var err error
	if b.nodes, err = s.unique.seed(seeds, b.nodes, g.NumNodes()); err != nil {
		return err
	}
	s.ids.clear()
	s.when = s.when[:0]
	for _, v := range seeds {
		s.ids.put(v, t.Node[v], uint32(len(s.when)))
		s.when = append(s.when, t.Node[v])
	}
	for hop, k := range s.fanouts {
		s.layer(b, len(s.fanouts)-1-hop, key.With(uint64(hop)), k)
	}
	finish(b, len(seeds))
	return nil
}

func (s *temporal) layer(b *Batch, i int, key rng.Key, k int) {
	g := s.p.g
	rows := len(b.nodes)
	out := &b.scratch[i]
	out.indptr = resize(out.indptr, rows+1)
	out.indptr[0] = 0
	out.indices, out.edgeIDs = out.indices[:0], out.edgeIDs[:0]
	for r := range rows {
		v, now := b.nodes[r], s.when[r]
		picked := s.pick(key.With(uint64(v)).With(uint64(now)), v, now, k)
		for _, p := range picked {
			u := g.Indices[p]
			id := s.ids.put(u, now, uint32(len(b.nodes)))
			if int(id) == len(b.nodes) {
				b.nodes = append(b.nodes, u)
				s.when = append(s.when, now)
			}
			out.indices = append(out.indices, id)
		}
		if s.p.edgeIDs() {
			out.edgeIDs = append(out.edgeIDs, picked...)
		}
		out.indptr[r+1] = int64(len(out.indices))
	}
	b.Blocks[i] = graph.Block{NumDst: rows, NumSrc: len(b.nodes), Indptr: out.indptr, Indices: out.indices}
	if s.p.edgeIDs() {
		b.Blocks[i].EdgeIDs = out.edgeIDs
	}
}

// pick returns the positions of the edges chosen for v.
func (s *temporal) pick(key rng.Key, v uint32, now int64, k int) []int64 {
	g, t := s.p.g, s.p.times
	s.fits = s.fits[:0]
	for p := g.Indptr[v]; p < g.Indptr[v+1]; p++ {
		if t.Edge != nil && t.Edge[p] <= now || t.Edge == nil && t.Node[g.Indices[p]] <= now {
			s.fits = append(s.fits, p)
		}
	}
	if k < 0 || len(s.fits) <= k {
		return s.fits
	}
	s.picked = resize(s.picked, k)
	s.choose(s.picked, key, 0, k, len(s.fits))
	for i, j := range s.picked {
		s.picked[i] = s.fits[j]
	}
	return s.picked
}

// pairMap maps (node, time) to local ids: open addressing, emptied by a stamp.
type pairMap struct {
	slots []pairSlot
	count int
	stamp uint32
}

type pairSlot struct {
	time  int64
	node  uint32
	value uint32
	stamp uint32
}

func (m *pairMap) clear() {
	if m.stamp++; m.stamp == 0 {
		clear(m.slots)
		m.stamp = 1
	}
	m.count = 0
}

// put returns the value of the pair, which becomes value if it has none.
func (m *pairMap) put(node uint32, time int64, value uint32) uint32 {
	if 2*(m.count+1) > len(m.slots) {
		old := m.slots
		m.slots = make([]pairSlot, max(minSlots, 2*len(old)))
		for _, s := range old {
			if s.stamp == m.stamp {
				*m.find(s.node, s.time) = s
			}
		}
	}
	s := m.find(node, time)
	if s.stamp != m.stamp {
		*s = pairSlot{time, node, value, m.stamp}
		m.count++
	}
	return s.value
}

// find returns the pair's slot, or the free one where it belongs.
func (m *pairMap) find(node uint32, time int64) *pairSlot {
	mask := uint64(len(m.slots) - 1)
	h := (uint64(node) ^ bits.RotateLeft64(uint64(time)*0x9e3779b97f4a7c15, 32)) * 0x9e3779b97f4a7c15
	for h >>= 64 - uint(bits.Len64(mask)); ; h++ {
		s := &m.slots[h&mask]
		if s.stamp != m.stamp || s.node == node && s.time == time {
			return s
		}
	}
}
