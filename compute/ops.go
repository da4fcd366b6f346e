package compute

import (
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Linear returns act(x·Wᵀ + b). x is n×in, w is out×in, b is 1×out or nil.
func (t *Tape[T]) Linear(x, w, b *Value[T], act cpu.Activation) *Value[T] {
	y := t.New(x.rows, w.rows)
	t.product(y, x, w, b, act, false)
	return y
}

// LinearAdd changes y to act(y + x·Wᵀ + b) in place and returns it. It panics
// if the backward pass of an earlier op reads y: so does that of a product with
// y as a factor, or of an activation.
func (t *Tape[T]) LinearAdd(y, x, w, b *Value[T], act cpu.Activation) *Value[T] {
	y.mayChange()
	t.product(y, x, w, b, act, true)
	return y
}

// LinearSum returns act(x1·W1ᵀ + b + x2·W2ᵀ), as LinearAdd to the result of Linear
// does, with fewer ways through memory. x1 and x2 have n rows, w1 and w2 have out
// rows, b is 1×out or nil.
func (t *Tape[T]) LinearSum(x1, w1, b, x2, w2 *Value[T], act cpu.Activation) *Value[T] {
	if x1.isSparse() || x2.isSparse() {
		return t.LinearAdd(t.Linear(x1, w1, b, cpu.Linear), x2, w2, nil, act)
	}
	y := t.New(x1.rows, w1.rows)
	y.read = act != cpu.Linear
	a1, a2 := x1.Matrix(), x2.Matrix()
	x1.read, x2.read = true, true
	cpu.GemmAdd(t.x, y.dense, a1, w1.dense, a2, w2.dense, cpu.Epilogue[T]{Bias: bias(b), Act: act})
	t.Record(y, func() {
		g := t.activationBackward(y, b, act)
		if w1.needs && w2.needs {
			dw2, add2 := w2.gradient()
			dw1, add1 := w1.gradient()
			cpu.GemmBoth(t.x, dw2, dw1, g, a2, a1, add2, add1)
		} else {
			t.weightBackward(w2, g, a2)
			t.weightBackward(w1, g, a1)
		}
		t.factorBackward(x2, g, w2)
		t.factorBackward(x1, g, w1)
	}, x1, w1, b, x2, w2)
	return y
}

func (t *Tape[T]) product(y, x, w, b *Value[T], act cpu.Activation, add bool) {
	y.read = act != cpu.Linear
	if x.isSparse() {
		t.sparseProduct(y, x, w, b, act, add)
		return
	}
	a := x.dense // its rows may be made with y's
	if t.later.last != x || add {
		a = x.Matrix()
	}
	x.read = true
	multiply := func(from, to int) {
		cpu.Gemm(t.x, y.dense.View(from, to, 0, y.cols), a.View(from, to, 0, a.Cols), false, w.dense, true, cpu.Epilogue[T]{Bias: bias(b), Act: act, Accumulate: add})
	}
	if add {
		multiply(0, y.rows)
	} else {
		t.makes(y, x, multiply)
	}
	t.Record(y, func() {
		g := t.activationBackward(y, b, act)
		t.weightBackward(w, g, a)
		t.factorBackward(x, g, w)
	}, x, w, b)
}

// weightBackward adds gᵀ·a to w's gradient, if it is wanted.
func (t *Tape[T]) weightBackward(w *Value[T], g, a cpu.Matrix[T]) {
	if w.needs {
		dw, add := w.gradient()
		cpu.Gemm(t.x, dw, g, true, a, false, cpu.Epilogue[T]{Accumulate: add})
	}
}

// factorBackward adds g·W to x's gradient, if it is wanted.
func (t *Tape[T]) factorBackward(x *Value[T], g cpu.Matrix[T], w *Value[T]) {
	if x.needs {
		dx, add := x.gradient()
		cpu.Gemm(t.x, dx, g, false, w.dense, false, cpu.Epilogue[T]{Accumulate: add})
	}
}

// BiasAct changes y to act(y + b) in place and returns it; b may be nil. It
// panics as LinearAdd does.
func (t *Tape[T]) BiasAct(y, b *Value[T], act cpu.Activation) *Value[T] {
	if b == nil && act == cpu.Linear {
		return y
	}
	y.mayChange()
	// A product over zero terms leaves the epilogue.
	cpu.Gemm(t.x, y.dense, cpu.Matrix[T]{Rows: y.rows}, false, cpu.Matrix[T]{Cols: y.cols, Stride: y.cols}, false,
		cpu.Epilogue[T]{Bias: bias(b), Act: act, Accumulate: true})
	y.read = act != cpu.Linear
	t.Record(y, func() { t.activationBackward(y, b, act) }, b)
	return y
}

// ReLU changes y to max(y, 0) in place; it panics as LinearAdd does.
func (t *Tape[T]) ReLU(y *Value[T]) *Value[T] { return t.BiasAct(y, nil, cpu.ReLU) }

func bias[T cpu.Float](b *Value[T]) []T {
	if b == nil {
		return nil
	}
	return b.dense.Data[:b.cols]
}

// activationBackward turns y's gradient into that of what went into act, and adds
// it to that of the bias b, if there is one and its gradient is wanted.
func (t *Tape[T]) activationBackward(y, b *Value[T], act cpu.Activation) cpu.Matrix[T] {
	switch {
	case act == cpu.Linear:
		t.biasBackward(b, y.grad)
	case b == nil || !b.needs:
		cpu.ActivateBackward(t.x, act, y.grad, y.grad, y.dense)
	default:
		db, add := b.gradient()
		cpu.ActivateBackwardSums(t.x, act, y.grad, y.grad, y.dense, db.Data[:b.cols], add)
	}
	return y.grad
}

func (t *Tape[T]) biasBackward(b *Value[T], g cpu.Matrix[T]) {
	if b == nil || !b.needs {
		return
	}
	db, add := b.gradient()
	cpu.ColumnSums(t.x, db.Data[:b.cols], g, add)
}

// Aggregate returns, for every destination of b, the reduction of its sources'
// rows of x; weights (one per entry) and self (one per destination: the
// coefficient of its own row of x) are constants and may be nil. x is
// NumSrc×f, the result NumDst×f. If x lies in a table it is read from there.
func (t *Tape[T]) Aggregate(b *graph.Block, x *Value[T], reduce cpu.Reduce, weights, self []T) *Value[T] {
	o := cpu.AggregateOptions[T]{Reduce: reduce, Weights: weights, Self: self}
	if reduce == cpu.Max && t.record && x.needs {
		o.Argmax = t.marks.Alloc(b.NumDst * x.cols)
	}
	y := t.summed(b, x, reduce, weights, self, func(y *Value[T]) { cpu.Aggregate(t.x, y.dense, b, x.source(), o) })
	t.Record(y, func() {
		dx, held := x.gradientRows()
		if held == b.NumDst && held < x.rows {
			// The destinations' own gradients, of layers that read their old
			// values: the other rows need no zeros to add to.
			rows := *t.transpose(b)
			rows.NumSrc, rows.Indptr = held, rows.Indptr[:held+1]
			o.Accumulate = true
			cpu.AggregateBackward(t.x, dx.View(0, held, 0, x.cols), &rows, y.grad, o)
			rows.NumSrc, rows.Indptr = x.rows-held, t.transpose(b).Indptr[held:]
			o.Accumulate, o.Self = false, nil
			cpu.AggregateBackward(t.x, dx.View(held, x.rows, 0, x.cols), &rows, y.grad, o)
			return
		}
		if held > 0 && held < x.rows {
			cpu.Fill(t.x, dx.View(held, x.rows, 0, x.cols), 0)
		}
		o.Accumulate = held > 0
		cpu.AggregateBackward(t.x, dx, t.transpose(b), y.grad, o)
	}, x)
	return y
}

// Add returns a + b, of the same shape.
func (t *Tape[T]) Add(a, b *Value[T]) *Value[T] {
	y := t.New(a.rows, a.cols)
	cpu.Add(t.x, y.dense, a.Matrix(), b.Matrix())
	t.Record(y, func() {
		t.addGrad(a, y.grad)
		t.addGrad(b, y.grad)
	}, a, b)
	return y
}

// constant returns a number as a matrix that kernels read.
func (t *Tape[T]) constant(v T) cpu.Matrix[T] {
	m := cpu.Dense(1, 1, t.host.Alloc(1))
	m.Data[0] = v
	return m
}

// addGrad adds g to v's gradient, if it is wanted.
func (t *Tape[T]) addGrad(v *Value[T], g cpu.Matrix[T]) {
	if !v.needs {
		return
	}
	if dst, add := v.gradient(); add {
		cpu.Add(t.x, dst, dst, g)
	} else {
		cpu.Copy(t.x, dst, g)
	}
}

// Dropout returns x with values dropped and the others scaled up, as d decides.
func (t *Tape[T]) Dropout(x *Value[T], d cpu.Dropped) *Value[T] {
	if x.csr != nil {
		return t.sparseDropout(x, d)
	}
	var y *Value[T]
	if x.dense.Data == nil && x.table != nil {
		// The table's rows are copied for this op alone.
		y = t.New(x.rows, x.cols)
		from := x.source()
		t.makes(y, x, func(first, end int) {
			rows, d := y.dense.View(first, end, 0, y.cols), d
			if d.IDs != nil {
				d.IDs = d.IDs[first:end]
			}
			cpu.Gather(t.x, rows, someRows(from, first, end))
			cpu.Dropout(t.x, rows, rows, d)
		})
	} else {
		y = t.New(x.rows, x.cols)
		cpu.Dropout(t.x, y.dense, x.Matrix(), d)
	}
	t.Record(y, func() {
		cpu.Dropout(t.x, y.grad, y.grad, d)
		t.addGrad(x, y.grad)
	}, x)
	return y
}

// dropoutInPlace is Dropout that overwrites y, which must be the result of an
// op whose backward pass reads no more of its output than which values are
// positive (so not of ELU). The gradient is zero where a value was dropped, so
// that pass then does the right thing.
func (t *Tape[T]) dropoutInPlace(y *Value[T], d cpu.Dropped) *Value[T] {
	y.own()
	cpu.Dropout(t.x, y.dense, y.dense, d)
	t.Record(y, func() { cpu.Dropout(t.x, y.grad, y.grad, d) }, y)
	return y
}

// AddScaled changes y to y + (1+e)·x in place and returns it; e is 1×1. It
// panics as LinearAdd does.
func (t *Tape[T]) AddScaled(y, x, e *Value[T]) *Value[T] {
	y.mayChange()
	m := x.Matrix()
	f := 1 + e.scalar()
	cpu.Axpy(t.x, y.dense, f, m)
	t.Record(y, func() {
		if e.needs {
			t.addGrad(e, t.constant(T(cpu.Dot(t.x, y.grad, m))))
		}
		if x.needs {
			dx, add := x.gradient()
			if !add {
				cpu.Scale(t.x, dx, f, y.grad)
			} else {
				cpu.Axpy(t.x, dx, f, y.grad)
			}
		}
	}, x, e)
	return y
}
