package compute

import (
	"math"
	"testing"
)

// What scikit-learn's mean_absolute_error, root_mean_squared_error and r2_score say, by their definitions: the first is the example in
// its documentation.
func TestMeasureRegression(t *testing.T) {
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		values, predicted []float32
		want              RegressionMetrics
		n                 int
	}{
		"example":             {[]float32{3, -0.5, 2, 7}, []float32{2.5, 0, 2, 8}, RegressionMetrics{0.5, math.Sqrt(0.375), 1 - 1.5/29.1875}, 4},
		"some are not known":  {[]float32{3, nan, -0.5, 2, nan, 7}, []float32{2.5, 9, 0, 2, nan, 8}, RegressionMetrics{0.5, math.Sqrt(0.375), 1 - 1.5/29.1875}, 4},
		"worse than the mean": {[]float32{1, 2, 3}, []float32{3, 2, 1}, RegressionMetrics{4. / 3, math.Sqrt(8. / 3), -3}, 3},
		"all the same":        {[]float32{2, 2}, []float32{2, 1}, RegressionMetrics{0.5, math.Sqrt(0.5), 0}, 2},
		"all right":           {[]float32{2, 2}, []float32{2, 2}, RegressionMetrics{0, 0, 1}, 2},
		"one":                 {[]float32{2}, []float32{1}, RegressionMetrics{1, 1, math.NaN()}, 1},
		"none":                {[]float32{nan}, []float32{1}, RegressionMetrics{math.NaN(), math.NaN(), math.NaN()}, 0},
	} {
		got, n := MeasureRegression(c.predicted, c.values)
		same := func(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-12 || a != a && b != b }
		if n != c.n || !same(got.MAE, c.want.MAE) || !same(got.RMSE, c.want.RMSE) || !same(got.R2, c.want.R2) {
			t.Errorf("%s: %+v of %d, want %+v of %d", name, got, n, c.want, c.n)
		}
	}
}
