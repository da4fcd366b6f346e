package cluster_test

import (
	"context"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/sampling"
)

// sampled is a sampler that changes what another one samples.
type sampled struct {
	sampling.Sampler
	change func(b *sampling.Batch)
}

func (s sampled) Sample(b *sampling.Batch, key rng.Key, seeds []uint32) error {
	err := s.Sampler.Sample(b, key, seeds)
	if err == nil && s.change != nil {
		s.change(b)
	}
	return err
}

// ownSampler is a sampler of the program's own that does what neighbor does, and change.
func ownSampler(change func(b *sampling.Batch)) *runtime.OwnSampler {
	return &runtime.OwnSampler{Version: "1", New: func(ds *graph.Dataset, spec sampling.Spec) (sampling.Sampler, error) {
		s, err := sampling.New(context.Background(), sampling.Spec{Name: "neighbor", Fanouts: spec.Fanouts}, ds.Graph)
		return sampled{s, change}, err
	}}
}

// Three nodes with a sampler of the program's own train to the bits of one process.
func TestOwnSamplerTogether(t *testing.T) {
	c := clusterConfig()
	c.Sampling.Sampler, c.Sampling.Own = "mine", ownSampler(func(b *sampling.Batch) {
		b.Blocks[0].Keep(func(dst, src uint32, _ int) bool { return (dst+src)%3 != 0 })
	})
	sameTogether(t, c, 3)
}
