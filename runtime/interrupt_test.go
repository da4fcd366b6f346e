package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/sampling"
)

// run ranges over Train, calls see with every event, and returns the error.
func run(ctx context.Context, r *Runtime, see func(Event)) error {
	for e, err := range r.Train(ctx) {
		if err != nil {
			return err
		}
		if see != nil {
			see(e)
		}
	}
	return nil
}

// interrupted trains until so many batches are applied, calling before it
// cancels.
func interrupted(t *testing.T, r *Runtime, after int64, before func()) error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := run(ctx, r, func(e Event) {
		if e.Kind == EventStep && e.Applied == after {
			if before != nil {
				before()
			}
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted after %d batches: %v", after, err)
	}
	return err
}

// The batches of a run are those that package sampling makes on its own, also
// of samplers whose batches depend on each other.
func TestBatchesAreThoseOfSampling(t *testing.T) {
	for name, options := range map[string]map[string]string{
		"neighbor": nil, "labor": {"dependency": "3"}, "lazy": {"recycle": "2"}, "gns": {"cache-fraction": "0.2"},
	} {
		c := config()
		c.Sampling.Sampler, c.Sampling.Options, c.Execution.Samplers = name, options, 2
		r := started(t, c)
		p, err := sampling.Prepare(t.Context(), r.sampler.Spec(), small(), c.Training.Seed)
		if err != nil {
			t.Fatal(err)
		}
		s, want := p.NewSampler(), new(sampling.Batch)
		for b, err := range r.Batches(context.Background(), BatchesOptions{Epochs: 3}) {
			if err != nil {
				t.Fatal(err)
			}
			want.Reset()
			want.ID = b.ID
			if err := s.Sample(want, b.ID.Key(c.Training.Seed), sampling.Cut(sampling.Order(small().Train, c.Training.Seed, b.ID.Epoch), c.Sampling.BatchSize, 1, b.ID.Batch, 0)); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(b.Seeds, b.Blocks, b.LossWeights) != fmt.Sprint(want.Seeds, want.Blocks, want.LossWeights) {
				t.Fatalf("%s: %v is another batch than package sampling makes", name, b.ID)
			}
		}
	}
}

// Who interrupts a run hears that its last checkpoint could not be written.
func TestUnwrittenLastCheckpoint(t *testing.T) {
	c := config()
	c.Checkpoint.Dir = filepath.Join(t.TempDir(), "dir")
	err := interrupted(t, started(t, c), 2, func() {
		if err := errors.Join(os.RemoveAll(c.Checkpoint.Dir), os.WriteFile(c.Checkpoint.Dir, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	})
	if !strings.Contains(err.Error(), "checkpoint directory") {
		t.Errorf("the error is %v", err)
	}
}

// A directory that cannot be written to is refused before anything is computed.
func TestUnwritableCheckpointDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, resume := range []bool{false, true} {
		for _, dir := range []string{file, filepath.Join(file, "below")} {
			c := config()
			c.Checkpoint.Dir, c.Checkpoint.Resume = dir, resume
			events := 0
			if err := run(context.Background(), started(t, c), func(Event) { events++ }); err == nil || events > 0 {
				t.Errorf("%s: %v after %d events", dir, err, events)
			}
		}
	}
}

// What a killed process left half written is removed by the next one.
func TestHalfWrittenCheckpointIsRemoved(t *testing.T) {
	c := config()
	c.Checkpoint.Dir, c.Training.Epochs = t.TempDir(), 1
	half := filepath.Join(c.Checkpoint.Dir, ".step-000000000006.safetensors.tmp-123")
	if err := os.WriteFile(half, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	trained(t, started(t, c))
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", half, err)
	}
	if all, err := os.ReadDir(c.Checkpoint.Dir); err != nil || len(all) != 1 {
		t.Errorf("the directory holds %v, %v", all, err)
	}
}

// A Runtime that was interrupted goes on with the same bits when it trains
// again, and once more when it has finished.
func TestResumeInTheSameRuntime(t *testing.T) {
	c := config()
	whole := started(t, c)
	trained(t, whole)
	c.Checkpoint.Dir, c.Checkpoint.Resume = t.TempDir(), true
	r := started(t, c)
	interrupted(t, r, 1, nil)
	interrupted(t, r, 8, nil)
	for range 2 {
		if trained(t, r); sumOf(t, r) != sumOf(t, whole) {
			t.Error("other bits")
		}
	}
}

// Damaged checkpoints that are newer than the one that a run resumed from do
// not push out those that it writes.
func TestDamagedCheckpointsDoNotCount(t *testing.T) {
	c := config()
	c.Checkpoint.Dir, c.Checkpoint.Keep = t.TempDir(), 1
	interrupted(t, started(t, c), 2, nil)
	damaged := filepath.Join(c.Checkpoint.Dir, "step-000000999999.safetensors")
	if err := os.WriteFile(damaged, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Checkpoint.Resume = true
	interrupted(t, started(t, c), 8, nil)
	r := started(t, c)
	err := run(context.Background(), r, func(e Event) {
		if e.Kind == EventStart && (!e.Resumed || e.Applied < 8) {
			t.Errorf("went on with %+v", e)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// Parameters asked for while training ends are never those from before it.
func TestParametersAreNeverStale(t *testing.T) {
	for range 10 {
		c := config()
		c.Training.Epochs, c.Training.EvalEvery = 1, 0
		r := started(t, c)
		before := sumOf(t, r)
		stop, first := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				<-first
				for {
					if sumOf(t, r) == before {
						t.Error("the parameters went back to those from before training")
						return
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		err := run(context.Background(), r, func(e Event) {
			if e.Kind == EventStep && e.Batch == 0 {
				close(first)
			}
		})
		if err != nil {
			t.Error(err)
		}
		close(stop)
		wg.Wait()
	}
}

// A run that diverges ends with the batch's name.
func TestDivergence(t *testing.T) {
	c := config()
	c.Training.LR = 1e30
	r := started(t, c)
	err := run(context.Background(), r, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "train/e0/b") || !strings.Contains(err.Error(), "the loss is NaN") {
		t.Errorf("the error is %v", err)
	}
}

func TestNoEpochs(t *testing.T) {
	c := config()
	c.Training.Epochs = 0
	c.Checkpoint.Dir = t.TempDir()
	r := started(t, c)
	before := sumOf(t, r)
	if e := trained(t, r); !math.IsNaN(e.Loss) || e.Applied != 0 || math.IsNaN(e.TestAccuracy) {
		t.Errorf("%+v", e)
	}
	if sumOf(t, r) != before {
		t.Error("the parameters changed")
	}
}

// Overlap is a share: several samplers that work at once do not add up to more.
func TestOverlapIsAShare(t *testing.T) {
	c := config()
	c.Sampling.Sampler, c.Execution.Samplers, c.Execution.Threads, c.Execution.Credits, c.Training.EvalEvery, c.Training.Epochs = "khop", 5, 2, 1, 0, 6
	if e := trained(t, started(t, c)); !(e.Overlap > 0 && e.Overlap <= 1) {
		t.Errorf("the overlap is %v", e.Overlap)
	}
}

func TestCallsAfterStop(t *testing.T) {
	r, err := Start(context.Background(), config())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
			select { // each returns when everything has ended
			case <-r.ctx.Done():
			default:
				t.Error("Stop returned before the end")
			}
		})
	}
	wg.Wait()
	if err := r.Load(context.Background(), "nothing"); !errors.Is(err, ErrStopped) {
		t.Errorf("Load: %v", err)
	}
	if err := run(context.Background(), r, nil); !errors.Is(err, ErrStopped) {
		t.Errorf("Train: %v", err)
	}
	for _, err := range r.Batches(context.Background(), BatchesOptions{}) {
		if !errors.Is(err, ErrStopped) {
			t.Errorf("Batches: %v", err)
		}
	}
}
