package compute

import (
	"slices"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// recomputed runs a model on a piece so that of all layers but the last nothing is kept for the backward pass but their
// results: it computes each again, from the one before, with the rows of other pieces sent again, when it comes to it (Chen et al., 2016,
// where a layer is a segment). Inputs, keys of dropout and the order of steps are the same, and so are the bits.
type recomputed[T cpu.Float] struct {
	core    *core[T]
	blocks  []graph.Block
	input   func() *Value[T]
	key     rng.Key
	results []*Value[T] // of all layers but the last
}

// forward is core.forward.
func (r *recomputed[T]) forward() (x *Value[T]) {
	c, t := r.core, r.core.tape
	c.jumps = c.jumps[:0]
	t.mark()
	for i := range c.layers {
		x = r.layer(i)
		if i < len(c.layers)-1 {
			x = t.only(x)
			r.results = append(r.results, x)
		}
		if l := &c.layers[i]; c.model.spec.JumpingKnowledge != "" && !l.inner && !l.output {
			c.jumps = append(c.jumps, x)
		}
	}
	return c.head(x, c.jumps)
}

// layer runs layer i.
func (r *recomputed[T]) layer(i int) (x *Value[T]) {
	c := r.core
	if i == 0 {
		x = c.dropInput(r.input(), &r.blocks[0], r.key)
	} else {
		x = r.results[i-1]
	}
	x = c.layer(i, &r.blocks[i], x, r.key)
	for j := range c.ctx[i].moments { // which are read in the end
		m := &c.ctx[i].moments[j]
		m.mean, m.variance = slices.Clone(m.mean), slices.Clone(m.variance)
	}
	return x
}

// backward is Tape.Backward.
func (r *recomputed[T]) backward() {
	t := r.core.tape
	t.Backward()
	for i := len(r.results) - 1; i >= 0 && t.halo.err == nil; i-- {
		x := r.results[i]
		t.mem.Unkeep(x.dense.Data) // it is made again
		x.dense = cpu.Matrix[T]{}
		t.again()
		t.halo.again = true
		y := r.layer(i)
		t.halo.again = false
		y.grad, y.hasGrad = x.grad, x.hasGrad
		t.Backward()
	}
}

// mark says where again goes back to.
func (t *Tape[T]) mark() {
	t.below = t.used
	t.mem.Mark()
	t.marks.Mark()
	t.host.Mark()
	t.ints.Mark()
	t.longs.Mark()
}

// again forgets the values and steps since mark, but for what only returned, and has their memory be used again.
func (t *Tape[T]) again() {
	t.forgetRows()
	clear(t.steps)
	t.steps = t.steps[:0]
	for _, v := range t.values[t.below:t.used] {
		*v = Value[T]{}
	}
	t.used = t.below
	t.mem.Recycle()
	t.marks.Recycle()
	t.host.Recycle()
	t.ints.Recycle()
	t.longs.Recycle()
}

// only is again that keeps v's values, which it returns as a value that no step makes, and whose gradient stays, too.
func (t *Tape[T]) only(v *Value[T]) *Value[T] {
	rows, cols := v.rows, v.cols
	kept := Value[T]{tape: t, rows: rows, cols: cols, dense: v.Matrix(), needs: v.needs, read: true, outlives: true}
	if !v.owned || v.kept {
		kept.dense = t.matrix(rows, cols)
		cpu.Copy(t.x, kept.dense, v.dense)
	}
	t.mem.Keep(kept.dense.Data)
	t.again()
	w := t.value(rows, cols)
	*w = kept
	t.below = t.used
	return w
}
