package machinelimits

import "testing"

// The multiply-add loops take the steps that they are counted for.
func TestMultiplyAdds(t *testing.T) {
	const steps = 10
	f := [2]float32{1, 0.5}
	for name, k := range map[string]struct {
		lanes int
		has   bool
		f     func(sink, factors *float32, n int)
	}{"avx2": {8, hasAVX2, fma256}, "avx512": {16, hasAVX512, fma512}} {
		if !k.has {
			t.Logf("this processor has no %s", name)
			continue
		}
		var sink [16]float32
		k.f(&sink[0], &f[0], steps)
		for i, v := range sink {
			want := float32(0)
			if i < k.lanes {
				want = 12 * 0.5 * (steps + 1)
			}
			if v != want {
				t.Errorf("%s: lane %d is %v, want %v", name, i, v, want)
			}
		}
	}
}
