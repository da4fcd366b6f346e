//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// Every element-wise operation has the processor's bits, over views with gaps, which it
// leaves as they are, and with NaN, infinities and both zeros.
func TestElementwise(t *testing.T) {
	b := newBench(t)
	type f32 = cpu.Matrix[float32]
	special := []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -90, 1e-40}
	for name, f := range map[string]func(x *cpu.Exec, dst, a, b f32){
		"add":                 func(x *cpu.Exec, d, a, b f32) { cpu.Add(x, d, a, b) },
		"axpy":                func(x *cpu.Exec, d, a, _ f32) { cpu.Axpy(x, d, 0.375, a) },
		"scale":               func(x *cpu.Exec, d, a, _ f32) { cpu.Scale(x, d, -0.3, a) },
		"multiply":            func(x *cpu.Exec, d, a, b f32) { cpu.Multiply(x, d, a, b) },
		"copy":                func(x *cpu.Exec, d, a, _ f32) { cpu.Copy(x, d, a) },
		"divide":              func(x *cpu.Exec, d, a, _ f32) { cpu.Divide(x, d, a, 3) },
		"fill":                func(x *cpu.Exec, d, _, _ f32) { cpu.Fill(x, d, 7) },
		"relu":                func(x *cpu.Exec, d, a, _ f32) { cpu.Activate(x, cpu.ReLU, d, a) },
		"leaky":               func(x *cpu.Exec, d, a, _ f32) { cpu.Activate(x, cpu.LeakyReLU, d, a) },
		"elu":                 func(x *cpu.Exec, d, a, _ f32) { cpu.Activate(x, cpu.ELU, d, a) },
		"relu backward":       func(x *cpu.Exec, d, a, b f32) { cpu.ActivateBackward(x, cpu.ReLU, d, a, b) },
		"leaky backward":      func(x *cpu.Exec, d, a, b f32) { cpu.ActivateBackward(x, cpu.LeakyReLU, d, a, b) },
		"elu backward":        func(x *cpu.Exec, d, a, b f32) { cpu.ActivateBackward(x, cpu.ELU, d, a, b) },
		"in place, of a view": func(x *cpu.Exec, d, _, _ f32) { d = d.View(0, d.Rows, d.Cols/2, d.Cols); cpu.Add(x, d, d, d) },
	} {
		for _, s := range shapes {
			dst, x, y := b.random(s[0], s[1], 3), b.random(s[0], s[1], 1), b.random(s[0], s[1], 0)
			for i, v := range special {
				x.Data[i*7%len(x.Data)], y.Data[i*5%len(y.Data)] = v, special[(i+2)%len(special)]
			}
			d, want := b.device(dst), clone(dst)
			f(b.x, d, b.device(x), b.device(y))
			f(b.host, want, x, y)
			b.same(fmt.Sprint(name, s), d, want, 0)
		}
	}
}
