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
	targets, values   uintptr
	weights           uintptr
	dlogits           uintptr
	dlogitsStride     int64
	rowLosses, result uintptr
	classWeights      uintptr
	smoothing, gamma  float64
	rows, cols        int32
	regression        int64
}

// loss queues a loss kernel over p, of which the rest is said here, where a block makes so many rows, and the sum of its
// rows, which the function that it returns waits for.
func (q *Queue) loss(kernel string, perBlock int, p losses, logits matrix, labels []int32, weights []float32, dlogits matrix) func() rowLoss {
	if logits.Rows == 0 {
		return func() rowLoss { return rowLoss{} }
	}
	sum := until[rowLoss](q, 1) // scratch is that of the kernels that follow
	p.logits, p.logitsStride, p.labels, p.weights = of(q, logits.Data), int64(logits.Stride), of(q, labels), of(q, weights)
	p.dlogits, p.dlogitsStride = result(q, dlogits.Data), int64(dlogits.Stride)
	p.rowLosses, p.result = q.scratch(logits.Rows*int(unsafe.Sizeof(sum[0]))), of(q, sum)
	p.rows, p.cols = int32(logits.Rows), int32(logits.Cols)
	q.run(kernel, (logits.Rows+perBlock-1)/perBlock, 1, threads, words(&p))
	q.run("loss_sum", 1, 1, threads, words(&p))
	return func() rowLoss {
		var r [1]rowLoss
		Download(q, r[:], sum)
		return r[0]
	}
}

// classLoss is loss of what has o, for which there are kernels of their own: a warp makes a row.
func (q *Queue) classLoss(kernel string, p losses, logits matrix, labels []int32, weights []float32, dlogits matrix, o cpu.LossOptions) func() rowLoss {
	if !o.Plain() {
		kernel += "_options"
		p.classWeights, p.smoothing, p.gamma = of(q, o.ClassWeights), o.Smoothing, o.Gamma
	}
	return q.loss(kernel, threads/32, p, logits, labels, weights, dlogits)
}

// SoftmaxLoss is cpu's.
func (q *Queue) SoftmaxLoss(logits matrix, labels []int32, weights []float32, dlogits matrix, o cpu.LossOptions) func() (loss float64, correct int) {
	later := q.classLoss("softmax_loss", losses{}, logits, labels, weights, dlogits, o)
	return func() (float64, int) {
		r := later()
		if r.counts[1] > 0 {
			panic("cuda: SoftmaxLoss: label is out of range")
		}
		return r.loss, int(r.counts[0])
	}
}

// SigmoidLoss is cpu's.
func (q *Queue) SigmoidLoss(logits matrix, rows []int32, labels []uint8, weights []float32, dlogits matrix, o cpu.LossOptions) func() (loss float64, d cpu.Decisions) {
	later := q.classLoss("sigmoid_loss", losses{targets: of(q, labels)}, logits, rows, weights, dlogits, o)
	return func() (float64, cpu.Decisions) {
		r := later()
		return r.loss, cpu.Decisions{TruePositive: int(r.counts[0]), FalsePositive: int(r.counts[1]), FalseNegative: int(r.counts[2]), Exact: int(r.counts[3])}
	}
}

// Regression is cpu's, with its bits.
func (q *Queue) Regression(out matrix, rows []int32, values, weights []float32, dout matrix, l cpu.RegressionLoss) func() (loss float64) {
	later := q.loss("regression_loss", threads, losses{values: of(q, values), regression: int64(l)}, out, rows, weights, dout)
	return func() float64 { return later().loss }
}
