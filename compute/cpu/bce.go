package cpu

import "math"

// Decisions counts the yes-or-no predictions of a multi-label batch.
type Decisions struct {
	TruePositive, FalsePositive, FalseNegative int
	Exact                                      int // rows with every label right
}

// SigmoidCrossEntropy computes, for row i with target r = rows[i] >= 0, labels
// y = labels[r·c:(r+1)·c] of 0 or 1 (c = logits.Cols) and weight w_i (weights nil: 1),
//
//	loss = Σ_i w_i/c·Σ_j max(z,0) - z·y + log(1 + e^-|z|),  z = logits[i][j]
//	dlogits[i] = w_i/c·(sigmoid(z) - y)
//
// the mean over labels of the binary cross-entropy. Rows with rows[i] < 0 are
// skipped: no loss, zero gradient, not counted. A label is predicted where z > 0.
// dlogits may have no Data when no gradient is wanted. The loss is summed in
// float64: within chunks of rows, then over the chunks in order.
func SigmoidCrossEntropy[T Float](x *Exec, logits Matrix[T], rows []int32, labels []uint8, weights []T, dlogits Matrix[T]) (loss float64, d Decisions) {
	return SigmoidLoss(x, logits, rows, labels, weights, dlogits, LossOptions{})
}

// SigmoidLoss is SigmoidCrossEntropy with options. With the target t = y·(1-s) + s/2 of a label it costs
//
//	-W_j·t·log p - (1-t)·log(1-p), p = sigmoid(z)
//
// or, focal, (1-p)^γ·-log p with p the probability of what is right, times W_j where y is 1.
func SigmoidLoss[T Float](x *Exec, logits Matrix[T], rows []int32, labels []uint8, weights []T, dlogits Matrix[T], o LossOptions) (loss float64, d Decisions) {
	if DeviceOf[T](x) != nil {
		return SigmoidLossLater(x, logits, rows, labels, weights, dlogits, o)()
	}
	checkLoss(logits, rows, weights, dlogits, o)
	classes, plain := logits.Cols, o.Plain()
	losses := make([]float64, ceilDiv(logits.Rows, lossRows))
	counts := make([]Decisions, len(losses))
	x.For(len(losses), func(_, c int) {
		n := &counts[c]
		for i := c * lossRows; i < min(logits.Rows, (c+1)*lossRows); i++ {
			if rows[i] < 0 {
				if dlogits.Data != nil {
					clear(dlogits.Row(i))
				}
				continue
			}
			f := 1 / float64(classes)
			if weights != nil {
				f *= float64(weights[i])
			}
			y := labels[int(rows[i])*classes:][:classes]
			sum, right := 0.0, 0
			for j, v := range logits.Row(i) {
				z, t := float64(v), float64(y[j])
				e := math.Exp(-math.Abs(z))
				log := math.Log1p(e)
				cost, slope := max(z, 0)-float64(z*t)+log, 0.0
				if !plain {
					cost, slope = o.sigmoid(z, max(z, 0)+log, y[j] != 0, j)
				}
				sum += cost
				switch {
				case z > 0 && y[j] != 0:
					n.TruePositive++
					right++
				case z > 0:
					n.FalsePositive++
				case y[j] != 0:
					n.FalseNegative++
				default:
					right++
				}
				if dlogits.Data != nil {
					p := 1 / (1 + e)
					if z < 0 {
						p = e / (1 + e)
					}
					if plain {
						slope = p - t
					}
					dlogits.Row(i)[j] = T(f * slope)
				}
			}
			if right == classes {
				n.Exact++
			}
			losses[c] += float64(f * sum)
		}
	})
	for c, n := range counts {
		loss += losses[c]
		d.TruePositive += n.TruePositive
		d.FalsePositive += n.FalsePositive
		d.FalseNegative += n.FalseNegative
		d.Exact += n.Exact
	}
	return loss, d
}

// SigmoidLossLater is to SigmoidLoss what SoftmaxLossLater is to SoftmaxLoss.
func SigmoidLossLater[T Float](x *Exec, logits Matrix[T], rows []int32, labels []uint8, weights []T, dlogits Matrix[T], o LossOptions) func() (loss float64, d Decisions) {
	if d := DeviceOf[T](x); d != nil {
		checkLoss(logits, rows, weights, dlogits, o)
		return d.SigmoidLoss(logits, rows, labels, weights, dlogits, o)
	}
	loss, d := SigmoidLoss(x, logits, rows, labels, weights, dlogits, o)
	return func() (float64, Decisions) { return loss, d }
}

// sigmoid returns what the label j, which is set or not, costs at a logit z, and its derivative; softplus is log(1 + e^z).
func (o *LossOptions) sigmoid(z, softplus float64, set bool, j int) (cost, slope float64) {
	w, y, sign := 1.0, 0.0, -1.0
	if set {
		w, y, sign = o.weight(j), 1, 1
	}
	if o.Gamma > 0 {
		lp := -softplus // of what is right
		if set {
			lp = z - softplus
		}
		cost, slope = o.focus(lp, math.Exp(lp-sign*z))
		return float64(w * cost), float64(sign * w * slope)
	}
	t := float64(y*(1-o.Smoothing)) + o.Smoothing/2
	yes := float64(o.weight(j) * t)
	return float64(yes*(softplus-z)) + float64((1-t)*softplus), float64((yes+1-t)*math.Exp(z-softplus)) - yes
}
