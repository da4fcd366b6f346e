package features

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// Rows of every size, dense and apart, are copied whole, and nothing beside
// them is written, past the caches or not.
func TestCopyRows(t *testing.T) {
	const n = 150
	for size := 0; size <= 300; size++ {
		k := rng.New(2, uint64(size))
		src := randomTable(n, size, graph.Uint8, false)
		for gap := 0; gap <= 32; gap += 16 {
			dst := &graph.Features{Rows: n, Cols: size, DType: graph.Uint8, Stride: size + gap, Data: make([]byte, n*(size+gap))}
			want := make([]byte, len(dst.Data))
			ids, slots := make([]uint32, n), make([]uint32, n)
			k.With(1).Perm(ids)
			k.With(2).Perm(slots)
			r := Request{IDs: ids[:100], Slots: slots[:100], Dst: dst}
			if gap == 16 {
				r.Slots = nil
			}
			for i := range r.IDs {
				copy(want[r.slot(i)*dst.Stride:], src.Data[int(r.IDs[i])*size:][:size])
			}
			for i0 := 0; i0 < len(r.IDs); i0 += rowsPerCall {
				copyRun(&r, src, i0, min(len(r.IDs), i0+rowsPerCall), size%2 == 0)
			}
			if !bytes.Equal(dst.Data, want) {
				t.Fatalf("rows of %d bytes, %d apart: wrong", size, dst.Stride)
			}
		}
	}
}

func TestCopyRowsStopsWhenCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	src := testTable(10, 10)
	l := LayoutOf(src)
	if err := copyRows(ctx, &Request{IDs: []uint32{1}, Dst: l.NewTable(1)}, src); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled copy: %v", err)
	}
}
