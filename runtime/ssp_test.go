package runtime

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gnnactor/gnnactor/runtime/runtimetest"
)

func sspConfig() Config {
	c := DefaultConfig()
	c.Training.Sync, c.Sampling.BatchSize, c.Execution.Threads, c.Training.Epochs = SSP(3), 16, 2, 2
	return c
}

// counted has s count steps, and keeps the last event.
func counted(t *testing.T, s *runtimetest.Census, last *Event) func(Event) {
	return func(e Event) {
		if e.Kind == EventStep {
			s.Step(t, e.Epoch, e.Batch, e.Staleness)
		}
		*last = e
	}
}

// The asynchronous mode, with one to four trainers: every batch once, no gradient
// staler than the bound, and an accuracy within 2 points of the synchronous one.
// That is a bound on what differs from run to run, too.
func TestStale(t *testing.T) {
	t.Parallel()
	plain := sspConfig()
	plain.Training.Sync, plain.Training.Epochs, plain.Sampling.BatchSize = Sync{}, 10, 64
	var want Event
	if _, err := trainOn(t.Context(), plain, func(e Event) { want = e }); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ bound, trainers int }{{0, 1}, {1, 2}, {3, 4}} {
		c := plain
		c.Training.Sync, c.Execution.Trainers = SSP(x.bound), x.trainers
		s, done := &runtimetest.Census{Bound: x.bound}, Event{}
		if _, err := trainOn(t.Context(), c, counted(t, s, &done)); err != nil {
			t.Fatal(err)
		}
		s.Check(t, c.Training.Epochs*done.Batches)
		if done.TestAccuracy < want.TestAccuracy-0.02 {
			t.Errorf("%d trainers, %s: accuracy %.4f; %.4f when synchronous", x.trainers, c.Training.Sync, done.TestAccuracy, want.TestAccuracy)
		}
	}
}

// Without others the parameters are never stale: the bits are those of the
// synchronous mode.
func TestStaleAlone(t *testing.T) {
	c := sspConfig()
	c.Training.Sync, c.Model.Name, c.Model.Norm = SSP(0), "gin", "batch"
	got, err := trainOn(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Training.Sync = Sync{}
	want, err := trainOn(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("parameter %d is %v, and %v when synchronous", i, got[i], want[i])
		}
	}
}

// A run that is interrupted, twice, applies every batch once in all, and says
// that its bits are its own.
func TestStaleResume(t *testing.T) {
	c := sspConfig()
	c.Checkpoint.Dir, c.Checkpoint.Resume, c.Execution.Trainers = filepath.Join(t.TempDir(), "run"), true, 4
	s, done := &runtimetest.Census{Bound: 3}, Event{}
	count := counted(t, s, &done)
	for i := 0; ; i++ {
		if i == 5 {
			t.Fatal("the run does not end")
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err := trainOn(ctx, c, func(e Event) {
			count(e)
			if e.Kind == EventStart && i > 0 && (!e.Resumed || !strings.Contains(e.Message, "ssp:3")) {
				t.Errorf("it says %q", e.Message)
			}
			if e.Kind == EventStep && i < 2 && e.Applied%7 == 5 {
				cancel()
			}
		})
		cancel()
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	s.Check(t, c.Training.Epochs*done.Batches)
	c.Training.Sync = Sync{}
	c.Execution.Trainers = 1
	if _, err := trainOn(t.Context(), c, nil); !errors.Is(err, ErrIdentity) {
		t.Errorf("a synchronous run goes on with an asynchronous one's checkpoint: %v", err)
	}
}

// What is in flight is counted while gradients may be late, too.
func TestStaleInFlight(t *testing.T) {
	c := sspConfig()
	var r *Runtime
	var looked, none atomic.Int64
	c.Stages = []Stage{stageOf("look", AfterSample, func(context.Context, *StageBatch) error {
		looked.Add(1)
		if r.InFlight() < 1 { // the batch that is looked at
			none.Add(1)
		}
		return nil
	})}
	r = started(t, c)
	trained(t, r)
	if looked.Load() == 0 || none.Load() > 0 || r.InFlight() != 0 {
		t.Errorf("%d batches, beside %d of which nothing was in flight; %d are when all is over", looked.Load(), none.Load(), r.InFlight())
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

// Features that do not lie in memory are brought to a slab, which keeps those of the newest batches:
// the rows are counted, and they are the batches' own, as the bits of one trainer show.
func TestStaleFeatures(t *testing.T) {
	dir := stored(t)
	for _, x := range []struct{ where, match string }{{"", ""}, {"disk", ""}, {"disk", "off"}} {
		var bits []float32
		for _, sync := range []Sync{{}, SSP(0), SSP(3)} {
			c := sspConfig()
			c.Data.Path, c.Training.Sync, c.Memory.Features, c.Memory.Match = dir, sync, x.where, x.match
			s, done := &runtimetest.Census{Bound: 3}, Event{}
			params, err := trainOn(t.Context(), c, counted(t, s, &done))
			if err != nil {
				t.Fatalf("%+v, %v: %v", x, sync, err)
			}
			s.Check(t, c.Training.Epochs*done.Batches)
			if sync == (Sync{}) {
				bits = params
			} else if sync == SSP(0) && !slices.Equal(params, bits) {
				t.Errorf("%+v: the bits of one trainer are not those of the synchronous mode", x)
			}
			rows, batches := done.Rows, int64(c.Training.Epochs*done.Batches)
			switch {
			case x.where == "":
				if rows.Asked != 0 {
					t.Errorf("%+v, %v: %+v, where rows are read as they lie", x, sync, rows)
				}
			case sync != (Sync{}) && rows.Batches != batches || rows.Asked == 0 || rows.Asked != rows.Shared+rows.Loaded || (rows.Shared > 0) != (x.match != "off"):
				t.Errorf("%+v, %v, %d batches: %+v", x, sync, batches, rows)
			}
		}
	}
}

func TestStaleConfig(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Training.Sync = SSP(-1) },
		func(c *Config) { c.Training.Sync = SSP(1025) },
		func(c *Config) { c.Sampling.MicroBatches = 2 },
		func(c *Config) { c.Execution.Trainers = 5 },
		func(c *Config) { c.Sampling.Reorder = 4 },
		func(c *Config) { c.Execution.Samplers = 2 },
		func(c *Config) { c.Memory.Cache = "hot:1MiB" },
	} {
		c := sspConfig()
		change(&c)
		if err := c.Validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// What is written of a way to train together is read, and nothing else.
func TestSyncText(t *testing.T) {
	for text, want := range map[string]Sync{"": {}, "sync": {}, "ssp:0": SSP(0), "ssp:1024": SSP(1024)} {
		got := SSP(7)
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
		if again, err := got.MarshalText(); err != nil || text != "" && string(again) != text {
			t.Errorf("%q is written as %q, %v", text, again, err)
		}
	}
	for _, text := range []string{"ssp", "ssp:", "ssp:-1", "ssp:3x", "ssp:1025", "ssp:03", "3", "async", "SYNC"} {
		got := SSP(7)
		if err := got.UnmarshalText([]byte(text)); err == nil || got != SSP(7) || !strings.Contains(err.Error(), strconv.Quote(text)) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
