package sampling

import (
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

func preparePinSAGE(p *Prepared, _ *interrupt.Poll) error {
	if err := p.checkFanouts(); err != nil {
		return err
	}
	s := &p.spec
	for i, k := range s.Fanouts {
		if k < 1 {
			return fmt.Errorf("fan-out %d is %d; the most visited nodes are a number of at least 1", i+1, k)
		}
	}
	if s.Walks == 0 {
		s.Walks = 10
	}
	if s.WalkLength == 0 {
		s.WalkLength = 3
	}
	if s.EdgeIDs {
		return fmt.Errorf("its neighbours are not joined by edges; do not ask for edge ids")
	}
	p.factory = func() Sampler { return &pinSAGE{p: p, asker: p.newAsker()} }
	return nil
}

// pinSAGE aggregates from the nodes that short random walks visit most (Ying et
// al., 2018). From each destination v start Walks walks of WalkLength steps to
// uniform in-neighbours; before a step, a walk returns to v with probability
// Restart; it stays where there is no neighbour. v's row lists the k nodes other
// than v that were visited most, the more visited and among equals the earlier
// first. Their weights, in proportion to the visits, average 1.
type pinSAGE struct {
	p       *Prepared
	asker   *asker // of a divided graph
	ids     idMap
	visits  []uint32  // of the rows of a group, each walk's steps one after another
	at      []uint32  // by walk: where it is
	keys    []rng.Key // of whose draws 2t decides whether step t returns, 2t+1 where it goes
	ends    []int64   // where the row of the node begins and ends
	pos     []int64   // of the neighbour that comes next; -1: there is none
	draws   []uint64  // of a divided graph
	counter visitCounter
}

func (s *pinSAGE) asks() *asker { return s.asker }

// Sample implements Sampler.
func (s *pinSAGE) Sample(b *Batch, key rng.Key, seeds []uint32) error {
	s.ids.clear()
	fanouts := s.p.spec.Fanouts
	b.start(len(fanouts))
	var err error
	if b.nodes, err = s.ids.seed(seeds, b.nodes, s.p.g.NumNodes()); err != nil {
		return err
	}
	for hop, k := range fanouts {
		if err := s.layer(b, len(fanouts)-1-hop, key.With(uint64(hop)), k); err != nil {
			return err
		}
	}
	finish(b, len(seeds))
	return nil
}

func (s *pinSAGE) layer(b *Batch, i int, key rng.Key, k int) error {
	rows, perGroup := len(b.nodes), max(1, groupWalks/s.p.spec.Walks)
	if s.asker != nil { // a step is one question for all
		perGroup = max(rows, 1)
	}
	out := &b.scratch[i]
	out.indptr = resize(out.indptr, rows+1)
	out.indptr[0] = 0
	out.indices, out.weights = out.indices[:0], out.weights[:0]
	perRow := s.p.spec.Walks * s.p.spec.WalkLength
	numbered := 0 // of out's indices; the others are global ids
	for r := 0; r < rows; r += perGroup {
		group := b.nodes[r:min(r+perGroup, rows)]
		if err := s.walk(group, key, b.ID); err != nil {
			return err
		}
		w := len(out.indices)
		for j, v := range group {
			out.add(s.counter.most(s.visits[j*perRow:(j+1)*perRow], v, k))
			out.indptr[r+j+1] = int64(len(out.indices))
		}
		prefetchSlots(&s.ids, out.indices[w:])
		s.number(b, out.indices[numbered:w])
		numbered = w
	}
	s.number(b, out.indices[numbered:])
	b.Blocks[i] = graph.Block{NumDst: rows, NumSrc: len(b.nodes), Indptr: out.indptr, Indices: out.indices, Weights: out.weights}
	return nil
}

// number turns global ids into local ones and adds new ids to b's nodes.
func (s *pinSAGE) number(b *Batch, ids []uint32) {
	s.ids.reserve(b.nodes, len(ids))
	b.nodes = s.ids.number(ids, reserve(b.nodes, len(ids)))
}

// add appends a row of nodes that walks visited.
func (b *block) add(row []visited) {
	total := uint32(0)
	for _, u := range row {
		total += u.times
	}
	for _, u := range row {
		b.indices = append(b.indices, u.node)
		b.weights = append(b.weights, float32(float64(u.times)*float64(len(row))/float64(total)))
	}
}

// groupWalks is how many walks take a step at a time.
const groupWalks = 320

// walk runs the walks of a group of rows, all of them one step at a time.
func (s *pinSAGE) walk(group []uint32, key rng.Key, id ID) error {
	walks, length := s.p.spec.Walks, s.p.spec.WalkLength
	n := len(group) * walks
	s.at, s.visits = resize(s.at, n), resize(s.visits, n*length)
	padded := (n + 7) &^ 7 // places takes eight at once
	s.keys = resize(s.keys, padded)
	if s.asker == nil {
		s.ends, s.pos = resize(s.ends, 2*padded), resize(s.pos, padded)
	} else {
		s.draws = resize(s.draws, n)
	}
	for j, v := range group {
		k := key.With(uint64(v))
		for w := range walks {
			s.at[j*walks+w], s.keys[j*walks+w] = v, k.Skip(2*uint64(w*length))
		}
	}
	restart := uint64(s.p.spec.Restart * (1 << 53))
	for t := range length {
		if restart > 0 {
			for i, k := range s.keys[:n] {
				if k.Uint64(2*uint64(t))>>11 < restart {
					s.at[i] = group[i/walks]
				}
			}
		}
		draw := 2*uint64(t) + 1
		if s.asker == nil {
			s.step(draw)
		} else {
			for i, k := range s.keys[:n] {
				s.draws[i] = k.Uint64(draw)
			}
			if _, err := s.asker.step(id, s.at, s.draws); err != nil {
				return err
			}
		}
		for i, u := range s.at {
			s.visits[i*length+t] = u
		}
	}
	return nil
}

// step takes all walks on by one step.
func (s *pinSAGE) step(draw uint64) {
	rowEnds(s.ends, s.p.g.Indptr, s.at)
	places(s.pos, s.ends, s.keys, draw)
	follow(s.at, s.p.g.Indices, s.pos)
}
