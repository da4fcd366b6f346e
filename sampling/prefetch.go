package sampling

import (
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
)

// prefetchRows asks for the row pointers of nodes.
func prefetchRows(indptr []int64, nodes []uint32) {
	if len(nodes) > 0 {
		prefetch8(&indptr[0], &nodes[0], len(nodes))
	}
}

// prefetchRow asks for the row pointers of one node.
func prefetchRow(g *graph.Graph, u uint32) { prefetch8(&g.Indptr[0], &u, 1) }

// prefetchRow4 asks for the lines of n > 0 values of 4 bytes from position begin of base on.
func prefetchRow4(base *uint32, begin int64, n int) {
	prefetchLines((*uint32)(unsafe.Add(unsafe.Pointer(base), 4*begin)), n)
}

// prefetchStart asks for the beginning of a node's row.
func prefetchStart(g *graph.Graph, v uint32) {
	if d := g.Degree(v); d > 0 {
		prefetchRow4(unsafe.SliceData(g.Indices), g.Indptr[v], min(d, 16*scanLines))
	}
}

// prefetchIndices asks for the entries at pos.
func prefetchIndices(indices []uint32, pos []int64) {
	if len(pos) > 0 {
		prefetch4(&indices[0], &pos[0], len(pos))
	}
}

// prefetchSlots asks for the slots where the search for ids begins.
func prefetchSlots(m *idMap, ids []uint32) {
	if len(ids) > 0 {
		prefetchHash(&m.slots[0], &ids[0], len(ids), m.shift)
	}
}

// prefetchSlotIndices asks for the slots themselves.
func prefetchSlotIndices(slots []uint64, indices []uint32) {
	prefetch8((*int64)(unsafe.Pointer(&slots[0])), &indices[0], len(indices))
}

// prefetchCached asks for cached neighbours at positions counted in 4 bytes. The
// last of them may lie just past the end.
func prefetchCached(rows []CachedNeighbor, at []int64) {
	if len(at) > 0 {
		prefetch4(&rows[0].Entry, &at[0], len(at))
	}
}
