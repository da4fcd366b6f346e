package cpu

// The element-wise kernels take matrices of the same shape; operands may be
// the same matrix (in place) but must not overlap otherwise. The kernel sets
// agree bit by bit, except for the sign of a zero out of ReLU.

// Add computes dst = a + b.
func Add[T Float](x *Exec, dst, a, b Matrix[T]) { elementwise(x, OpAdd, dst, a, b, 0) }

// Axpy computes dst += f·a.
func Axpy[T Float](x *Exec, dst Matrix[T], f T, a Matrix[T]) { elementwise(x, OpAxpy, dst, a, a, f) }

// Scale computes dst = f·a.
func Scale[T Float](x *Exec, dst Matrix[T], f T, a Matrix[T]) { elementwise(x, OpScale, dst, a, a, f) }

// Divide computes dst = a/f.
func Divide[T Float](x *Exec, dst, a Matrix[T], f T) { elementwise(x, OpDivide, dst, a, a, f) }

// Multiply computes dst = a ∘ b, element by element.
func Multiply[T Float](x *Exec, dst, a, b Matrix[T]) { elementwise(x, OpMultiply, dst, a, b, 0) }

// Copy computes dst = a.
func Copy[T Float](x *Exec, dst, a Matrix[T]) { elementwise(x, OpCopy, dst, a, a, 0) }

// Fill sets every element of dst to f.
func Fill[T Float](x *Exec, dst Matrix[T], f T) { elementwise(x, OpFill, dst, dst, dst, f) }

// ReLUBackward computes dx = dy where y > 0, else 0, with y the output of ReLU
// (or its input: the sign is the same). Where y is NaN, dx = dy.
func ReLUBackward[T Float](x *Exec, dx, dy, y Matrix[T]) {
	elementwise(x, OpReLUBackward, dx, dy, y, 0)
}

// ElementOp is an operation on matrices element by element: on d of dst, a of a, b of b
// and a number f.
type ElementOp uint8

// The operations. Those backward have a gradient for a and for b what the function's
// result was.
const (
	OpAdd           ElementOp = iota // a + b
	OpAxpy                           // d + f·a
	OpScale                          // f·a
	OpMultiply                       // a·b
	OpCopy                           // a
	OpFill                           // f
	OpReLU                           // max(a, 0)
	OpReLUBackward                   // 0 if b <= 0, else a
	OpLeaky                          // f·a if a <= 0, else a
	OpLeakyBackward                  // f·a if b <= 0, else a
	OpELU                            // eᵃ-1 if a <= 0, else a
	OpELUBackward                    // a·(b+1) if b <= 0, else a
	OpDivide                         // a/f
)

// elementOps is what Observe calls them.
var elementOps = [...]string{"add", "axpy", "scale", "multiply", "copy", "fill", "relu", "relu-backward", "leaky", "leaky-backward", "elu", "elu-backward", "divide"}

// elementsPerChunk is the size of a chunk of an element-wise kernel.
const elementsPerChunk = 16384

func elementwise[T Float](x *Exec, op ElementOp, dst, a, b Matrix[T], f T) {
	dst.check()
	a.check()
	b.check()
	if a.Rows != dst.Rows || a.Cols != dst.Cols || b.Rows != dst.Rows || b.Cols != dst.Cols {
		panic(badShapes)
	}
	if dst.Rows == 0 || dst.Cols == 0 {
		return
	}
	defer x.end(x.begin(), elementOps[op], dst.Rows, dst.Cols, 0)
	s := tasksOf[T](x)
	if s.device != nil {
		s.device.Elementwise(op, dst, a, b, f)
		return
	}
	s.element = elementTask[T]{set: x.set, op: op, dst: dst, a: a, b: b, f: f}
	if dst.flat() && a.flat() && b.flat() {
		s.element.flat = dst.Rows * dst.Cols
		x.each(ceilDiv(s.element.flat, elementsPerChunk), &s.element)
	} else {
		s.element.rows = max(1, elementsPerChunk/dst.Cols)
		x.each(ceilDiv(dst.Rows, s.element.rows), &s.element)
	}
	s.element = elementTask[T]{}
}

type elementTask[T Float] struct {
	set        Set
	op         ElementOp
	dst, a, b  Matrix[T]
	f          T
	flat, rows int // elements of flat operands, or rows per chunk
}

func (t *elementTask[T]) chunk(_ *scratch, c int) {
	if t.flat > 0 {
		o, e := c*elementsPerChunk, min(t.flat, (c+1)*elementsPerChunk)
		t.apply(t.dst.Data[o:e], t.a.Data[o:e], t.b.Data[o:e])
		return
	}
	t.between(c*t.rows, min(t.dst.Rows, (c+1)*t.rows))
}

