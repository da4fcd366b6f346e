package compute

import (
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// In float32, 1 + 2^24 + (-2^24) + 1 depends on the order: the tree adds
// neighbours first.
func TestSumTreeOrder(t *testing.T) {
	const big = 1 << 24
	for _, c := range []struct {
		parts []float32
		want  float32
	}{
		{[]float32{3}, 3},
		{[]float32{1, big, -big, 1}, 1},    // (1+2²⁴) + (−2²⁴+1) = 2²⁴ + (1−2²⁴)
		{[]float32{big, -big, 1, 1, 1}, 3}, // ((2²⁴−2²⁴) + (1+1)) + 1
		{[]float32{big, 1, -big}, 0},       // (2²⁴+1) − 2²⁴
	} {
		parts := make([][]float32, len(c.parts))
		for i, v := range c.parts {
			parts[i] = []float32{v, 2 * v}
		}
		SumTree(parts)
		if parts[0][0] != c.want || parts[0][1] != 2*c.want {
			t.Errorf("%v: got %v, want %v", c.parts, parts[0], c.want)
		}
	}
}

// The mean is divided once, by what is not the number of its parts; without weight it is zeros.
func TestMean(t *testing.T) {
	x := testExec(t, 1, cpu.Go)
	if m := Mean([][]float32{{1, 2}, {2, 4}, {3, 6}}, 3, x); m[0] != 2 || m[1] != 4 {
		t.Errorf("mean %v", m)
	}
	if m := Mean([][]float32{{1, 2}}, 0, x); m[0] != 0 || m[1] != 0 {
		t.Errorf("mean of nothing: %v", m)
	}
}
