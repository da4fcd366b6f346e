package cpu

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// options returns the options to test for b: reductions with and without
// weights and self terms.
func options[T Float](seed uint64, b *graph.Block, cols int) []AggregateOptions[T] {
	r := source(seed)
	w := random[T](r, 1, len(b.Indices), 0).Data
	self := random[T](r, 1, b.NumDst, 0).Data
	arg := func() []uint32 { return make([]uint32, b.NumDst*cols) }
	return []AggregateOptions[T]{
		{}, {Weights: w}, {Self: self}, {Weights: w, Self: self},
		{Reduce: Mean}, {Reduce: Mean, Weights: w}, {Reduce: Mean, Weights: w, Self: self},
		{Reduce: Max, Argmax: arg()}, {Reduce: Max, Self: self, Argmax: arg()},
	}
}

// aggregateReference computes Aggregate in float64, and the sums of absolute
// values.
func aggregateReference(b *graph.Block, row func(i int) []float64, cols int, o AggregateOptions[float64]) (y, size Matrix[float64]) {
	y, size = NewMatrix[float64](b.NumDst, cols), NewMatrix[float64](b.NumDst, cols)
	for i := range b.NumDst {
		n := float64(b.Indptr[i+1] - b.Indptr[i])
		for j := range cols {
			var s, z float64
			for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
				v := row(int(b.Indices[e]))[j]
				if o.Weights != nil {
					v *= o.Weights[e]
				}
				if o.Reduce == Max {
					if e == b.Indptr[i] || v > s {
						s, z = v, math.Abs(v)
					}
					continue
				}
				s += v
				z += math.Abs(v)
			}
			if o.Reduce == Mean && n > 0 {
				s, z = s/n, z/n
			}
			if o.Self != nil {
				v := o.Self[i] * row(i)[j]
				s += v
				z += math.Abs(v)
			}
			y.Row(i)[j], size.Row(i)[j] = s, z
		}
	}
	return y, size
}

func widen[T Float](s []T) []float64 {
	if s == nil {
		return nil
	}
	out := make([]float64, len(s))
	for i, v := range s {
		out[i] = float64(v)
	}
	return out
}

func widenMatrix[T Float](m Matrix[T]) Matrix[float64] {
	out := NewMatrix[float64](m.Rows, m.Cols)
	for i := range m.Rows {
		copy(out.Row(i), widen(m.Row(i)))
	}
	return out
}

func TestAggregate(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, cols := range []int{1, 3, 8, 17, 47, 64, 100, 133, 200} {
			b := randomBlock(source(uint64(cols)), 37, 90, 9)
			m := random[float32](source(5), b.NumSrc, cols, cols%3)
			wide := widenMatrix(m)
			for k, o := range options[float32](6, b, cols) {
				dst := random[float32](source(8), b.NumDst, cols, 2)
				Aggregate(x, dst, b, Source[float32]{Dense: m}, o)
				want, size := aggregateReference(b, func(i int) []float64 { return wide.Row(i) }, cols,
					AggregateOptions[float64]{Reduce: o.Reduce, Weights: widen(o.Weights), Self: widen(o.Self)})
				name := fmt.Sprintf("%d columns, options %d", cols, k)
				// The 1500 entries of the long row are added one by one.
				near(t, name, widenMatrix(dst), want, size, 1500*0x1p-24)
				if o.Reduce == Max && o.Self == nil {
					for i := range dst.Rows {
						for j, v := range dst.Row(i) {
							e := o.Argmax[i*cols+j]
							if b.Indptr[i] == b.Indptr[i+1] {
								if v != 0 || e != NoEntry {
									t.Fatalf("%s: empty row %d is %v by entry %d", name, i, v, e)
								}
								continue
							}
							if int64(e) < b.Indptr[i] || int64(e) >= b.Indptr[i+1] || m.Row(int(b.Indices[e]))[j] != v {
								t.Fatalf("%s: row %d is %v by entry %d, which does not hold it", name, i, v, e)
							}
						}
					}
				}
				for i := range dst.Rows {
					if i < dst.Rows-1 && dst.Data[i*dst.Stride+cols] == dst.Data[i*dst.Stride+cols] {
						t.Fatalf("%s: wrote into the gap after row %d", name, i)
					}
				}
			}
		}
	})
}

