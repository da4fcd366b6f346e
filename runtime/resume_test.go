package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// Subgraphs without a training node count as steps and change nothing but the
// optimiser's moments; the run resumes to the same bits.
func TestBatchesWithoutLoss(t *testing.T) {
	ds := *small()
	ds.Train, ds.Fingerprint = ds.Train[:3], ""
	c := config()
	c.Data.Dataset, c.Sampling.BatchSize, c.Training.Epochs = &ds, 1, 3
	c.Sampling.Sampler, c.Sampling.Options = "cluster", map[string]string{"clusters": "60", "per-batch": "10"}
	r := started(t, c)
	empty, steps := 0, 0
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventStep {
			if steps++; math.IsNaN(e.Loss) {
				empty++
			}
		}
	}
	if empty == 0 || steps != 18 {
		t.Fatalf("%d of %d subgraphs are without a training node; the test needs some", empty, steps)
	}
	c.Checkpoint.Dir, c.Checkpoint.Resume = t.TempDir(), true
	for range 7 {
		for e, err := range started(t, c).Train(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == EventStep && e.Batch == 1 {
				break
			}
		}
	}
	again := started(t, c)
	trained(t, again)
	if sumOf(t, again) != sumOf(t, r) {
		t.Error("resumed after subgraphs without a training node: other bits")
	}
}

// The state of a schedule, of early stopping and of each optimiser is in the
// checkpoint: a run that stops after every epoch ends at the bits of one that
// does not.
func TestResumeKeepsTheRecipe(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"sgd":      func(c *Config) { c.Training.Optimizer, c.Training.LR = "sgd", 0.1 },
		"adamw":    func(c *Config) { c.Training.Optimizer = "adamw" },
		"plateau":  func(c *Config) { c.Training.Schedule, c.Training.ScheduleEpochs, c.Training.LR = "plateau", 1, 0.2 },
		"cosine":   func(c *Config) { c.Training.Schedule, c.Training.Warmup = "cosine", 2 },
		"patience": func(c *Config) { c.Training.Patience, c.Training.LR = 2, 0.3 },
	} {
		c := config()
		c.Training.Epochs = 8
		change(&c)
		r := started(t, c)
		done := trained(t, r)
		if name == "patience" && done.Applied == 8*int64(done.Batches) {
			t.Errorf("patience did not end the run before its last epoch")
		}
		c.Checkpoint.Dir, c.Checkpoint.Resume = t.TempDir(), true
		for range 8 {
			one := started(t, c)
			for e, err := range one.Train(context.Background()) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind == EventEpoch {
					break
				}
			}
		}
		again := started(t, c)
		if e := trained(t, again); sumOf(t, again) != sumOf(t, r) || e.Applied != done.Applied || e.TestAccuracy != done.TestAccuracy {
			t.Errorf("%s: resumed after each epoch: %d batches and other bits; want %d", name, e.Applied, done.Applied)
		}
	}
}

// Interrupted anywhere, and resumed with another plan, a run ends at the bits
// of one that was not.
func TestResume(t *testing.T) {
	c := config()
	c.Sampling.MicroBatches = 2
	whole := started(t, c)
	done := trained(t, whole)
	want := sumOf(t, whole)
	for _, after := range []int64{1, 4, 8, 9, 13} {
		c := c
		c.Checkpoint.Dir = t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		r := started(t, c)
		var err error
		for e, er := range r.Train(ctx) {
			if err = er; e.Kind == EventStep && e.Applied >= after {
				cancel()
			}
		}
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted after %d batches: %v", after, err)
		}
		c.Checkpoint.Resume, c.Execution.Samplers, c.Execution.Threads, c.Execution.Trainers = true, 3, 2, 2
		again := started(t, c)
		var last Event
		for e, err := range again.Train(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			where := fmt.Sprintf("in epoch %d", e.Applied/int64(e.Batches)+1)
			if e.Applied%int64(e.Batches) == 0 {
				where = fmt.Sprintf("at the end of epoch %d", e.Applied/int64(e.Batches))
			}
			if e.Kind == EventStart && (!e.Resumed || !strings.HasPrefix(e.Message, fmt.Sprintf("resumed after %d batches, %s", e.Applied, where))) {
				t.Errorf("the first event is %+v", e)
			}
			last = e
		}
		if sumOf(t, again) != want {
			t.Errorf("interrupted after %d batches: other bits", after)
		}
		if last.Applied != done.Applied || last.Loss != done.Loss || last.TestAccuracy != done.TestAccuracy {
			t.Errorf("interrupted after %d batches: ended with %+v, not %+v", after, last, done)
		}
	}
}

func TestLeavingTheLoopIsAnInterruption(t *testing.T) {
	c := config()
	c.Checkpoint.Dir = t.TempDir()
	r := started(t, c)
	for e := range r.Train(context.Background()) {
		if e.Kind == EventStep {
			break
		}
	}
	if files, err := checkpoint.List(c.Checkpoint.Dir); err != nil || len(files) != 1 {
		t.Errorf("checkpoints after leaving the loop: %v, %v", files, err)
	}
}

func TestResumeRefusals(t *testing.T) {
	c := config()
	c.Checkpoint.Dir, c.Training.Epochs = t.TempDir(), 1
	trained(t, started(t, c))
	last := func(c Config) (Event, error) {
		r := started(t, c)
		var last Event
		for e, err := range r.Train(context.Background()) {
			if err != nil {
				return e, err
			}
			last = e
		}
		return last, nil
	}
	if _, err := last(c); !errors.Is(err, ErrConfig) {
		t.Errorf("a second run in the same directory: %v", err)
	}
	c.Checkpoint.Resume = true
	other := c
	other.Sampling.BatchSize = 60
	if _, err := last(other); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), "batch-size was 50 and is 60") {
		t.Errorf("another batch size: %v", err)
	}
	more := c
	more.Training.Epochs = 2
	if e, err := last(more); err != nil || e.Applied != 2*int64(e.Batches) {
		t.Errorf("more epochs: %+v, %v", e, err)
	}
	// The newest checkpoint is damaged: the one before serves.
	files, err := checkpoint.List(c.Checkpoint.Dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("checkpoints %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(files[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	if e, err := last(more); err != nil || e.Applied != 2*int64(e.Batches) {
		t.Errorf("a damaged checkpoint: %+v, %v", e, err)
	}
	if files, err = checkpoint.List(c.Checkpoint.Dir); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := last(more); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), files[0]) {
		t.Errorf("no checkpoint is whole: %v", err)
	}
	empty := c
	empty.Checkpoint.Dir = filepath.Join(t.TempDir(), "new")
	r := started(t, empty)
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventStart && (e.Resumed || !strings.Contains(e.Message, "starting afresh")) {
			t.Errorf("resuming from nothing: %+v", e)
		}
	}
}
