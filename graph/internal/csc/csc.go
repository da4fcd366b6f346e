// Package csc sorts edges into the rows of a graph in CSC form.
package csc

import (
	"math"
	"runtime"
	"slices"

	"github.com/gnnactor/gnnactor/pool"
)

// NoOrigin marks an edge that was not in the input: an added self-loop.
const NoOrigin = math.MaxUint32

// Edges yields all edges in input order, in pieces of any length, the
// same ones every time that it is called.
type Edges func(yield func(src, dst []uint32) error) error

// Builder sorts edges into rows by counting: one pass over the edges counts
// them, another puts each in its row; then rows are sorted.
type Builder struct {
	Undirected bool // add the reverse of every edge that is not a loop
	SelfLoops  bool // add a loop to every node that has none

	hasLoop []uint64 // bit per node, for SelfLoops
}

// Count fills indptr (len n+1, all 0) with the rows' bounds and returns the
// number of edges.
func (b *Builder) Count(indptr []int64, edges Edges) (int64, error) {
	n := len(indptr) - 1
	if b.SelfLoops {
		b.hasLoop = make([]uint64, (n+63)/64)
	}
	err := edges(func(src, dst []uint32) error {
		for i, d := range dst {
			s := src[i]
			indptr[d+1]++
			if s == d {
				if b.SelfLoops {
					b.hasLoop[d/64] |= 1 << (d % 64)
				}
			} else if b.Undirected {
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
		if b.SelfLoops && b.hasLoop[v/64]>>(v%64)&1 == 0 {
			indptr[v+1]++
		}
		total += indptr[v+1]
		indptr[v+1] = total
	}
	return total, nil
}

// Place puts the source of every edge of the rows [lo, hi) in its row, in input
// order, and the edge's index in origin unless that is nil. The stream starts
// with edge number first. indices and origin hold these rows only. indptr, as
// Count left it, is the same afterwards.
func (b *Builder) Place(indptr []int64, lo, hi int, indices, origin []uint32, first int64, edges Edges) error {
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
		if origin == nil && !b.Undirected {
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
			if row := s - low; b.Undirected && int(row) < len(cursor) && s != d {
				put(row, d, first+int64(i))
			}
		}
		first += int64(len(dst))
		return nil
	})
	if b.SelfLoops {
		for v := lo; v < hi; v++ {
			if b.hasLoop[v/64]>>(v%64)&1 == 0 {
				put(uint32(v-lo), uint32(v), NoOrigin)
			}
		}
	}
	// Every bound has moved to the end of its row, which is the start of the
	// next one.
	copy(indptr[lo+1:hi], indptr[lo:hi-1])
	indptr[lo] = base
	return err
}

// SortRows sorts every row by source, parallel edges in input order. indptr
// bounds the rows of indices and origin, from any base.
func SortRows(indptr []int64, indices, origin []uint32) {
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

// CompactRows drops repeated sources from sorted rows and returns how many are
// left. indptr, which may have any base, then bounds the rows from to on; its
// first entry is left alone.
func CompactRows(indptr []int64, to int64, indices, origin []uint32) int64 {
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
