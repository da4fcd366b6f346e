package runtime

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/training"
)

// unsteady is a run whose best evaluation is neither the first nor the last.
func unsteady() Config {
	c := config()
	c.Training.Epochs, c.Training.LR, c.Training.Keep = 8, 0.3, "best"
	return c
}

// A run that keeps the best ends with the parameters of its best evaluation, the first of several, and with
// patience it does so unasked; interrupted after it, too.
func TestKeepBest(t *testing.T) {
	c := unsteady()
	r := started(t, c)
	best, figure := 0, -1.0
	var done Event
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventEpoch {
			if e.ValidAccuracy > figure {
				best, figure = e.Epoch+1, e.ValidAccuracy
			}
			if e.Best != best {
				t.Errorf("after epoch %d the best is said to be %d's, and is %d's", e.Epoch+1, e.Best, best)
			}
		}
		done = e
	}
	if best < 2 || best == c.Training.Epochs {
		t.Fatalf("the best evaluation is that of epoch %d; the test needs one between", best)
	}
	if done.Best != best || done.ValidAccuracy != figure || done.Epoch != c.Training.Epochs-1 {
		t.Errorf("the run ended with %+v; epoch %d is best, %v", done, best, figure)
	}
	until := c
	until.Training.Epochs, until.Training.Keep = best, "last"
	last := started(t, until)
	if e := trained(t, last); e.Best != 0 || sumOf(t, last) != sumOf(t, r) {
		t.Errorf("other parameters than those after epoch %d; it says %d", best, e.Best)
	}

	waiting := c
	waiting.Training.Keep, waiting.Training.Patience = "", 2
	p := started(t, waiting)
	if e := trained(t, p); e.Best == 0 || e.Epoch+1 != e.Best+2 && e.Epoch+1 != c.Training.Epochs {
		t.Errorf("with patience 2: %+v", e)
	}
	waiting.Training.Keep = "last"
	if e := trained(t, started(t, waiting)); e.Best != 0 {
		t.Errorf("keep last: the parameters are said to be of epoch %d", e.Best)
	}

	left := started(t, c)
	for e, err := range left.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventStep && e.Epoch == best && e.Batch == 1 { // an epoch after the best
			break
		}
	}
	if sumOf(t, left) != sumOf(t, r) {
		t.Error("interrupted after the best epoch, the runtime does not have its parameters")
	}
}

// Checkpoints have the best parameters: a run that is interrupted anywhere after them, and goes on in another
// process, ends with the same.
func TestKeepBestResumed(t *testing.T) {
	c := unsteady()
	whole := started(t, c)
	done := trained(t, whole)
	c.Checkpoint.Dir, c.Checkpoint.Resume = t.TempDir(), true
	for _, kind := range []EventKind{EventStep, EventEpoch} { // within the epoch after the best, and after that
		for e, err := range started(t, c).Train(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == kind && e.Epoch == done.Best {
				break
			}
		}
	}
	again := started(t, c)
	if e := trained(t, again); e.Best != done.Best || e.ValidAccuracy != done.ValidAccuracy || sumOf(t, again) != sumOf(t, whole) {
		t.Errorf("resumed after the best epoch: %+v and other bits; want %+v", e, done)
	}
	c.Training.Keep = "last"
	if err := run(t.Context(), started(t, c), nil); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), `keep was "best" and is none`) {
		t.Errorf("a run that keeps the last goes on with one that keeps the best: %v", err)
	}
}

// What nodes of a cluster send each other has the best parameters: one that comes after them ends with the same.
func TestKeepBestSent(t *testing.T) {
	c := unsteady()
	c.Checkpoint.Dir = t.TempDir()
	whole := started(t, c)
	trained(t, whole)
	c.Checkpoint.Resume = true
	of := func(c Config) (*trainCall, training.Position) {
		call := &trainCall{r: started(t, c)}
		work := call.r.work()
		call.steps = work.Steps()
		_, _, err := call.open(t.Context())
		t.Cleanup(func() { call.updater.close(call.r) })
		if err != nil {
			t.Fatal(err)
		}
		p, err := call.position()
		if err != nil {
			t.Fatal(err)
		}
		return call, p
	}
	_, from := of(c)
	c.Checkpoint = CheckpointConfig{Keep: 1}
	late, to := of(c)
	state, err := from.Save()
	if err == nil {
		_, err = to.Restore(state)
	}
	if err == nil {
		err = late.hold()
	}
	if err != nil || sumOf(t, late.r) != sumOf(t, whole) {
		t.Errorf("a node that got the state of another has other parameters than the best, or %v", err)
	}
}

func TestKeepRefusals(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"keep: \"first\"":   func(c *Config) { c.Training.Keep = "first" },
		"eval-every: ":      func(c *Config) { c.Training.EvalEvery = 0 },
		"no validation set": func(c *Config) { ds := *small(); ds.Valid, ds.Fingerprint, c.Data.Dataset = nil, "", &ds },
	} {
		c := unsteady()
		change(&c)
		r, err := Start(t.Context(), c)
		if err == nil {
			err = errors.Join(run(t.Context(), r, nil), r.Stop())
		}
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
