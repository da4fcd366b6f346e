package cpu

import (
	"time"

	"github.com/gnnactor/gnnactor/pool"
)

// Exec runs kernels: a worker pool, a kernel set, and the scratch memory that
// kernels need, which grows to the largest shape seen and is then reused. One
// goroutine may use an Exec at a time; any number of Execs may share a pool.
type Exec struct {
	pool      *pool.Pool
	set       Set
	precision Precision
	threads   int // of the pool, that kernels may use
	current   task
	run       func(worker, chunk int) // calls current; bound once, so that For gets no new closure
	f32       tasks[float32]
	f64       tasks[float64]
	workers   []scratch
	products  uint64   // of which each worker packed its own B
	cursors   []uint32 // Transpose.Build
	starts    []uint32
	build     buildTask
	symmetric symmetricTask
	observe   func(Call, time.Duration)
	depth     int // of kernels that are observed
}

// scratch is what one worker owns while it runs a chunk.
type scratch struct {
	row     []float32 // a feature row in float32
	row64   []float64
	exp     []float64 // a row of exponentials
	offsets []uint64  // byte offsets of the rows of a run of entries
	begin   int       // the entry whose offset is offsets[0], in a pass of attention
	coef    []float32
	counts  []int32
	scale   []float32
	tile    []float32
	panel   []float32 // packed panels of B
	panel64 []float64
	pairs   []uint32 // a tile of A in bfloat16
	look    lookahead
	own     uint64 // the last product whose B was packed into panel or panel64; no number comes twice
	ones    []float32
	arg     []uint32 // Argmax that nobody asked for
	_       [64]byte
}

// task is one parallel kernel with its operands.
type task interface {
	chunk(w *scratch, c int)
}

// tasks holds one reusable task of each kind for one element type.
type tasks[T Float] struct {
	device    Device[T] // that runs kernels instead; nil: none
	gemm      gemmTask[T]
	pair      pairTask[T]
	pack      packTask[T]
	split     splitTask[T]
	fold      foldTask[T]
	aggregate partsTask[aggregateTask[T], *aggregateTask[T]]
	gather    gatherTask[T]
	backward  partsTask[backwardTask[T], *backwardTask[T]]
	element   elementTask[T]
	dropout   dropoutTask[T]
	sums      sumsTask[T]
	loss      lossTask[T]
	adam      adamTask[T]
	dot       dotTask[T]
	layer     layerTask[T]
	moments   momentsTask[T]
	dots      dotsTask[T]
	batch     batchTask[T]
	attention attentionTask[T]
	rows      packRowsTask[T]
	packed    []T // panels of B, or parts of a source's columns
	cut       []columnPart[T]
	parts     []T // private results of a split K, or of column sums
	columns   []T // coefficients of columns
	losses    []float64
	sums64    []float64
	correct   []int
}

// NewExec returns an Exec that runs the kernels of set on p. The caller keeps
// p open while it uses the Exec. It panics if the machine does not support set.
func NewExec(p *pool.Pool, set Set) *Exec {
	if !set.Supported() {
		panic("cpu: NewExec: kernel set is not supported here; ask Detect")
	}
	x := &Exec{pool: p, set: set, threads: p.Size(), workers: make([]scratch, p.Size())}
	x.run = func(worker, c int) { x.current.chunk(&x.workers[worker], c) }
	return x
}

// Pool returns the worker pool of x.
func (x *Exec) Pool() *pool.Pool { return x.pool }

// SetThreads lets kernels use n threads of the pool, the caller's among them, or all
// if n is below 1. No result depends on it.
func (x *Exec) SetThreads(n int) {
	if n < 1 {
		n = x.pool.Size()
	}
	x.threads = n
}

// For is the pool's, with as many of its threads as x may use.
func (x *Exec) For(chunks int, f func(worker, chunk int)) { x.pool.ForOn(x.threads, chunks, f) }

// Set returns the kernel set of x.
func (x *Exec) Set() Set { return x.set }

// each runs chunks [0, n) of t.
func (x *Exec) each(n int, t task) {
	x.current = t
	x.For(n, x.run)
	x.current = nil
}

func tasksOf[T Float](x *Exec) *tasks[T] {
	if s, ok := any(&x.f32).(*tasks[T]); ok {
		return s
	}
	return any(&x.f64).(*tasks[T])
}

// grow returns s with length n, its contents unspecified.
func grow[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n, n+n/4)
	}
	return s[:n]
}
