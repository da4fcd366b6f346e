//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"math/bits"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// sort is the kernels' Sort.
type sort struct {
	keys, entries             uintptr
	sortedKeys, sortedEntries uintptr
	counts                    uintptr
	items                     int64
	shift, blocks             int32
}

// transposedBlock is the kernels' Transpose.
type transposedBlock struct {
	forward, keys, entries uintptr
	indptr, dst            uintptr
	items                  int64
	rows, columns          int32
}

// What sort_count has: items of a thread block, and values of a digit.
const (
	sortItems = 2048
	digits    = 256
	digitBits = 8
)

// until hands out n elements of device memory until Reset.
func until[E any](q *Queue, n int) []E {
	var e E
	return unsafe.Slice((*E)(pointer(q.arena.alloc(q, max(n, 1)*int(unsafe.Sizeof(e))))), n)
}

// Transpose is cpu's, in the device's memory until Reset.
func (q *Queue) Transpose(t *cpu.Transpose, b *graph.Block) {
	n := len(b.Indices)
	t.Indptr, t.Dst, t.Entry = until[int64](q, b.NumSrc+1), until[uint32](q, n), until[uint32](q, n)
	groups := ceilDiv(n, sortItems)
	passes := max(1, ceilDiv(bits.Len(uint(max(b.NumSrc-1, 0))), digitBits))
	// Two arrays of keys and one of entries, which go over by turns, and counts.
	room := q.scratch(4 * (3*n + digits*groups))
	keys := [2]uintptr{room, room + uintptr(4*n)}
	entries := [2]uintptr{room + uintptr(8*n), of(q, t.Entry)}
	p := sort{keys: of(q, b.Indices), counts: room + uintptr(12*n), items: int64(n), blocks: int32(groups)}
	for pass := range passes {
		if n == 0 {
			break
		}
		to := (passes - 1 - pass) % 2 // the last pass writes to t.Entry
		p.shift, p.sortedKeys, p.sortedEntries = int32(pass*digitBits), keys[to], entries[1-to]
		q.run("sort_count", groups, 1, threads, words(&p))
		q.run("sort_scan", 1, 1, threads, words(&p))
		q.run("sort_place", groups, 1, threads, words(&p))
		p.keys, p.entries = p.sortedKeys, p.sortedEntries
	}
	r := transposedBlock{
		forward: of(q, b.Indptr), keys: p.keys, entries: of(q, t.Entry), indptr: of(q, t.Indptr), dst: of(q, t.Dst),
		items: int64(n), rows: int32(b.NumDst), columns: int32(b.NumSrc),
	}
	q.run("transpose_rows", blocks(max(n, b.NumSrc+1)), 1, threads, words(&r))
}
