package compute

import (
	"math"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// TestAdam compares five steps with PyTorch's algorithm written out in float64
// (torch.optim.Adam, not amsgrad, not maximising).
func TestAdam(t *testing.T) {
	for _, decoupled := range []bool{false, true} {
		testAdam(t, decoupled)
	}
}

func testAdam(t *testing.T, decoupled bool) {
	const n = 40000
	params := randomMatrix[float32](1, n, 1).Data
	want := make([]float64, n)
	for i, v := range params {
		want[i] = float64(v)
	}
	m, v := make([]float64, n), make([]float64, n)
	state, a := NewAdamState(n), DefaultAdam(0.02)
	a.WeightDecay, a.Decoupled = 0.1, decoupled
	x := testExec(t, 2, cpu.Go)
	for step := 1; step <= 5; step++ {
		grad := randomMatrix[float32](1, n, uint64(10+step)).Data
		a.Step(params, grad, state, x)
		for i := range want {
			g := float64(grad[i])
			if decoupled {
				want[i] *= 1 - 0.02*0.1
			} else {
				g += 0.1 * want[i]
			}
			m[i] = 0.9*m[i] + (1-0.9)*g
			v[i] = 0.999*v[i] + (1-0.999)*g*g
			stepSize := 0.02 / (1 - math.Pow(0.9, float64(step)))
			want[i] -= stepSize * m[i] / (math.Sqrt(v[i])/math.Sqrt(1-math.Pow(0.999, float64(step))) + 1e-8)
		}
	}
	if state.Step != 5 {
		t.Errorf("%d steps counted", state.Step)
	}
	for i := range want {
		if math.Abs(float64(params[i])-want[i]) > 2e-6 {
			t.Fatalf("parameter %d: %v, want %v", i, params[i], want[i])
		}
	}
}
