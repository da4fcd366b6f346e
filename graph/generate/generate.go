// Package generate makes graphs to measure on: R-MAT for speed, a stochastic block
// model, whose classes can be learnt, for accuracy. The same options give the same
// bytes on any machine.
package generate

import (
	"context"
	"fmt"
	"math"
	"runtime"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/csc"
	"github.com/gnnactor/gnnactor/internal/hugepages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
)

// The streams of a generator's seed.
const (
	streamNodes uint64 = iota + 1
	streamEdges
	streamMeans
	streamFeatures
	streamLabels
	streamSplits
)

// generatedBlock is how many edges a worker generates at a time.
const generatedBlock = 1 << 15

// generatedEdges returns a stream of count edges, where edge(i) draws the i-th
// and tells whether to keep it. Edges are drawn again on every pass and by all
// cores: drawing is a pure function of i, and costs less than keeping them. The
// stream ends with the cause of ctx when that ends.
func generatedEdges(ctx context.Context, count int64, edge func(i int64) (src, dst uint32, keep bool)) csc.Edges {
	return func(yield func(src, dst []uint32) error) error {
		p := pool.New(runtime.GOMAXPROCS(0))
		defer p.Close()
		blocks := 4 * p.Size()
		src, dst := make([][]uint32, blocks), make([][]uint32, blocks)
		for b := range blocks {
			src[b], dst[b] = make([]uint32, 0, generatedBlock), make([]uint32, 0, generatedBlock)
		}
		for at := int64(0); at < count; at += int64(blocks) * generatedBlock {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			p.For(blocks, func(_, b int) {
				s, d := src[b][:0], dst[b][:0]
				from := at + int64(b)*generatedBlock
				for i := from; i < min(from+generatedBlock, count); i++ {
					if u, v, keep := edge(i); keep {
						s, d = append(s, u), append(d, v)
					}
				}
				src[b], dst[b] = s, d
			})
			for b := range blocks {
				if err := yield(src[b], dst[b]); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// symmetricGraph builds the undirected simple graph of a stream's edges.
func symmetricGraph(n int, edges csc.Edges) (*graph.Graph, error) {
	b := csc.Builder{Undirected: true}
	g := &graph.Graph{Indptr: hugepages.Make[int64](n + 1)}
	total, err := b.Count(g.Indptr, edges)
	if err != nil {
		return nil, err
	}
	g.Indices = hugepages.Make[uint32](int(total))
	if err := b.Place(g.Indptr, 0, n, g.Indices, nil, 0, edges); err != nil {
		return nil, err
	}
	csc.SortRows(g.Indptr, g.Indices, nil)
	total = csc.CompactRows(g.Indptr, 0, g.Indices, nil)
	g.Indices = g.Indices[:total:total]
	return g, nil
}

// generatedBytes returns how much memory a generated graph takes while it is made:
// its nodes' permutation, row bounds, labels and splits, every drawn edge both ways,
// and features.
func generatedBytes(nodes, edges int64, dim int) int64 {
	return nodes*(4+8+4+2*4+1) + 8*edges + 4*nodes*int64(dim)
}

// noise returns draw i of a distribution of mean 0 and variance 1 that is
// close to normal: the sum of four uniform numbers (Irwin-Hall). It is integer
// arithmetic and one rounding, so it has the same bits on every machine.
func noise(k rng.Key, i uint64) float32 {
	u := k.Uint64(i)
	sum := int32(u&0xffff) + int32(u>>16&0xffff) + int32(u>>32&0xffff) + int32(u>>48)
	const perUnit = 37837.22724                                // standard deviation of the sum, sqrt((2^32-1)/3)
	return float32(float32(sum-2*0xffff) * float32(1/perUnit)) // the conversion keeps it from being fused
}

// classFeatures returns n×dim float32 features: noise plus signal times the
// pattern of the node's class, a vector of ±1.
func classFeatures(n, dim int, class []int32, signal float64, seed uint64) *graph.Features {
	x := make([]float32, n*dim)
	means, draws := rng.New(seed, streamMeans), rng.New(seed, streamFeatures)
	s := float32(signal)
	p := pool.New(runtime.GOMAXPROCS(0))
	defer p.Close()
	const chunk = 1 << 10
	p.For((n+chunk-1)/chunk, func(_, c int) {
		for v := c * chunk; v < min((c+1)*chunk, n); v++ {
			k := draws.With(uint64(v))
			pattern := means
			if class != nil {
				pattern = means.With(uint64(class[v]))
			}
			row := x[v*dim : (v+1)*dim]
			for j := range row {
				z := noise(k, uint64(j))
				if signal == 0 {
					row[j] = z
				} else if pattern.Uint64(uint64(j))&1 == 0 {
					row[j] = z + s
				} else {
					row[j] = z - s
				}
			}
		}
	})
	return graph.NewFeatures(n, dim, x)
}

// splitNodes deals the nodes out at random: round(train·n) to the first split,
// round(valid·n) to the second, the rest to the third, each sorted.
func splitNodes(n int, train, valid float64, seed uint64) (tr, va, te []uint32) {
	p := make([]uint32, n)
	rng.New(seed, streamSplits).Perm(p)
	part := make([]uint8, n)
	a := min(int(math.Round(train*float64(n))), n)
	b := min(a+int(math.Round(valid*float64(n))), n)
	for _, v := range p[a:b] {
		part[v] = 1
	}
	for _, v := range p[b:] {
		part[v] = 2
	}
	tr, va, te = make([]uint32, 0, a), make([]uint32, 0, b-a), make([]uint32, 0, n-b)
	for v, k := range part {
		switch k {
		case 0:
			tr = append(tr, uint32(v))
		case 1:
			va = append(va, uint32(v))
		default:
			te = append(te, uint32(v))
		}
	}
	return tr, va, te
}

// checkFractions checks the shares of the training and validation splits.
func checkFractions(train, valid float64) error {
	if !(train >= 0 && valid >= 0 && train+valid <= 1) {
		return fmt.Errorf("graph: train fraction %v and valid fraction %v must be at least 0 and add up to at most 1", train, valid)
	}
	return nil
}

// intSetting is a named setting and its range.
type intSetting struct {
	name   string
	v      int64
	lo, hi int64
}

func checkInts(settings ...intSetting) error {
	for _, s := range settings {
		if s.v < s.lo || s.v > s.hi {
			return fmt.Errorf("graph: %s: %d is out of range [%d, %d]", s.name, s.v, s.lo, s.hi)
		}
	}
	return nil
}

// fingerprinted returns ds with its fingerprint, unless ctx ends first.
func fingerprinted(ctx context.Context, ds *graph.Dataset) (_ *graph.Dataset, err error) {
	if ds.Fingerprint, err = ds.ContentHash(ctx); err != nil {
		return nil, err
	}
	return ds, nil
}
