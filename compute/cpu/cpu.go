// Package cpu holds the compute kernels that run on the host's processor:
// dense products, aggregation over a graph.Block and its transpose, gathers,
// and the element-wise steps of training.
//
// # Sets
//
// Every kernel exists as portable Go, generic over float32 and float64, and
// the hot ones as assembly for AVX2 and AVX-512 (float32 only; float64 always
// takes the portable path, which serves gradient checks). Detect picks the
// Set. Sets may differ from each other in the last bits (fused multiply-add),
// within |a-b| <= 1e-5·(|A|·|B|) element by element; each alone is repeatable
// bit for bit.
//
// # Order of sums
//
// The order in which numbers are added is a function of shapes alone: never of
// the number of workers, of which worker runs a chunk, or of a row's position.
// Row i of Gemm(A, B) with A not transposed has bits that depend on row i of
// A, on B, and on K and N; row i of an aggregation has bits that depend on the
// order of its entries. So a row computed alone equals the same row computed
// among a million others, which exact inference in chunks relies on.
//
// # NaN and infinities
//
// Nothing is skipped because it is multiplied by zero: NaN and Inf propagate
// as IEEE 754 says through products and sums. ReLU and Max keep a NaN. A
// dropped value becomes +0 even if it was NaN.
//
// # Errors and memory
//
// Mismatched shapes are programming errors and panic with a fixed message, as
// gonum does. Kernels allocate nothing once their Exec has grown its scratch
// to the largest shape seen.
package cpu

// Float is the set of element types.
type Float interface{ float32 | float64 }

// Matrix is a view of Rows×Cols values, row-major: element (i, j) is
// Data[i*Stride+j]. It does not own Data.
type Matrix[T Float] struct {
	Rows, Cols, Stride int
	Data               []T
}

// NewMatrix allocates a zeroed dense matrix.
func NewMatrix[T Float](rows, cols int) Matrix[T] {
	return Matrix[T]{Rows: rows, Cols: cols, Stride: cols, Data: make([]T, rows*cols)}
}

// Dense views data as rows×cols without a gap between rows. len(data) must be
// at least rows*cols.
func Dense[T Float](rows, cols int, data []T) Matrix[T] {
	m := Matrix[T]{Rows: rows, Cols: cols, Stride: cols, Data: data}
	m.check()
	return m
}

// Row returns row i; the slice aliases m.
func (m Matrix[T]) Row(i int) []T {
	o := i * m.Stride
	return m.Data[o : o+m.Cols : o+m.Cols]
}

// View returns rows [r0, r1) and columns [c0, c1) of m; it aliases m.
func (m Matrix[T]) View(r0, r1, c0, c1 int) Matrix[T] {
	if r0 < 0 || r1 < r0 || r1 > m.Rows || c0 < 0 || c1 < c0 || c1 > m.Cols {
		panic(badView)
	}
	v := Matrix[T]{Rows: r1 - r0, Cols: c1 - c0, Stride: m.Stride}
	if v.Rows > 0 && v.Cols > 0 {
		v.Data = m.Data[r0*m.Stride+c0 : (r1-1)*m.Stride+c1]
	}
	return v
}

// The messages of the panics for mismatched shapes.
const (
	badMatrix    = "cpu: matrix data is shorter than its shape"
	badView      = "cpu: view is out of range"
	badGemm      = "cpu: Gemm: shapes do not match"
	badBias      = "cpu: Gemm: length of bias is not the number of columns"
	badBoth      = "cpu: Gemm: both operands transposed"
	badAlias     = "cpu: Gemm: dst overlaps an operand"
	badAggregate = "cpu: Aggregate: shapes do not match"
	badBackward  = "cpu: AggregateBackward: shapes do not match"
	badWeights   = "cpu: Aggregate: one weight per entry, one self coefficient per destination"
	badForward   = "cpu: Aggregate: Accumulate is AggregateBackward's; add the result with Axpy instead"
	badMax       = "cpu: Aggregate: Max takes no weights, and needs Argmax for the backward pass"
	badArgmax    = "cpu: Aggregate: length of Argmax is not destinations times columns"
	badEntries   = "cpu: a block that is transposed or reduced by Max has fewer than 2^32-1 entries"
	badIndex     = "cpu: row index is out of range"
	badGather    = "cpu: Gather: shapes do not match"
	badShapes    = "cpu: shapes do not match"
	badRate      = "cpu: Dropout: probability is not in [0, 1)"
	badLabel     = "cpu: SoftmaxCrossEntropy: label is out of range"
)

func (m Matrix[T]) check() {
	if m.Rows < 0 || m.Cols < 0 || m.Stride < m.Cols ||
		m.Rows > 0 && m.Cols > 0 && len(m.Data) < (m.Rows-1)*m.Stride+m.Cols {
		panic(badMatrix)
	}
}

// flat reports whether the rows of m follow each other without a gap.
func (m Matrix[T]) flat() bool { return m.Stride == m.Cols || m.Rows <= 1 }

// as32 views s as float32 values if that is what they are.
func as32[T Float](s []T) ([]float32, bool) {
	f, ok := any(s).([]float32)
	return f, ok
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
