package runtime

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/drawn"
	"github.com/gnnactor/gnnactor/messages"
)

// stored returns a store of the small graph.
func stored(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := store.Create(t.Context(), dir, small()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// parametersOf trains c and returns the hash of the parameters.
func parametersOf(t testing.TB, c Config) string {
	t.Helper()
	r := started(t, c)
	trained(t, r)
	return sumOf(t, r)
}

// Metamorphic: where features lie, what is matched, cached and how far ahead
// changes no bit. With a reorder window the order changes, and so do the bits,
// to the same ones for any plan.
func TestMemoryDoesNotChangeBits(t *testing.T) {
	t.Parallel()
	random := drawn.Cases(t)
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for _, base := range []struct {
		sampler        string
		micro, reorder int
		options        map[string]string
		method         string // of reordering
	}{
		{"neighbor", 1, 0, nil, ""}, {"neighbor", 3, 3, nil, "exact"}, {"labor", 2, 2, map[string]string{"dependency": "3"}, "sketch"},
		{"gns", 1, 0, map[string]string{"cache-fraction": "0.1"}, ""}, {"gns", 1, 4, map[string]string{"cache-fraction": "0.1", "cache-period": "2"}, ""},
		{"khop", 1, 0, map[string]string{"temporal": "true"}, ""}, {"neighbor", 2, 3, map[string]string{"temporal": "true"}, "sketch"},
	} {
		t.Run(base.sampler+"/"+strconv.Itoa(base.reorder), func(t *testing.T) {
			c := config()
			c.Data.Path, c.Data.Dataset = stored(t), nil
			if base.options["temporal"] != "" {
				c.Data.Path = t.TempDir() + "/timed"
				if err := store.Create(t.Context(), c.Data.Path, timed(1)); err != nil {
					t.Fatal(err)
				}
				if base.sampler == "khop" {
					c.Sampling.BatchSize = 512 // a batch has more inputs than there are nodes
				}
			}
			c.Sampling.Sampler, c.Sampling.Options, c.Sampling.MicroBatches, c.Sampling.Reorder, c.Sampling.ReorderMethod = base.sampler, base.options, base.micro, base.reorder, base.method
			c.Execution.Threads, c.Execution.Samplers = 1, 1
			want := parametersOf(t, c)
			for range 6 {
				v := c
				v.Execution.Threads, v.Execution.Samplers, v.Execution.Credits, v.Memory.Loaders = 1+random.IntN(3), 1+random.IntN(4), random.IntN(4), random.IntN(4)
				v.Execution.Trainers = 1 + random.IntN(base.micro)
				v.Memory.Features = pick("", "ram", "mmap", "disk", "throttled:50MB/s", "throttled:80MB/s,100us,disk", "throttled:90MB/s,mmap")
				v.Memory.Match = pick("", "on", "off")
				v.Memory.Cache, v.Memory.Gather = pick("", "none", "degree:5%", "hot:2kB", "dynamic:3%", "dynamic:1kB"), pick("", "fused", "copied")
				v.Memory.EvalChunk, v.Execution.Spans = 7*random.IntN(2), 1000*random.IntN(2)
				if random.IntN(2) == 0 {
					v.Checkpoint.Dir, v.Checkpoint.Keep = t.TempDir(), 1
				}
				if base.sampler == "gns" && random.IntN(2) == 0 {
					v.Memory.Cache = "gns:10%"
				}
				if got := parametersOf(t, v); got != want {
					t.Errorf("%+v: other bits", v)
				}
			}
		})
	}
}

// However a run is tuned while it goes on, its bits are the same.
func TestTuningDoesNotChangeBits(t *testing.T) {
	random := drawn.Cases(t)
	for _, model := range []string{"sage", "gcn", "gatv2", "gin"} {
		for _, where := range []string{"", "throttled:90MB/s"} {
			c := config()
			c.Model.Name, c.Memory.Features, c.Execution.Threads, c.Sampling.BatchSize, c.Sampling.Fanouts = model, where, 4, 4, []int{3, 2} // the slab does not hold all nodes
			train := func(tuned bool) []float32 {
				r := started(t, c)
				if where != "" && r.plan.CacheRoom == 0 {
					t.Fatal("there is no room for a cache")
				}
				work := actors.Work{Phase: "train", Seed: c.Training.Seed, Nodes: r.data.ds.Train, BatchSize: c.Sampling.BatchSize, Micro: 1, Epochs: 2}
				u := newUpdater(r, r.params)
				p, mem, err := r.trainingPipeline(t.Context(), work, u, new(clock.Recorder))
				if err != nil {
					t.Fatal(err)
				}
				for step := range work.Steps() * 2 {
					if step%work.Steps() == 0 {
						p.Proceed(step)
					}
					if _, err := p.Next(t.Context()); err != nil {
						t.Fatal(err)
					}
					if tuned {
						p.Tune(messages.Tune{
							Samplers: 1 + random.IntN(r.plan.MaxSamplers), Credits: r.plan.Credits, Ahead: 1 + random.IntN(max(r.plan.MaxAhead, 1)), Loaders: 1 + random.IntN(8),
							Cache: random.IntN(2) * int(r.plan.CacheRoom), Threads: random.IntN(5), Copied: random.IntN(2) == 0,
						})
					}
				}
				p.Stop()
				if err := mem.close(); err != nil {
					t.Error(err)
				}
				return slices.Clone(u.Params())
			}
			if !slices.Equal(train(false), train(true)) {
				t.Errorf("%s, features %q: other bits", model, where)
			}
		}
	}
}

// What a run measures of its first batches changes its plan, and no bit.
func TestRefiningDoesNotChangeBits(t *testing.T) {
	c := config()
	c.Sampling.BatchSize, c.Execution.Threads, c.Memory.Match = 4, 4, "on" // 75 batches an epoch
	free := started(t, c)
	changes := 0
	for e, err := range free.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventTune {
			changes++
			if e.Message == "" {
				t.Error("a change without a reason")
			}
		}
	}
	if changes > 15 {
		t.Errorf("the plan was changed %d times", changes)
	}
	c.Execution.Samplers, c.Execution.Credits, c.Memory.Loaders = 1, 2, 1
	if got := parametersOf(t, c); got != sumOf(t, free) {
		t.Errorf("other bits after %d changes of the plan", changes)
	}
}

// The window and the method are part of the identity: they change the order.
func TestReorderChangesBits(t *testing.T) {
	c := config()
	plain := parametersOf(t, c)
	c.Sampling.Reorder = 3
	three := parametersOf(t, c)
	c.Sampling.Reorder = 6
	six := parametersOf(t, c)
	if plain == three || three == six || plain == six {
		t.Error("windows of 0, 3 and 6 batches do not all give different parameters")
	}
}

// A run that is interrupted in the middle of a reordered window goes on in the
// order that it would have had.
func TestResumeWithinWindow(t *testing.T) {
	t.Parallel()
	c := config()
	c.Sampling.Reorder, c.Sampling.MicroBatches, c.Training.Epochs, c.Training.EvalEvery = 3, 2, 2, 0
	want := parametersOf(t, c)
	c.Memory.Features, c.Memory.Match = "", "on"
	for stop := 1; stop <= 11; stop++ { // 6 batches an epoch
		c.Checkpoint.Dir, c.Checkpoint.Resume = t.TempDir(), false
		r := started(t, c)
		steps := 0
		for e, err := range r.Train(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == EventStep {
				if steps++; steps == stop {
					break
				}
			}
		}
		c.Checkpoint.Resume = true
		if got := parametersOf(t, c); got != want {
			t.Errorf("interrupted after %d batches: other bits", stop)
		}
	}
}

// The checkpoint of another order is refused.
func TestReorderIsIdentity(t *testing.T) {
	c := config()
	c.Training.Epochs, c.Sampling.Reorder, c.Checkpoint.Dir = 1, 3, t.TempDir()
	parametersOf(t, c)
	c.Training.Epochs, c.Sampling.Reorder, c.Checkpoint.Resume = 2, 4, true
	r := started(t, c)
	for _, err := range r.Train(context.Background()) {
		if err != nil {
			if !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), "reorder") {
				t.Errorf("got %v", err)
			}
			return
		}
	}
	t.Error("another window was accepted")
}

// Batches for a caller's own model come with the same rows from every place.
func TestBatchesFromEverywhere(t *testing.T) {
	var want [][]float32
	for i, place := range []string{"", "ram", "disk", "throttled:100MB/s"} {
		c := config()
		c.Data.Path, c.Data.Dataset, c.Memory.Features = stored(t), nil, place
		r := started(t, c)
		k := 0
		for b, err := range r.Batches(context.Background(), BatchesOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				want = append(want, append([]float32(nil), b.X...))
			} else if got := b.X; len(got) != len(want[k]) {
				t.Fatalf("%s: %v has %d values, want %d", place, b.ID, len(got), len(want[k]))
			} else {
				for j := range got {
					if got[j] != want[k][j] {
						t.Fatalf("%s: %v: value %d is %v, want %v", place, b.ID, j, got[j], want[k][j])
					}
				}
			}
			k++
		}
		if k != len(want) {
			t.Errorf("%s: %d batches, want %d", place, k, len(want))
		}
	}
}
