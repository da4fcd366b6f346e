package runtime

import (
	"fmt"

	"github.com/klauspost/cpuid/v2"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// checkPrecision reports a precision that the processor's kernel set does not have here.
func (c *settings) checkPrecision(set cpu.Set) error {
	if set.Has(c.precision) {
		return nil
	}
	if c.precision == cpu.TF32 {
		return fmt.Errorf("%w: precision: the processor has no products in tf32: use --device cuda, or --precision float32", ErrConfig)
	}
	if set != cpu.AVX512 && cpu.AVX512.Has(c.precision) {
		return fmt.Errorf("%w: precision: kernel set %v has no bf16 products, avx512 has: unset %s", ErrConfig, set, cpu.SetVariable)
	}
	return fmt.Errorf("%w: precision: bf16 needs a processor with AVX512_BF16, and this one (%s) has none: use --precision float32, or compute in portable Go with %s=go, slowly",
		ErrConfig, cpuid.CPU.BrandName, cpu.SetVariable)
}

// newExec returns an Exec on the processor with the run's kernels and precision, which is the
// device's where there is one: what the processor then computes beside it is in float32.
func (r *Runtime) newExec() *cpu.Exec {
	x := cpu.NewExec(r.pool, r.set)
	if r.device == nil {
		x.SetPrecision(r.cfg.precision)
	}
	return x
}