// TestAggregateBackward compares the backward pass with the product with the
// explicit transpose, alone and added to what was there.
func TestAggregateBackward(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, cols := range []int{1, 7, 16, 47, 65, 130} {
			b := randomBlock(source(uint64(cols)+50), 41, 83, 6)
			m := random[float32](source(5), b.NumSrc, cols, 0)
			var tr Transpose
			tr.Build(x, b)
			for which, o := range options[float32](9, b, cols) {
				Aggregate(x, NewMatrix[float32](b.NumDst, cols), b, Source[float32]{Dense: m}, o)
				for k := range 4 {
					gap := 3 * (k % 2)
					dy := random[float32](source(10), b.NumDst, cols, gap)
					dx := random[float32](source(11), b.NumSrc, cols, 1)
					before := widenMatrix(dx)
					o.Accumulate = k > 1
					AggregateBackward(x, dx, &tr, dy, o)
					want, size := NewMatrix[float64](b.NumSrc, cols), NewMatrix[float64](b.NumSrc, cols)
					add := func(u, j int, v float64) {
						want.Row(u)[j] += v
						size.Row(u)[j] += math.Abs(v)
					}
					if o.Accumulate {
						for u := range dx.Rows {
							for j, v := range before.Row(u) {
								add(u, j, v)
							}
						}
					}
					for i := range b.NumDst {
						for j, g := range widen(dy.Row(i)) {
							for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
								f := 1.0
								if o.Weights != nil {
									f = float64(o.Weights[e])
								}
								switch o.Reduce {
								case Mean:
									f /= float64(b.Indptr[i+1] - b.Indptr[i])
								case Max:
									if o.Argmax[i*cols+j] != uint32(e) {
										continue
									}
								}
								add(int(b.Indices[e]), j, f*g)
							}
							if o.Self != nil {
								add(i, j, float64(o.Self[i])*g)
							}
						}
					}
					near(t, fmt.Sprintf("%d columns, options %d, gap %d, added %v", cols, which, gap, o.Accumulate), widenMatrix(dx), want, size, 200*0x1p-24)
				}
			}
		}
	})
}

// TestAggregateBits checks that sums have the same bits for 1 and 2 workers,
// and that a row has the same bits alone and among others.
func TestAggregateBits(t *testing.T) {
	for _, set := range sets() {
		one, two := newExec(t, set, 1), newExec(t, set, 2)
		const cols = 53
		b := randomBlock(source(20), 300, 500, 12)
		m := random[float32](source(21), b.NumSrc, cols, 0)
		for k, o := range options[float32](22, b, cols) {
			p, q := NewMatrix[float32](b.NumDst, cols), NewMatrix[float32](b.NumDst, cols)
			Aggregate(one, p, b, Source[float32]{Dense: m}, o)
			Aggregate(two, q, b, Source[float32]{Dense: m}, o)
			sameBits(t, fmt.Sprint(set, " forward ", k), p, q)
			var tr Transpose
			tr.Build(two, b)
			dp, dq := NewMatrix[float32](b.NumSrc, cols), NewMatrix[float32](b.NumSrc, cols)
			AggregateBackward(one, dp, &tr, p, o)
			AggregateBackward(two, dq, &tr, p, o)
			sameBits(t, fmt.Sprint(set, " backward ", k), dp, dq)
			if o.Self != nil {
				continue
			}
			for i := 0; i < b.NumDst; i += 7 {
				part := &graph.Block{NumDst: 1, NumSrc: b.NumSrc, Indptr: b.Indptr[i : i+2], Indices: b.Indices}
				o.Argmax = nil
				Aggregate(two, q.View(i, i+1, 0, cols), part, Source[float32]{Dense: m}, o)
			}
			sameBits(t, fmt.Sprint(set, " rows alone ", k), p, q)
		}
	}
}

