package cpu

import "github.com/gnnactor/gnnactor/graph"

// Device runs kernels in place of the processor, each as the function of this package
// that it is named after says, which has checked the shapes. Matrices and slices that a
// kernel writes are in the device's memory; those that it only reads may be in the
// host's, and then do not change until the device forgets them. Kernels may run after
// the call returns, in order. What goes wrong is a panic with an error.
type Device[T Float] interface {
	// Alloc and AllocInts hand out memory of the device, of unspecified content, until it
	// is given back. The host must not read or write it.
	Alloc(n int) []T
	AllocInts(n int) []uint32
	Free(s []T)
	FreeInts(s []uint32)
	// Upload copies memory of the host, which may be changed when it returns, to the
	// device. Download waits for all kernels and copies memory of the device, or of the
	// host, to the host.
	Upload(dst, src []T)
	Download(dst, src []T)
	// Holds reports whether s is memory of the device, this queue's or another's, which may be
	// used here once that one has waited.
	Holds(s []T) bool
	// Wait returns when all kernels have run, with what failed.
	Wait() error
	// Find has what lies in the host's memory, and is a copy of what a devices.Sampler
	// returned, read from there until Reset; anything else is ignored.
	Find(there any)
	// Reset forgets what is in the host's memory.
	Reset()
	// Keep brings a table that does not change any more to the device's memory, once, if
	// there is room.
	Keep(f *graph.Features)

	Elementwise(op ElementOp, dst, a, b Matrix[T], f T)
	Larger(dst, a Matrix[T], which []uint32, k uint32)
	Where(dst, a Matrix[T], which []uint32, k uint32)
	TransposeDense(dst, a Matrix[T], accumulate bool)
	SparseProduct(dst Matrix[T], a *Sparse[T], b Matrix[T], e Epilogue[T])
	TakeRows(dst, a Matrix[T], ids []uint32)
	SumEntries(dst Matrix[T], indptr []int64, a Matrix[T], mean bool)
	SpreadEntries(dst Matrix[T], indptr []int64, a Matrix[T], mean, accumulate bool)
	RowSums(dst []T, a Matrix[T])
	SpreadRows(dst Matrix[T], a []T, accumulate bool)

	Aggregate(dst Matrix[T], b *graph.Block, src Source[T], o AggregateOptions[T])
	// Transpose makes t the transpose of b, as Transpose.Build does, in the device's memory, until Reset.
	Transpose(t *Transpose, b *graph.Block)
	AggregateBackward(dx Matrix[T], t *Transpose, dy Matrix[T], o AggregateOptions[T])
	Gather(dst Matrix[T], src Source[T])
	Gemm(dst, a Matrix[T], ta bool, b Matrix[T], tb bool, e Epilogue[T])
	ColumnSums(dst []T, a Matrix[T], accumulate bool)
	Dot(a, b Matrix[T]) float64

	Dropout(dst, src Matrix[T], d Dropped)
	// What losses return waits for them, and is called at most once, before Reset.
	SoftmaxLoss(logits Matrix[T], labels []int32, weights []T, dlogits Matrix[T], o LossOptions) func() (loss float64, correct int)
	SigmoidLoss(logits Matrix[T], rows []int32, labels []uint8, weights []T, dlogits Matrix[T], o LossOptions) func() (loss float64, d Decisions)
	Regression(out Matrix[T], rows []int32, values []float32, weights []T, dout Matrix[T], l RegressionLoss) func() (loss float64)

	LayerNorm(dst, a Matrix[T], gamma, beta []T, eps float64, mean, rstd []T)
	LayerNormBackward(da, dy, a Matrix[T], gamma, mean, rstd []T, terms Matrix[T])
	Moments(a Matrix[T], mean, variance []T)
	BatchNorm(dst, a Matrix[T], gamma, beta []T, eps float64, mean, variance []T)
	BatchNormBackward(da, dy, a Matrix[T], gamma []T, eps float64, mean, variance, dgamma, dbeta []T)

	AdamStep(p, m, v, g []T, f AdamFactors[T])
	SGDStep(p, v, g []T, o SGDOptions)
	// Observe has the n means and n variances and the number at tracked of params follow those
	// of grad, and takes them out of it, as compute.Model's Observe does.
	Observe(params, grad []T, tracked, mean, variance, n int)

	// Of Attention, which they take first.
	AttentionAdditive(a *Attention[T], src, dst Matrix[T])
	AttentionAdditiveBackward(a *Attention[T], t *Transpose, ds, dself []T, src, dst, dsrc, ddst Matrix[T], dEdge []T)
	AttentionDynamic(a *Attention[T], l, r Matrix[T], att []T)
	AttentionDynamicBackward(a *Attention[T], t *Transpose, ds, dself []T, l, r Matrix[T], att []T, dl, dr Matrix[T], datt []T)
	AttentionSum(a *Attention[T], dst, v Matrix[T])
	AttentionBackward(a *Attention[T], t *Transpose, dv, dy, v Matrix[T], ds, dself []T)
}

// UseDevice has x run its kernels in float32 on d from now on; those in float64 stay on
// the processor.
func (x *Exec) UseDevice(d Device[float32]) { x.f32.device = d }

// DeviceOf returns the device that x runs its kernels in T on; nil: none.
func DeviceOf[T Float](x *Exec) Device[T] { return tasksOf[T](x).device }
