package scheduler

import (
	"testing"

	"github.com/gnnactor/gnnactor/compute"
)

// Places that a layer finds count where all that it makes is larger.
func TestUnfilled(t *testing.T) {
	size := func(out int64, sent ...int64) compute.InferenceSize {
		return compute.InferenceSize{Out: out, Sent: sent}
	}
	for name, c := range map[string]struct {
		layers []compute.InferenceSize
		want   int64
	}{
		"the first layer finds none":                    {[]compute.InferenceSize{size(9, 3)}, 0},
		"features are no place":                         {[]compute.InferenceSize{size(5), size(9)}, 0},
		"a table that is too small":                     {[]compute.InferenceSize{size(5, 3), size(9)}, 3},
		"outputs as large as those two before":          {[]compute.InferenceSize{size(5), size(5), size(5)}, 0},
		"outputs and a table that are both too small":   {[]compute.InferenceSize{size(125), size(188, 68), size(188, 136)}, 193},
		"a table fits, and what else is there may, too": {[]compute.InferenceSize{size(125), size(188, 68), size(188, 60)}, 0},
	} {
		if got := unfilled(c.layers); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}
