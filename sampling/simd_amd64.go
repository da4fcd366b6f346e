package sampling

import (
	"os"

	"github.com/klauspost/cpuid/v2"
)

// simd chooses the kernels that have a portable twin; both give the same bits.
// GNNACTOR_SIMD=go turns it off, as it does for compute.
var simd = os.Getenv("GNNACTOR_SIMD") != "go" && cpuid.CPU.Supports(cpuid.AVX2, cpuid.BMI1, cpuid.POPCNT)
