package sampling

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/gnnactor/gnnactor/graph/store"
)

// BenchmarkGNSNormalization measures what each normalisation of GNS's weights gives, on
// the store that GNNACTOR_BENCH_DATA names: over many caches, for nodes of more
// neighbours than the fan-out, the bias and the standard deviation of the estimated mean
// over the neighbours of a value that follows popularity, 1 + log(1 + out-degree), as
// shares of the mean itself; their root mean squares over the nodes.
func BenchmarkGNSNormalization(b *testing.B) {
	dir := os.Getenv("GNNACTOR_BENCH_DATA")
	if dir == "" {
		b.Skip("set GNNACTOR_BENCH_DATA to a store")
	}
	store, err := store.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	g := store.Dataset().Graph
	value := make([]float64, g.NumNodes())
	for _, u := range g.Indices {
		value[u]++
	}
	for u, d := range value {
		value[u] = 1 + math.Log1p(d)
	}
	const fanout, most, caches = 5, 300, 200
	var nodes []uint32
	for _, v := range Order(allNodes(g), 1, 0) {
		if g.Degree(v) > fanout && len(nodes) < most {
			nodes = append(nodes, v)
		}
	}
	for _, only := range []bool{false, true} {
		for _, cached := range []float64{0.01, 0.1} {
			for _, by := range []string{"sum", "degree"} {
				b.Run(fmt.Sprintf("only=%v/cached=%v/%s", only, cached, by), func(b *testing.B) {
					p := mustPrepare(b, Spec{Name: "gns", Fanouts: []int{fanout}, CacheFraction: cached, CacheOnly: only, Normalize: by}, g)
					s, batch := p.NewSampler(), new(Batch)
					var bias, deviation float64
					for b.Loop() {
						sum, squares := make([]float64, len(nodes)), make([]float64, len(nodes))
						for i := range caches {
							batch.ID = ID{Phase: "bias", Epoch: i}
							if err := s.Sample(batch, batch.ID.Key(1), nodes); err != nil {
								b.Fatal(err)
							}
							blk := &batch.Blocks[0]
							for r := range nodes {
								x := 0.0
								begin, end := blk.Indptr[r], blk.Indptr[r+1]
								for e := begin; e < end; e++ {
									x += float64(blk.Weights[e]) * value[blk.SrcIDs[blk.Indices[e]]] / float64(end-begin)
								}
								sum[r], squares[r] = sum[r]+x, squares[r]+x*x
							}
						}
						bias, deviation = 0, 0
						for r, v := range nodes {
							want := 0.0
							for _, u := range g.InNeighbors(v) {
								want += value[u] / float64(g.Degree(v))
							}
							mean := sum[r] / caches
							variance := max(squares[r]/caches-mean*mean, 0)
							// Of the squared error of the mean, the part that is chance is taken away.
							bias += ((mean-want)*(mean-want) - variance/caches) / (want * want)
							deviation += variance / (want * want)
						}
					}
					b.ReportMetric(100*math.Sqrt(max(bias, 0)/float64(len(nodes))), "bias-%")
					b.ReportMetric(100*math.Sqrt(deviation/float64(len(nodes))), "deviation-%")
				})
			}
		}
	}
}
