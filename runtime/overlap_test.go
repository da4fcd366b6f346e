package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// overlapData is a graph with 128 features.
func overlapData(b *testing.B, scale, edges, train int) *graph.Dataset {
	ds, err := generate.RMAT(b.Context(), generate.RMATOptions{Scale: scale, Edges: edges, FeatureDim: 128, Classes: 47, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	perm := make([]uint32, ds.Graph.NumNodes())
	rng.New(2).Perm(perm)
	ds.Train, ds.Valid, ds.Test = slices.Clone(perm[:train]), nil, nil
	return ds
}

// pipeline runs the epochs of r's plan without evaluation, and returns when its
// owner heard that each batch was applied, since the first was let go.
func pipeline(b *testing.B, r *Runtime, epochs int, rec *clock.Recorder) []time.Duration {
	ds := r.data.ds
	work := actors.Work{Phase: "train", Seed: r.cfg.Training.Seed, Nodes: ds.Train, BatchSize: r.cfg.Sampling.BatchSize, Micro: 1, Epochs: epochs}
	p, mem, err := r.trainingPipeline(context.Background(), work, newUpdater(r, r.params), rec)
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	var at []time.Duration
	for step := range work.Steps() * int64(epochs) {
		if step%work.Steps() == 0 {
			p.Proceed(step)
		}
		if _, err := p.Next(context.Background()); err != nil {
			b.Fatal(err)
		}
		at = append(at, time.Since(began))
	}
	p.Stop()
	if err := mem.close(); err != nil {
		b.Fatal(err)
	}
	return at
}

// BenchmarkOverlap compares an epoch with its stages run alone, on the same
// batches and threads: compute alone, and load alone over a link that is made as
// fast as compute (equal) or three times as slow (slow). With features in memory
// it compares the plan's epoch with loops written by hand, without actors: one that
// does one thing after the other, and one that samples ahead.
func BenchmarkOverlap(b *testing.B) {
	const batches, repeats = 320, 5
	ds := overlapData(b, 20, 16_000_000, batches*256)
	c := DefaultConfig()
	c.Data.Dataset, c.Model.Layers, c.Sampling.Fanouts, c.Sampling.BatchSize, c.Model.Hidden = ds, 3, []int{15, 10, 5}, 256, 256
	start := func(features, match string) *Runtime {
		v := c
		v.Memory.Features, v.Memory.Match = features, match
		r, err := Start(context.Background(), v)
		if err != nil {
			b.Fatal(err)
		}
		return r
	}
	ram := start("", "")
	defer ram.Stop()

	// Record the batches, and what they have to read.
	order := sampling.Order(ds.Train, c.Training.Seed, 0)
	sampler := ram.sampler.NewSampler()
	recorded := make([]*sampling.Batch, batches)
	began := time.Now()
	for i := range recorded {
		recorded[i] = &sampling.Batch{ID: sampling.ID{Phase: "train", Batch: i, Of: 1}}
		if err := sampler.Sample(recorded[i], recorded[i].ID.Key(c.Training.Seed), sampling.Cut(order, c.Sampling.BatchSize, 1, i, 0)); err != nil {
			b.Fatal(err)
		}
	}
	sampled := time.Since(began)
	w, u := &worker{engine: ram.model.NewEngine(cpu.NewExec(ram.pool, ram.set)), ds: ds}, newUpdater(ram, ram.params)
	grad := make([]float32, len(u.Params()))
	computeAlone := func() time.Duration {
		began := time.Now()
		for _, x := range recorded {
			if _, err := w.Gradient(grad, u.Params(), x, actors.Rows{}, actors.Key(c.Training.Seed, x.ID)); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(began)
	}
	planned := start("throttled:100GB/s", "")
	keep := planned.plan
	defer planned.Stop()
	l := features.LayoutOf(ds.NodeFeatures)
	slab, err := features.NewSlab(l, features.SlabOptions{Slots: int(keep.SlabRows), MaxSlots: int(keep.SlabLimit), Keep: keep.MaxAhead})
	if err != nil {
		b.Fatal(err)
	}
	defer slab.Close()
	// What match leaves to be read, and where to.
	reads, bytes := make([]features.Request, batches), int64(0)
	for i, x := range recorded {
		lease, err := slab.Match(x.Inputs())
		if err != nil {
			b.Fatal(err)
		}
		q := lease.Request()
		reads[i] = features.Request{IDs: slices.Clone(q.IDs), Slots: slices.Clone(q.Slots), Dst: q.Dst}
		bytes += int64(len(q.IDs)) * int64(l.RowBytes())
		slab.Release(lease)
	}
	loadAlone := func(store features.Store) time.Duration {
		began := time.Now()
		done, under := make(chan error, keep.Loaders), 0
		wait := func() {
			if err := <-done; err != nil {
				b.Fatal(err)
			}
			under--
		}
		for _, q := range reads {
			if under == keep.Loaders {
				wait()
			}
			under++
			store.Read(context.Background(), q, func(err error) { done <- err })
		}
		for under > 0 {
			wait()
		}
		return time.Since(began)
	}
	memory := features.InMemory(ds.NodeFeatures)
	loadAlone(memory)
	copying := loadAlone(memory)
	memory.Close()
	computeAlone()
	var computed []float64
	before := cpuTime(b)
	for range repeats {
		computed = append(computed, computeAlone().Seconds())
	}
	alone, computeCPU := median(computed), (cpuTime(b)-before).Seconds()/repeats
	b.Logf("%d batches: sampling alone %.2f s, compute alone %.2f s (%.2f CPU s), %.0f MB to load, their copy %.2f s", batches, sampled.Seconds(), alone, computeCPU, float64(bytes)/1e6, copying.Seconds())

	for _, show := range []struct {
		name  string
		times float64
	}{{"equal", 1}, {"slow", 3}} {
		b.Run(show.name, func(b *testing.B) {
			rate := float64(bytes) / (alone * show.times)
			store := features.Throttled(features.InMemory(ds.NodeFeatures), features.Throttle{Bandwidth: rate})
			load := loadAlone(store)
			store.Close()
			r := start(fmt.Sprintf("throttled:%.0fB/s", rate), "")
			defer r.Stop()
			pipeline(b, r, 1, new(clock.Recorder))
			// Computing alone is measured beside each epoch again: how fast that goes
			// changes with what else the machine does.
			var walls, cpus, ratios, again []float64
			for b.Loop() {
				for range repeats {
					computing := computeAlone().Seconds()
					again = append(again, computing)
					before := cpuTime(b)
					at := pipeline(b, r, 1, new(clock.Recorder))
					walls = append(walls, at[len(at)-1].Seconds())
					cpus = append(cpus, (cpuTime(b) - before).Seconds())
					ratios = append(ratios, walls[len(walls)-1]/max(computing, load.Seconds()))
				}
			}
			b.ReportMetric(load.Seconds(), "load-alone-s")
			b.ReportMetric(median(again), "compute-alone-s")
			b.ReportMetric(median(walls), "epoch-s")
			b.ReportMetric(median(cpus), "cpu-s")
			b.ReportMetric(median(ratios), "epoch/longest-alone")
		})
	}
	b.Run("ram", func(b *testing.B) {
		pipeline(b, ram, 1, new(clock.Recorder))
		w := &worker{engine: ram.model.NewEngine(cpu.NewExec(ram.pool, ram.set)), ds: ds}
		var planned, loop, overlapped []float64
		for b.Loop() {
			for range repeats {
				// The plan's own choice for features in memory is the fused gather.
				at := pipeline(b, ram, 1, new(clock.Recorder))
				planned = append(planned, at[len(at)-1].Seconds())
				loop = append(loop, byHand(b, ram, w, sampler, 0).Seconds())
				overlapped = append(overlapped, byHand(b, ram, w, sampler, 2).Seconds())
			}
		}
		b.ReportMetric(median(slices.Clone(planned)), "pipeline-s")
		b.ReportMetric(median(planned)/median(loop), "pipeline/loop")
		b.ReportMetric(median(planned)/median(overlapped), "pipeline/overlapped-loop")
		b.ReportMetric(median(planned)/alone, "pipeline/compute-alone")
	})
}

// byHand trains an epoch of r's without actors, and returns how long it took: one
// batch is sampled, computed and applied after the other, or, with ahead above 0,
// sampled by another goroutine up to so many batches ahead.
func byHand(b *testing.B, r *Runtime, w *worker, sampler sampling.Sampler, ahead int) time.Duration {
	began := time.Now()
	order := sampling.Order(r.data.ds.Train, r.cfg.Training.Seed, 0)
	u := newUpdater(r, r.params)
	grad := make([]float32, len(u.Params()))
	n := sampling.NumBatches(len(order), r.cfg.Sampling.BatchSize)
	sample := func(x *sampling.Batch, i int) error {
		x.Reset()
		x.ID = sampling.ID{Phase: "train", Batch: i, Of: 1}
		return sampler.Sample(x, x.ID.Key(r.cfg.Training.Seed), sampling.Cut(order, r.cfg.Sampling.BatchSize, 1, i, 0))
	}
	step := func(x *sampling.Batch) error {
		s, err := w.Gradient(grad, u.Params(), x, actors.Rows{}, actors.Key(r.cfg.Training.Seed, x.ID))
		if err == nil {
			u.Apply([][]float32{grad}, s.Weight)
		}
		return err
	}
	if ahead == 0 {
		x := new(sampling.Batch)
		for i := range n {
			if err := errors.Join(sample(x, i), step(x)); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(began)
	}
	free, ready, failed := make(chan *sampling.Batch, ahead), make(chan *sampling.Batch, ahead), error(nil)
	for range ahead {
		free <- new(sampling.Batch)
	}
	go func() {
		defer close(ready)
		for i := range n {
			x := <-free
			if failed = sample(x, i); failed != nil {
				return
			}
			ready <- x
		}
	}()
	for x := range ready {
		if err := step(x); err != nil {
			b.Fatal(err)
		}
		free <- x
	}
	if failed != nil {
		b.Fatal(failed)
	}
	return time.Since(began)
}

// BenchmarkGenerationSwitch reports the longest gap between two batches around a
// switch of GNS's cache, in median gaps: nothing is to wait for the next
// generation. A gap is between the ends of two updates, by the clock of the
// pipeline; heard-longest/median is the same as its owner hears of them, who has to
// wait for a processor.
func BenchmarkGenerationSwitch(b *testing.B) {
	const batches, epochs = 24, 5
	ds := overlapData(b, 20, 16_000_000, batches*1024)
	c := DefaultConfig()
	c.Data.Dataset, c.Model.Layers, c.Sampling.Fanouts, c.Sampling.BatchSize, c.Model.Hidden = ds, 3, []int{15, 10, 5}, 1024, 256
	c.Sampling.Sampler, c.Memory.Cache, c.Memory.Features = "gns", "gns:1%", "throttled:1GB/s"
	r, err := Start(context.Background(), c)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Stop()
	// typical returns the median of the gaps between times, in ms, and the longest from
	// the third batch before a switch to the second after it, in medians.
	typical := func(at []time.Duration) (mid, longest float64) {
		gaps := make([]float64, 0, len(at))
		for i := 1; i < len(at); i++ {
			gaps = append(gaps, 1e3*(at[i]-at[i-1]).Seconds())
		}
		for e := 1; e < epochs; e++ {
			longest = max(longest, slices.Max(gaps[e*batches-3:e*batches+1]))
		}
		mid = median(gaps)
		return mid, longest / mid
	}
	pipeline(b, r, epochs, new(clock.Recorder))
	var mid, worst, heard []float64
	for b.Loop() {
		rec := new(clock.Recorder)
		rec.Keep(1 << 16)
		_, h := typical(pipeline(b, r, epochs, rec))
		var ends []time.Duration
		spans, _ := rec.Spans()
		for _, s := range spans {
			if s.Stage == clock.Update {
				ends = append(ends, s.Begin+s.Wall)
			}
		}
		slices.Sort(ends)
		if len(ends) != batches*epochs {
			b.Fatalf("%d of %d updates were recorded", len(ends), batches*epochs)
		}
		m, w := typical(ends)
		mid, worst, heard = append(mid, m), append(worst, w), append(heard, h)
	}
	b.ReportMetric(median(mid), "median-gap-ms")
	b.ReportMetric(median(worst), "longest/median-gap")
	b.ReportMetric(median(heard), "heard-longest/median")
}
