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
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/internal/clock"
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
	ds := graph.Builtin()
	ds.Fingerprint = ds.ContentHash()
	memory := features.Memory(ds.NodeFeatures)
	defer memory.Close()
	g := &gated{Store: memory, ctx: ctx, now: time.Unix(1, 0)}
	g.clock = clock.At(g.time)
	g.clock.Keep(math.MaxInt)
	train := func(slow bool) (params []float32, loaders []int) {
		c := DefaultConfig()
		c.Dataset, c.Match, c.Samplers, c.Threads, c.Seed = ds, "off", 1, 2, 3
		c.BatchSize = max(len(ds.Train)/32, 1)
		c.Rows = memory
		if slow {
			c.Rows = g
		}
		r, err := Start(c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Stop()
		work := actors.Work{Phase: "train", Seed: c.Seed, Nodes: ds.Train, BatchSize: c.BatchSize, Micro: 1, Epochs: epochs}
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
			change, _ := f.applied(rec, r.Rows)
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
