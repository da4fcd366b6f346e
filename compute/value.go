package compute

import (
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Value is a matrix on a Tape: one row per node (or per edge, or per parameter
// row). It is valid until the tape's Reset. Rows of a feature table are a Value
// too: they are read where they lie, and only copied if an op needs them dense.
type Value[T cpu.Float] struct {
	tape  *Tape[T]
	rows  int
	cols  int
	dense cpu.Matrix[T] // Data is nil while the rows lie in table
	host  []T           // of a parameter whose dense is a device's: the values in the host's memory, once they are there
	table *graph.Features
	ids   []uint32 // rows of table; nil: row i is row i

	csr      *cpu.Sparse[float32] // the same table's non-zero values, if they are few
	gathered cpu.Sparse[T]        // v's own rows of them, or what dropout left, once asked for

	grad    cpu.Matrix[T]
	hasGrad bool // grad holds a (partial) gradient
	given   bool // grad is the caller's memory, which may be read without settle
	begun   int  // if above 0, only the first begun rows of grad hold it; the others are unwritten zeros
	needs   bool // somebody wants the gradient
	read    bool // a recorded step reads the values, so that they must not change

	parent *Value[T] // the value that this is a part of; its gradient lies there
	column int       // the parent's column where this begins

	masters  *Value[T] // of rows that received returned: those of the piece's masters
	round    string    // in which the others' are sent
	layer    int       // that reads them
	owned    bool      // dense is the arena's, and this value's alone
	kept     bool      // dense stays for gradients to come
	fixed    bool      // rows of table: the same ones in each gradient over the same blocks
	outlives bool      // dense and grad are kept where the tape runs again
	made     bool      // the step that makes it is recorded
}

// Rows returns the number of rows.
func (v *Value[T]) Rows() int { return v.rows }

// Cols returns the number of columns.
func (v *Value[T]) Cols() int { return v.cols }

// NeedsGrad reports whether a gradient flows into v.
func (v *Value[T]) NeedsGrad() bool { return v.needs }

// Matrix returns the values, after gathering them if they lie in a table. The
// result aliases v.
func (v *Value[T]) Matrix() cpu.Matrix[T] {
	v.tape.finish()
	if v.dense.Data == nil && v.gathered.Indptr != nil && v.table == nil {
		v.dense = v.tape.written(v.rows, v.cols, func(m cpu.Matrix[T]) {
			clear(m.Data)
			for i := range v.rows {
				for p := v.gathered.Indptr[i]; p < v.gathered.Indptr[i+1]; p++ {
					m.Row(i)[v.gathered.Indices[p]] = v.gathered.Values[p]
				}
			}
		})
	}
	if v.dense.Data == nil && v.masters != nil {
		v.tape.bring(v)
	}
	if v.dense.Data == nil && v.table != nil {
		if p := v.parent; p != nil && p.dense.Data != nil {
			v.dense = p.dense.View(0, v.rows, v.column, v.column+v.cols)
			return v.dense
		}
		m := v.tape.matrix(v.rows, v.cols)
		cpu.Gather(v.tape.x, m, v.source())
		v.dense = m
	}
	return v.dense
}

// source returns where to read v's rows without copying them.
func (v *Value[T]) source() cpu.Source[T] {
	if v.dense.Data != nil || v.table == nil {
		return cpu.Source[T]{Dense: v.Matrix()}
	}
	return cpu.Source[T]{Table: v.table, IDs: v.ids}
}

// gradient returns where v's gradient is to be written. add says that it holds
// other uses' contributions already, to which the caller adds; if it is false
// the caller overwrites all of it.
func (v *Value[T]) gradient() (g cpu.Matrix[T], add bool) {
	if v.parent != nil {
		g, add = v.parent.gradient()
		switch {
		case add:
		case v.cols == v.parent.cols && v.parent.parent == nil && v.rows > 0 && !v.parent.given:
			v.parent.begun = v.rows
		case v.cols == v.parent.cols:
			cpu.Fill(v.tape.x, g.View(v.rows, g.Rows, 0, g.Cols), 0)
		default:
			cpu.Fill(v.tape.x, g, 0)
			add = true
		}
		return g.View(0, v.rows, v.column, v.column+v.cols), add
	}
	if v.grad.Data == nil {
		if v.grad = v.tape.matrix(v.rows, v.cols); v.outlives {
			v.tape.mem.Keep(v.grad.Data)
		}
	}
	v.settle()
	add = v.hasGrad
	v.hasGrad = true
	return v.grad, add
}

// settle writes the zeros that a part's gradient put off.
func (v *Value[T]) settle() {
	if v.begun > 0 {
		cpu.Fill(v.tape.x, v.grad.View(v.begun, v.rows, 0, v.cols), 0)
		v.begun = 0
	}
}

// gradientRows is gradient for an op that overwrites the rows that hold nothing
// yet and adds to the others: the first held ones.
func (v *Value[T]) gradientRows() (g cpu.Matrix[T], held int) {
	if v.parent == nil && v.begun > 0 {
		held, v.begun = v.begun, 0
		return v.grad, held
	}
	g, add := v.gradient()
	if add {
		held = v.rows
	}
	return g, held
}

// Grad returns the gradient with respect to v after Backward; its Data is nil
// if none flowed into it.
func (v *Value[T]) Grad() cpu.Matrix[T] {
	if v.parent != nil {
		if g := v.parent.Grad(); g.Data != nil {
			return g.View(0, v.rows, v.column, v.column+v.cols)
		}
		return cpu.Matrix[T]{}
	}
	if !v.hasGrad {
		return cpu.Matrix[T]{}
	}
	v.settle()
	return v.grad
}

// mayChange panics if a recorded step reads v's values.
func (v *Value[T]) mayChange() {
	if v.read || v.parent != nil || v.dense.Data == nil {
		panic("compute: an op in place would change values that the backward pass reads")
	}
	v.own()
}

// own has v lie in memory of its own, which may be written, where it is kept for gradients to come.
func (v *Value[T]) own() {
	v.tape.finish()
	if v.kept {
		own := v.tape.matrix(v.rows, v.cols)
		cpu.Copy(v.tape.x, own, v.dense)
		v.dense, v.owned, v.kept = own, true, false
	}
}

// scalar returns the value of a parameter that is a number.
func (v *Value[T]) scalar() T {
	if d := cpu.DeviceOf[T](v.tape.x); d == nil {
		return v.dense.Data[0]
	} else if v.host == nil {
		v.host = make([]T, len(v.dense.Data))
		d.Download(v.host, v.dense.Data)
	}
	return v.host[0]
}
