package compute

import (
	"slices"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Tape runs ops and records how to run them backward. Values and gradients lie
// in its arena until Reset. One goroutine may use a tape at a time.
//
// An op is a method of Tape or a function that calls methods and, if it does
// arithmetic of its own, Record. Ops that need a value of a backward pass keep
// it in the arena; everything else is made again.
type Tape[T cpu.Float] struct {
	x      *cpu.Exec
	mem    Arena[T]      // what kernels write: a device's memory, if x has one
	marks  Arena[uint32] // likewise
	host   Arena[T]      // what the host writes and kernels only read
	ints   Arena[uint32] // likewise
	longs  Arena[int64]  // likewise
	values []*Value[T]
	used   int // of values
	steps  []step[T]
	record bool
	below  int // values that again keeps

	whole      *graph.Graph // the graph of which derived is kept, or nil
	ofWhole    derived[T]
	lasting    []graph.Block // further blocks that are there for more than a batch
	ofLasting  []derived[T]
	transposes []builtTranspose
	built      int

	halo    *halo // of a piece; nil: the block has all rows
	later   byRows[T]
	inFiles bool // mem lies there
}

// derived is what a block that does not change has for all batches, once it was
// asked for.
type derived[T cpu.Float] struct {
	transpose     *cpu.Transpose
	weights, self []T // GCN's coefficients
	sums          map[sumOf[T]]cpu.Matrix[T]
}

// sumOf is what a sum of rows of a table is made of.
type sumOf[T cpu.Float] struct {
	table         *graph.Features
	ids           *uint32
	reduce        cpu.Reduce
	weights, self *T
}

type step[T cpu.Float] struct {
	out   *Value[T]
	back  func()
	makes bool // out: no step before it is of out
}

type builtTranspose struct {
	of *graph.Block
	t  *cpu.Transpose
}

// NewTape returns a tape whose kernels run on x. With record false it cannot
// run backward, and keeps nothing for it.
func NewTape[T cpu.Float](x *cpu.Exec, record bool) *Tape[T] {
	t := &Tape[T]{x: x, record: record}
	if d := cpu.DeviceOf[T](x); d != nil {
		t.mem.alloc, t.mem.free = d.Alloc, d.Free
		t.marks.alloc, t.marks.free = d.AllocInts, d.FreeInts
	}
	return t
}

// Exec returns the executor of the tape's kernels.
func (t *Tape[T]) Exec() *cpu.Exec { return t.x }

// Reset forgets every value and step and takes their memory back.
func (t *Tape[T]) Reset() {
	if d := cpu.DeviceOf[T](t.x); d != nil {
		d.Reset()
	}
	t.forgetRows()
	t.mem.Reset()
	t.marks.Reset()
	t.host.Reset()
	t.ints.Reset()
	t.longs.Reset()
	clear(t.steps)
	t.steps = t.steps[:0]
	for _, v := range t.values[:t.used] {
		*v = Value[T]{}
	}
	t.used = 0
	for i := range t.transposes[:t.built] {
		t.transposes[i].of = nil
	}
	t.built = 0
}

// fix says that all that is computed between two Resets has the same sizes, as of a piece: what was allocated once is used again as it
// is, and never lies in memory beside what replaces it.
func (t *Tape[T]) fix() {
	t.mem.fixed, t.marks.fixed, t.host.fixed, t.ints.fixed, t.longs.fixed = true, true, true, true, true
}

// settle says that what is computed between two Resets has nearly the same sizes, until release: as of chunks of one layer.
func (t *Tape[T]) settle() {
	t.fix()
	t.mem.room, t.marks.room, t.host.room, t.ints.room, t.longs.room = settleRoom, settleRoom, settleRoom, settleRoom, settleRoom
}

// settleRoom is of how many parts a chunk's sizes may grow by one.
const settleRoom = 16

// asked returns the bytes that would be held had so many times as many been handed out since the last Reset, in arenas that allocate at least
// so many elements at once.
func (t *Tape[T]) asked(times, least int64) (bytes int64) {
	var of T
	bytes = int64(unsafe.Sizeof(of))*(asked(&t.mem, times, least)+asked(&t.host, times, least)) + 4*(asked(&t.marks, times, least)+asked(&t.ints, times, least)) + 8*asked(&t.longs, times, least)
	for _, e := range t.transposes[:t.built] {
		bytes += e.t.Bytes() * times
	}
	return bytes
}

func asked[E any](a *Arena[E], times, least int64) int64 {
	if a.asked == 0 {
		return 0
	}
	return max(int64(a.asked)*times, least)
}

// held returns the bytes of memory that t holds on to: arenas, and transposes of the blocks it runs backward through.
func (t *Tape[T]) held() (bytes int64) {
	var of T
	values := t.host.Cap()
	if !t.inFiles {
		values += t.mem.Cap()
	}
	bytes = int64(values)*int64(unsafe.Sizeof(of)) + 4*int64(t.marks.Cap()+t.ints.Cap()) + 8*int64(t.longs.Cap())
	for _, e := range t.transposes {
		bytes += e.t.Bytes()
	}
	for _, d := range append([]derived[T]{t.ofWhole}, t.ofLasting...) {
		if d.transpose != nil {
			bytes += d.transpose.Bytes()
		}
		bytes += int64(len(d.weights)+len(d.self)) * int64(unsafe.Sizeof(of))
		for _, m := range d.sums {
			bytes += int64(len(m.Data)) * int64(unsafe.Sizeof(of))
		}
	}
	return bytes
}

// release is Reset for a tape that is not used any more: it gives a device's memory
// back.
func (t *Tape[T]) release() {
	t.Reset()
	t.forget(&t.ofWhole)
	t.last(nil)
	t.mem.release()
	t.marks.release()
	t.host.release()
	t.ints.release()
	t.longs.release()
}

// written returns a dense matrix out of the arena that fill has written.
func (t *Tape[T]) written(rows, cols int, fill func(m cpu.Matrix[T])) cpu.Matrix[T] {
	m := t.matrix(rows, cols)
	d := cpu.DeviceOf[T](t.x)
	if d == nil {
		fill(m)
		return m
	}
	h := cpu.Dense(rows, cols, t.host.Alloc(rows*cols))
	fill(h)
	d.Upload(m.Data, h.Data)
	return m
}

// fetch copies m's values, on a device or not, to dst in the host's memory.
func (t *Tape[T]) fetch(dst, m cpu.Matrix[T]) {
	d := cpu.DeviceOf[T](t.x)
	if d == nil {
		cpu.Copy(t.x, dst, m)
		return
	}
	if m.Rows == 0 || m.Cols == 0 {
		return
	}
	m.Data = m.Data[:(m.Rows-1)*m.Stride+m.Cols]
	values := t.host.Alloc(len(m.Data))
	d.Download(values, m.Data)
	m.Data = values
	for i := range m.Rows {
		copy(dst.Row(i), m.Row(i))
	}
}

// matrix returns a dense matrix of unspecified content out of the arena.
func (t *Tape[T]) matrix(rows, cols int) cpu.Matrix[T] {
	return cpu.Dense(rows, cols, t.mem.Alloc(rows*cols))
}

func (t *Tape[T]) value(rows, cols int) *Value[T] {
	if t.used == len(t.values) {
		t.values = append(t.values, new(Value[T]))
	}
	v := t.values[t.used]
	t.used++
	*v = Value[T]{tape: t, rows: rows, cols: cols}
	return v
}

// New returns a value of unspecified content, for an op to fill.
func (t *Tape[T]) New(rows, cols int) *Value[T] {
	v := t.value(rows, cols)
	v.dense, v.owned = t.matrix(rows, cols), true
	return v
}

// Leaf returns a value that views m. If needsGrad, Backward computes its
// gradient, in grad if that has Data, else in the arena.
func (t *Tape[T]) Leaf(m cpu.Matrix[T], needsGrad bool, grad cpu.Matrix[T]) *Value[T] {
	v := t.value(m.Rows, m.Cols)
	v.dense, v.grad, v.given, v.needs, v.read = m, grad, grad.Data != nil, needsGrad && t.record, true
	return v
}

// Table returns a value whose rows are the given rows of a feature table, which
// must not be changed before Reset. ids nil: the first rows of the table.
func (t *Tape[T]) Table(f *graph.Features, rows int, ids []uint32) *Value[T] {
	v := t.value(rows, f.Cols)
	v.table, v.ids = f, ids
	return v
}

// Head returns the first n rows of v. It copies nothing, and its gradient is
// part of v's.
func (t *Tape[T]) Head(v *Value[T], n int) *Value[T] {
	if n == v.rows {
		return v
	}
	if v.masters != nil {
		v.Matrix()
	}
	h := t.value(n, v.cols)
	h.parent, h.needs, h.table, h.csr = v, v.needs, v.table, v.csr
	if v.gathered.Indptr != nil {
		h.gathered = v.gathered
		end := v.gathered.Indptr[n]
		h.gathered.Rows, h.gathered.Indptr = n, v.gathered.Indptr[:n+1]
		h.gathered.Indices, h.gathered.Values = v.gathered.Indices[:end], v.gathered.Values[:end]
	}
	if v.dense.Data != nil {
		h.dense = v.dense.View(0, n, 0, v.cols)
	}
	if v.ids != nil {
		h.ids = v.ids[:n]
	}
	return h
}

// Columns returns columns [from, to) of v. It copies nothing unless v lies in a
// table, and its gradient is part of v's.
func (t *Tape[T]) Columns(v *Value[T], from, to int) *Value[T] {
	if from == 0 && to == v.cols {
		return v
	}
	c := t.value(v.rows, to-from)
	c.parent, c.column, c.needs = v, from, v.needs
	c.dense = v.Matrix().View(0, v.rows, from, to)
	return c
}

// Concat returns the columns of vs side by side; all have the same rows.
func (t *Tape[T]) Concat(vs ...*Value[T]) *Value[T] {
	width := 0
	for _, v := range vs {
		width += v.cols
	}
	y := t.New(vs[0].rows, width)
	at := 0
	for _, v := range vs {
		cpu.Copy(t.x, y.dense.View(0, v.rows, at, at+v.cols), v.Matrix())
		at += v.cols
	}
	t.Record(y, func() {
		at := 0
		for _, v := range vs {
			t.addGrad(v, y.grad.View(0, v.rows, at, at+v.cols))
			at += v.cols
		}
	}, vs...)
	return y
}

// Record notes how to run backward the op that wrote out. back is called by
// Backward if a gradient flowed into out and one is wanted by an input. It may
// change out's gradient, which nobody reads after it.
func (t *Tape[T]) Record(out *Value[T], back func(), inputs ...*Value[T]) {
	for _, in := range inputs {
		if in != nil && in.needs {
			out.needs = true
		}
	}
	if t.record && out.needs {
		t.steps = append(t.steps, step[T]{out, back, !out.made})
		out.made = true
	}
}

// Backward runs every recorded step in reverse, starting from out's gradient,
// which the caller has written (SetGrad, or a loss). Of a piece, whose activations take the most memory that there is, values and
// gradients that no step reads any more make room for others.
func (t *Tape[T]) Backward() {
	t.finish()
	for i := len(t.steps) - 1; i >= 0; i-- {
		s := t.steps[i]
		if s.out.hasGrad {
			s.out.settle()
			s.back()
		}
		if s.makes && s.out.owned && t.halo != nil {
			t.mem.Free(s.out.dense.Data)
			if s.out.grad.Data != nil && s.out.parent == nil {
				t.mem.Free(s.out.grad.Data)
			}
			s.out.dense, s.out.grad = cpu.Matrix[T]{}, cpu.Matrix[T]{}
		}
	}
}

// SetGrad makes a copy of g the gradient of v to start Backward from.
func (t *Tape[T]) SetGrad(v *Value[T], g cpu.Matrix[T]) {
	dst, add := v.gradient()
	if add {
		panic("compute: Tape.SetGrad: the value has a gradient already")
	}
	cpu.Copy(t.x, dst, g)
}

// last says which blocks, besides the whole graph, stay what they are until the
// next call.
func (t *Tape[T]) last(blocks []graph.Block) {
	t.lasting = blocks
	for i := range t.ofLasting {
		t.forget(&t.ofLasting[i])
	}
	t.ofLasting = append(t.ofLasting[:0], make([]derived[T], len(blocks))...)
}

// forget gives back what was derived.
func (t *Tape[T]) forget(d *derived[T]) {
	t.forgetSums(d)
	*d = derived[T]{}
}

// forgetSums has sums of rows made again.
func (t *Tape[T]) forgetSums(d *derived[T]) {
	for _, m := range d.sums {
		if t.mem.free != nil {
			t.mem.free(m.Data)
		}
	}
	d.sums = nil
}

// derivedOf returns where to keep what is derived from b, or nil if b is only
// there for a batch.
func (t *Tape[T]) derivedOf(b *graph.Block) *derived[T] {
	if isWhole(b, t.whole) {
		return &t.ofWhole
	}
	for i := range t.lasting {
		if b == &t.lasting[i] {
			return &t.ofLasting[i]
		}
	}
	return nil
}

// summed returns a value for the reduction of x's rows to b's destinations, which fill has written: now, or for an earlier gradient, if all
// that it is made of stays what it is: b, a table, and weights that are derived from b alone.
func (t *Tape[T]) summed(b *graph.Block, x *Value[T], reduce cpu.Reduce, weights, self []T, fill func(y *Value[T])) *Value[T] {
	d, from := t.derivedOf(b), sumOf[T]{x.table, unsafe.SliceData(x.ids), reduce, unsafe.SliceData(weights), unsafe.SliceData(self)}
	if d == nil || !t.record || !x.fixed || x.dense.Data != nil || x.parent != nil || b.Weights != nil || cpu.DeviceOf[T](t.x) != nil ||
		weights != nil && from.weights != unsafe.SliceData(d.weights) || self != nil && from.self != unsafe.SliceData(d.self) {
		y := t.New(b.NumDst, x.cols)
		fill(y)
		return y
	}
	y := t.value(b.NumDst, x.cols)
	y.kept = true
	if y.dense = d.sums[from]; y.dense.Data != nil {
		return y
	}
	y.dense = cpu.Dense(b.NumDst, x.cols, t.mem.make(b.NumDst*x.cols))
	fill(y)
	if d.sums == nil {
		d.sums = map[sumOf[T]]cpu.Matrix[T]{}
	}
	d.sums[from] = y.dense
	return y
}

// transpose returns the transpose of b, built once per batch, or once for all
// if b does not change.
func (t *Tape[T]) transpose(b *graph.Block) *cpu.Transpose {
	if d := t.derivedOf(b); d != nil {
		if d.transpose == nil {
			d.transpose = new(cpu.Transpose)
			buildTranspose(t.x, d.transpose, b)
		}
		return d.transpose
	}
	for _, e := range t.transposes[:t.built] {
		if same(e.of.Indices, b.Indices) && same(e.of.Indptr, b.Indptr) && e.of.NumSrc == b.NumSrc {
			return e.t
		}
	}
	if t.built == len(t.transposes) {
		t.transposes = append(t.transposes, builtTranspose{t: new(cpu.Transpose)})
	}
	e := &t.transposes[t.built]
	t.built++
	e.of = b
	if cpu.DeviceOf[T](t.x) != nil {
		cpu.BuildTranspose[T](t.x, e.t, b)
	} else {
		buildTranspose(t.x, e.t, b)
	}
	return e.t
}

// onePass is up to how many workers the transpose of a symmetric pattern, made by
// one of them in one pass, takes no longer than any pattern's, made by all in two.
const onePass = 2

// buildTranspose makes tr the transpose of b, the same whichever way.
func buildTranspose(x *cpu.Exec, tr *cpu.Transpose, b *graph.Block) {
	if b.NumDst != b.NumSrc || x.Pool().Size() > onePass || !tr.BuildSymmetric(x, b) {
		tr.Build(x, b)
	}
}

// isWhole reports whether b aliases g's own arrays, which do not change, so
// that what is derived from them may be kept. Of a piece's, sources follow the nodes.
func isWhole(b *graph.Block, g *graph.Graph) bool {
	return g != nil && b.SrcIDs == nil && b.NumDst == g.NumNodes() &&
		len(b.Indices) == len(g.Indices) &&
		unsafe.SliceData(b.Indices) == unsafe.SliceData(g.Indices) &&
		unsafe.SliceData(b.Indptr) == unsafe.SliceData(g.Indptr)
}

// isComplete reports whether b has every edge of g, in its order: it is g, or a
// copy of it that came through a message.
func isComplete(b *graph.Block, g *graph.Graph) bool {
	return isWhole(b, g) || b.SrcIDs == nil && b.NumDst == b.NumSrc && b.NumDst == g.NumNodes() &&
		slices.Equal(b.Indptr, g.Indptr) && slices.Equal(b.Indices, g.Indices)
}
