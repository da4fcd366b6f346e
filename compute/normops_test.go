package compute

import (
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// The largest of one value is that, without a copy.
func TestMaxOfOne(t *testing.T) {
	x := NewTape[float32](testExec(t, 1, cpu.Go), true)
	if v := x.New(2, 3); x.Max(v) != v {
		t.Error("another value")
	}
}
