package cpu

import (
	"slices"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/pool"
)

// A kernel that calls another is reported once, and nothing is after Observe(nil).
func TestObserve(t *testing.T) {
	p := pool.New(1)
	defer p.Close()
	x := NewExec(p, Go)
	var calls []Call
	x.Observe(func(c Call, took time.Duration) {
		if took <= 0 {
			t.Errorf("%v took %v", c, took)
		}
		calls = append(calls, c)
	})
	a, b, c := NewMatrix[float32](40, 3), NewMatrix[float32](40, 5), NewMatrix[float32](3, 5)
	c2, row := NewMatrix[float32](3, 5), make([]float32, 5)
	GemmBoth(x, c, c2, a, b, b, false, false) // two products: it is too short to be split
	Gemm(x, c, a, true, b, false, Epilogue[float32]{})
	ColumnSums(x, row, b, false)
	ActivateBackward(x, ReLU, b, b, b)
	x.Observe(nil)
	ColumnSums(x, row, b, false)
	want := []Call{{"gemm-both", 3, 10, 40}, {"gemm-tn", 3, 5, 40}, {"column-sums", 40, 5, 0}, {"relu-backward", 40, 5, 0}}
	if !slices.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
}
