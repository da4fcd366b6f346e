package links

import (
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// Samplers are the names of the samplers that can sample around the ends of links:
// they begin with the seeds, and the entries of their blocks, which they own, are
// edges.
func Samplers() []string { return []string{"neighbor", "labor", "khop"} }

// sampler makes batches of links: its seeds are numbers of links. It adds
// negatives, has the ends sampled, each once, and takes the edges of the batch's
// own links out of the blocks, or the model would be shown what it is asked for.
type sampler struct {
	inner     sampling.Sampler
	links     *Links
	negatives int
	keep      bool

	ends   []uint32          // of the links, positives first
	rows   []uint32          // of ends
	nodes  []uint32          // ends, each once
	row    map[uint32]uint32 // of nodes
	hidden map[uint64]bool   // pairs of rows that positives join
}

// NewSampler returns a sampler whose seeds are numbers of links. It draws so many
// negatives for each, has inner, one of Samplers, sample around the ends of all, and
// takes the entries that are the batch's own links out of the blocks, unless keep is
// set. A batch's Seeds are then the ends of its links, two each, positives first, and
// its Targets the ends' rows; Positive tells which are links.
func (l *Links) NewSampler(inner sampling.Sampler, negatives int, keep bool) sampling.Sampler {
	return &sampler{inner: inner, links: l, negatives: negatives, keep: keep, row: map[uint32]uint32{}, hidden: map[uint64]bool{}}
}

// Sample implements sampling.Sampler.
func (s *sampler) Sample(b *sampling.Batch, key rng.Key, seeds []uint32) error {
	s.ends = s.ends[:0]
	for _, i := range seeds {
		if int(i) >= s.links.Len() {
			return fmt.Errorf("links: link %d is out of range [0, %d)", i, s.links.Len())
		}
		u, v := s.links.Ends(i)
		s.ends = append(s.ends, u, v)
	}
	for _, i := range seeds {
		s.ends = s.links.AppendNegatives(s.ends, key, i, s.negatives)
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
	if !s.keep {
		clear(s.hidden)
		for i := range seeds {
			s.hidden[pairOf(s.rows[2*i], s.rows[2*i+1])] = true
		}
		for i := range b.Blocks {
			s.hide(&b.Blocks[i])
		}
		b.There = nil
	}
	b.SetTargets(s.ends, s.rows)
	b.SetPositive(2 * len(seeds))
	return nil
}

// hide takes the entries of hidden pairs out of b, in place. The nodes that were
// sampled for are the first of every layer.
func (s *sampler) hide(b *graph.Block) {
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
