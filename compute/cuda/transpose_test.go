//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/graph"
)

// A transpose that is made on the device is the host's, number for number: of sources that fit one digit of the
// sort, two and three, of more entries than a thread block has, with sources and rows of very many and of none.
func TestTranspose(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		sources int
		counts  []int
	}{
		{1, []int{1}}, {1, []int{0}}, {5, nil}, {3, []int{0, 2, 0}}, {256, []int{3, 2100, 0, 1, 100}}, {257, []int{70, 0, 300}},
		{70_000, []int{600, 1, 0, 9}}, {66, slices.Repeat([]int{33}, 64)},
	} {
		g := b.block(c.sources, c.counts...)
		if len(c.counts) == 64 { // one source has an entry in every row, and a warp's in one digit
			for e := range g.Indices {
				g.Indices[e] = uint32(e / 500 % 2 * 65)
			}
		}
		var want, got cpu.Transpose
		want.Build(b.host, g)
		for _, where := range []string{"host", "device"} {
			if where == "device" && len(g.Indices) > 600 {
				continue
			}
			b.renew()
			from := *g
			if where == "device" {
				from.Indptr, from.Indices = cuda.Alloc[int64](b.q, len(g.Indptr)), cuda.Alloc[uint32](b.q, max(1, len(g.Indices)))[:len(g.Indices)]
				cuda.Upload(b.q, from.Indptr, g.Indptr)
				cuda.Upload(b.q, from.Indices, g.Indices)
			}
			cpu.BuildTranspose[float32](b.x, &got, &from)
			indptr, dst, entry := make([]int64, len(got.Indptr)), make([]uint32, len(got.Dst)), make([]uint32, len(got.Entry))
			cuda.Download(b.q, indptr, got.Indptr)
			cuda.Download(b.q, dst, got.Dst)
			cuda.Download(b.q, entry, got.Entry)
			what := fmt.Sprintf("%d sources, %d rows, %d entries, block on the %s", c.sources, len(c.counts), len(g.Indices), where)
			if !slices.Equal(indptr, want.Indptr) || got.NumSrc != want.NumSrc || got.NumDst != want.NumDst {
				t.Fatalf("%s: other row pointers", what)
			}
			if !slices.Equal(dst, want.Dst) || !slices.Equal(entry, want.Entry) {
				t.Fatalf("%s: other entries", what)
			}
			if where == "device" {
				cuda.Free(b.q, from.Indptr)
				if len(g.Indices) > 0 {
					cuda.Free(b.q, from.Indices)
				}
			}
		}
	}
	// What it lies in is the next batch's memory.
	small := &graph.Block{NumDst: 1, NumSrc: 2, Indptr: []int64{0, 2}, Indices: []uint32{1, 0}}
	var tr cpu.Transpose
	b.q.Reset()
	b.q.Transpose(&tr, small)
	before := &tr.Entry[0]
	b.q.Reset()
	if b.q.Transpose(&tr, small); &tr.Entry[0] != before {
		t.Error("memory of a transpose is not used again")
	}
}
