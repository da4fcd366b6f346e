package runtime

import (
	"context"
	"math"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/sampling"
)

// gated is a store that finishes a read a second after it may, by a clock that
// stands still otherwise: when as many are under way as the plan allows, every
// batch whose rows it has read before was applied, and no sampler works. So load
// is busy all the time, by that clock, and nobody else ever is.
type gated struct {
	features.Store
	ctx   context.Context
	clock *clock.Recorder
	total int // reads of the run

	mu       sync.Mutex
	now      time.Time
	begun    int // reads
	finished int
	most     int // under way at once
	applied  int // batches
	credits  int // of all samplers
	loaders  int
}

func (g *gated) time() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// sampled returns how many batches were.
func (g *gated) sampled() (n int) {
	spans, _ := g.clock.Spans()
	for _, s := range spans {
		if s.Stage == clock.Sample && strings.Contains(s.Name, "/b") {
			n++
		}
	}
	return n
}

// tryFinish finishes read i if it may.
func (g *gated) tryFinish(i, sampled int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := g.total - g.finished
	if i != g.finished || g.applied != g.finished || g.begun-g.finished < min(g.loaders, left) || sampled < min(g.total, g.applied+g.credits) {
		return false
	}
	g.now = g.now.Add(time.Second)
	g.finished++
	return true
}

func (g *gated) Read(ctx context.Context, r features.Request, done func(error)) {
	g.mu.Lock()
	i := g.begun
	g.begun++
	g.most = max(g.most, g.begun-g.finished)
	g.mu.Unlock()
	go func() {
		for !g.tryFinish(i, g.sampled()) {
			if g.ctx.Err() != nil {
				done(g.ctx.Err())
				return
			}
			goruntime.Gosched()
		}
		g.Store.Read(ctx, r, done)
	}()
}

func (g *gated) Close() error { return nil }

// A store that is slow has the run read more at once, step by step and as much as
// the plan's peak has room for, and to the same bits as one that is not.
func TestRefineUnderASlowStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const epochs = 2
	ds := generate.Builtin()
	ds.Fingerprint = hashOf(t, ds)
	memory := features.InMemory(ds.NodeFeatures)
	defer memory.Close()
	g := &gated{Store: memory, ctx: ctx, now: time.Unix(1, 0)}
	g.clock = clock.At(g.time)
	g.clock.Keep(math.MaxInt)
	train := func(slow bool) (params []float32, loaders []int) {
		c := DefaultConfig()
		c.Data.Dataset, c.Memory.Match, c.Execution.Samplers, c.Execution.Threads, c.Training.Seed = ds, "off", 1, 2, 3
		c.Sampling.BatchSize = max(len(ds.Train)/32, 1)
		c.Data.Rows = memory
		if slow {
			c.Data.Rows = g
		}
		r, err := Start(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Stop()
		work := actors.Work{Phase: "train", Seed: c.Training.Seed, Nodes: ds.Train, BatchSize: c.Sampling.BatchSize, Micro: 1, Epochs: epochs}
		rec, f := new(clock.Recorder), r.newRefiner()
		if slow {
			rec = g.clock
			g.total, g.credits, g.loaders = int(work.Steps())*epochs, r.plan.Samplers*r.plan.Credits, r.plan.Loaders
			loaders = append(loaders, r.plan.Loaders)
		}
		u := newUpdater(r, r.params)
		p, mem, err := r.trainingPipeline(ctx, work, u, rec)
		if err != nil {
			t.Fatal(err)
		}
		for step := range work.Steps() * epochs {
			if step%work.Steps() == 0 {
				p.Proceed(step)
			}
			if _, err := p.Next(ctx); err != nil {
				t.Errorf("step %d: %v", step, err)
				break
			}
			if !slow {
				continue
			}
			change, _ := f.applied(rec, mem.stats)
			g.mu.Lock()
			g.applied++
			if change != nil {
				p.Tune(*change)
				g.credits, g.loaders = change.Samplers*change.Credits, change.Loaders
				loaders = append(loaders, change.Loaders)
			}
			g.mu.Unlock()
		}
		p.Stop()
		if err := mem.close(); err != nil {
			t.Error(err)
		}
		if slow && g.most != r.plan.MaxLoaders {
			t.Errorf("up to %d reads were under way, want %d", g.most, r.plan.MaxLoaders)
		}
		return slices.Clone(u.Params()), loaders
	}
	slow, loaders := train(true)
	if want := []int{2, 4, 8}; !slices.Equal(loaders, want) {
		t.Errorf("reads under way were planned as %v, want %v", loaders, want)
	}
	if fast, _ := train(false); !slices.Equal(fast, slow) {
		t.Error("the parameters depend on how slow the store is")
	}
}

