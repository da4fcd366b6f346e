package compute

import (
	"math"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// Target is how numbers are learnt: a model's output y stands for Mean + Deviation·y.
type Target struct {
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"deviation"`
}

// FitTarget returns the mean and the standard deviation of the values of some nodes, of which those that are NaN do not count; 1 where they do not
// differ.
func FitTarget(values []float32, nodes []uint32) Target {
	t := Target{Deviation: 1}
	var sum, squares, n float64
	for pass := range 2 {
		for _, v := range nodes {
			x := float64(values[v])
			switch {
			case x != x:
			case pass == 0:
				sum, n = sum+x, n+1
			default:
				squares += float64((x - t.Mean) * (x - t.Mean))
			}
		}
		t.Mean = sum / max(n, 1)
	}
	if squares > 0 {
		t.Deviation = math.Sqrt(squares / n)
	}
	return t
}

// Value is what an output stands for.
func (t *Target) Value(y float32) float32 { return float32(t.Mean + float64(t.Deviation*float64(y))) }

// Learnt is what a model is to output for a value.
func (t *Target) Learnt(value float32) float32 {
	return float32((float64(value) - t.Mean) / t.Deviation)
}

// Measure compares what row i of out stands for with value i.
func (t *Target) Measure(out cpu.Matrix[float32], values []float32) Metrics {
	predicted := make([]float32, len(values))
	for i := range predicted {
		predicted[i] = t.Value(out.Row(i)[0])
	}
	m := Metrics{Accuracy: math.NaN(), AUC: math.NaN()}
	m.RegressionMetrics, m.Count = MeasureRegression(predicted, values)
	m.Loss = m.RMSE * m.RMSE
	return m
}
