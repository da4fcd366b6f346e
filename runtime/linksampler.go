package runtime

import (
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// linkSampler makes batches of links: its seeds are numbers of links. It adds
// negatives, has the ends sampled, each once, and takes the edges of the batch's
// own links out of the blocks, or the model would be shown what it is asked for.
// A batch's Seeds are then the ends of its links, two each, and its Targets the
// ends' rows.
type linkSampler struct {
	inner sampling.Sampler
	links *links

	ends   []uint32          // of the links, positives first
	rows   []uint32          // of ends
	nodes  []uint32          // ends, each once
	row    map[uint32]uint32 // of nodes
	hidden map[uint64]bool   // pairs of rows that positives join
}

// newSampler returns a sampler for one goroutine.
func (r *Runtime) newSampler() sampling.Sampler {
	s := r.sampler.NewSampler()
	if r.links == nil {
		return s
	}
	return &linkSampler{inner: s, links: r.links, row: map[uint32]uint32{}, hidden: map[uint64]bool{}}
}

// Sample implements sampling.Sampler.
func (s *linkSampler) Sample(b *sampling.Batch, key rng.Key, seeds []uint32) error {
	s.ends = s.ends[:0]
	for _, i := range seeds {
		if int(i) >= len(s.links.pairs) {
			return fmt.Errorf("runtime: link %d is out of range [0, %d)", i, len(s.links.pairs))
		}
		u, v := s.links.pair(i)
		s.ends = append(s.ends, u, v)
	}
	for _, i := range seeds {
		s.ends = s.links.appendNegatives(s.ends, key, i, s.links.negatives)
	}
	clear(s.row)
	s.nodes, s.rows = s.nodes[:0], s.rows[:0]
	for _, v := range s.ends {
		row, ok := s.row[v]
		if !ok {
			row = uint32(len(s.nodes))
			s.row[v] = row
			s.nodes = append(s.nodes, v)
		}
		s.rows = append(s.rows, row)
	}
	if err := s.inner.Sample(b, key, s.nodes); err != nil {
		return err
	}
	if !s.links.keep {
		clear(s.hidden)
		for i := range seeds {
			s.hidden[pairOf(s.rows[2*i], s.rows[2*i+1])] = true
		}
		for i := range b.Blocks {
			s.hide(&b.Blocks[i])
		}
	}
	b.SetTargets(s.ends, s.rows)
	return nil
}

// hide takes the entries of hidden pairs out of b, in place. The nodes that were
// sampled for are the first of every layer.
func (s *linkSampler) hide(b *graph.Block) {
	ends := uint32(len(s.nodes))
	kept, begin := int64(0), int64(0)
	for v := range uint32(b.NumDst) {
		end := b.Indptr[v+1]
		for e := begin; e < end; e++ {
			u := b.Indices[e]
			if v < ends && u < ends && s.hidden[pairOf(u, v)] {
				continue
			}
			b.Indices[kept] = u
			if b.Weights != nil {
				b.Weights[kept] = b.Weights[e]
			}
			if b.EdgeIDs != nil {
				b.EdgeIDs[kept] = b.EdgeIDs[e]
			}
			kept++
		}
		b.Indptr[v+1], begin = kept, end
	}
	b.Indices = b.Indices[:kept]
	if b.Weights != nil {
		b.Weights = b.Weights[:kept]
	}
	if b.EdgeIDs != nil {
		b.EdgeIDs = b.EdgeIDs[:kept]
	}
}
