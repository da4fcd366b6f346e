package cpu

import "math"

// RegressionLoss says what an output costs that differs by d from its target.
type RegressionLoss int

// The losses of regression, as PyTorch's MSELoss, L1Loss and HuberLoss have them.
const (
	SquaredError  RegressionLoss = iota // d²
	AbsoluteError                       // |d|, whose derivative at 0 is 0
	HuberError                          // d²/2 where |d| < 1, else |d| - 1/2
)

// of returns the loss and its derivative.
func (l RegressionLoss) of(d float64) (loss, slope float64) {
	switch a := math.Abs(d); {
	case l == SquaredError:
		return float64(d * d), 2 * d
	case l == HuberError && a < 1:
		return float64(d*d) / 2, d
	case !(a > 0):
		return a, d // 0 or NaN
	case l == HuberError:
		return a - 0.5, math.Copysign(1, d)
	default:
		return a, math.Copysign(1, d)
	}
}

// Regression computes, for row i with the target t = values[rows[i]] and weight w_i (weights nil: 1),
//
//	loss = Σ_i w_i·l(out[i][0] - t), dout[i][0] = w_i·l'(out[i][0] - t)
//
// of outputs that are one column wide. Rows with rows[i] < 0 are skipped: no loss, zero gradient. dout may have no Data when no gradient is
// wanted. The loss is summed in float64: within chunks of rows, then over the chunks in order.
func Regression[T Float](x *Exec, out Matrix[T], rows []int32, values []float32, weights []T, dout Matrix[T], l RegressionLoss) (loss float64) {
	if DeviceOf[T](x) != nil {
		return RegressionLater(x, out, rows, values, weights, dout, l)()
	}
	checkRegression(out, rows, weights, dout)
	losses := make([]float64, ceilDiv(out.Rows, lossRows))
	x.For(len(losses), func(_, c int) {
		for i := c * lossRows; i < min(out.Rows, (c+1)*lossRows); i++ {
			var cost, slope float64
			if r := rows[i]; r >= 0 {
				cost, slope = l.of(float64(out.Row(i)[0]) - float64(values[r]))
				if weights != nil {
					w := float64(weights[i])
					cost, slope = float64(w*cost), float64(w*slope)
				}
			}
			losses[c] += cost
			if dout.Data != nil {
				dout.Row(i)[0] = T(slope)
			}
		}
	})
	for _, v := range losses {
		loss += v
	}
	return loss
}

// RegressionLater is to Regression what SoftmaxLossLater is to SoftmaxLoss.
func RegressionLater[T Float](x *Exec, out Matrix[T], rows []int32, values []float32, weights []T, dout Matrix[T], l RegressionLoss) func() (loss float64) {
	if d := DeviceOf[T](x); d != nil {
		checkRegression(out, rows, weights, dout)
		return d.Regression(out, rows, values, weights, dout, l)
	}
	loss := Regression(x, out, rows, values, weights, dout, l)
	return func() float64 { return loss }
}

// checkRegression panics unless all are of a loss of out's rows.
func checkRegression[T Float](out Matrix[T], rows []int32, weights []T, dout Matrix[T]) {
	if checkLoss(out, rows, weights, dout, LossOptions{}); out.Cols != 1 {
		panic(badShapes)
	}
}
