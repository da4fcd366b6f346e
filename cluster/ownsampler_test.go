package cluster_test

import (
	"testing"

	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/runtime/runtimetest"
	"github.com/gnnactor/gnnactor/sampling"
)

// ownSampler is a sampler of the program's own that does what neighbor does, and change.
func ownSampler(change func(b *sampling.Batch)) *runtime.OwnSampler {
	return &runtime.OwnSampler{Version: "1", New: runtimetest.OwnSampler(change)}
}

// Three nodes with a sampler of the program's own train to the bits of one process.
func TestOwnSamplerTogether(t *testing.T) {
	c := clusterConfig()
	c.Sampling.Sampler, c.Sampling.Own = "mine", ownSampler(func(b *sampling.Batch) {
		b.Blocks[0].Keep(func(dst, src uint32, _ int) bool { return (dst+src)%3 != 0 })
	})
	sameTogether(t, c, 3)
}
