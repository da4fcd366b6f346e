package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
)

// sets returns the kernel sets that this machine can run, or only the one that
// the environment asks for; if raced, the first and the last.
func sets() []Set {
	var s []Set
	only, err := ParseSet(os.Getenv(SetVariable))
	if err == nil && !only.Supported() {
		panic("the set that " + SetVariable + " asks for is not supported here")
	}
	for v := Go; v <= AVX512; v++ {
		if v.Supported() && (err != nil || v == only) {
			s = append(s, v)
		}
	}
	if raced && len(s) > 2 {
		s = []Set{s[0], s[len(s)-1]}
	}
	return s
}

// newExec returns an Exec of the given set and number of workers that ends
// with the test.
func newExec(t testing.TB, set Set, workers int) *Exec {
	p := pool.New(workers)
	t.Cleanup(p.Close)
	return NewExec(p, set)
}

// eachExec runs f under every set and 1 and 2 workers.
func eachExec(t *testing.T, f func(t *testing.T, x *Exec)) {
	for _, set := range sets() {
		for _, workers := range []int{1, 2} {
			if raced && workers == 1 {
				continue
			}
			t.Run(fmt.Sprintf("%v/%d", set, workers), func(t *testing.T) { f(t, newExec(t, set, workers)) })
		}
	}
}

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// random returns a rows×cols matrix of values in [-1, 1) with gap unused
// values, NaN, after each row.
func random[T Float](r *rand.Rand, rows, cols, gap int) Matrix[T] {
	m := Matrix[T]{Rows: rows, Cols: cols, Stride: cols + gap, Data: make([]T, rows*(cols+gap))}
	for i := range m.Data {
		m.Data[i] = T(math.NaN())
	}
	for i := range rows {
		for j := range m.Row(i) {
			m.Data[i*m.Stride+j] = T(r.Float64()*2 - 1)
		}
	}
	return m
}

// bits returns the values of m, for comparison bit by bit.
func bits[T Float](m Matrix[T]) []uint64 {
	var out []uint64
	for i := range m.Rows {
		for _, v := range m.Row(i) {
			out = append(out, math.Float64bits(float64(v)))
		}
	}
	return out
}

func sameBits[T Float](t *testing.T, what string, a, b Matrix[T]) {
	t.Helper()
	x, y := bits(a), bits(b)
	if len(x) != len(y) {
		t.Fatalf("%s: %d values and %d", what, len(x), len(y))
	}
	for i := range x {
		if x[i] != y[i] {
			t.Fatalf("%s: value %d differs: %v and %v", what, i, math.Float64frombits(x[i]), math.Float64frombits(y[i]))
		}
	}
}

// near fails unless |got-want| <= tol·size everywhere.
func near[T Float](t *testing.T, what string, got, want, size Matrix[T], tol float64) {
	t.Helper()
	for i := range got.Rows {
		for j, v := range got.Row(i) {
			w, s := float64(want.Row(i)[j]), float64(size.Row(i)[j])
			if !(math.Abs(float64(v)-w) <= tol*s+1e-30) {
				t.Fatalf("%s: (%d, %d) = %v, want %v ± %g·%v", what, i, j, v, w, tol, s)
			}
		}
	}
}

func abs[T Float](m Matrix[T]) Matrix[T] {
	out := NewMatrix[T](m.Rows, m.Cols)
	for i := range m.Rows {
		for j, v := range m.Row(i) {
			out.Row(i)[j] = T(math.Abs(float64(v)))
		}
	}
	return out
}

// randomBlock returns a block with rows of 0 to most entries, one of them long.
func randomBlock(r *rand.Rand, dst, src, most int) *graph.Block {
	b := &graph.Block{NumDst: dst, NumSrc: src, Indptr: make([]int64, dst+1)}
	for i := range dst {
		n := r.IntN(most + 1)
		if i == dst/2 && most > 0 {
			n += 1500
		}
		for range n {
			b.Indices = append(b.Indices, uint32(r.IntN(src)))
		}
		b.Indptr[i+1] = int64(len(b.Indices))
	}
	return b
}
