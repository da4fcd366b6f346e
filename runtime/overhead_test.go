package runtime

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// cpuTime returns the process's user and system time so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// idle is a Gradienter that computes nothing.
type idle struct{}

func (idle) Gradient(_, _ []float32, b *sampling.Batch, _ actors.Rows, _ rng.Key) (messages.Stats, error) {
	return messages.Stats{Weight: float64(len(b.Seeds)), Count: len(b.Seeds)}, nil
}

// still is an Updater that changes nothing.
type still struct{ params []float32 }

func (s still) Params() []float32          { return s.params }
func (s still) Apply([][]float32, float64) {}

// BenchmarkActorOverhead compares the pipeline, with one sampler, with the same
// sampling and compute called in a plain loop, on a graph of a million nodes:
// batches of 1024, fan-outs 15,10,5. "train" reports the ratio of CPU seconds;
// "noop" replaces compute and reports what the actors add to a batch.
func BenchmarkActorOverhead(b *testing.B) {
	const batches, repeats = 64, 5
	ds, err := generate.RMAT(b.Context(), generate.RMATOptions{Scale: 20, Edges: 8_000_000, FeatureDim: 64, Classes: 47, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	ds.Train = make([]uint32, batches*1024)
	perm := make([]uint32, ds.Graph.NumNodes())
	rng.New(2).Perm(perm)
	copy(ds.Train, perm)
	ds.Valid, ds.Test = nil, nil
	c := DefaultConfig()
	c.Data.Dataset, c.Model.Layers, c.Sampling.Fanouts, c.Sampling.BatchSize, c.Model.Hidden, c.Execution.Samplers = ds, 3, []int{15, 10, 5}, 1024, 64, 1
	r, err := Start(context.Background(), c)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Stop()

	plain := func(w actors.Gradienter, u actors.Updater) (cpuUsed, wall time.Duration) {
		s, batch := r.sampler.NewSampler(), new(sampling.Batch)
		grad := make([]float32, len(u.Params()))
		cpu0, began := cpuTime(b), time.Now()
		order := sampling.Order(ds.Train, c.Training.Seed, 0)
		for i := range batches {
			id := sampling.ID{Phase: "train", Batch: i, Of: 1}
			batch.Reset()
			batch.ID = id
			if err := s.Sample(batch, id.Key(c.Training.Seed), sampling.Cut(order, c.Sampling.BatchSize, 1, i, 0)); err != nil {
				b.Fatal(err)
			}
			st, err := w.Gradient(grad, u.Params(), batch, actors.Rows{}, actors.Key(c.Training.Seed, id))
			if err != nil {
				b.Fatal(err)
			}
			u.Apply([][]float32{grad}, st.Weight)
		}
		return cpuTime(b) - cpu0, time.Since(began)
	}
	piped := func(w actors.Gradienter, u actors.Updater) (cpuUsed, wall time.Duration) {
		cpu0, began := cpuTime(b), time.Now()
		p, err := actors.Start(actors.Config{
			System: r.system, Pool: r.pool, Clock: new(clock.Recorder), Samplers: r.samplers(), Credits: r.plan.Credits,
			Work:     actors.Work{Phase: "train", Seed: c.Training.Seed, Nodes: ds.Train, BatchSize: c.Sampling.BatchSize, Micro: 1, Epochs: 1},
			Trainers: []actors.Gradienter{w}, Updater: u,
		})
		if err != nil {
			b.Fatal(err)
		}
		p.Proceed(0)
		for range batches {
			if _, err := p.Next(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		p.Stop()
		return cpuTime(b) - cpu0, time.Since(began)
	}
	engine := func() actors.Gradienter {
		return &worker{engine: r.model.NewEngine(cpu.NewExec(r.pool, r.set)), ds: ds}
	}
	b.Run("train", func(b *testing.B) {
		w, u := engine(), newUpdater(r, r.params)
		plain(w, u) // warm
		var ratios, walls []float64
		for b.Loop() {
			for range repeats {
				pc, pw := plain(w, u)
				ac, aw := piped(w, u)
				ratios = append(ratios, float64(ac)/float64(pc))
				walls = append(walls, float64(aw)/float64(pw))
			}
		}
		b.ReportMetric(median(ratios), "cpu-ratio")
		b.ReportMetric(median(walls), "wall-ratio")
	})
	b.Run("noop", func(b *testing.B) {
		u := still{make([]float32, r.NumParameters())}
		plain(idle{}, u)
		var added []float64
		for b.Loop() {
			for range repeats {
				pc, _ := plain(idle{}, u)
				ac, _ := piped(idle{}, u)
				added = append(added, float64((ac-pc).Microseconds())/batches)
			}
		}
		b.ReportMetric(median(added), "added-cpu-µs/batch")
	})
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