// tableOfType returns a table of random values of type d whose Data ends with
// its last value.
func tableOfType(d graph.DType, rows, cols, gap int) *graph.Features {
	r := source(30)
	f := &graph.Features{Rows: rows, Cols: cols, DType: d, Stride: (cols + gap) * d.Size()}
	f.Data = make([]byte, (rows-1)*f.Stride+cols*d.Size())
	put := func(i, j int, bits uint32) {
		for k := range d.Size() {
			f.Data[i*f.Stride+j*d.Size()+k] = byte(bits >> (8 * k))
		}
	}
	for i := range rows {
		for j := range cols {
			switch d {
			case graph.Float32:
				put(i, j, math.Float32bits(r.Float32()*2-1))
			case graph.Float16:
				put(i, j, uint32(r.IntN(0x4000))|uint32(r.IntN(2))<<15) // below 2, subnormals too
			case graph.BFloat16:
				put(i, j, math.Float32bits(r.Float32()*2-1)>>16)
			default:
				put(i, j, uint32(r.IntN(256)))
			}
		}
	}
	if d == graph.Int8 {
		f.RowScale = random[float32](r, 1, rows, 0).Data
		if gap == 0 {
			f.ColScale = random[float32](r, 1, cols, 0).Data
		}
	}
	return f
}

func TestAggregateTable(t *testing.T) {
	known := map[string][2]Matrix[float64]{} // the same for every Exec
	eachExec(t, func(t *testing.T, x *Exec) {
		for d := graph.Float32; d <= graph.Uint8; d++ {
			for _, cols := range []int{1, 7, 16, 47, 64, 150} {
				f := tableOfType(d, 200, cols, cols%2*4)
				b := randomBlock(source(31), 30, 60, 8)
				ids := make([]uint32, b.NumSrc)
				for i := range ids {
					ids[i] = uint32(199 - i*3)
				}
				for k, o := range options[float32](32, b, cols) {
					for _, ids := range [][]uint32{nil, ids} {
						global := func(i int) int {
							if ids != nil {
								return int(ids[i])
							}
							return i
						}
						buf := make([]float32, cols)
						name := fmt.Sprint(d, " ", cols, " columns, options ", k, ", of some ", ids != nil)
						if _, is := known[name]; !is {
							rows := make([][]float64, b.NumSrc)
							for i := range rows {
								f.Row(buf, global(i))
								rows[i] = widen(buf)
							}
							want, size := aggregateReference(b, func(i int) []float64 { return rows[i] }, cols, AggregateOptions[float64]{Reduce: o.Reduce, Weights: widen(o.Weights), Self: widen(o.Self)})
							known[name] = [2]Matrix[float64]{want, size}
						}
						dst := random[float32](source(33), b.NumDst, cols, 1)
						Aggregate(x, dst, b, Source[float32]{Table: f, IDs: ids}, o)
						near(t, name, widenMatrix(dst), known[name][0], known[name][1], 1500*0x1p-24)
						dense := NewMatrix[float32](b.NumSrc, cols)
						Gather(x, dense, Source[float32]{Table: f, IDs: ids})
						for i := range dense.Rows {
							f.Row(buf, global(i))
							for j, v := range dense.Row(i) {
								// Scales may be multiplied in another order.
								if math.Abs(float64(v-buf[j])) > 0x1p-22*math.Abs(float64(buf[j])) || d != graph.Int8 && v != buf[j] {
									t.Fatalf("Gather %v: (%d, %d) = %v, want %v", d, i, j, v, buf[j])
								}
							}
						}
					}
				}
			}
		}
	})
}

func TestAggregateNaN(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		nan := float32(math.NaN())
		m := Dense(4, 1, []float32{1, nan, 3, 2})
		b := &graph.Block{NumDst: 3, NumSrc: 4, Indptr: []int64{0, 3, 5, 5}, Indices: []uint32{0, 1, 2, 3, 2}}
		for _, reduce := range []Reduce{Sum, Mean, Max} {
			dst := NewMatrix[float32](3, 1)
			arg := make([]uint32, 3)
			Aggregate(x, dst, b, Source[float32]{Dense: m}, AggregateOptions[float32]{Reduce: reduce, Argmax: arg})
			if dst.Data[0] == dst.Data[0] || dst.Data[1] != dst.Data[1] || dst.Data[2] != 0 {
				t.Errorf("%v: %v, want NaN, a number and 0", reduce, dst.Data)
			}
			if reduce == Max && !slices.Equal(arg, []uint32{1, 4, NoEntry}) {
				t.Errorf("Max: entries %v, want [1 4 NoEntry]", arg)
			}
		}
	})
}

