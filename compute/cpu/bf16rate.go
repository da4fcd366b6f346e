package cpu

import (
	"math"
	"time"

	"github.com/gnnactor/gnnactor/pool"
)

// BF16Rate measures how many products in bfloat16 kernels make in the time of one
// in float32: on some processors with the instructions fewer than one.
func BF16Rate(set Set, threads int) float64 {
	const n = 256
	p := pool.New(threads)
	defer p.Close()
	a, b, c := NewMatrix[float32](n, n), NewMatrix[float32](n, n), NewMatrix[float32](n, n)
	took := func(precision Precision) time.Duration {
		x := NewExec(p, set)
		x.SetPrecision(precision)
		best := time.Duration(math.MaxInt64)
		for range 4 { // memory grows in the first
			began := time.Now()
			Gemm(x, c, a, false, b, false, Epilogue[float32]{})
			best = min(best, max(time.Since(began), 1))
		}
		return best
	}
	return took(Float32).Seconds() / took(BFloat16).Seconds()
}
