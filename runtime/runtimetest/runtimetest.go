// Package runtimetest has what tests of package runtime and of what is built on it share. It
// imports none of it.
package runtimetest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// Files lists what is in dir.
func Files(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Census counts the steps of an asynchronous run, and checks each: it is at most Bound late.
type Census struct {
	Bound int

	mu   sync.Mutex
	seen map[string]int
}

// Step counts a step. Any goroutine may call it.
func (s *Census) Step(t testing.TB, epoch, batch, late int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	s.seen[fmt.Sprint(epoch, "/", batch)]++
	if late < 0 || late > s.Bound {
		t.Errorf("epoch %d batch %d is %d stale", epoch, batch, late)
	}
}

// Check reports what was not applied once, of so many batches.
func (s *Census) Check(t testing.TB, batches int) {
	t.Helper()
	if len(s.seen) != batches {
		t.Errorf("%d batches were applied, of %d", len(s.seen), batches)
	}
	for b, n := range s.seen {
		if n != 1 {
			t.Errorf("batch %s was applied %d times", b, n)
		}
	}
}

// OwnSampler makes samplers of the program's own that do what neighbor does, and change; nil: no more.
func OwnSampler(change func(b *sampling.Batch)) func(*graph.Dataset, sampling.Spec) (sampling.Sampler, error) {
	return func(ds *graph.Dataset, spec sampling.Spec) (sampling.Sampler, error) {
		s, err := sampling.New(context.Background(), sampling.Spec{Name: "neighbor", Fanouts: spec.Fanouts}, ds.Graph)
		return changed{s, change}, err
	}
}

type changed struct {
	sampling.Sampler
	change func(b *sampling.Batch)
}

func (s changed) Sample(b *sampling.Batch, key rng.Key, seeds []uint32) error {
	err := s.Sampler.Sample(b, key, seeds)
	if err == nil && s.change != nil {
		s.change(b)
	}
	return err
}

// Thin drops a third of a batch's edges and a fifth of its seeds, by draws of its key.
func Thin(b *sampling.Batch, key rng.Key) {
	for i := range b.Blocks {
		key := key.With(uint64(i))
		b.Blocks[i].Keep(func(_, _ uint32, at int) bool { return key.Uintn(uint64(at), 3) > 0 })
	}
	seeds := key.With(1 << 40)
	b.KeepSeeds(func(i int, _ uint32) bool { return seeds.Uintn(uint64(i), 5) > 0 })
}

// Bend changes the rows x of nodes by these and their values.
func Bend(x []float32, nodes []uint32) {
	width := len(x) / max(1, len(nodes))
	for i, v := range nodes {
		for j, value := range x[i*width : (i+1)*width] {
			x[i*width+j] = value*value - 0.25*float32(v%7)
		}
	}
}

// AddNoise adds what is drawn by key.
func AddNoise(x []float32, key rng.Key) {
	for i := range x {
		x[i] += float32(key.Float64(uint64(i)) - 0.5)
	}
}
