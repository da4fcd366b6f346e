package graph

import (
	"math"
	"runtime"
	"slices"

	"github.com/gnnactor/gnnactor/internal/pool"
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
	if err := b.place(g.Indptr, g.Indices, origin, edges); err != nil {
		return nil, err
	}
	b.sortRows(g.Indptr, g.Indices, origin)
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
// them, a second puts each in its row; then rows are sorted.
type cscBuilder struct {
	undirected bool // add the reverse of every edge that is not a loop
	selfLoops  bool // add a loop to every node that has none
	dedup      bool // keep the first of parallel edges

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

// place puts every edge's source in its row, in input order, and the edge's
// index in origin unless that is nil.
func (b *cscBuilder) place(indptr []int64, indices, origin []uint32, edges edgeStream) error {
	n := len(indptr) - 1
	next := int64(0) // index of the edge
	put := func(row, source uint32, edge uint32) {
		p := indptr[row]
		indptr[row] = p + 1
		indices[p] = source
		if origin != nil {
			origin[p] = edge
		}
	}
	err := edges(func(src, dst []uint32) error {
		if origin == nil && !b.undirected {
			for i, d := range dst {
				p := indptr[d]
				indptr[d] = p + 1
				indices[p] = src[i]
			}
			return nil
		}
		for i, d := range dst {
			s := src[i]
			put(d, s, uint32(next))
			if b.undirected && s != d {
				put(s, d, uint32(next))
			}
			next++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if b.selfLoops {
		for v := range n {
			if b.hasLoop[v/64]>>(v%64)&1 == 0 {
				put(uint32(v), uint32(v), noOrigin)
			}
		}
	}
	// Every bound has moved to the end of its row, which is the start of the
	// next one.
	copy(indptr[1:], indptr[:n])
	indptr[0] = 0
	return nil
}

// sortRows sorts every row by source, parallel edges in input order, drops
// duplicates if asked to, and returns the number of edges left.
func (b *cscBuilder) sortRows(indptr []int64, indices, origin []uint32) int64 {
	n := len(indptr) - 1
	const chunk = 1 << 13
	p := pool.New(runtime.GOMAXPROCS(0))
	defer p.Close()
	keys := make([][]uint64, p.Size())
	p.For((n+chunk-1)/chunk, func(worker, c int) {
		for v := c * chunk; v < min((c+1)*chunk, n); v++ {
			row := indices[indptr[v]:indptr[v+1]]
			if origin == nil {
				if !slices.IsSorted(row) {
					slices.Sort(row)
				}
				continue
			}
			from := origin[indptr[v]:indptr[v+1]]
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
	if !b.dedup {
		return indptr[n]
	}
	return compactRows(indptr, indices, origin)
}

// compactRows drops repeated sources from sorted rows.
func compactRows(indptr []int64, indices, origin []uint32) int64 {
	w, start := int64(0), int64(0)
	for v := range len(indptr) - 1 {
		end := indptr[v+1]
		for p := start; p < end; p++ {
			if p > start && indices[p] == indices[p-1] {
				continue
			}
			if w != p {
				// Position p-1 is read by the next turn, so writing must
				// stay behind it: w < p here.
				indices[w] = indices[p]
				if origin != nil {
					origin[w] = origin[p]
				}
			}
			w++
		}
		start = end
		indptr[v+1] = w
	}
	return w
}
