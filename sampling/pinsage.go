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
	p      *Prepared
	asker  *asker // of a divided graph
	ids    idMap
	at     []uint32 // where the walks of a group of rows are
	begin  []int64  // where their nodes' rows begin, then the next node's position
	end    []int64
	keys   []rng.Key // by row
	draws  []uint64  // of a divided graph: by walk
	visits []uint32  // of the rows of a group, each walk's steps one after another
	seen   idMap     // of one row
	nodes  []uint32  // that it visited, itself first
	counts []uint32  // how often
	starts []uint32  // by number of visits, where the nodes visited so often begin in order
	order  []uint32  // the row's nodes, the more visited first
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
	rows, perGroup := len(b.nodes), groupRows
	if s.asker != nil { // a step is one question for all
		perGroup = max(rows, 1)
	}
	out := &b.scratch[i]
	out.indptr = resize(out.indptr, rows+1)
	out.indptr[0] = 0
	out.indices, out.weights = out.indices[:0], out.weights[:0]
	perRow := s.p.spec.Walks * s.p.spec.WalkLength
	for r := 0; r < rows; r += perGroup {
		group := b.nodes[r:min(r+perGroup, rows)]
		if err := s.walk(group, key, b.ID); err != nil {
			return err
		}
		w := len(out.indices)
		for j, v := range group {
			s.rank(out, s.visits[j*perRow:(j+1)*perRow], v, k)
			out.indptr[r+j+1] = int64(len(out.indices))
		}
		n := len(out.indices) - w
		s.ids.reserve(b.nodes, n)
		b.nodes = s.ids.number(out.indices[w:], reserve(b.nodes, n))
	}
	b.Blocks[i] = graph.Block{NumDst: rows, NumSrc: len(b.nodes), Indptr: out.indptr, Indices: out.indices, Weights: out.weights}
	return nil
}

// walk runs the walks of a group of rows, all of them one step at a time. Loops that do nothing but load, from
// places that are known before, let the loads of many walks overlap.
func (s *pinSAGE) walk(group []uint32, key rng.Key, id ID) error {
	spec := &s.p.spec
	indptr, indices := s.p.g.Indptr, s.p.g.Indices
	walks, length := spec.Walks, spec.WalkLength
	n := len(group) * walks
	s.at = resize(s.at, n)
	if s.asker == nil {
		s.begin, s.end = resize(s.begin, n), resize(s.end, n)
	} else {
		s.draws = resize(s.draws, n)
	}
	s.visits = resize(s.visits, n*length)
	s.keys = resize(s.keys, len(group))
	for j, v := range group {
		s.keys[j] = key.With(uint64(v))
		for w := range walks {
			s.at[j*walks+w] = v
		}
	}
	restart := uint64(spec.Restart * (1 << 53))
	at, begin, end := s.at, s.begin, s.end
	for t := range length {
		if restart > 0 {
			for j, k := range s.keys {
				for w := range walks {
					if k.Uint64(2*uint64(w*length+t))>>11 < restart {
						at[j*walks+w] = group[j]
					}
				}
			}
		}
		if s.asker != nil {
			for j, k := range s.keys {
				for w := range walks {
					s.draws[j*walks+w] = k.Uint64(2*uint64(w*length+t) + 1)
				}
			}
			if _, err := s.asker.step(id, at, s.draws); err != nil {
				return err
			}
			s.visit(t)
			continue
		}
		begin, end := begin[:len(at)], end[:len(at)]
		for i, u := range at {
			begin[i], end[i] = indptr[u], indptr[u+1]
		}
		for j, k := range s.keys {
			for w := range walks {
				i := j*walks + w
				if d := end[i] - begin[i]; d > 0 {
					begin[i] += int64(k.Uintn(2*uint64(w*length+t)+1, uint64(d)))
				} else {
					begin[i] = -1
				}
			}
		}
		for i, p := range begin {
			if p >= 0 {
				at[i] = indices[p]
			}
		}
		s.visit(t)
	}
	return nil
}

// visit notes where the walks are after step t.
func (s *pinSAGE) visit(t int) {
	length := s.p.spec.WalkLength
	for i, u := range s.at {
		s.visits[i*length+t] = u
	}
}

// rank appends the k most visited nodes other than v, and replaces visits by local
// ids. Nodes are numbered as they were first visited, and sorted by counting.
func (s *pinSAGE) rank(out *block, visits []uint32, v uint32, k int) {
	s.seen.clear()
	s.seen.reserve(nil, len(visits)+1)
	s.seen.put(v)
	s.nodes = s.seen.number(visits, append(reserve(s.nodes[:0], len(visits)+1), v))
	s.counts = resize(s.counts, len(s.nodes))
	clear(s.counts)
	for _, i := range visits {
		s.counts[i]++
	}
	s.starts = resize(s.starts, len(visits)+1)
	clear(s.starts)
	most := uint32(0)
	for _, c := range s.counts[1:] {
		s.starts[c]++
		most = max(most, c)
	}
	for c, n := most, uint32(0); c > 0; c-- {
		s.starts[c], n = n, n+s.starts[c]
	}
	s.order = resize(s.order, len(s.nodes)-1)
	for i, c := range s.counts[1:] {
		s.order[s.starts[c]] = uint32(i + 1)
		s.starts[c]++
	}
	top := s.order[:min(k, len(s.order))]
	total := uint32(0)
	for _, i := range top {
		total += s.counts[i]
	}
	for _, i := range top {
		out.indices = append(out.indices, s.nodes[i])
		out.weights = append(out.weights, float32(float64(s.counts[i])*float64(len(top))/float64(total)))
	}
}
