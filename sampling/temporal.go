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
	dated   dated
	unique  idMap   // of the seeds
	fits    []int64 // positions of a row's eligible edges
	picked  []int64
	chooser
}

// dated gives nodes local ids, by their times.
type dated struct {
	ids    pairMap
	when   []int64 // of each local id
	values []uint64
}

// seed begins with seeds, whose times are among those of all nodes.
func (d *dated) seed(seeds []uint32, times []int64) {
	d.ids.clear()
	d.when = d.when[:0]
	for _, v := range seeds {
		d.ids.put(v, times[v], uint32(len(d.when)))
		d.when = append(d.when, times[v])
	}
}

// number returns the local id of u at a time, which is appended to b's nodes if it is new.
func (d *dated) number(b *Batch, u uint32, now int64) uint32 {
	id := d.ids.put(u, now, uint32(len(b.nodes)))
	if int(id) == len(b.nodes) {
		b.nodes = append(b.nodes, u)
		d.when = append(d.when, now)
	}
	return id
}

// beside returns the times as Ask.Beside has them, until the next call.
func (d *dated) beside() []uint64 {
	d.values = resize(d.values, len(d.when))
	for i, t := range d.when {
		d.values[i] = uint64(t)
	}
	return d.values
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
	s.dated.seed(seeds, t.Node)
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
		v, now := b.nodes[r], s.dated.when[r]
		picked := s.pick(rowKey(key, v, now), v, now, k)
		for _, p := range picked {
			out.indices = append(out.indices, s.dated.number(b, g.Indices[p], now))
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

// rowKey is that of v's row at a time; key is the layer's.
func rowKey(key rng.Key, v uint32, now int64) rng.Key {
	return key.With(uint64(v)).With(uint64(now))
}

// collect draws k entries of the rows that q asks for, which have the given numbers here, into out.
func (s *temporal) collect(out *block, rows []uint32, q *Ask, k int) {
	key := q.Key.With(uint64(q.Hop))
	out.indptr = append(resize(out.indptr, len(rows)+1)[:0], 0)
	out.indices, out.edgeIDs = out.indices[:0], out.edgeIDs[:0]
	for i, v := range rows {
		now := int64(q.Beside[i])
		picked := s.pick(rowKey(key, q.Nodes[i], now), v, now, k)
		for _, p := range picked {
			out.indices = append(out.indices, s.p.g.Indices[p])
		}
		if s.p.edgeIDs() {
			out.edgeIDs = append(out.edgeIDs, picked...)
		}
		out.indptr = append(out.indptr, int64(len(out.indices)))
	}
}

// pick returns the positions of the edges chosen for v.
func (s *temporal) pick(key rng.Key, v uint32, now int64, k int) []int64 {
	g, t := s.p.g, s.p.times
	s.fits = s.fits[:0]
	for p := g.Indptr[v]; p < g.Indptr[v+1]; p++ {
		var at int64
		switch {
		case t.Edge != nil:
			at = t.Edge[p]
		case s.p.rows != nil: // the graph has numbers of sources
			at = t.Node[s.p.rows.id(g.Indices[p])]
		default:
			at = t.Node[g.Indices[p]]
		}
		if at <= now {
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
