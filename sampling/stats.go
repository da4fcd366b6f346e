package sampling

import (
	"slices"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// Stats sums up batches, to compare samplers by. The zero value is ready. What
// is sampled as a unit counts as a batch: a micro-batch, where batches are cut.
type Stats struct {
	Batches int
	// Layers holds the layers from the seeds outward: Layers[0] is the output
	// layer.
	Layers []LayerStats
	Inputs int64 // nodes whose features are needed
	// Degrees counts rows by their number of entries.
	Degrees []int64
	// InputDegrees counts input nodes by their in-degree in the graph.
	InputDegrees []int64
	// Match is the sum over consecutive batches of their match degree
	// |N_i ∩ N_j| / min(|N_i|, |N_j|), N the input nodes; Pairs of them were compared.
	Match float64
	Pairs int

	last, cur []uint32
}

// LayerStats sums up the blocks of one layer.
type LayerStats struct {
	Destinations int64
	Sources      int64 // distinct nodes, the destinations among them
	Edges        int64
	Rows         int64 // destinations with neighbours in the graph
	// Isolated counts those among Rows that got no entry (Dong et al., Table 5).
	Isolated int64
	// SquaredError is the sum over rows of the squared error of a node's
	// aggregate, (Σ w·x)/|S(v)| against the mean over N(v), of independent
	// signals x = ±1; ErrorRows of them were compared. For an estimator without
	// bias its mean is the variance of aggregation.
	SquaredError float64
	ErrorRows    int64
}

// add adds what o counted.
func (l *LayerStats) add(o *LayerStats) {
	l.Destinations += o.Destinations
	l.Sources += o.Sources
	l.Edges += o.Edges
	l.Rows += o.Rows
	l.Isolated += o.Isolated
	l.SquaredError += o.SquaredError
	l.ErrorRows += o.ErrorRows
}

// Total returns the sum over the layers.
func (s *Stats) Total() LayerStats {
	var t LayerStats
	for i := range s.Layers {
		t.add(&s.Layers[i])
	}
	return t
}

// Add counts b, sampled from g. Batches are to be added in order. With errors it
// measures the error of aggregation too, which reads all neighbours of every
// row.
func (s *Stats) Add(g *graph.Graph, b *Batch, errors bool) {
	s.Batches++
	s.Inputs += int64(b.NumInputs())
	for len(s.Layers) < len(b.Blocks) {
		s.Layers = append(s.Layers, LayerStats{})
	}
	for i := range b.Blocks {
		blk := &b.Blocks[i]
		l := &s.Layers[len(b.Blocks)-1-i]
		l.Destinations += int64(blk.NumDst)
		l.Sources += int64(blk.NumSrc)
		l.Edges += int64(blk.NumEdges())
		for r := range blk.NumDst {
			v := globalID(blk, uint32(r))
			n := blk.Indptr[r+1] - blk.Indptr[r]
			s.Degrees = countDegree(s.Degrees, int(n))
			if g.Degree(v) == 0 {
				continue
			}
			l.Rows++
			if n == 0 {
				l.Isolated++
			}
			if errors {
				e := aggregationError(g, blk, r, v)
				l.SquaredError += e * e
				l.ErrorRows++
			}
		}
	}
	for u := range b.NumInputs() {
		s.InputDegrees = countDegree(s.InputDegrees, g.Degree(globalID(&b.Blocks[0], uint32(u))))
	}
	s.match(b)
}

// globalID returns the graph's id of a block's node.
func globalID(blk *graph.Block, local uint32) uint32 {
	if blk.SrcIDs == nil {
		return local
	}
	return blk.SrcIDs[local]
}

// countDegree adds one to count[d].
func countDegree(count []int64, d int) []int64 {
	if len(count) <= d {
		count = append(count, make([]int64, d+1-len(count))...)
	}
	count[d]++
	return count
}

// signal is a fixed random sign per node.
func signal(u uint32) float64 { return 1 - 2*float64(rng.Key(0).Uint64(uint64(u))>>63) }

func aggregationError(g *graph.Graph, blk *graph.Block, r int, v uint32) float64 {
	got, want := 0.0, 0.0
	begin, end := blk.Indptr[r], blk.Indptr[r+1]
	for e := begin; e < end; e++ {
		x := signal(globalID(blk, blk.Indices[e]))
		if blk.Weights != nil {
			x *= float64(blk.Weights[e])
		}
		got += x
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
