package actors

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/internal/drawn"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/overlap"
)

const featureCols = 3

// featureTable is the table of the tests: a value depends on row and column.
func featureTable() *graph.Features {
	x := make([]float32, nodes*featureCols)
	for i := range x {
		x[i] = float32(rng.New(8).Float64(uint64(i)))
	}
	return graph.NewFeatures(nodes, featureCols, x)
}

// reader is a Gradienter whose result depends on every feature value that its
// batch reads, in order. A NaN out of a slot that was not the batch's any more
// would stay in the parameters for good.
type reader struct {
	table, slab *graph.Features
	hook        func(*sampling.Batch)
	row         [featureCols]float32
	tuned       []messages.Tune // what Tune was told
}

// Tune implements Tuned.
func (r *reader) Tune(threads int, copied bool) {
	r.tuned = append(r.tuned, messages.Tune{Threads: threads, Copied: copied})
}

func (r *reader) Gradient(grad, params []float32, b *sampling.Batch, rows Rows, key rng.Key) (messages.Stats, error) {
	if r.hook != nil {
		r.hook(b)
	}
	from, ids := r.table, b.Inputs()
	if rows.Slots != nil {
		from, ids = r.slab, rows.Slots
	}
	copy(grad, params)
	for i, id := range ids {
		if rows.X != nil {
			copy(r.row[:], rows.X[i*featureCols:])
		} else {
			from.Row(r.row[:], int(id))
		}
		for c, v := range r.row {
			g := &grad[(i*featureCols+c)%len(grad)]
			*g = float32(*g*1.0009765625) + v
		}
	}
	for j := range grad {
		grad[j] += float32(key.Float64(uint64(j)))
	}
	return messages.Stats{Loss: float64(grad[0]), Weight: float64(len(b.Seeds)), Count: len(b.Seeds)}, nil
}

// memoryJob is a job whose rows come through a slab.
type memoryJob struct {
	job
	window, ahead, loaders, slots, keep, cached int
	tunes                                       []messages.Tune // by turns, one a step
	direct                                      bool            // rows are read where the table lies
	repeats                                     bool            // batches have nodes several times
	store                                       features.Store
	generations                                 *Generations
	hook                                        func(*features.Slab, *sampling.Batch)
	readers                                     func([]*reader) // sees them at the end
	insert                                      func(c *Config, table *graph.Features)
}

