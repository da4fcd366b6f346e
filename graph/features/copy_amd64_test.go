package features

import (
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// The kernels, which look at no bounds, are not let at a table that is shorter than
// it says.
func TestCopyFastNeedsWholeTables(t *testing.T) {
	const rows, size, gap = 5, 64, 16
	table := func(length int) *graph.Features {
		return &graph.Features{Rows: rows, Cols: size, DType: graph.Uint8, Stride: size + gap, Data: make([]byte, length)}
	}
	const whole = (rows-1)*(size+gap) + size
	for _, c := range []struct {
		src, dst int
		want     bool
	}{{whole, whole, haveAVX2}, {whole - 1, whole, false}, {whole, whole - 1, false}, {size, whole, false}, {whole, size, false}} {
		r := Request{IDs: []uint32{0}, Dst: table(c.dst)}
		if got := copyFast(&r, table(c.src), 0, 1, size, false); got != c.want {
			t.Errorf("tables of %d and %d bytes of %d: copied by the kernel %v, want %v", c.src, c.dst, whole, got, c.want)
		}
	}
}
