package compute

import (
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// loss computes the loss of in's targets and, if y needs one, the gradient of y.
// The caller has checked in; a target that occurs twice is found here. What it comes to is what later
// returns, which waits for a device: once backward is queued, so that the device never waits for the host.
func (c *core[T]) loss(y *Value[T], in *Input) (later func() Stats, err error) {
	n := c.targets(in)
	stats := Stats{Count: n, Weight: float64(n)}
	c.labels.Reset()
	// Of each row its class, or the target that it is if there are several
	// labels; -1 if it carries no loss.
	labels := c.labels.Alloc(y.rows)
	for i := range labels {
		labels[i] = graph.Unlabeled
	}
	var o cpu.LossOptions
	if in.Loss != nil {
		o = *in.Loss
	}
	weighted := o.ClassWeights != nil && in.Labels != nil // a class's weight is that of its target
	fold := weighted && o.Smoothing == 0                  // a weight of the row does
	var weights []T
	if in.Weights != nil || weighted {
		weights = c.tape.host.Zeroed(y.rows)
		stats.Weight = 0
	}
	for i := range n {
		row := i
		if in.Targets != nil {
			row = int(in.Targets[i])
		}
		if labels[row] != graph.Unlabeled {
			return nil, fmt.Errorf("output row %d is a target twice", row)
		}
		labels[row] = int32(i)
		if in.Labels != nil {
			labels[row] = in.Labels[i]
		}
		if weights != nil {
			w := 1.0
			if in.Weights != nil {
				w = float64(in.Weights[i])
			}
			weights[row] = T(w)
			if weighted {
				w *= o.ClassWeights[in.Labels[i]]
				if fold {
					weights[row] = T(w)
				}
			}
			stats.Weight += w
		}
	}
	if fold {
		o.ClassWeights = nil
	}
	values := y.Matrix()
	var g cpu.Matrix[T]
	if y.needs {
		g, _ = y.gradient()
	}
	if in.Values != nil {
		loss := cpu.RegressionLater(c.tape.x, values, labels, in.Values, weights, g, in.Regression)
		return func() Stats {
			stats.Loss = loss()
			return stats
		}, nil
	}
	if in.Multi == nil {
		loss := cpu.SoftmaxLossLater(c.tape.x, values, labels, weights, g, o)
		return func() Stats {
			stats.Loss, stats.Correct = loss()
			return stats
		}, nil
	}
	return stats.decided(cpu.SigmoidLossLater(c.tape.x, values, labels, in.Multi, weights, g, o)), nil
}

// decided returns s with what a loss comes to.
func (s Stats) decided(loss func() (float64, cpu.Decisions)) func() Stats {
	return func() Stats {
		sum, d := loss()
		s.Loss, s.Correct = sum, d.Exact
		s.TruePositive, s.FalsePositive, s.FalseNegative = d.TruePositive, d.FalsePositive, d.FalseNegative
		return s
	}
}
