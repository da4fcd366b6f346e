package compute

import (
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Bounds of what counts as sparse input features (bags of words, mostly): at
// most one value in sparseShare is not zero, in at least sparseColumns columns.
const (
	sparseShare   = 8
	sparseColumns = 64
	// sparseProbe is how many rows are looked at before all of them are.
	sparseProbe = 256
	// sparseTable is the largest table, in values, that is looked at.
	sparseTable = 1 << 31
)

// BindFeatures tells the model the data set's feature table, which must stay
// valid and unchanged while the model is in use. If most of its values are zero
// the first layer then multiplies only the others, wherever a batch or Infer
// names this table. That changes the order of sums, so whether it is called
// belongs to a run's identity; the choice is a function of the table alone. The
// non-zero values are copied: 8 bytes each. BindFeatures must not run while
// other methods do.
func (m *Model) BindFeatures(f *graph.Features) {
	m.sparse, m.sparseOf = nil, f
	sparse, _ := SparseProbe(f, func(row []float32, i int) error {
		f.Row(row, i)
		return nil
	})
	if !sparse {
		return
	}
	if s := cpu.NewSparse(f); len(s.Values)*sparseShare <= f.Rows*f.Cols {
		m.sparse = s
	}
}

// SparseProbe reports whether BindFeatures may find a table of f's size to be sparse: it looks at
// some rows, which row decodes, and returns its first error.
func SparseProbe(f *graph.Features, row func(dst []float32, i int) error) (bool, error) {
	if !maySparse(f.Rows, f.Cols) {
		return false, nil
	}
	values, others := make([]float32, f.Cols), 0
	probes := min(f.Rows, sparseProbe)
	for k := range probes {
		if err := row(values, k*(f.Rows/probes)); err != nil {
			return false, err
		}
		for _, v := range values {
			if v != 0 {
				others++
			}
		}
	}
	return others*sparseShare <= probes*f.Cols, nil
}

// maySparse tells whether a table of that size is looked at.
func maySparse(rows, cols int) bool {
	return cols >= sparseColumns && rows > 0 && rows <= sparseTable/cols
}

// SparseInput reports whether BindFeatures found the features to be sparse.
func (m *Model) SparseInput() bool { return m.sparse != nil }

// SparseBytes returns how many bytes the copy of sparse features takes; 0 if there
// is none.
func (m *Model) SparseBytes() int64 {
	if m.sparse == nil {
		return 0
	}
	return 8*int64(cap(m.sparse.Indptr)) + 4*int64(cap(m.sparse.Indices)) + 4*int64(cap(m.sparse.Values))
}

// sparseTable returns the bound table's non-zero values if f is that table and
// they are few.
func (m *Model) sparseTable(f *graph.Features) *cpu.Sparse[float32] {
	if m.sparse == nil || f.Rows != m.sparseOf.Rows || f.Cols != m.sparseOf.Cols ||
		unsafe.SliceData(f.Data) != unsafe.SliceData(m.sparseOf.Data) {
		return nil
	}
	return m.sparse
}

// sparseRows returns v's rows as a sparse matrix, gathered once.
func (v *Value[T]) sparseRows() *cpu.Sparse[T] {
	if v.gathered.Indptr == nil {
		v.gatherSparse(v.csr, nil)
	}
	return &v.gathered
}

// gatherSparse fills v.gathered with the rows v.ids of csr.
func (v *Value[T]) gatherSparse(csr *cpu.Sparse[float32], drop *cpu.Dropped) {
	t := v.tape
	v.gathered = cpu.Sparse[T]{Rows: v.rows, Indptr: t.longs.Alloc(v.rows + 1)}
	cpu.GatherSparse(t.x, &v.gathered, csr, v.ids, drop, func(n int) ([]uint32, []T) {
		return t.ints.Alloc(n), t.host.Alloc(n)
	})
}

// isSparse reports whether v is best multiplied as a sparse matrix.
func (v *Value[T]) isSparse() bool { return v.csr != nil || v.gathered.Indptr != nil }

// sparseDropout is Dropout of rows that are sparse: only they are drawn for,
// with the decisions that the dense matrix would have.
func (t *Tape[T]) sparseDropout(x *Value[T], d cpu.Dropped) *Value[T] {
	y := t.value(x.rows, x.cols)
	y.ids = x.ids
	y.gatherSparse(x.csr, &d)
	y.ids = nil
	return y
}

// sparseProduct is product for sparse x: the same formula, with sums over the
// entries only. Inputs have no gradient.
func (t *Tape[T]) sparseProduct(y, x, w, b *Value[T], act cpu.Activation, add bool) {
	a := x.sparseRows()
	wt := t.matrix(w.cols, w.rows)
	cpu.TransposeDense(t.x, wt, w.dense, false)
	cpu.SparseProduct(t.x, y.dense, a, wt, cpu.Epilogue[T]{Bias: bias(b), Act: act, Accumulate: add})
	t.Record(y, func() {
		g := t.activationBackward(y, b, act)
		if !w.needs {
			return
		}
		n := len(a.Indices)
		at := cpu.Sparse[T]{Indptr: t.longs.Alloc(a.Cols + 1), Indices: t.ints.Alloc(n), Values: t.host.Alloc(n)}
		cpu.TransposeSparse(&at, a)
		dwt := t.matrix(w.cols, w.rows)
		cpu.SparseProduct(t.x, dwt, &at, g, cpu.Epilogue[T]{})
		dw, add := w.gradient()
		cpu.TransposeDense(t.x, dw, dwt, add)
	}, w, b)
}