// A cache that measuring adds stays if batches find rows in it, by what the slab
// counts.
func TestRefinerCountsHits(t *testing.T) {
	for _, found := range []int64{0, 50} { // of 100 rows a batch
		c := config()
		c.Memory.Features, c.Execution.Threads, c.Sampling.BatchSize, c.Sampling.Fanouts, c.Memory.Loaders = "throttled:90MB/s", 2, 4, []int{3, 2}, 1
		r := started(t, c)
		if r.plan.CacheRoom == 0 {
			t.Fatal("there is no room for a cache")
		}
		now := time.Unix(1, 0)
		rec := clock.At(func() time.Time { return now })
		span := rec.Begin(clock.Load) // all the time
		f := r.newRefiner()
		var cache []int
		rows := RowStats{}
		for range 10 * (refineSkip + refineEvery) {
			now = now.Add(time.Second)
			rows.Asked += 100
			if n := len(cache); n > 0 && cache[n-1] > 0 {
				rows.Cached += found
			}
			if change, why := f.applied(rec, func() RowStats { return rows }); change != nil {
				cache = append(cache, change.Cache)
			} else if why != "" {
				t.Errorf("a reason for no change: %s", why)
			}
		}
		span.End("")
		room := int(r.plan.CacheRoom)
		want := []int{room, 0}
		if found > 0 {
			want = []int{room, room}
		}
		if !slices.Equal(cache, want) {
			t.Errorf("%d of 100 rows found: caches of %v, want %v", found, cache, want)
		}
	}
}

// A worker that is told to copies rows together, and reads them there.
func TestWorkerCopies(t *testing.T) {
	r := started(t, config())
	order := sampling.Order(r.data.ds.Train, 1, 0)
	b := &sampling.Batch{ID: sampling.ID{Phase: "train", Of: 1}}
	if err := r.newSampler().Sample(b, b.ID.Key(1), sampling.Cut(order, 50, 1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	w := &worker{engine: r.model.NewEngine(r.modelExec()), ds: r.data.ds, limit: r.plan.CopyRows}
	gradient := func() []float32 {
		grad := make([]float32, len(r.params))
		if _, err := w.Gradient(grad, r.params, b, actors.Rows{}, b.ID.Key(1)); err != nil {
			t.Fatal(err)
		}
		return grad
	}
	want := gradient()
	w.Tune(1, true)
	if got := gradient(); !slices.Equal(got, want) {
		t.Error("other bits")
	}
	if w.gatherer.Rows() != len(b.Inputs()) {
		t.Errorf("%d rows were copied for a batch of %d", w.gatherer.Rows(), len(b.Inputs()))
	}
	if n := int64(len(b.Inputs())); n > r.plan.CopyRows {
		t.Errorf("a batch has %d rows, and at most %d are planned", n, r.plan.CopyRows)
	}
	w.Tune(0, false)
	if w.gatherer != nil {
		t.Error("the copies were kept")
	}
}

// An evaluation begins by giving up the rows that were copied together, but those of who computes; the next batch copies its own anew.
func TestEvaluationsGiveCopiesUp(t *testing.T) {
	c := config()
	c.Training.EvalEvery = 1
	call := &trainCall{r: started(t, c), yield: func(Event, error) bool { return true }}
	work := call.r.work()
	call.steps = work.Steps()
	_, _, err := call.open(t.Context())
	t.Cleanup(func() { call.updater.close(call.r) })
	if err != nil {
		t.Fatal(err)
	}
	r := call.r
	_, mem, err := r.trainingConfig(t.Context(), work, call.updater, &call.clock)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.close()
	w := call.updater.workers[0]
	b := &sampling.Batch{ID: sampling.ID{Phase: "train", Of: 1}}
	if err := r.newSampler().Sample(b, b.ID.Key(1), sampling.Cut(sampling.Order(r.data.ds.Train, 1, 0), 50, 1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	gradient := func() []float32 {
		grad := make([]float32, len(r.params))
		if _, err := w.Gradient(grad, r.params, b, actors.Rows{}, b.ID.Key(1)); err != nil {
			t.Fatal(err)
		}
		return grad
	}
	w.Tune(1, true)
	want := gradient()
	for computes, rows := range map[bool]int{true: len(b.Inputs()), false: 0} {
		gradient()
		if computes {
			w.computing.Lock()
		}
		err := call.endEpoch(t.Context(), 0)
		if computes {
			w.computing.Unlock()
		}
		if err != nil || w.gatherer.Rows() != rows {
			t.Errorf("it computes: %v; after an evaluation %d rows are copied, want %d; %v", computes, w.gatherer.Rows(), rows, err)
		}
	}
	if !slices.Equal(gradient(), want) {
		t.Error("other bits")
	}
}
