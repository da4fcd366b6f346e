package features

import (
	"slices"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// A batch's rows are copied together whole, of every type, in tables of any stride,
// for batches that grow and shrink.
func TestGather(t *testing.T) {
	const n = 300
	g := Gatherer{Limit: 2600}
	each := func(chunks int, do func(worker, chunk int)) {
		var wg sync.WaitGroup
		for c := range chunks {
			wg.Go(func() { do(c, c) })
		}
		wg.Wait()
	}
	for _, dtype := range []graph.DType{graph.Float32, graph.Float16, graph.BFloat16, graph.Int8} {
		for _, cols := range []int{1, 7, 32, 33} {
			for _, scaled := range []bool{false, true} {
				f := randomTable(n, cols, dtype, scaled && dtype == graph.Int8)
				for _, rows := range []int{0, 1, 2500, 13, 1024} {
					ids := make([]uint32, rows)
					for i := range ids {
						ids[i] = uint32(i*i*7) % n
					}
					out := g.Gather(f, ids, each)
					if out.Rows != rows || out.Cols != cols || len(out.Data) > g.Limit*out.Stride {
						t.Fatalf("%d rows of %d columns in %d bytes, want %d of %d in at most %d", out.Rows, out.Cols, len(out.Data), rows, cols, g.Limit*out.Stride)
					}
					got, want := make([]float32, cols), make([]float32, cols)
					for i, u := range ids {
						out.Row(got, i)
						f.Row(want, int(u))
						if !slices.Equal(got, want) {
							t.Fatalf("%v, %d columns: row %d is %v, want %v", dtype, cols, i, got, want)
						}
					}
				}
			}
		}
	}
}

// A batch that is a little larger than the one before needs no new memory, unless
// there can be no such batch.
func TestGatherKeepsRoom(t *testing.T) {
	f := randomTable(300, 4, graph.Float32, false)
	each := func(chunks int, do func(worker, chunk int)) {
		for c := range chunks {
			do(0, c)
		}
	}
	for limit, room := range map[int]int{0: 125, 100: 100, 110: 110, 1000: 125} {
		g := Gatherer{Limit: limit}
		first := &g.Gather(f, make([]uint32, 100), each).Data[0]
		if rows := len(g.table.Data) / g.table.Stride; rows != room {
			t.Errorf("limit %d: room for %d rows after a batch of 100, want %d", limit, rows, room)
		}
		if again := &g.Gather(f, make([]uint32, room), each).Data[0]; again != first || g.Rows() != room {
			t.Errorf("limit %d: a batch of %d rows was given new memory, or has %d", limit, room, g.Rows())
		}
	}
}