func TestAggregateIndexOutOfRange(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		const entries = 21
		for bad := range entries {
			for _, u := range []uint32{2, math.MaxUint32} {
				b := &graph.Block{NumDst: 1, NumSrc: 2, Indptr: []int64{0, entries}, Indices: make([]uint32, entries)}
				b.Indices[bad] = u
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("entry %d of index %d, beyond the source, did not panic", bad, u)
						}
					}()
					Aggregate(x, NewMatrix[float32](1, 4), b, Source[float32]{Dense: NewMatrix[float32](2, 4)}, AggregateOptions[float32]{})
				}()
			}
		}
	})
}

// TestAggregateLarge checks that a result so large that it is stored past the
// caches has the bits of its rows computed in smaller parts, and so has a
// gradient, written or added, those of one that is not.
func TestAggregateLarge(t *testing.T) {
	const cols, rows = 64, streamed/64 + 5
	r := source(60)
	b := &graph.Block{NumDst: rows, NumSrc: rows, Indptr: make([]int64, rows+1)}
	for i := range rows {
		if i%3 > 0 {
			b.Indices = append(b.Indices, uint32(r.IntN(1000)), uint32(r.IntN(1000)))
		}
		b.Indptr[i+1] = int64(len(b.Indices))
	}
	m := NewMatrix[float32](rows, cols)
	copy(m.Data, random[float32](r, 1000, cols, 0).Data)
	got, want := NewMatrix[float32](rows, cols), NewMatrix[float32](rows, cols)
	dx, apart := want, NewMatrix[float32](rows, cols+1).View(0, rows, 0, cols)
	var tr Transpose
	tr.Build(newExec(t, Go, 2), b)
	for _, set := range sets() {
		x := newExec(t, set, 2)
		for _, o := range []AggregateOptions[float32]{{}, {Reduce: Mean}} {
			clear(want.Data)
			for i := 0; i < rows; i += 100_000 {
				end := min(rows, i+100_000)
				part := &graph.Block{NumDst: end - i, NumSrc: rows, Indptr: b.Indptr[i : end+1], Indices: b.Indices}
				Aggregate(x, want.View(i, end, 0, cols), part, Source[float32]{Dense: m}, o)
			}
			Aggregate(x, got, b, Source[float32]{Dense: m}, o)
			if !slices.Equal(got.Data, want.Data) {
				t.Errorf("%v, %v: the results differ", set, o.Reduce)
			}
		}
		// Backward, the rows of the comparison lie so that they are not streamed.
		dy := got
		for _, reduce := range []Reduce{Sum, Mean} {
			for _, add := range []bool{false, true} {
				o := AggregateOptions[float32]{Reduce: reduce, Accumulate: add}
				for i := range dx.Rows {
					for j := range dx.Row(i) {
						dx.Row(i)[j] = float32(i%7 + j)
					}
					copy(apart.Row(i), dx.Row(i))
				}
				AggregateBackward(x, dx, &tr, dy, o)
				AggregateBackward(x, apart, &tr, dy, o)
				for i := range dx.Rows {
					if !slices.Equal(dx.Row(i), apart.Row(i)) {
						t.Fatalf("%v, %v, added %v: row %d of the gradient differs", set, reduce, add, i)
					}
				}
			}
		}
	}
}

// TestAggregateNotAdding checks that the forward pass refuses the option that it
// does not read.
func TestAggregateNotAdding(t *testing.T) {
	defer func() {
		if r := recover(); r != badForward {
			t.Errorf("Accumulate: panic %v", r)
		}
	}()
	b := &graph.Block{NumDst: 1, NumSrc: 1, Indptr: []int64{0, 0}}
	Aggregate(newExec(t, Go, 1), NewMatrix[float32](1, 4), b, Source[float32]{Dense: NewMatrix[float32](1, 4)}, AggregateOptions[float32]{Accumulate: true})
}

