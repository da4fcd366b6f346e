package sampling

import (
	"context"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

// PrepareOwn readies a sampler of the program's own, which newSampler makes, once for each
// goroutine that samples, from what it sees of the data and spec. Spec.Name and Version
// stand for it in a run's identity; of its other fields Fanouts and Layers say how many
// blocks a batch has, and Fanouts how many entries a row has at most (-1: any number), from the
// seeds outward; EdgeIDs, that blocks must have them; Inductive, that it sees the training
// nodes alone. What a batch is made of may lie in the sampler's memory: it is copied. A
// batch that does not fit the graph (Batch.CheckOf) or spec is an error.
func PrepareOwn(ctx context.Context, spec Spec, ds *graph.Dataset, seed uint64, newSampler func(*graph.Dataset, Spec) (Sampler, error)) (*Prepared, error) {
	if ds == nil || ds.Graph == nil || len(ds.Graph.Indptr) == 0 {
		return nil, fmt.Errorf("sampling: %s needs a graph, and there is none", spec.Name)
	}
	if spec.Depth() < 1 {
		return nil, fmt.Errorf("sampling: %s needs the number of layers", spec.Name)
	}
	p := &Prepared{spec: spec, seed: seed, given: ds, data: ds, g: ds.Graph}
	if err := p.see(interrupt.New(ctx)); err != nil {
		return nil, err
	}
	one := func() (Sampler, error) {
		s, err := newSampler(p.data, spec)
		if err == nil && s == nil {
			err = errors.New("nothing was made")
		}
		if err != nil {
			return nil, fmt.Errorf("sampling: %s: %w", spec.Name, err)
		}
		return &own{s, &p.spec, p.g}, nil
	}
	if _, err := one(); err != nil {
		return nil, err
	}
	p.factory = func() Sampler {
		s, err := one()
		if err != nil {
			return unmade{err}
		}
		return s
	}
	return p, nil
}

// own is a sampler of the program's own, whose batches are checked.
type own struct {
	Sampler
	spec *Spec
	g    *graph.Graph
}

// Sample implements Sampler.
func (s *own) Sample(b *Batch, key rng.Key, seeds []uint32) error {
	id := b.ID
	if err := s.Sampler.Sample(b, key, seeds); err != nil {
		return err
	}
	err := b.CheckOf(s.g, true)
	switch {
	case err != nil:
	case b.ID != id:
		err = fmt.Errorf("its ID is %v", b.ID)
	case len(b.Blocks) != s.spec.Depth():
		err = fmt.Errorf("it has %d blocks of %d", len(b.Blocks), s.spec.Depth())
	default:
		err = s.bounds(b)
	}
	if err != nil {
		b.ID = id
		return fmt.Errorf("the sampler %s made a batch that cannot be computed: %w", s.spec.Name, err)
	}
	b.Own()
	return nil
}

// bounds reports rows longer than the fan-outs, and blocks without EdgeIDs.
func (s *own) bounds(b *Batch) error {
	for i := range b.Blocks {
		k := &b.Blocks[i]
		if s.spec.EdgeIDs && k.EdgeIDs == nil && len(k.Indices) > 0 {
			return fmt.Errorf("block %d has no EdgeIDs, which the model reads", i)
		}
		at := len(b.Blocks) - 1 - i
		if at >= len(s.spec.Fanouts) || s.spec.Fanouts[at] < 0 {
			continue
		}
		for v := range k.NumDst {
			if n := k.Indptr[v+1] - k.Indptr[v]; n > int64(s.spec.Fanouts[at]) {
				return fmt.Errorf("block %d: row %d has %d entries, and the fan-out is %d; -1 allows any number", i, v, n, s.spec.Fanouts[at])
			}
		}
	}
	return nil
}

// unmade is a sampler that could not be made.
type unmade struct{ err error }

// Sample implements Sampler.
func (s unmade) Sample(*Batch, rng.Key, []uint32) error { return s.err }
