package cpu

import (
	"fmt"
	"os"
	"runtime"

	"github.com/klauspost/cpuid/v2"
)

// Set names a kernel set: which instructions the float32 kernels use. It is
// part of a run's identity, since sets differ in the last bits.
type Set uint8

// The kernel sets, in the order of preference.
const (
	Go     Set = iota // portable Go
	AVX2              // AVX2, FMA and F16C
	AVX512            // AVX-512 F, BW, DQ and VL
)

// SetVariable is the environment variable that overrides Detect's choice.
const SetVariable = "GNNACTOR_SIMD"

// String returns the name that SetVariable takes.
func (s Set) String() string {
	switch s {
	case Go:
		return "go"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	}
	return fmt.Sprintf("set(%d)", uint8(s))
}

// ParseSet returns the set called name.
func ParseSet(name string) (Set, error) {
	for s := Go; s <= AVX512; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return Go, fmt.Errorf("cpu: kernel set %q is unknown: use avx512, avx2 or go", name)
}

// Supported reports whether this machine can run s.
func (s Set) Supported() bool {
	switch s {
	case Go:
		return true
	case AVX2:
		return runtime.GOARCH == "amd64" && cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C)
	case AVX512:
		return AVX2.Supported() && cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL)
	}
	return false
}

// Has reports whether this machine can run the dense products of s with p. AVX2
// has no BFloat16, AVX512 where the processor has AVX512_BF16; Go always has it,
// slowly. No set has TF32.
func (s Set) Has(p Precision) bool {
	return p == Float32 || p == BFloat16 && (s == Go || s == AVX512 && s.Supported() && hasBFloat16())
}

// Detect returns the best set that this machine supports, or the one that the
// environment variable GNNACTOR_SIMD names (avx512, avx2 or go). A name that
// is unknown, or that the machine cannot run, is an error.
func Detect() (Set, error) {
	name := os.Getenv(SetVariable)
	if name == "" {
		for s := AVX512; s > Go; s-- {
			if s.Supported() {
				return s, nil
			}
		}
		return Go, nil
	}
	s, err := ParseSet(name)
	if err != nil {
		return Go, fmt.Errorf("%w (from %s)", err, SetVariable)
	}
	if !s.Supported() {
		return Go, fmt.Errorf("cpu: %s=%s: this processor (%s) does not support it: use another set or unset the variable", SetVariable, name, cpuid.CPU.BrandName)
	}
	return s, nil
}