// run trains to the end, or to the error, and returns the parameters and what
// the slab counted.
func (j memoryJob) run(t *testing.T, ctx context.Context) ([]float32, features.SlabStats, error) {
	t.Helper()
	table := featureTable()
	if j.store == nil {
		j.store = features.InMemory(table)
	}
	p := pool.New(j.threads)
	defer p.Close()
	system := quiet()
	defer system.Shutdown()
	seeds := make([]uint32, nodes)
	for i := range seeds {
		seeds[i] = uint32(i)
	}
	up := &descent{ones()}
	c := Config{
		System: system, Pool: p, Clock: new(clock.Recorder), Credits: j.credits, Updater: up,
		Work: Work{Phase: "train", Seed: 5, Nodes: seeds, BatchSize: batchSize, Micro: j.micro, Epochs: epochs, Window: j.window},
	}
	if j.window > 1 {
		order, err := overlap.NewOrderer(nodes, overlap.Exact)
		if err != nil {
			t.Fatal(err)
		}
		c.Order = order
	}
	var slab *features.Slab
	if !j.direct {
		var err error
		slab, err = features.NewSlab(j.store.Layout(), features.SlabOptions{Slots: j.slots, Keep: j.keep, Cache: j.cached, Poison: true})
		if err != nil {
			t.Fatal(err)
		}
		defer slab.Close()
		c.Loading = &Loading{Store: j.store, Slab: slab, Ahead: j.ahead, Loaders: j.loaders, Cache: j.generations}
	}
	for range j.samplers {
		s, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{3, 2}}, ring(nodes, 9))
		if j.repeats {
			ds := &graph.Dataset{Graph: ring(nodes, 9), NodeTimes: make([]int64, nodes)}
			for v := range ds.NodeTimes {
				ds.NodeTimes[v] = int64(v % 7)
			}
			var p *sampling.Prepared
			if p, err = sampling.Prepare(ctx, sampling.Spec{Name: "khop", Layers: 3, Temporal: true}, ds, 1); err == nil {
				s = p.NewSampler()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Samplers = append(c.Samplers, s)
	}
	var readers []*reader
	for range j.trainers {
		r := &reader{table: table}
		readers = append(readers, r)
		if slab != nil {
			r.slab = slab.Table()
		}
		if j.hook != nil {
			r.hook = func(b *sampling.Batch) { j.hook(slab, b) }
		}
		c.Trainers = append(c.Trainers, r)
	}
	if j.insert != nil {
		if slab != nil {
			table = slab.Table()
		}
		j.insert(&c, table)
	}
	pl, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	defer pl.Stop()
	pl.Proceed(0)
	seen := map[sampling.ID]bool{}
	for step := range c.Work.Steps() * epochs {
		x, err := pl.Next(ctx)
		if err != nil {
			pl.Stop()
			return nil, features.SlabStats{}, err
		}
		a := x.(*messages.Applied)
		if a.Step != step || seen[a.ID] || a.ID.Epoch != int(step/c.Work.Steps()) {
			t.Fatalf("step %d applied %v", step, a.ID)
		}
		seen[a.ID] = true
		if n := len(j.tunes); n > 0 {
			pl.Tune(j.tunes[int(step)%n])
		}
		if a.Last {
			pl.Proceed(step + 1)
		}
	}
	pl.Stop()
	if j.readers != nil {
		j.readers(readers)
	}
	var stats features.SlabStats
	if slab != nil {
		stats = slab.Stats()
	}
	return up.params, stats, nil
}

func plainMemoryJob() memoryJob {
	return memoryJob{job: job{samplers: 2, trainers: 1, credits: 4, threads: 2, micro: 1}, ahead: 3, loaders: 2, slots: 4 * nodes, keep: 3}
}

// Metamorphic: however rows come to the slab, and however little room it has,
// what is computed is what the table gives, tuned meanwhile or not.
func TestSlabDoesNotChangeBits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := drawn.Cases(t)
		for _, window := range []int{0, 3, 5} {
			for _, micro := range []int{1, 3} {
				base := plainMemoryJob()
				base.direct, base.window, base.micro, base.credits = true, window, micro, 12
				want, _, err := base.run(t, t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for range 6 {
					j := base
					j.direct = false
					j.samplers, j.credits, j.threads, j.trainers = 1+r.IntN(3), (window+1)*micro+r.IntN(3), 1+r.IntN(3), 1+r.IntN(micro)
					j.ahead, j.loaders, j.keep = 1+r.IntN(5), 1+r.IntN(3), r.IntN(4)
					j.slots = nodes + r.IntN(3*nodes) // one batch has up to all nodes
					j.cached = r.IntN(2) * r.IntN(60)
					if r.IntN(2) == 0 {
						j.generations = &Generations{Period: 1 + r.IntN(2), Nodes: func(_ context.Context, g int) ([]uint32, error) { return []uint32{uint32(g), 50, uint32(60 + g)}, nil }}
						j.slots += 6
					}
					for range r.IntN(4) {
						j.tunes = append(j.tunes, messages.Tune{Samplers: j.samplers, Credits: j.credits, Ahead: 1 + r.IntN(5), Loaders: 1 + r.IntN(3), Cache: r.IntN(60)})
					}
					got, stats, err := j.run(t, t.Context())
					if err != nil {
						t.Fatalf("%+v: %v", j, err)
					}
					if !slices.Equal(got, want) {
						t.Errorf("%+v: other bits", j)
					}
					if stats.Rows != stats.Shared+stats.Pinned+stats.Cached+stats.Loaded || stats.Loaded == 0 {
						t.Errorf("%d rows were asked for: %d shared, %d pinned, %d cached, %d loaded", stats.Rows, stats.Shared, stats.Pinned, stats.Cached, stats.Loaded)
					}
				}
			}
		}
	})
}

