package compute

import "github.com/gnnactor/gnnactor/compute/cpu"

// part returns a value whose rows are columns [from, to) of y's, for an op to
// fill; y is theirs after join alone. Concat without its copies.
func (t *Tape[T]) part(y *Value[T], from, to int) *Value[T] {
	v := t.value(y.rows, to-from)
	v.column = from
	v.dense = y.dense.View(0, y.rows, from, to)
	y.owned = false // the parts' steps, which run after y's, read it
	return v
}

// join returns y, of which parts, between them, filled all columns.
func (t *Tape[T]) join(y *Value[T], parts ...*Value[T]) *Value[T] {
	for _, v := range parts {
		y.read = y.read || v.read
	}
	t.Record(y, func() {
		for _, v := range parts { // their gradients are parts of y's
			v.grad, v.hasGrad = y.grad.View(0, y.rows, v.column, v.column+v.cols), true
		}
	}, parts...)
	return y
}

// copyTo fills v with x's values.
func (t *Tape[T]) copyTo(v, x *Value[T]) {
	cpu.Copy(t.x, v.dense, x.Matrix())
	t.Record(v, func() { t.addGrad(x, v.grad) }, x)
}
