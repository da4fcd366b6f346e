package graph

import (
	"math"
	"runtime"
	"slices"

	"github.com/gnnactor/gnnactor/pool"
)

// FromEdges returns the graph of n nodes whose edge i goes from src[i] to
// dst[i] with weights[i]; weights may be nil. Rows are sorted by source;
// parallel edges stay, in input order. Ids must be below n. The arguments are
// not kept. Errors wrap ErrFormat.
func FromEdges(n int, src, dst []uint32, weights []float32) (*Graph, error) {
	if n < 0 || int64(n) > maxNodes {
		return nil, badData("%d nodes is out of range [0, %d]", n, maxNodes)
	}
	if len(src) != len(dst) {
		return nil, badData("%d sources for %d destinations; give one each per edge", len(src), len(dst))
	}
	if weights != nil && len(weights) != len(src) {
		return nil, badData("%d weights for %d edges; give one per edge, or nil", len(weights), len(src))
	}
	for i := range src {
		if int64(src[i]) >= int64(n) || int64(dst[i]) >= int64(n) {
			return nil, badData("edge %d: node %d is out of range [0, %d)", i, max(src[i], dst[i]), n)
		}
	}
	if i := firstNotFinite(weights); i >= 0 {
		return nil, badData("weights[%d] = %v; weights must be finite", i, weights[i])
	}
	edges := func(yield func(src, dst []uint32) error) error { return yield(src, dst) }
	g := &Graph{Indptr: make([]int64, n+1)}
	var b cscBuilder
	total, err := b.count(g.Indptr, edges)
	if err != nil {
		return nil, err
	}
	g.Indices = make([]uint32, total)
	var origin []uint32
	if weights != nil {
		if int64(len(src)) >= noOrigin {
			return nil, badData("%d weighted edges are more than the supported %d", len(src), int64(noOrigin))
		}
		origin = make([]uint32, total)
	}
	if err := b.place(g.Indptr, 0, n, g.Indices, origin, 0, edges); err != nil {
		return nil, err
	}
	sortRows(g.Indptr, g.Indices, origin)
	if weights != nil {
		g.Weights = make([]float32, total)
		for p, i := range origin {
			g.Weights[p] = weights[i]
		}
	}
	return g, nil
}

// noOrigin marks an edge that was not in the input: an added self-loop.
const noOrigin = math.MaxUint32

// edgeStream yields all edges in input order, in pieces of any length, the
// same ones every time that it is called.
type edgeStream func(yield func(src, dst []uint32) error) error

// cscBuilder sorts edges into rows by counting: one pass over the edges counts
// them, another puts each in its row; then rows are sorted.
type cscBuilder struct {
	undirected bool // add the reverse of every edge that is not a loop
	selfLoops  bool // add a loop to every node that has none

	hasLoop []uint64 // bit per node, for selfLoops
}

// count fills indptr (len n+1, all 0) with the rows' bounds and returns the
// number of edges.
func (b *cscBuilder) count(indptr []int64, edges edgeStream) (int64, error) {
	n := len(indptr) - 1
	if b.selfLoops {
		b.hasLoop = make([]uint64, (n+63)/64)
	}
	err := edges(func(src, dst []uint32) error {
		for i, d := range dst {
			s := src[i]
			indptr[d+1]++
			if s == d {
				if b.selfLoops {
					b.hasLoop[d/64] |= 1 << (d % 64)
				}
			} else if b.undirected {
				indptr[s+1]++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for v := range n {
		if b.selfLoops && b.hasLoop[v/64]>>(v%64)&1 == 0 {
			indptr[v+1]++
		}
		total += indptr[v+1]
		indptr[v+1] = total
	}
	return total, nil
}

// place puts the source of every edge of the rows [lo, hi) in its row, in input
// order, and the edge's index in origin unless that is nil. The stream starts
// with edge number first. indices and origin hold these rows only. indptr, as
// count left it, is the same afterwards.
func (b *cscBuilder) place(indptr []int64, lo, hi int, indices, origin []uint32, first int64, edges edgeStream) error {
	if lo == hi {
		return nil
	}
	base := indptr[lo]
	cursor := indptr[lo:hi]
	low := uint32(lo)
	put := func(row, source uint32, edge int64) {
		p := cursor[row] - base
		cursor[row]++
		indices[p] = source
		if origin != nil {
			origin[p] = uint32(edge)
		}
	}
	err := edges(func(src, dst []uint32) error {
		src = src[:len(dst)]
		if origin == nil && !b.undirected {
			for i, d := range dst {
				if row := d - low; int(row) < len(cursor) {
					indices[cursor[row]-base] = src[i]
					cursor[row]++
				}
			}
			return nil
		}
		for i, d := range dst {
			s := src[i]
			if row := d - low; int(row) < len(cursor) {
				put(row, s, first+int64(i))
			}
			if row := s - low; b.undirected && int(row) < len(cursor) && s != d {
				put(row, d, first+int64(i))
			}
		}
		first += int64(len(dst))
		return nil
	})
	if b.selfLoops {
		for v := lo; v < hi; v++ {
			if b.hasLoop[v/64]>>(v%64)&1 == 0 {
				put(uint32(v-lo), uint32(v), noOrigin)
			}
		}
	}
	// Every bound has moved to the end of its row, which is the start of the
	// next one.
	copy(indptr[lo+1:hi], indptr[lo:hi-1])
	indptr[lo] = base
	return err
}

// sortRows sorts every row by source, parallel edges in input order. indptr
// bounds the rows of indices and origin, from any base.
func sortRows(indptr []int64, indices, origin []uint32) {
	n := len(indptr) - 1
	base := indptr[0]
	const chunk = 1 << 13
	p := pool.New(runtime.GOMAXPROCS(0))
	defer p.Close()
	keys := make([][]uint64, p.Size())
	p.For((n+chunk-1)/chunk, func(worker, c int) {
		for v := c * chunk; v < min((c+1)*chunk, n); v++ {
			row := indices[indptr[v]-base : indptr[v+1]-base]
			if origin == nil {
				if !slices.IsSorted(row) {
					slices.Sort(row)
				}
				continue
			}
			from := origin[indptr[v]-base : indptr[v+1]-base]
			k := keys[worker][:0]
			for i, u := range row {
				k = append(k, uint64(u)<<32|uint64(from[i]))
			}
			slices.Sort(k)
			for i, x := range k {
				row[i], from[i] = uint32(x>>32), uint32(x)
			}
			keys[worker] = k
		}
	})
}

// compactRows drops repeated sources from sorted rows and returns how many are
// left. indptr, which may have any base, then bounds the rows from to on; its
// first entry is left alone.
func compactRows(indptr []int64, to int64, indices, origin []uint32) int64 {
	w, start, base := int64(0), int64(0), indptr[0]
	for v := range len(indptr) - 1 {
		end := indptr[v+1] - base
		for p := start; p < end; p++ {
			// What is at p-1 is still what was there: writing has not passed it.
			if p > start && indices[p] == indices[p-1] {
				continue
			}
			indices[w] = indices[p]
			if origin != nil {
				origin[w] = origin[p]
			}
			w++
		}
		start = end
		indptr[v+1] = to + w
	}
	return w
}
