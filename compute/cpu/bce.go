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
	logits.check()
	if len(rows) != logits.Rows || weights != nil && len(weights) != logits.Rows || logits.Cols == 0 && logits.Rows > 0 {
		panic(badShapes)
	}
	if dlogits.Data != nil && (dlogits.Rows != logits.Rows || dlogits.Cols != logits.Cols) {
		panic(badShapes)
	}
	if d := tasksOf[T](x).device; d != nil {
		return d.SigmoidCrossEntropy(logits, rows, labels, weights, dlogits)
	}
	classes := logits.Cols
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
				sum += max(z, 0) - float64(z*t) + math.Log1p(e)
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
					dlogits.Row(i)[j] = T(f * (p - t))
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