// TestTransposeParallel checks that a block that is large enough to be transposed
// in parts has the same transpose for any number of workers, and the right one.
func TestTransposeParallel(t *testing.T) {
	r := source(61)
	b := randomBlock(r, 5000, 6000, 150)
	if len(b.Indices) < parallelEntries {
		t.Fatalf("%d entries are too few", len(b.Indices))
	}
	var want Transpose
	want.Build(newExec(t, Go, 1), b)
	for _, workers := range []int{2, 3, 7} {
		var got Transpose
		got.Build(newExec(t, Go, workers), b)
		if !slices.Equal(got.Indptr, want.Indptr) || !slices.Equal(got.Dst, want.Dst) || !slices.Equal(got.Entry, want.Entry) {
			t.Errorf("%d workers build another transpose", workers)
		}
	}
	for u := range b.NumSrc {
		last := uint32(0)
		for k := want.Indptr[u]; k < want.Indptr[u+1]; k++ {
			i, e := want.Dst[k], want.Entry[k]
			if b.Indices[e] != uint32(u) || int64(e) < b.Indptr[i] || int64(e) >= b.Indptr[i+1] || k > want.Indptr[u] && e <= last {
				t.Fatalf("entry %d of source %d is entry %d, destination %d", k, u, e, i)
			}
			last = e
		}
	}
}

// TestTransposeMemory checks that cursors take no more memory than a quarter of
// the entries, or one per source, whatever the number of workers.
func TestTransposeMemory(t *testing.T) {
	r := source(62)
	for _, src := range []int{1000, parallelEntries / 8, parallelEntries} {
		b := &graph.Block{NumDst: 1000, NumSrc: src, Indptr: make([]int64, 1001)}
		for i := range 1000 {
			for range parallelEntries/1000 + 1 {
				b.Indices = append(b.Indices, uint32(r.IntN(src)))
			}
			b.Indptr[i+1] = int64(len(b.Indices))
		}
		x, one := newExec(t, Go, 9), newExec(t, Go, 1)
		var got, want Transpose
		got.Build(x, b)
		want.Build(one, b)
		if n := len(x.cursors); n > max(src, len(b.Indices)/4) {
			t.Errorf("%d cursors for %d sources and %d entries", n, src, len(b.Indices))
		}
		if !slices.Equal(got.Indptr, want.Indptr) || !slices.Equal(got.Dst, want.Dst) || !slices.Equal(got.Entry, want.Entry) {
			t.Errorf("%d sources: 9 workers build another transpose", src)
		}
	}
}

func TestTransposeSymmetric(t *testing.T) {
	x := newExec(t, Go, 1)
	// A ring with chords, rows sorted.
	const n = 40
	b := &graph.Block{NumDst: n, NumSrc: n, Indptr: []int64{0}}
	for i := range n {
		row := []uint32{uint32((i + 1) % n), uint32((i + n - 1) % n), uint32((i + 7) % n), uint32((i + n - 7) % n), uint32(i)}
		slices.Sort(row)
		b.Indices = append(b.Indices, row...)
		b.Indptr = append(b.Indptr, int64(len(b.Indices)))
	}
	var a, s Transpose
	a.Build(x, b)
	if !s.BuildSymmetric(x, b) {
		t.Fatal("a symmetric pattern is refused")
	}
	if !slices.Equal(a.Indptr, s.Indptr) || !slices.Equal(a.Dst, s.Dst) || !slices.Equal(a.Entry, s.Entry) {
		t.Error("the transposes differ")
	}
	for k, e := range s.Entry {
		if int(b.Indices[e]) != slices.IndexFunc(s.Indptr[1:], func(p int64) bool { return int64(k) < p }) {
			t.Fatalf("entry %d of the transpose comes from entry %d of another column", k, e)
		}
	}
	b.Indices[0]++
	if s.BuildSymmetric(x, b) {
		t.Error("a pattern that is not symmetric is accepted")
	}
}

