package compute

import "github.com/gnnactor/gnnactor/compute/cpu"

// byRows are ops of a piece whose results' rows are each made of the same row of the one's before alone. They are made as far as they are asked
// for: rows that other pieces read are on their way while the next are made. No bit depends on it.
type byRows[T cpu.Float] struct {
	ops  []func(from, to int)
	last *Value[T] // the last one's result
	made int       // rows
}

// One of mostParts parts of all rows are made at once; a message has leastPart values, unless it is the only one.
const mostParts, leastPart = 8, 1 << 14

// makes has make write rows [from, to) of y, of the same rows of x if that is to be made, too: now, or those of a piece when they are asked for.
func (t *Tape[T]) makes(y, x *Value[T], make func(from, to int)) {
	r := &t.later
	if r.last != x {
		t.finish()
	}
	if t.halo == nil {
		make(0, y.rows)
		return
	}
	r.ops, r.last = append(r.ops, make), y
}

// ready returns v's values once the first rows of them are made.
func (t *Tape[T]) ready(v *Value[T], rows int) cpu.Matrix[T] {
	r := &t.later
	if r.last != v {
		return v.Matrix()
	}
	step := max(1, (v.rows+mostParts-1)/mostParts)
	if rows = min(v.rows, (rows+step-1)/step*step); r.made < rows {
		for _, make := range r.ops {
			make(r.made, rows)
		}
		r.made = rows
	}
	if r.made == v.rows {
		t.forgetRows()
	}
	return v.dense
}

// finish makes what is not made yet.
func (t *Tape[T]) finish() {
	if v := t.later.last; v != nil {
		t.ready(v, v.rows)
	}
}

func (t *Tape[T]) forgetRows() {
	clear(t.later.ops)
	t.later = byRows[T]{ops: t.later.ops[:0]}
}

// someRows is rows [from, to) of s.
func someRows[T cpu.Float](s cpu.Source[T], from, to int) cpu.Source[T] {
	switch {
	case s.Table == nil:
		s.Dense = s.Dense.View(from, to, 0, s.Dense.Cols)
	case s.IDs != nil:
		s.IDs = s.IDs[from:to]
	default:
		f := *s.Table
		f.Data, f.Rows = f.Data[min(from*f.Stride, len(f.Data)):], to-from
		if f.RowScale != nil {
			f.RowScale = f.RowScale[from:to]
		}
		s.Table = &f
	}
	return s
}
