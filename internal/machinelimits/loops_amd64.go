package machinelimits

import "github.com/klauspost/cpuid/v2"

var (
	hasAVX2   = cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3)
	hasAVX512 = hasAVX2 && cpuid.CPU.Supports(cpuid.AVX512F)
)

// SIMD names the instructions that limits are measured with.
func SIMD() string {
	switch {
	case hasAVX512:
		return "avx512"
	case hasAVX2:
		return "avx2"
	}
	return "go"
}

func multiplyAdds(sink *[16]float32) float64 {
	lanes, f := 8.0, fma256
	switch {
	case hasAVX512:
		lanes, f = 16, fma512
	case !hasAVX2:
		return portableFMA(sink)
	}
	for range steps / callSteps {
		f(&sink[0], &factors[0], callSteps)
	}
	return steps * 12 * 2 * lanes
}

// readSum needs a multiple of 32 values.
func readSum(sink *[16]float32, p []float32) {
	if !hasAVX2 {
		portableRead(sink, p)
		return
	}
	readBlocks(&sink[0], &p[0], len(p)/32)
}

// gatherSum sums the rows of all ids but the last 16.
func gatherSum(sink *[16]float32, table []float32, ids []uint32) {
	if !hasAVX2 {
		portableGather(sink, table, ids)
		return
	}
	gatherRows(&sink[0], &table[0], &ids[0], len(ids)-ahead)
}

// copyDense copies the rows of all ids but the last 16.
func copyDense(dense, table []float32, ids []uint32) {
	if !hasAVX2 {
		portableCopy(dense, table, ids)
		return
	}
	copyRows(&dense[0], &table[0], &ids[0], len(ids)-ahead)
}
