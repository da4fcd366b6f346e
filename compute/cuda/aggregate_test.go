//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/graph"
)

type f32 = cpu.Matrix[float32]

// block returns a block whose rows have the given numbers of entries.
func (b *bench) block(src int, counts ...int) *graph.Block {
	g := &graph.Block{NumDst: len(counts), NumSrc: max(src, len(counts)), Indptr: make([]int64, len(counts)+1)}
	for i, n := range counts {
		for range n {
			g.Indices = append(g.Indices, uint32(b.r.IntN(g.NumSrc)))
		}
		g.Indptr[i+1] = int64(len(g.Indices))
	}
	return g
}

// blocks are odd ones: one node without entries or with some, empty rows, rows around
// the length from which on a thread block makes one, and long ones next to each other.
func (b *bench) blocks() map[string]*graph.Block {
	some := make([]int, 37)
	for i := range some {
		some[i] = b.r.IntN(20)
	}
	return map[string]*graph.Block{
		"one node":        b.block(1, 0),
		"one row":         b.block(3, 5),
		"empty rows":      b.block(9, 0, 3, 0, 0, 33, 0, 1, 0, 0, 2, 0),
		"short rows":      b.block(60, some...),
		"long rows":       b.block(50, 255, 256, 257, 0, 700, 513, 3, 300, 1000),
		"one of a stream": b.block(8, 64, 32, 31, 65, 96, 1, 2, 4),
	}
}

// renew gives the device memory back that was used so far.
func (b *bench) renew() {
	b.q.Reset()
	for _, m := range b.made {
		cuda.Free(b.q, m)
	}
	b.made = b.made[:0]
}

func (b *bench) floats(n int) []float32 { return b.random(1, max(n, 1), 0).Data[:n] }

// twin is kernels/rows.h in plain Go: it adds to row i of dst the terms c·v of its
// entries, in their order or, if there are more than 256, in eight parts, which have
// chunks of entries by turns.
func twin(dst f32, indptr []int64, chunk int64, term func(i int, e int64, j int) (c, v float32)) {
	for i := range dst.Rows {
		begin, end := indptr[i], indptr[i+1]
		for j := range dst.Row(i) {
			parts := [8]float32{dst.Row(i)[j]}
			for e := begin; e < end; e++ {
				w := int64(0)
				if end-begin > 256 {
					w = (e - begin) / chunk % 8
				}
				c, v := term(i, e, j)
				parts[w] += float32(c * v)
			}
			sum := parts[0]
			if end-begin > 256 {
				for _, p := range parts[1:] {
					sum += p
				}
			}
			dst.Row(i)[j] = sum
		}
	}
}

func longest(indptr []int64) (n int64) {
	for i := range len(indptr) - 1 {
		n = max(n, indptr[i+1]-indptr[i])
	}
	return n
}

// rowsOf returns the rows of s, as numbers.
func rowsOf(s cpu.Source[float32]) f32 {
	if s.Table == nil {
		return s.Dense
	}
	n := s.Table.Rows
	if s.IDs != nil {
		n = len(s.IDs)
	}
	rows := cpu.NewMatrix[float32](n, s.Table.Cols)
	for i := range n {
		id := i
		if s.IDs != nil {
			id = int(s.IDs[i])
		}
		s.Table.Row(rows.Row(i), id)
	}
	return rows
}

