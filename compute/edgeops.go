package compute

import (
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Rows returns rows ids of v, in that order; ids must not change before Reset.
// Rows of a table are still read where they lie. The gradient of a row that
// occurs several times is summed in the order of ids.
func (t *Tape[T]) Rows(v *Value[T], ids []uint32) *Value[T] {
	if v.dense.Data == nil && v.table != nil {
		rows := ids
		if v.ids != nil {
			rows = t.ints.Alloc(len(ids))
			for i, id := range ids {
				rows[i] = v.ids[id]
			}
		}
		y := t.Table(v.table, len(ids), rows)
		y.csr = v.csr
		return y
	}
	y := t.New(len(ids), v.cols)
	m := v.Matrix()
	cpu.TakeRows(t.x, y.dense, m, ids)
	t.Record(y, func() {
		// The transpose of the matrix with a 1 per row, in column ids[i].
		pick := cpu.Sparse[T]{Rows: len(ids), Cols: v.rows, Indptr: t.longs.Alloc(len(ids) + 1), Indices: ids, Values: t.host.Alloc(len(ids))}
		for i := range ids {
			pick.Indptr[i], pick.Values[i] = int64(i), 1
		}
		pick.Indptr[len(ids)] = int64(len(ids))
		back := cpu.Sparse[T]{Indptr: t.longs.Alloc(v.rows + 1), Indices: t.ints.Alloc(len(ids)), Values: t.host.Alloc(len(ids))}
		cpu.TransposeSparse(&back, &pick)
		g, add := v.gradient()
		cpu.SparseProduct(t.x, g, &back, y.grad, cpu.Epilogue[T]{Accumulate: add})
	}, v)
	return y
}

// chunks runs f(i) for i in [0, n), in parallel.
func (t *Tape[T]) chunks(n int, f func(i int)) {
	t.x.For((n+coefRows-1)/coefRows, func(_, c int) {
		for i := c * coefRows; i < min(n, (c+1)*coefRows); i++ {
			f(i)
		}
	})
}

// FromSources returns, for every entry of the block, its source's row of v.
func (c *Context[T]) FromSources(v *Value[T]) *Value[T] { return c.Rows(v, c.Block.Indices) }

// FromDestinations returns, for every entry of the block, its destination's row
// of v.
func (c *Context[T]) FromDestinations(v *Value[T]) *Value[T] {
	ids := c.ints.Alloc(len(c.Block.Indices))
	for i := range c.Block.NumDst {
		for e := c.Block.Indptr[i]; e < c.Block.Indptr[i+1]; e++ {
			ids[e] = uint32(i)
		}
	}
	return c.Rows(v, ids)
}

// EdgeFeatures returns, for every entry of the block, its edge's features.
func (c *Context[T]) EdgeFeatures() *Value[T] {
	n := len(c.Block.Indices)
	v := c.value(n, c.edges.Cols)
	v.dense = c.written(n, v.cols, func(m cpu.Matrix[T]) {
		c.x.For((n+coefRows-1)/coefRows, func(_, chunk int) {
			row := make([]float32, c.edges.Cols)
			for e := chunk * coefRows; e < min(n, (chunk+1)*coefRows); e++ {
				edge := e // the whole graph: entry e is edge e
				if c.Block.EdgeIDs != nil {
					edge = int(c.Block.EdgeIDs[e])
				}
				c.edges.Row(row, edge)
				for j, f := range row {
					m.Row(e)[j] = T(f)
				}
			}
		})
	})
	return v
}

// SumEntries returns, for every destination of b, the reduction of its entries'
// rows of v, which has one per entry: the sum, or the mean.
func (t *Tape[T]) SumEntries(b *graph.Block, v *Value[T], reduce cpu.Reduce) *Value[T] {
	if reduce == cpu.Max {
		panic("compute: SumEntries: Max of entries is not defined")
	}
	y := t.New(b.NumDst, v.cols)
	m := v.Matrix()
	mean := reduce == cpu.Mean
	cpu.SumEntries(t.x, y.dense, b.Indptr, m, mean)
	t.Record(y, func() {
		g, add := v.gradient()
		cpu.SpreadEntries(t.x, g, b.Indptr, y.grad, mean, add)
	}, v)
	return y
}

// Multiply returns a∘b, element by element.
func (t *Tape[T]) Multiply(a, b *Value[T]) *Value[T] {
	y := t.New(a.rows, a.cols)
	ma, mb := a.Matrix(), b.Matrix()
	a.read, b.read = true, true
	cpu.Multiply(t.x, y.dense, ma, mb)
	t.Record(y, func() {
		part := t.matrix(y.rows, y.cols)
		if a.needs {
			cpu.Multiply(t.x, part, y.grad, mb)
			t.addGrad(a, part)
		}
		if b.needs {
			cpu.Multiply(t.x, part, y.grad, ma)
			t.addGrad(b, part)
		}
	}, a, b)
	return y
}

// RowSums returns the sum of every row of x: n×1.
func (t *Tape[T]) RowSums(x *Value[T]) *Value[T] {
	y := t.New(x.rows, 1)
	m := x.Matrix()
	cpu.RowSums(t.x, y.dense.Data, m)
	t.Record(y, func() {
		g, add := x.gradient()
		cpu.SpreadRows(t.x, g, y.grad.Data, add)
	}, x)
	return y
}
