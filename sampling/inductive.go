package sampling

import (
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// restrict makes p see the training nodes alone, and the edges between them
// (docs/algorithms.md §5): inductive training, as Zeng et al. and Dong et al. do it.
func (p *Prepared) restrict(stop *interrupt.Poll) error {
	g := p.given.Graph
	p.visible = slices.Compact(slices.Sorted(slices.Values(p.given.Train)))
	if len(p.visible) == 0 {
		return fmt.Errorf("inductive: the data has no training nodes, and nothing else may be seen; leave the setting out")
	}
	train := make([]bool, g.NumNodes())
	for _, u := range p.visible {
		train[u] = true
	}
	seen := &graph.Graph{Indptr: make([]int64, g.NumNodes()+1)}
	var kept []int64 // edges
	for v := range g.NumNodes() {
		if stop.Ended() {
			return stop.Err()
		}
		if train[v] {
			for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
				if train[g.Indices[e]] {
					kept = append(kept, e)
				}
			}
		}
		seen.Indptr[v+1] = int64(len(kept))
	}
	seen.Indices = choose(g.Indices, kept)
	seen.Weights = choose(g.Weights, kept)
	ds := *p.given
	ds.Graph, ds.EdgeTimes = seen, choose(ds.EdgeTimes, kept)
	if f := ds.EdgeFeatures; f != nil {
		row := f.Cols * f.DType.Size()
		rows := &graph.Features{Rows: len(kept), Cols: f.Cols, DType: f.DType, Stride: row, RowScale: choose(f.RowScale, kept), ColScale: f.ColScale}
		rows.Data = make([]byte, 0, len(kept)*row)
		for _, e := range kept {
			if stop.Ended() {
				return stop.Err()
			}
			rows.Data = append(rows.Data, f.Data[int(e)*f.Stride:][:row]...)
		}
		ds.EdgeFeatures = rows
	}
	if p.times != nil {
		p.times = &Times{Node: p.times.Node, Edge: choose(p.times.Edge, kept)}
	}
	p.data, p.g = &ds, seen
	return nil
}

// numVisible returns how many nodes the sampler sees, node the i-th of them.
func (p *Prepared) numVisible() int {
	if p.visible != nil {
		return len(p.visible)
	}
	return p.g.NumNodes()
}

func (p *Prepared) node(i int) uint32 {
	if p.visible != nil {
		return p.visible[i]
	}
	return uint32(i)
}

// compact returns the graph of the visible nodes alone: its node i is node(i).
func (p *Prepared) compact() *graph.Graph {
	if p.visible == nil {
		return p.g
	}
	place := make([]uint32, p.g.NumNodes())
	c := &graph.Graph{Indptr: make([]int64, 1, len(p.visible)+1), Indices: make([]uint32, len(p.g.Indices)), Weights: p.g.Weights}
	for i, u := range p.visible {
		place[u] = uint32(i)
		c.Indptr = append(c.Indptr, p.g.Indptr[u+1])
	}
	for e, u := range p.g.Indices {
		c.Indices[e] = place[u]
	}
	return c
}

// choose returns the values at the positions; nil if there are none.
func choose[T any](values []T, positions []int64) []T {
	if values == nil {
		return nil
	}
	chosen := make([]T, len(positions))
	for i, at := range positions {
		chosen[i] = values[at]
	}
	return chosen
}
