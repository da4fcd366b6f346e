//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// drop is d as kernels take it.
func (q *Queue) drop(d *cpu.Dropped) dropped {
	if d == nil {
		return dropped{}
	}
	return dropped{uint64(d.Key), of(q, d.IDs), d.Threshold(), float32(d.Scale())}
}

// dropoutRows is the kernels' DropoutRows.
type dropoutRows struct {
	src        uintptr
	srcStride  int64
	dst        uintptr
	dstStride  int64
	drop       dropped
	rows, cols int32
}

// Dropout is cpu's.
func (q *Queue) Dropout(dst, src matrix, d cpu.Dropped) {
	p := dropoutRows{
		src: of(q, src.Data), srcStride: int64(src.Stride), dst: result(q, dst.Data), dstStride: int64(dst.Stride),
		drop: q.drop(&d), rows: int32(dst.Rows), cols: int32(dst.Cols),
	}
	q.run("dropout", blocks(dst.Rows*((dst.Cols+3)/4)), 1, threads, words(&p))
}

// rowLoss is the kernels' RowLoss.
type rowLoss struct {
	loss   float64
	counts [4]int64
}

// losses is the kernels' Losses.
type losses struct {
	logits            uintptr
	logitsStride      int64
	labels            uintptr
	targets           uintptr
	weights           uintptr
	dlogits           uintptr
	dlogitsStride     int64
	rowLosses, result uintptr
	rows, cols        int32
}

// loss queues a loss kernel and the sum of its rows, which the function that it returns waits for.
func (q *Queue) loss(kernel string, logits matrix, labels []int32, targets []uint8, weights []float32, dlogits matrix) func() rowLoss {
	if logits.Rows == 0 {
		return func() rowLoss { return rowLoss{} }
	}
	sum := until[rowLoss](q, 1) // scratch is that of the kernels that follow
	p := losses{
		logits: of(q, logits.Data), logitsStride: int64(logits.Stride), labels: of(q, labels), targets: of(q, targets), weights: of(q, weights),
		dlogits: result(q, dlogits.Data), dlogitsStride: int64(dlogits.Stride), rowLosses: q.scratch(logits.Rows * int(unsafe.Sizeof(sum[0]))), result: of(q, sum),
		rows: int32(logits.Rows), cols: int32(logits.Cols),
	}
	const perBlock = threads / 32 // a warp makes a row
	q.run(kernel, (logits.Rows+perBlock-1)/perBlock, 1, threads, words(&p))
	q.run("loss_sum", 1, 1, threads, words(&p))
	return func() rowLoss {
		var r [1]rowLoss
		Download(q, r[:], sum)
		return r[0]
	}
}

// SoftmaxCrossEntropy is cpu's.
func (q *Queue) SoftmaxCrossEntropy(logits matrix, labels []int32, weights []float32, dlogits matrix) func() (loss float64, correct int) {
	later := q.loss("softmax_loss", logits, labels, nil, weights, dlogits)
	return func() (float64, int) {
		r := later()
		if r.counts[1] > 0 {
			panic("cuda: SoftmaxCrossEntropy: label is out of range")
		}
		return r.loss, int(r.counts[0])
	}
}

// SigmoidCrossEntropy is cpu's.
func (q *Queue) SigmoidCrossEntropy(logits matrix, rows []int32, labels []uint8, weights []float32, dlogits matrix) func() (loss float64, d cpu.Decisions) {
	later := q.loss("sigmoid_loss", logits, rows, labels, weights, dlogits)
	return func() (float64, cpu.Decisions) {
		r := later()
		return r.loss, cpu.Decisions{TruePositive: int(r.counts[0]), FalsePositive: int(r.counts[1]), FalseNegative: int(r.counts[2]), Exact: int(r.counts[3])}
	}
}