// aggregate checks Aggregate and, for dense sources, AggregateBackward with o: to the
// bit against the processor where no row is long, and against the twin elsewhere.
func (b *bench) aggregate(what string, g *graph.Block, src, onDevice cpu.Source[float32], o cpu.AggregateOptions[float32]) {
	b.t.Helper()
	cols := src.Cols()
	gap := b.r.IntN(2) * (4 - cols%4)
	dst, want := b.random(g.NumDst, cols, gap), f32{}
	d := b.device(dst)
	want = clone(dst)
	deviceOptions := o
	if o.Reduce == cpu.Max {
		o.Argmax = make([]uint32, g.NumDst*cols)
		deviceOptions.Argmax = cuda.Alloc[uint32](b.q, len(o.Argmax))
		defer cuda.Free(b.q, deviceOptions.Argmax)
	}
	cpu.Aggregate(b.x, d, g, onDevice, deviceOptions)
	cpu.Aggregate(b.host, want, g, src, o)
	if o.Reduce == cpu.Max {
		got := make([]uint32, len(o.Argmax))
		cuda.Download(b.q, got, deviceOptions.Argmax)
		for i := range got {
			if got[i] != o.Argmax[i] {
				b.t.Fatalf("%s: the largest of row %d, column %d, is of entry %d, not %d", what, i/cols, i%cols, got[i], o.Argmax[i])
			}
		}
	} else if longest(g.Indptr) > 256 {
		if src.Table == nil { // whose values are any, also infinite
			b.same(what+", nearly", d, want, 2e-4)
		}
		cpu.Fill(b.host, want, 0)
		from := rowsOf(src)
		twin(want, g.Indptr, 32, func(i int, e int64, j int) (float32, float32) {
			c := float32(1)
			if o.Weights != nil {
				c = o.Weights[e]
			}
			return c, from.Row(int(g.Indices[e]))[j]
		})
		for i := range want.Rows {
			for j := range want.Row(i) {
				v := &want.Row(i)[j]
				if n := g.Indptr[i+1] - g.Indptr[i]; o.Reduce == cpu.Mean && n > 0 {
					*v *= 1 / float32(n)
				}
				if o.Self != nil {
					*v += float32(o.Self[i] * from.Row(i)[j])
				}
			}
		}
	}
	b.same(what, d, want, 0)
	if src.Table == nil {
		for _, accumulate := range []bool{false, true} {
			o.Accumulate, deviceOptions.Accumulate = accumulate, accumulate
			b.backward(fmt.Sprint(what, ", backward, accumulate ", accumulate), g, cols, o, deviceOptions)
		}
	}
}

func (b *bench) backward(what string, g *graph.Block, cols int, o, deviceOptions cpu.AggregateOptions[float32]) {
	b.t.Helper()
	var t cpu.Transpose
	t.Build(b.host, g)
	dy, dx := b.random(g.NumDst, cols, 1), b.random(g.NumSrc, cols, 2)
	dy.Data[b.r.IntN(len(dy.Data))] = float32(math.NaN())
	d, want := b.device(dx), clone(dx)
	cpu.AggregateBackward(b.x, d, &t, b.device(dy), deviceOptions)
	cpu.AggregateBackward(b.host, want, &t, dy, o)
	if longest(t.Indptr) > 256 {
		b.same(what+", nearly", d, want, 2e-4)
		if o.Reduce == cpu.Max {
			return
		}
		want = clone(dx)
		if !o.Accumulate {
			cpu.Fill(b.host, want, 0)
		}
		twin(want, t.Indptr, 32, func(_ int, k int64, j int) (float32, float32) {
			c, i := float32(1), t.Dst[k]
			if o.Reduce == cpu.Mean {
				c = 1 / float32(g.Indptr[i+1]-g.Indptr[i])
			}
			if o.Weights != nil {
				c *= o.Weights[t.Entry[k]]
			}
			return c, dy.Row(int(i))[j]
		})
		for u := range o.Self {
			for j := range want.Row(u) {
				want.Row(u)[j] += float32(o.Self[u] * dy.Row(u)[j])
			}
		}
	}
	b.same(what, d, want, 0)
}

func TestAggregate(t *testing.T) {
	b := newBench(t)
	for name, g := range b.blocks() {
		for _, cols := range []int{1, 31, 33, 64, 132, 260} {
			for _, gap := range []int{0, 3} {
				b.renew()
				x := b.random(g.NumSrc, cols, gap)
				for range 3 {
					x.Data[b.r.IntN(len(x.Data))] = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.Copysign(0, -1))}[b.r.IntN(4)]
				}
				host, device := cpu.Source[float32]{Dense: x}, cpu.Source[float32]{Dense: b.device(x)}
				o := cpu.AggregateOptions[float32]{Reduce: cpu.Reduce(b.r.IntN(3))}
				if o.Reduce != cpu.Max && b.r.IntN(3) > 0 {
					o.Weights = b.floats(len(g.Indices))
				}
				if b.r.IntN(2) > 0 {
					o.Self = b.floats(g.NumDst)
				}
				what := fmt.Sprintf("%s, %d columns, gap %d, %v, weights %v, self %v", name, cols, gap, o.Reduce, o.Weights != nil, o.Self != nil)
				b.aggregate(what, g, host, device, o)
			}
		}
	}
}

