package compute

import "github.com/gnnactor/gnnactor/compute/cpu"

// Adam is PyTorch's Adam (Kingma and Ba, 2015): weight decay is added to the
// gradient. With Decoupled it is AdamW (Loshchilov and Hutter, 2019).
type Adam struct {
	LR           float64 `json:"lr"`
	Beta1, Beta2 float64
	Eps          float64
	WeightDecay  float64 `json:"weight_decay"`
	Decoupled    bool    `json:"decoupled,omitempty"`
}

// DefaultAdam returns PyTorch's defaults for the given learning rate.
func DefaultAdam(lr float64) Adam { return Adam{LR: lr, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8} }

// AdamState is what Adam remembers between steps: two vectors of the layout.
type AdamState struct {
	Step int // steps taken
	M, V []float32
}

// NewAdamState returns the state before the first step of n parameters.
func NewAdamState(n int) *AdamState {
	return &AdamState{M: make([]float32, n), V: make([]float32, n)}
}

// Step updates params and state in place from grad, the gradient of the mean
// loss. All vectors have one length.
func (a Adam) Step(params, grad []float32, state *AdamState, x *cpu.Exec) {
	state.Step++
	cpu.AdamStep(x, params, state.M, state.V, grad, cpu.AdamOptions{
		LearningRate: a.LR, Beta1: a.Beta1, Beta2: a.Beta2, Epsilon: a.Eps,
		WeightDecay: a.WeightDecay, Decoupled: a.Decoupled, Step: state.Step,
	})
}
