package compute

import (
	"math"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// SGD is PyTorch's gradient descent, with weight decay added to the gradient.
type SGD struct {
	LR          float64 `json:"lr"`
	Momentum    float64 `json:"momentum"`
	Nesterov    bool    `json:"nesterov"`
	WeightDecay float64 `json:"weight_decay"`
}

// SGDState is what SGD remembers between steps.
type SGDState struct {
	Step     int       // steps taken
	Velocity []float32 // a vector of the layout; may be nil without momentum
}

// Step updates params and state in place from grad, the gradient of the mean
// loss. All vectors have one length.
func (o SGD) Step(params, grad []float32, state *SGDState, x *cpu.Exec) {
	if state.Velocity == nil && o.Momentum != 0 {
		state.Velocity = make([]float32, len(params))
	}
	cpu.SGDStep(x, params, state.Velocity, grad, cpu.SGDOptions{
		LearningRate: o.LR, Momentum: o.Momentum, Nesterov: o.Nesterov, WeightDecay: o.WeightDecay, First: state.Step == 0,
	})
	state.Step++
}

// ClipNorm scales grad in place so that its Euclidean norm is at most limit, as
// PyTorch's clip_grad_norm_ does, and returns the norm it had.
func ClipNorm(grad []float32, limit float64, x *cpu.Exec) float64 {
	// As rows of 1024, so that the sum runs in parallel in a fixed order.
	const cols = 1024
	rows := len(grad) / cols
	m, rest := cpu.Dense(rows, cols, grad), cpu.Dense(1, len(grad)-rows*cols, grad[rows*cols:])
	norm := math.Sqrt(cpu.Dot(x, m, m) + cpu.Dot(x, rest, rest))
	if f := limit / (norm + 1e-6); f < 1 {
		cpu.Scale(x, m, float32(f), m)
		cpu.Scale(x, rest, float32(f), rest)
	}
	return norm
}
