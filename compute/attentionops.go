package compute

import (
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Attention says how a Message's values are weighted: by a softmax, over the
// entries of each destination, of scores per head. The scores are GAT's,
//
//	LeakyReLU(Src[u] + Dst[v] + Edge[e]),
//
// or, if Att is set, GATv2's, attᵀLeakyReLU(Value[u] + Right[v]). Head h has the
// values' columns [h·C, (h+1)·C).
type Attention[T cpu.Float] struct {
	Heads int
	Slope T    // of LeakyReLU below 0
	Loops bool // every destination attends to itself once, whatever its entries say

	Src  *Value[T] // NumSrc×Heads
	Dst  *Value[T] // NumDst×Heads
	Edge *Value[T] // entries×Heads, or nil

	Right *Value[T] // NumDst×(Heads·C)
	Att   *Value[T] // Heads×C

	Weights []T // of each entry's e^score in the softmax, constants; nil: all 1

	Drop *cpu.Dropped // of the weights; nil: none
}

// Attend returns the sums of v's rows, weighted as o says: NumDst×(Heads·C). No
// value per entry and feature is stored.
func (t *Tape[T]) Attend(b *graph.Block, v *Value[T], o Attention[T]) *Value[T] {
	y := t.New(b.NumDst, v.cols)
	t.attend(y, y.dense, b, v, o, nil)
	return y
}

// attend is Attend, whose result it writes to into; y takes its gradient, which part, if it is not nil, has where the softmax has entries in
// other pieces, too.
func (t *Tape[T]) attend(y *Value[T], into cpu.Matrix[T], b *graph.Block, v *Value[T], o Attention[T], part *softmaxPart[T]) {
	m := v.Matrix()
	v.read = true
	h := o.Heads
	a := &cpu.Attention[T]{Block: b, Heads: h, Slope: o.Slope, Loops: o.Loops, Weights: o.Weights, Drop: o.Drop, Alpha: t.mem.Alloc(len(b.Indices) * h)}
	if part != nil {
		a.LogSum, a.Targets = part.sums, part.targets
	}
	if o.Loops {
		a.Self = t.mem.Alloc(b.NumDst * h)
	}
	if o.Edge != nil {
		o.Edge.read = true
		a.Edge = o.Edge.Matrix().Data[:len(a.Alpha)]
	}
	if o.Att != nil {
		o.Right.read = true
		a.Dynamic(t.x, m, o.Right.Matrix(), o.Att.dense.Data[:v.cols])
	} else {
		o.Src.read, o.Dst.read = true, true
		a.Additive(t.x, o.Src.Matrix(), o.Dst.Matrix())
	}
	a.Sum(t.x, into, m)
	t.Record(y, func() {
		g := y.grad
		if part != nil {
			g, a.Products = part.gradient()
		}
		tr := t.transpose(b)
		ds, dself := t.mem.Alloc(len(a.Alpha)), t.mem.Alloc(len(a.Self))
		dv := t.matrix(v.rows, v.cols)
		a.Backward(t.x, tr, dv, g, m, ds, dself)
		if o.Att != nil {
			dr, datt := t.matrix(b.NumDst, v.cols), t.matrix(o.Att.rows, o.Att.cols)
			a.DynamicBackward(t.x, tr, ds, dself, m, o.Right.Matrix(), o.Att.dense.Data[:v.cols], dv, dr, datt.Data)
			t.addGrad(o.Right, dr)
			t.addGrad(o.Att, datt)
		} else {
			dsrc, ddst := t.matrix(b.NumSrc, h), t.matrix(b.NumDst, h)
			var dedge []T
			if o.Edge != nil && o.Edge.needs {
				dedge = t.mem.Alloc(len(a.Alpha))
			}
			a.AdditiveBackward(t.x, tr, ds, dself, o.Src.Matrix(), o.Dst.Matrix(), dsrc, ddst, dedge)
			t.addGrad(o.Src, dsrc)
			t.addGrad(o.Dst, ddst)
			if dedge != nil {
				t.addGrad(o.Edge, cpu.Dense(len(b.Indices), h, dedge))
			}
		}
		t.addGrad(v, dv)
	}, v, o.Src, o.Dst, o.Edge, o.Right, o.Att)
}

// FoldHeads returns the Heads×in matrix whose row h is att[h]ᵀ·W_h, W_h the rows
// [h·C, (h+1)·C) of w: att is Heads×C, w (Heads·C)×in. So x·FoldHeadsᵀ are the
// scores att[h]ᵀ(W_h x).
func (t *Tape[T]) FoldHeads(att, w *Value[T]) *Value[T] {
	y := t.New(att.rows, w.cols)
	c := att.cols
	head := func(m cpu.Matrix[T], h int) cpu.Matrix[T] { return m.View(h*c, (h+1)*c, 0, m.Cols) }
	row := func(m cpu.Matrix[T], h int) cpu.Matrix[T] { return m.View(h, h+1, 0, m.Cols) }
	for h := range att.rows {
		cpu.Gemm(t.x, row(y.dense, h), row(att.dense, h), false, head(w.dense, h), false, cpu.Epilogue[T]{})
	}
	t.Record(y, func() {
		if att.needs {
			g, add := att.gradient()
			for h := range att.rows {
				cpu.Gemm(t.x, row(g, h), row(y.grad, h), false, head(w.dense, h), true, cpu.Epilogue[T]{Accumulate: add})
			}
		}
		if w.needs {
			g, add := w.gradient()
			for h := range att.rows {
				cpu.Gemm(t.x, head(g, h), row(att.dense, h), true, row(y.grad, h), false, cpu.Epilogue[T]{Accumulate: add})
			}
		}
	}, att, w)
	return y
}

// MeanHeads returns the mean over heads: x is n×(heads·C), the result n×C.
func (t *Tape[T]) MeanHeads(x *Value[T], heads int) *Value[T] {
	c := x.cols / heads
	y := t.New(x.rows, c)
	m := x.Matrix()
	f := 1 / T(heads)
	cpu.Scale(t.x, y.dense, f, m.View(0, x.rows, 0, c))
	for h := 1; h < heads; h++ {
		cpu.Axpy(t.x, y.dense, f, m.View(0, x.rows, h*c, (h+1)*c))
	}
	t.Record(y, func() {
		g, add := x.gradient()
		for h := range heads {
			part := g.View(0, x.rows, h*c, (h+1)*c)
			if add {
				cpu.Axpy(t.x, part, f, y.grad)
			} else {
				cpu.Scale(t.x, part, f, y.grad)
			}
		}
	}, x)
	return y
}
