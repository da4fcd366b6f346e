package sampling

import (
	"slices"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/rng"
)

// Stats sums up batches, to compare samplers by. The zero value is ready.
type Stats struct {
	Batches int
	Edges   int64 // entries of all blocks
	Inputs  int64 // nodes whose features are needed
	Rows    int64 // destinations, of all blocks, with neighbours in the graph
	// Isolated counts those among Rows that got no entry (seeds/002, Table 5).
	Isolated int64
	// Degrees counts rows by their number of entries; the last place holds all
	// longer ones too.
	Degrees [65]int64
	// Match is the sum over consecutive batches of their match degree
	// |N_i ∩ N_j| / min(|N_i|, |N_j|), N the input nodes; Pairs of them were compared.
	Match float64
	Pairs int
	// SquaredError is the sum over rows of the squared error of a node's
	// aggregate, (Σ w·x)/|S(v)| against the mean over N(v), of independent
	// signals x = ±1; ErrorRows of them were compared.
	SquaredError float64
	ErrorRows    int64

	last, cur []uint32
}

// Add counts b, sampled from g. Batches are to be added in order. With errors it
// measures the error of aggregation too, which reads all neighbours of every
// row.
func (s *Stats) Add(g *graph.Graph, b *Batch, errors bool) {
	s.Batches++
	s.Inputs += int64(b.NumInputs())
	for i := range b.Blocks {
		blk := &b.Blocks[i]
		s.Edges += int64(blk.NumEdges())
		for r := range blk.NumDst {
			v := uint32(r)
			if blk.SrcIDs != nil {
				v = blk.SrcIDs[r]
			}
			n := blk.Indptr[r+1] - blk.Indptr[r]
			s.Degrees[min(n, int64(len(s.Degrees)-1))]++
			if g.Degree(v) == 0 {
				continue
			}
			s.Rows++
			if n == 0 {
				s.Isolated++
			}
			if errors {
				e := aggregationError(g, blk, r, v)
				s.SquaredError += e * e
				s.ErrorRows++
			}
		}
	}
	s.match(b)
}

// signal is a fixed random sign per node.
func signal(u uint32) float64 { return 1 - 2*float64(rng.Key(0).Uint64(uint64(u))>>63) }

func aggregationError(g *graph.Graph, blk *graph.Block, r int, v uint32) float64 {
	got, want := 0.0, 0.0
	begin, end := blk.Indptr[r], blk.Indptr[r+1]
	for e := begin; e < end; e++ {
		u := blk.Indices[e]
		if blk.SrcIDs != nil {
			u = blk.SrcIDs[u]
		}
		if blk.Weights != nil {
			got += float64(blk.Weights[e]) * signal(u)
		} else {
			got += signal(u)
		}
	}
	for _, u := range g.InNeighbors(v) {
		want += signal(u)
	}
	return got/float64(max(1, end-begin)) - want/float64(g.Degree(v))
}

// match compares b's input nodes with those of the batch before.
func (s *Stats) match(b *Batch) {
	s.last, s.cur = s.cur, s.last[:0]
	if b.Inputs() == nil { // every node
		for u := range b.NumInputs() {
			s.cur = append(s.cur, uint32(u))
		}
	} else {
		s.cur = append(s.cur, b.Inputs()...)
		slices.Sort(s.cur)
	}
	if s.Batches == 1 || len(s.cur) == 0 || len(s.last) == 0 {
		return
	}
	common := 0
	for i, j := 0, 0; i < len(s.cur) && j < len(s.last); {
		switch x, y := s.cur[i], s.last[j]; {
		case x < y:
			i++
		case x > y:
			j++
		default:
			common++
			i++
			j++
		}
	}
	s.Match += float64(common) / float64(min(len(s.cur), len(s.last)))
	s.Pairs++
}
