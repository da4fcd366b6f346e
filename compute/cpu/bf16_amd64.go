package cpu

import "github.com/klauspost/cpuid/v2"

// hasBFloat16 reports whether this processor has the instructions of AVX512_BF16.
func hasBFloat16() bool { return cpuid.CPU.Supports(cpuid.AVX512BF16) }

// fastTile computes 14×32 values of c, ldc apart.
func fastTile(half int, a, b []uint32, c []float32, ldc int, acc bool) {
	flags := 0
	if acc {
		flags = flagAccumulate
	}
	_, _, _ = a[half*14-1], b[half*32-1], c[13*ldc+31]
	tile14x32BF16(half, &a[0], &b[0], &c[0], 4*ldc, flags)
}

// fastRows rounds two rows of up to 32 values.
func fastRows(dst []uint32, lo, hi []float32) {
	_, _ = dst[len(lo)-1], hi[len(lo)-1]
	roundRows(&dst[0], &lo[0], &hi[0], len(lo))
}

// fastPairs rounds the first pairs of src and returns how many.
func fastPairs(dst []uint32, src []float32) int {
	n := len(src) / 16 * 8
	if n > 0 {
		_ = dst[n-1]
		roundPairs(&dst[0], &src[0], n)
	}
	return n
}
