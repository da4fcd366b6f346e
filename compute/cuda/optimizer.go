//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import "github.com/gnnactor/gnnactor/compute/cpu"

// AdamStep is cpu's, with its bits.
func (q *Queue) AdamStep(p, m, v, g []float32, f cpu.AdamFactors[float32]) {
	if n := len(p); n > 0 {
		q.run("adam", blocks(n), 1, threads, result(q, p), result(q, m), result(q, v), of(q, g), int64(n), words(&f))
	}
}

// SGDStep is cpu's, with its bits.
func (q *Queue) SGDStep(p, v, g []float32, o cpu.SGDOptions) {
	if o.Momentum == 0 {
		v = nil
	}
	if n := len(p); n > 0 {
		q.run("sgd", blocks(n), 1, threads, result(q, p), result(q, v), of(q, g), int64(n),
			float32(o.LearningRate), float32(o.Momentum), float32(o.WeightDecay), o.Nesterov, o.First)
	}
}

// Observe has the running statistics of a batch norm in params, at mean and variance n each and
// one at tracked, follow those of grad, which it takes out, as compute.Model's Observe does.
func (q *Queue) Observe(params, grad []float32, tracked, mean, variance, n int) {
	q.run("observe", 1, 1, threads, result(q, params), result(q, grad), int64(tracked), int64(mean), int64(variance), n)
}