// tableOf returns a table of stored values, some of which are no numbers or denormal.
func (b *bench) tableOf(dtype graph.DType, rows, cols, gap int) *graph.Features {
	f := &graph.Features{Rows: rows, Cols: cols, DType: dtype, Stride: (cols + gap) * dtype.Size()}
	f.Data = make([]byte, rows*f.Stride)
	for i := range f.Data {
		f.Data[i] = byte(b.r.Uint32())
	}
	if dtype == graph.Int8 && gap > 0 {
		f.RowScale, f.ColScale = b.floats(rows), b.floats(cols)
	}
	return f
}

// Rows of stored features are read through ids where they lie, or brought over from host
// memory, once and for all or for a batch, and gathered to rows and to slots.
func TestTables(t *testing.T) {
	b := newBench(t)
	for _, dtype := range []graph.DType{graph.Float32, graph.Float16, graph.BFloat16, graph.Int8, graph.Uint8} {
		for _, cols := range []int{1, 7, 132} {
			for _, gap := range []int{0, 4, 1} {
				f := b.tableOf(dtype, 90, cols, gap)
				over := *f
				over.Data = cuda.Alloc[byte](b.q, len(f.Data))
				cuda.Upload(b.q, over.Data, f.Data)
				defer cuda.Free(b.q, over.Data)
				kept := *f
				kept.Data = slices.Clone(f.Data)
				b.q.Keep(&kept)
				b.q.Keep(&kept)
				clear(kept.Data) // what the device has is read
				slab, moved := b.slab(f)
				defer slab.Close()
				if want := int64(f.Rows * b.rowBytes(f)); moved != want {
					t.Errorf("%v, %d columns: %d bytes of rows went over; rows are %d", dtype, cols, moved, want)
				}
				g := b.block(40, 3, 0, 17, 40, 5, 6, 7, 8, 9, 300)
				ids := make([]uint32, g.NumSrc)
				for i := range ids {
					ids[i] = uint32(b.r.IntN(f.Rows))
				}
				// Sums and means of 132 columns, of which four are read at once.
				o := cpu.AggregateOptions[float32]{Reduce: cpu.Reduce((cols + gap) % 3), Self: b.floats(g.NumDst)}
				for _, ids := range [][]uint32{nil, ids} {
					src := cpu.Source[float32]{Table: f, IDs: ids}
					b.renew()
					for where, table := range map[string]*graph.Features{"host": f, "device": &over, "device, kept": &kept, "device, slab": slab.Table()} {
						what := fmt.Sprintf("%v, %d columns, gap %d, on the %s, ids %v", dtype, cols, gap, where, ids != nil)
						from := cpu.Source[float32]{Table: table, IDs: ids}
						b.aggregate(what, g, src, from, o)
						dst := b.random(g.NumSrc, cols, gap)
						d, want := b.device(dst), clone(dst)
						cpu.Gather(b.x, d, from)
						cpu.Gather(b.host, want, src)
						b.same(what+", gathered", d, want, 0)
					}
				}
			}
		}
	}
}

// A row of 100,000 entries, alone and between others.
func TestAggregateLongRow(t *testing.T) {
	b := newBench(t)
	for _, g := range []*graph.Block{b.block(100, 100_000), b.block(3000, 5, 0, 100_000, 2, 300)} {
		for _, cols := range []int{1, 36} {
			x := b.random(g.NumSrc, cols, 0)
			for _, r := range []cpu.Reduce{cpu.Mean, cpu.Max} {
				o := cpu.AggregateOptions[float32]{Reduce: r}
				b.aggregate(fmt.Sprint(g.NumDst, " rows, ", cols, " columns, ", r), g, cpu.Source[float32]{Dense: x}, cpu.Source[float32]{Dense: b.device(x)}, o)
			}
		}
	}
}

// A table for which there is no room goes over as batches need it: where it would take more
// than half of the memory, and where the driver has no more.
func TestKeepWithoutRoom(t *testing.T) {
	for _, half := range []bool{true, false} {
		t.Run(fmt.Sprint("half ", half), func(t *testing.T) {
			d := fakecuda.Use(t)
			if half {
				d.Set("memory", 90_000)
			} else {
				d.Fail("cuMemAlloc_v2", 0, 2)
			}
			device, err := cuda.Open(0)
			if err != nil {
				t.Fatal(err)
			}
			q := device.NewQueue()
			f := graph.NewFeatures(100, 128, make([]float32, 12800))
			for range 2 {
				q.Keep(f)
			}
			if n, bytes := d.Count("cuMemAlloc_v2"), d.Count("bytes"); bytes != 0 || half != (n == 0) {
				t.Errorf("%d allocations were tried, %d bytes are held", n, bytes)
			}
			if err := errors.Join(q.Close(), device.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}
