package graph

import (
	"github.com/gnnactor/gnnactor/graph/internal/csc"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/internal/hugepages"
)

// FromEdges returns the graph of n nodes whose edge i goes from src[i] to
// dst[i] with weights[i]; weights may be nil. Rows are sorted by source;
// parallel edges stay, in input order. Ids must be below n. The arguments are
// not kept. Errors wrap ErrFormat.
func FromEdges(n int, src, dst []uint32, weights []float32) (*Graph, error) {
	if n < 0 || int64(n) > MaxNodes {
		return nil, dataerr.Bad("%d nodes is out of range [0, %d]", n, MaxNodes)
	}
	if len(src) != len(dst) {
		return nil, dataerr.Bad("%d sources for %d destinations; give one each per edge", len(src), len(dst))
	}
	if weights != nil && len(weights) != len(src) {
		return nil, dataerr.Bad("%d weights for %d edges; give one per edge, or nil", len(weights), len(src))
	}
	for i := range src {
		if int64(src[i]) >= int64(n) || int64(dst[i]) >= int64(n) {
			return nil, dataerr.Bad("edge %d: node %d is out of range [0, %d)", i, max(src[i], dst[i]), n)
		}
	}
	if i := firstNotFinite(nil, weights); i >= 0 {
		return nil, dataerr.Bad("weights[%d] = %v; weights must be finite", i, weights[i])
	}
	edges := func(yield func(src, dst []uint32) error) error { return yield(src, dst) }
	g := &Graph{Indptr: hugepages.Make[int64](n + 1)}
	var b csc.Builder
	total, err := b.Count(g.Indptr, edges)
	if err != nil {
		return nil, err
	}
	g.Indices = hugepages.Make[uint32](int(total))
	var origin []uint32
	if weights != nil {
		if int64(len(src)) >= csc.NoOrigin {
			return nil, dataerr.Bad("%d weighted edges are more than the supported %d", len(src), int64(csc.NoOrigin))
		}
		origin = make([]uint32, total)
	}
	if err := b.Place(g.Indptr, 0, n, g.Indices, origin, 0, edges); err != nil {
		return nil, err
	}
	csc.SortRows(g.Indptr, g.Indices, origin)
	if weights != nil {
		g.Weights = make([]float32, total)
		for p, i := range origin {
			g.Weights[p] = weights[i]
		}
	}
	return g, nil
}