// symmetricBlock returns a square block with a symmetric pattern and sorted rows,
// of about n·degree entries.
func symmetricBlock(seed uint64, n, degree int) *graph.Block {
	r := source(seed)
	rows := make([][]uint32, n)
	for range n * degree / 2 {
		i, j := r.IntN(n), r.IntN(n)
		rows[i] = append(rows[i], uint32(j))
		rows[j] = append(rows[j], uint32(i))
	}
	b := &graph.Block{NumDst: n, NumSrc: n, Indptr: []int64{0}}
	for _, row := range rows {
		slices.Sort(row)
		b.Indices = append(b.Indices, row...)
		b.Indptr = append(b.Indptr, int64(len(b.Indices)))
	}
	return b
}

// TestTransposeSymmetricParallel checks on a block that is large enough for
// several parts that any number of workers finds its transpose, and refuses it
// with one entry changed or two entries of a row exchanged, wherever that is.
func TestTransposeSymmetricParallel(t *testing.T) {
	b := symmetricBlock(63, 2000, 140)
	if len(b.Indices) < parallelEntries {
		t.Fatalf("%d entries are too few", len(b.Indices))
	}
	var want Transpose
	want.Build(newExec(t, Go, 1), b)
	for _, workers := range []int{1, 2, 3, 7} {
		x := newExec(t, Go, workers)
		var got Transpose
		if !got.BuildSymmetric(x, b) {
			t.Fatalf("%d workers refuse a symmetric pattern", workers)
		}
		if !slices.Equal(got.Indptr, want.Indptr) || !slices.Equal(got.Dst, want.Dst) || !slices.Equal(got.Entry, want.Entry) {
			t.Errorf("%d workers build another transpose", workers)
		}
		for _, i := range []int{0, 1, 700, 999, 1000, 1500, 1999} {
			row := b.Indices[b.Indptr[i]:b.Indptr[i+1]]
			first, last := row[0], row[len(row)-1]
			row[0], row[len(row)-1] = last, first
			if first != last && got.BuildSymmetric(x, b) {
				t.Errorf("%d workers accept row %d, which is not sorted", workers, i)
			}
			row[0], row[len(row)-1] = first, (last+1)%2000
			if got.BuildSymmetric(x, b) {
				t.Errorf("%d workers accept row %d, which has another entry", workers, i)
			}
			row[len(row)-1] = last
		}
	}
}

// BenchmarkBuildSymmetric transposes a block of a frontier subgraph's size.
func BenchmarkBuildSymmetric(b *testing.B) {
	block := symmetricBlock(64, 6600, 133)
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) {
			x := newExec(b, Go, workers)
			var t Transpose
			b.ReportAllocs()
			for b.Loop() {
				if !t.BuildSymmetric(x, block) {
					b.Fatal("refused")
				}
			}
		})
	}
}

func BenchmarkAggregate(b *testing.B) {
	const dst, degree, cols = 40000, 10, 128
	rows := 1 << 21 // a table of 1 GiB
	if testing.Short() {
		rows >>= 5
	}
	m := Dense(rows, cols, hugeTable(b, rows*cols))
	for i := range m.Data {
		m.Data[i] = float32(i & 1023)
	}
	r := source(40)
	block := &graph.Block{NumDst: dst, NumSrc: rows, Indptr: make([]int64, dst+1)}
	for i := range dst {
		for range degree {
			block.Indices = append(block.Indices, uint32(r.IntN(rows)))
		}
		block.Indptr[i+1] = int64(len(block.Indices))
	}
	out := NewMatrix[float32](dst, cols)
	for _, set := range sets() {
		for _, workers := range []int{1, 2} {
			for _, reduce := range []Reduce{Mean, Max} {
				b.Run(fmt.Sprintf("%v/%v/%d", reduce, set, workers), func(b *testing.B) {
					x := newExec(b, set, workers)
					o := AggregateOptions[float32]{Reduce: reduce}
					Aggregate(x, out, block, Source[float32]{Dense: m}, o)
					b.ReportAllocs()
					b.ResetTimer()
					for b.Loop() {
						Aggregate(x, out, block, Source[float32]{Dense: m}, o)
					}
					edges := float64(len(block.Indices)) * float64(b.N) / b.Elapsed().Seconds()
					b.ReportMetric(edges*1e-6, "Medges/s")
					b.ReportMetric(edges*512e-9, "GB/s")
				})
			}
		}
	}
}
