package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/internal/interrupt/interrupttest"
)

// Train and Batches count their rows for themselves, also at once, and Stats has the sum.
func TestRowsAreCountedByCall(t *testing.T) {
	c := config()
	c.Memory.Match, c.Execution.Threads, c.Execution.Samplers = "on", 1, 1
	alone := trained(t, started(t, c)).Rows
	if alone.Asked == 0 {
		t.Fatal("no rows were asked for")
	}
	var observed []Event
	c.Observe = func(e Event) { observed = append(observed, e) }
	r := started(t, c)
	epoch := func() (rows RowStats, batches int64) {
		for b, err := range r.Batches(t.Context(), BatchesOptions{Nodes: small().Test, NoCopy: true}) {
			if err != nil {
				t.Fatal(err)
			}
			rows = b.Rows
			batches++
		}
		return rows, batches
	}
	var events []Event
	var before, others RowStats
	var batches int64
	for e, err := range r.Train(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
		if e.Rows.Asked < before.Asked || e.Rows.Batches < before.Batches {
			t.Errorf("%v of epoch %d: %+v, after %+v", e.Kind, e.Epoch, e.Rows, before)
		}
		before = e.Rows
		if e.Kind == EventStep && e.Batch == 1 {
			rows, n := epoch()
			if others.Asked > 0 && rows.Asked != others.Asked {
				t.Errorf("Batches counted %d rows, and %d before", rows.Asked, others.Asked)
			}
			others, batches = rows, batches+n
			if s := r.Stats(); s.Calls != 1 || s.Batches != batches {
				t.Errorf("within Train, after %d batches: %+v", batches, s)
			}
		}
	}
	if before.Asked != alone.Asked || before.Batches != alone.Batches {
		t.Errorf("training counted %+v beside Batches, and %+v alone", before, alone)
	}
	s := r.Stats()
	if epochs := int64(c.Training.Epochs); s.Rows.Asked != before.Asked+epochs*others.Asked || s.Rows.Batches != before.Batches+batches || s.Steps != events[len(events)-1].Applied {
		t.Errorf("in all %+v, of which training %+v and each Batches %+v", s, before, others)
	}
	if s.Calls != 0 || s.InFlight != 0 || s.SlabBytes != 0 || s.Inferring != 0 {
		t.Errorf("after all calls: %+v", s)
	}
	if len(observed) != len(events) || observed[len(observed)-1].Lineage != events[len(events)-1].Lineage {
		t.Errorf("%d events were observed of %d", len(observed), len(events))
	}
}

// slowRows is a store whose reads wait, and that counts those under way.
type slowRows struct {
	features.Store
	open     chan struct{}
	now, max atomic.Int64
}

func (g *slowRows) Read(ctx context.Context, r features.Request, done func(error)) {
	for now := g.now.Add(1); ; {
		most := g.max.Load()
		if now <= most || g.max.CompareAndSwap(most, now) {
			break
		}
	}
	go func() {
		<-g.open
		g.Store.Read(ctx, r, func(err error) {
			g.now.Add(-1)
			done(err)
		})
	}()
}

// However many calls infer, no more than the plan has room for hold memory, the others
// wait; one that waits ends with its context.
func TestInferenceIsBounded(t *testing.T) {
	const calls = 12
	inner := features.InMemory(small().NodeFeatures)
	defer inner.Close()
	store := &slowRows{Store: inner, open: make(chan struct{})}
	c := config()
	bare := *small()
	bare.NodeFeatures = nil // they lie in the store alone
	c.Data.Dataset = &bare
	c.Data.Rows, c.Execution.Threads, c.Memory.Limit = store, 2, "none"
	r := started(t, c)
	if r.plan.Inferences != 2 {
		t.Fatalf("the plan has room for %d", r.plan.Inferences)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	var team sync.WaitGroup
	errs := make(chan error, calls)
	for range calls {
		team.Go(func() {
			_, err := r.Predict(ctx, []uint32{1, 2})
			errs <- err
		})
	}
	for s := r.Stats(); len(errs) == 0 && (s.Inferring+s.Waiting < calls || store.max.Load() < int64(s.Inferring)); s = r.Stats() {
		runtime.Gosched()
	}
	if s := r.Stats(); s.Inferring != 2 || s.Waiting != calls-2 || s.InferenceBytes != 2*r.plan.InferenceBytes || store.max.Load() != 2 {
		close(store.open)
		t.Fatalf("%+v; %d fetch features", s, store.max.Load())
	}
	cancel(interrupttest.ErrEnough)
	for range calls - 2 { // those that wait
		if err := <-errs; !errors.Is(err, interrupttest.ErrEnough) {
			t.Errorf("one that waits: %v", err)
		}
	}
	close(store.open)
	team.Wait()
	if _, err := r.Predict(t.Context(), []uint32{1}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if s := r.Stats(); s.Inferring != 0 || s.Waiting != 0 || s.Calls != 0 {
		t.Errorf("%+v", s)
	}
}

// What callers branch on: a node that there is not, and damage wherever it is.
func TestErrorsAreTold(t *testing.T) {
	r := started(t, config())
	if _, err := r.Predict(t.Context(), []uint32{0, 600}); !errors.Is(err, ErrNode) || errors.Is(err, ErrDamaged) {
		t.Errorf("Predict: %v", err)
	}
	for _, err := range r.Batches(t.Context(), BatchesOptions{Nodes: []uint32{600}}) {
		if !errors.Is(err, ErrNode) {
			t.Errorf("Batches: %v", err)
		}
	}
	file := filepath.Join(t.TempDir(), "model")
	if err := r.Save(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	text := mustRead(t, file)
	text[len(text)-3] ^= 4
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenModel(t.Context(), file); !errors.Is(err, ErrDamaged) || !errors.Is(err, compute.ErrSafetensors) {
		t.Errorf("OpenModel: %v", err)
	}
	if err := r.Load(t.Context(), file); !errors.Is(err, ErrDamaged) {
		t.Errorf("Load: %v", err)
	}
	if err := r.Load(t.Context(), file+"s"); errors.Is(err, ErrDamaged) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that there is not: %v", err)
	}

	if err := error(&fault.Error{}); !errors.Is(err, ErrDamaged) || !errors.Is(err, graph.ErrDamaged) {
		t.Error("a file that was shortened while a program reads it by itself is no damage")
	}

	c := storedRun(t)
	flip(t, payloads(t, c.Data.Path)[3], 128+8, 1)
	damaged, err := Start(t.Context(), c)
	if err == nil {
		err = run(t.Context(), damaged, nil)
		if _, served := damaged.Predict(t.Context(), []uint32{1}); !errors.Is(served, ErrDamaged) {
			t.Errorf("Predict on damaged data: %v", served)
		}
		if err := damaged.Verified(t.Context()); !errors.Is(err, ErrDamaged) {
			t.Errorf("Verified: %v", err)
		}
		if err := damaged.Stop(); err != nil {
			t.Error(err)
		}
	}
	if !errors.Is(err, ErrDamaged) || !errors.Is(err, graph.ErrDamaged) || !errors.Is(err, graph.ErrFormat) {
		t.Errorf("Train: %v", err)
	}
}
