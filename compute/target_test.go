package compute

import (
	"math"
	"testing"
)

// TestFitTarget checks mean and deviation of some of the values, without those that are NaN, and the way there and back.
func TestFitTarget(t *testing.T) {
	nan := float32(math.NaN())
	values := []float32{1000, 1, 4, nan, 10, 1000}
	to := FitTarget(values, []uint32{1, 2, 3, 4})
	if to.Mean != 5 || math.Abs(to.Deviation-math.Sqrt(14)) > 1e-12 { // (16 + 1 + 25) / 3
		t.Errorf("%+v, want 5 and the root of 14", to)
	}
	if y := to.Learnt(10); math.Abs(float64(y)-5/math.Sqrt(14)) > 1e-6 || math.Abs(float64(to.Value(y))-10) > 1e-5 {
		t.Errorf("10 is learnt as %v, which is %v", y, to.Value(y))
	}
	for _, nodes := range [][]uint32{nil, {3}, {0, 5}} {
		if to := FitTarget(values, nodes); to.Deviation != 1 {
			t.Errorf("of %v: %+v, want a deviation of 1", nodes, to)
		}
	}
}