// between does rows [i0, i1).
func (t *elementTask[T]) between(i0, i1 int) {
	if t.dst.flat() && t.a.flat() && t.b.flat() {
		o, e := i0*t.dst.Cols, i1*t.dst.Cols
		t.apply(t.dst.Data[o:e], t.a.Data[o:e], t.b.Data[o:e])
		return
	}
	for i := i0; i < i1; i++ {
		t.apply(t.dst.Row(i), t.a.Row(i), t.b.Row(i))
	}
}

func (t *elementTask[T]) apply(d, a, b []T) {
	a, b = a[:len(d)], b[:len(d)]
	if t.fast(d, a, b) {
		return
	}
	f := t.f
	switch t.op {
	case OpAdd:
		for i := range d {
			d[i] = a[i] + b[i]
		}
	case OpAxpy:
		for i := range d {
			d[i] += T(f * a[i])
		}
	case OpScale:
		for i := range d {
			d[i] = f * a[i]
		}
	case OpMultiply:
		for i := range d {
			d[i] = a[i] * b[i]
		}
	case OpCopy:
		copy(d, a)
	case OpFill:
		for i := range d {
			d[i] = f
		}
	case OpReLU:
		for i, v := range a {
			d[i] = max(v, 0)
		}
	case OpReLUBackward:
		for i, v := range a {
			if b[i] <= 0 {
				v = 0
			}
			d[i] = v
		}
	case OpLeaky:
		for i, v := range a {
			if v <= 0 {
				v *= f
			}
			d[i] = v
		}
	case OpLeakyBackward:
		for i, v := range a {
			if b[i] <= 0 {
				v *= f
			}
			d[i] = v
		}
	case OpELU:
		for i, v := range a {
			if v <= 0 {
				v = expm1(v)
			}
			d[i] = v
		}
	case OpELUBackward:
		for i, v := range a {
			if b[i] <= 0 {
				v *= b[i] + 1
			}
			d[i] = v
		}
	case OpDivide:
		for i, v := range a {
			d[i] = v / f
		}
	}
}

// ColumnSums computes dst[j] = Σ_i a[i][j], plus what dst held if accumulate:
// the gradient of a bias. Rows are summed in chunks of a fixed number of rows,
// and the chunks' sums are added in order. len(dst) is a.Cols.
func ColumnSums[T Float](x *Exec, dst []T, a Matrix[T], accumulate bool) {
	a.check()
	defer x.end(x.begin(), "column-sums", a.Rows, a.Cols, 0)
	columnSums(x, dst, a, accumulate, nil)
}

// columnSums is ColumnSums of what first, if it is there, writes to a.
func columnSums[T Float](x *Exec, dst []T, a Matrix[T], accumulate bool, first *elementTask[T]) {
	if len(dst) != a.Cols {
		panic(badShapes)
	}
	s := tasksOf[T](x)
	if s.device != nil {
		if first != nil {
			s.device.Elementwise(first.op, first.dst, first.a, first.b, first.f)
		}
		s.device.ColumnSums(dst, a, accumulate)
		return
	}
	if !accumulate {
		clear(dst)
	}
	n := ceilDiv(a.Rows, sumRows)
	s.parts = grow(s.parts, n*a.Cols)
	s.sums = sumsTask[T]{set: x.set, a: a, parts: s.parts}
	if s.sums.writes = first != nil; first != nil {
		s.sums.first = *first
	}
	x.each(n, &s.sums)
	s.sums = sumsTask[T]{}
	for c := range n {
		for j, v := range s.parts[c*a.Cols:][:a.Cols] {
			dst[j] += v
		}
	}
}

// sumRows is the number of rows that ColumnSums adds in one chunk.
const sumRows = 256

type sumsTask[T Float] struct {
	set   Set
	a     Matrix[T]
	parts []T

	writes bool // first writes a
	first  elementTask[T]
}

func (t *sumsTask[T]) chunk(w *scratch, c int) {
	d := t.parts[c*t.a.Cols:][:t.a.Cols]
	i0, i1 := c*sumRows, min(t.a.Rows, (c+1)*sumRows)
	if t.writes {
		t.first.between(i0, i1)
	}
	if t.fast(w, d, i0, i1) {
		return
	}
	clear(d)
	for i := i0; i < i1; i++ {
		for j, v := range t.a.Row(i) {
			d[j] += v
		}
	}
}
