package runtime

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/runtime/runtimetest"
	"github.com/gnnactor/gnnactor/sampling"
)

// ownSampler is a sampler of the program's own that does what neighbor does, and change.
func ownSampler(change func(b *sampling.Batch)) *OwnSampler {
	return &OwnSampler{Version: "1", New: runtimetest.OwnSampler(change)}
}

// A sampler of the program's own that samples as one of gnnactor's trains to the same
// bits, for any number of actors, through a slab, reordered, and in Batches.
func TestOwnSampler(t *testing.T) {
	c := config()
	c.Sampling.MicroBatches = 2
	want := stagedSum(t, c)
	own := c
	own.Sampling.Sampler, own.Sampling.Own = "mine", ownSampler(nil)
	if stagedSum(t, own) != want {
		t.Error("one sampler: other bits")
	}
	own.Execution.Samplers, own.Execution.Trainers, own.Memory.Match = 3, 2, "on"
	if stagedSum(t, own) != want {
		t.Error("3 samplers, a slab: other bits")
	}
	c.Sampling.Reorder, own.Sampling.Reorder = 3, 3
	if stagedSum(t, own) != stagedSum(t, c) {
		t.Error("reordered: other bits")
	}
	edges := 0
	for b, err := range started(t, own).Batches(t.Context(), BatchesOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		edges += b.NumEdges()
	}
	for b, err := range started(t, c).Batches(t.Context(), BatchesOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		edges -= b.NumEdges()
	}
	if edges != 0 {
		t.Errorf("Batches has %d edges more", edges)
	}
}

// What such a sampler does wrong ends the run with an error that names the batch and it.
func TestOwnSamplerFailures(t *testing.T) {
	for says, change := range map[string]func(b *sampling.Batch){
		"block 0: row 0 has 6 entries, and the fan-out is 3": func(b *sampling.Batch) {
			k := &b.Blocks[0]
			k.Indices = slices.Concat(make([]uint32, 6-k.Indptr[1]), k.Indices)
			add := 6 - k.Indptr[1]
			for v := range k.Indptr[1:] {
				k.Indptr[v+1] += add
			}
		},
		"it has 1 blocks of 2":            func(b *sampling.Batch) { b.Blocks = b.Blocks[1:]; b.Seeds = b.Seeds[:0] },
		"its ID is train/e0/b4":           func(b *sampling.Batch) { b.ID.Batch++ },
		"is out of range [0, 600)":        func(b *sampling.Batch) { b.Inputs()[b.NumInputs()-1] = 600 },
		"panic: the sampler broke":        func(*sampling.Batch) { panic("the sampler broke") },
		"is there twice":                  func(b *sampling.Batch) { b.SetTargets([]uint32{b.Seeds[0], b.Seeds[0]}, []uint32{0, 0}) },
		"block 1: entry 0 is source 9999": func(b *sampling.Batch) { b.Blocks[1].Indices[0] = 9999 },
	} {
		c := config()
		c.Sampling.Sampler, c.Sampling.Own = "mine", ownSampler(func(b *sampling.Batch) {
			if b.ID.String() == "train/e0/b3" {
				change(b)
			}
		})
		var got error
		for _, err := range started(t, c).Train(t.Context()) {
			got = err
		}
		if got == nil || !strings.HasPrefix(got.Error(), "train/e0/b3: sample: ") || !strings.Contains(got.Error(), says) {
			t.Errorf("%v; want %q", got, says)
		}
	}
}

// Settings that do not go with it are refused, and checkpoints of another version.
func TestOwnSamplerSettings(t *testing.T) {
	c := config()
	c.Sampling.Own = ownSampler(nil)
	c.Sampling.Options, c.Sampling.Own.Version = map[string]string{"budget": "3"}, "1 2"
	for _, says := range []string{`sampler: "neighbor" is not a name of its own`, `has the version "1 2"`, "sampler-options: are of gnnactor's samplers"} {
		if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
	c = config()
	c.Sampling.Sampler, c.Sampling.Own = "mine", &OwnSampler{Version: "1", New: func(*graph.Dataset, sampling.Spec) (sampling.Sampler, error) { return nil, errStage }}
	if _, err := Start(t.Context(), c); !errors.Is(err, ErrConfig) || !errors.Is(err, errStage) || !strings.Contains(err.Error(), "sampling: mine: ") {
		t.Errorf("a sampler that cannot be made: %v", err)
	}
	c.Sampling.Own = ownSampler(nil)
	c.Checkpoint.Dir, c.Checkpoint.Resume, c.Training.Epochs = t.TempDir(), true, 1
	trained(t, started(t, c))
	c.Sampling.Own.Version = "2"
	for _, err := range started(t, c).Train(t.Context()) {
		if !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), `sampler.version was "1" and is "2"`) {
			t.Errorf("resumed with another version: %v", err)
		}
	}
}