// Tuning gives the slab a cache while the run goes on, and takes it away; every
// trainer is told how it is to work, the newest word at the last.
func TestTuneReachesItsStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := plainMemoryJob()
		j.keep, j.micro, j.trainers, j.credits = 0, 2, 2, 8
		word := messages.Tune{Samplers: j.samplers, Credits: j.credits, Ahead: j.ahead, Loaders: j.loaders, Threads: 1, Copied: true}
		cached := func(rows int) int64 {
			tune := word
			tune.Cache = rows
			j.tunes = []messages.Tune{tune}
			j.readers = func(all []*reader) {
				for i, r := range all {
					n := len(r.tuned)
					if n == 0 || r.tuned[n-1] != (messages.Tune{Threads: 1, Copied: true}) {
						t.Errorf("trainer %d was told %+v", i, r.tuned)
					}
				}
			}
			_, stats, err := j.run(t, t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return stats.Cached
		}
		if n := cached(0); n != 0 {
			t.Errorf("%d rows were found in a cache of none", n)
		}
		if cached(nodes) == 0 {
			t.Error("no row was found in a cache of all")
		}
	})
}

// Compute is held up until every batch that may go ahead has its slots, and
// freed slots hold NaN: a batch whose slots were given away too early would
// compute NaN.
func TestFreedSlotsAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := plainMemoryJob()
		j.samplers, j.credits, j.ahead, j.loaders, j.keep = 1, 6, 4, 3, 0
		j.slots = 6 * nodes
		steps := int64(sampling.NumBatches(nodes, batchSize)) * epochs
		computed := int64(0)
		j.hook = func(slab *features.Slab, _ *sampling.Batch) {
			computed++
			for slab.Stats().Batches < min(steps, computed-1+int64(j.ahead)) { // those ahead, this one included
				runtime.Gosched()
			}
		}
		got, _, err := j.run(t, t.Context())
		if err != nil {
			t.Fatal(err)
		}
		plain := plainMemoryJob()
		plain.direct = true
		want, _, err := plain.run(t, t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("a delayed trainer computes %v, want %v", got, want)
		}
	})
}

// gateway is a store whose reads wait for the gate to open; then they go on.
type gateway struct {
	features.Store
	gate    chan struct{}
	hold    func(features.Request) bool // which reads wait; nil: all
	waiting atomic.Int64
	wg      sync.WaitGroup
}

func (g *gateway) Read(ctx context.Context, r features.Request, done func(error)) {
	if g.hold != nil && !g.hold(r) {
		g.Store.Read(ctx, r, done)
		return
	}
	g.waiting.Add(1)
	g.wg.Go(func() {
		defer g.waiting.Add(-1)
		select {
		case <-g.gate:
			done(features.Read(ctx, g.Store, r))
		case <-ctx.Done():
			done(context.Cause(ctx))
		}
	})
}

// A store that stalls holds the run up and does not break it, and a run that is
// stopped while it reads ends at once and leaves nothing behind.
func TestStallingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := plainMemoryJob()
		plain.direct = true
		want, _, err := plain.run(t, t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, cancelled := range []bool{false, true} {
			g := &gateway{Store: features.InMemory(featureTable()), gate: make(chan struct{})}
			j := plainMemoryJob()
			j.store = g
			computed := atomic.Int64{}
			j.hook = func(*features.Slab, *sampling.Batch) { computed.Add(1) }
			ctx, cancel := context.WithCancel(t.Context())
			var watch sync.WaitGroup
			watch.Go(func() {
				for g.waiting.Load() < int64(j.loaders) { // all that may be under way are
					runtime.Gosched()
				}
				if n := computed.Load(); n != 0 {
					t.Errorf("%d batches were computed before any row was there", n)
				}
				if cancelled {
					cancel()
				} else {
					close(g.gate)
				}
			})
			got, _, err := j.run(t, ctx)
			watch.Wait()
			cancel()
			g.wg.Wait()
			switch {
			case cancelled && !errors.Is(err, context.Canceled):
				t.Errorf("cancelled: %v", err)
			case !cancelled && (err != nil || !slices.Equal(got, want)):
				t.Errorf("a stall changes the result: %v", err)
			}
		}
	})
}

