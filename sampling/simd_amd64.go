package sampling

import (
	"os"

	"github.com/klauspost/cpuid/v2"
)

// simd and simd512 choose the kernels that have a portable twin; all give the
// same bits. GNNACTOR_SIMD=go turns them off, and avx2 those of AVX-512, as it
// does for compute.
var (
	simd    = os.Getenv("GNNACTOR_SIMD") != "go" && cpuid.CPU.Supports(cpuid.AVX2, cpuid.BMI1, cpuid.POPCNT)
	simd512 = simd && os.Getenv("GNNACTOR_SIMD") != "avx2" && cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512DQ, cpuid.BMI2)
)