// failing is a store whose k-th read fails.
type failing struct {
	features.Store
	left atomic.Int64
	err  error
}

func (f *failing) Read(ctx context.Context, r features.Request, done func(error)) {
	if f.left.Add(-1) == 0 {
		go done(f.err)
		return
	}
	f.Store.Read(ctx, r, done)
}

// A read that fails ends the run with the batch and the store's own words.
func TestReadErrorFailsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("features.bin: offset 4711: the disk is on fire")
		for k := range int64(5) {
			f := &failing{Store: features.InMemory(featureTable()), err: broken}
			f.left.Store(1 + 3*k)
			j := plainMemoryJob()
			j.store, j.keep = f, 1
			_, _, err := j.run(t, t.Context())
			var failed *messages.Failed
			if !errors.As(err, &failed) || !strings.Contains(err.Error(), "offset 4711") || failed.Stage != "load" || failed.ID.Phase != "train" {
				t.Errorf("read %d: %v", 1+3*k, err)
			}
		}
	})
}

// A batch that can never fit says so, and how to go on.
func TestSlabTooSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := plainMemoryJob()
		j.slots = 20 // a batch has more seeds
		_, _, err := j.run(t, t.Context())
		if err == nil || !strings.Contains(err.Error(), "more memory") {
			t.Errorf("got %v", err)
		}
	})
}

// A batch in which nodes are several times needs a slot for each of them once:
// as many slots as there are nodes do for any batches.
func TestSlabTakesRepeatedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := plainMemoryJob()
		base.direct, base.repeats = true, true
		want, _, err := base.run(t, t.Context())
		if err != nil {
			t.Fatal(err)
		}
		largest := 0
		for _, keep := range []int{0, 1, 3} {
			j := base
			j.direct, j.keep, j.slots = false, keep, nodes
			var mu sync.Mutex
			j.hook = func(_ *features.Slab, b *sampling.Batch) {
				mu.Lock()
				largest = max(largest, b.NumInputs())
				mu.Unlock()
			}
			got, stats, err := j.run(t, t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("keep %d: other bits", keep)
			}
			if stats.Peak > nodes {
				t.Errorf("keep %d: %d slots for %d nodes", keep, stats.Peak, nodes)
			}
		}
		if largest <= nodes {
			t.Errorf("the largest batch has %d inputs of %d nodes: nothing was tested", largest, nodes)
		}
	})
}

// panicking is a store whose first read ends some time after its context, and
// whose second panics.
type panicking struct {
	features.Store
	reads atomic.Int64
	ended atomic.Bool
}

func (s *panicking) Read(ctx context.Context, _ features.Request, ready func(error)) {
	if s.reads.Add(1) > 1 {
		panic(errBroken)
	}
	go func() {
		<-ctx.Done()
		for range 10_000 {
			runtime.Gosched()
		}
		s.ended.Store(true)
		ready(ctx.Err())
	}()
}

// The owner frees the slab when the pipeline has stopped: a stage that panicked
// waits for its reads all the same.
func TestPanickedStageWaitsForReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &panicking{Store: features.InMemory(featureTable())}
		defer store.Close()
		j := plainMemoryJob()
		j.store = store
		_, _, err := j.run(t, t.Context())
		if !errors.Is(err, errBroken) {
			t.Fatalf("the error is %v", err)
		}
		if !store.ended.Load() {
			t.Error("the pipeline stopped while a read was under way")
		}
	})
}
