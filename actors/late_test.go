package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/internal/drawn"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// lateJob is an epoch of a pipeline whose trainers' gradients may be late.
type lateJob struct {
	trainers, credits, threads, bound int
	ahead, loaders, slots             int // slots 0: rows are read where the table lies
	insert                            bool
	epoch                             int
	params                            []float32
	sampled                           func(trainer int, b *sampling.Batch) error
	computes                          func(trainer int, b *sampling.Batch) error
	parameters                        func(*async.Owner) async.Parameters
}

// Params and Apply implement async.Model: what the synchronous pipeline does with a step's gradient.
func (j *lateJob) Params() []float32 { return j.params }
func (j *lateJob) Apply(p *async.Push) error {
	d := descent{j.params}
	d.Apply([][]float32{p.Data}, p.Stats.Weight)
	return nil
}

// watched is a sampler or a trainer of a job: what it is given is looked at.
type watched struct {
	sampling.Sampler
	Gradienter
	do func(*sampling.Batch) error
}

func (w watched) Sample(b *sampling.Batch, key rng.Key, seeds []uint32) error {
	if err := w.do(b); err != nil {
		return err
	}
	return w.Sampler.Sample(b, key, seeds)
}

func (w watched) Gradient(grad, params []float32, b *sampling.Batch, rows Rows, key rng.Key) (messages.Stats, error) {
	if err := w.do(b); err != nil {
		return messages.Stats{}, err
	}
	return w.Gradienter.Gradient(grad, params, b, rows, key)
}

// start returns the parameters' owner, the pipeline, and what ends both.
func (j *lateJob) start(t *testing.T) (*async.Owner, *Pipeline, func()) {
	t.Helper()
	seeds := make([]uint32, nodes)
	for i := range seeds {
		seeds[i] = uint32(i)
	}
	system, p, table := quiet(), pool.New(j.threads), featureTable()
	w := Work{Phase: "train", Seed: 5, Nodes: seeds, BatchSize: batchSize, Micro: 1, Epochs: epochs}
	w.First = int64(j.epoch) * w.Steps()
	c := Config{System: system, Pool: p, Clock: new(clock.Recorder), Credits: j.credits, Work: w, Updater: &descent{j.params}}
	var slab *features.Slab
	rows := table
	if j.slots > 0 {
		store := features.InMemory(table)
		var err error
		if slab, err = features.NewSlab(store.Layout(), features.SlabOptions{Slots: j.slots, Poison: true}); err != nil {
			t.Fatal(err)
		}
		rows = slab.Table()
		c.Loading = &Loading{Store: store, Slab: slab, Ahead: j.ahead, Loaders: j.loaders}
	}
	if j.insert {
		inserts(t, drawn.Cases(t))(&c, rows)
		for _, own := range [][]Inserted{c.AfterSample, c.AfterLoad} {
			for i := range own {
				own[i].Limit = min(own[i].Limit, j.trainers) // so that those of one trainer stay in order
			}
		}
	}
	o := async.NewOwner(async.Options{
		System: system, Model: j, Bound: j.bound, First: w.First, End: w.First + w.Steps(),
		Spawn: func(made actor.Producer) *actor.PID { return Spawn(system, "run", "/parameters", made) },
	})
	var of async.Parameters = o
	if j.parameters != nil {
		of = j.parameters(o)
	}
	for i := range j.trainers {
		s, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{3, 2}}, ring(nodes, 9))
		if err != nil {
			t.Fatal(err)
		}
		look := func(with func(int, *sampling.Batch) error) func(*sampling.Batch) error {
			return func(b *sampling.Batch) error {
				if with == nil {
					return nil
				}
				return with(i, b)
			}
		}
		c.Samplers = append(c.Samplers, watched{Sampler: s, do: look(j.sampled)})
		c.Trainers = append(c.Trainers, watched{Gradienter: &reader{table: table, slab: rows}, do: look(j.computes)})
		c.Late = append(c.Late, Late{Parameters: of, Trainer: async.Name("", i)})
	}
	pl, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	return o, pl, func() {
		pl.Stop()
		o.Close()
		system.Shutdown()
		p.Close()
		if slab != nil {
			if err := slab.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// run makes the epoch, and returns its steps in the order in which they were applied.
func (j *lateJob) run(t *testing.T) []async.Step {
	t.Helper()
	o, pl, stop := j.start(t)
	defer stop()
	var all []async.Step
	for {
		s, err := o.Next(t.Context())
		if errors.Is(err, async.ErrOver) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if x, err := pl.Next(t.Context()); !errors.Is(err, async.ErrOver) {
		t.Errorf("when all is applied the pipeline gives %v, %v", x, err)
	}
	pl.Stop()
	if made, _ := pl.Buffers(); made > int64(j.trainers*j.credits) {
		t.Errorf("%d batch buffers were made; the credits allow %d", made, j.trainers*j.credits)
	}
	return all
}

// Metamorphic: a trainer whose gradients are never late makes the bits of the synchronous pipeline,
// whatever the plan: through a slab or not, with stages of the program's own or not.
func TestLateAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := drawn.Cases(t)
		for _, insert := range []bool{false, true} {
			plain := plainMemoryJob()
			plain.direct, plain.micro, plain.trainers = true, 1, 1
			if insert {
				plain.insert = inserts(t, r)
			}
			want, _, err := plain.run(t, t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for range 8 {
				params := ones()
				j := lateJob{trainers: 1, credits: 1 + r.IntN(4), threads: 1 + r.IntN(3), ahead: 1 + r.IntN(3), loaders: 1 + r.IntN(3), insert: insert}
				if r.IntN(3) > 0 {
					j.slots = nodes
				}
				for j.epoch = range epochs {
					j.params = params
					for i, s := range j.run(t) {
						if first := int64(j.epoch*sampling.NumBatches(nodes, batchSize)) + int64(i); s.Step != first || s.Stale != 0 {
							t.Fatalf("%+v: step %d was applied as number %d, %d stale", j, s.Step, first, s.Stale)
						}
					}
				}
				if !slices.Equal(params, want) {
					t.Fatalf("%+v: the bits differ from the synchronous pipeline's", j)
				}
			}
		}
	})
}

// Several trainers: each computes what its own sampler made of the steps that it was dealt, with
// the seeds and the rows that are theirs; every step is applied once, by the trainer that was dealt it.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := drawn.Cases(t)
		seeds := make([]uint32, nodes)
		for i := range seeds {
			seeds[i] = uint32(i)
		}
		for range 12 {
			j := lateJob{
				trainers: 2 + r.IntN(3), credits: 1 + r.IntN(3), threads: 1 + r.IntN(3), bound: 1 + r.IntN(4), ahead: 1 + r.IntN(4), loaders: 1 + r.IntN(3),
				epoch: r.IntN(epochs), insert: r.IntN(2) == 0, params: ones(),
			}
			if r.IntN(3) > 0 {
				j.slots = nodes
			}
			steps := sampling.NumBatches(nodes, batchSize)
			order := sampling.Order(seeds, 5, j.epoch)
			var mu sync.Mutex
			sampledBy, computedBy := map[sampling.ID]int{}, map[sampling.ID]int{}
			once := func(by map[sampling.ID]int, i int, b *sampling.Batch) error {
				mu.Lock()
				defer mu.Unlock()
				if other, again := by[b.ID]; again {
					return fmt.Errorf("%v is %d's, and was %d's", b.ID, i, other)
				}
				by[b.ID] = i
				return nil
			}
			j.sampled = func(i int, b *sampling.Batch) error { return once(sampledBy, i, b) }
			j.computes = func(i int, b *sampling.Batch) error {
				if want := sampling.Cut(order, batchSize, 1, b.ID.Batch, 0); b.ID.Epoch != j.epoch || !slices.Equal(b.Seeds, want) {
					return fmt.Errorf("epoch %d: %v has seeds %v, and is of %v", j.epoch, b.ID, b.Seeds, want)
				}
				return once(computedBy, i, b)
			}
			all := j.run(t)
			for _, s := range all {
				id := sampling.ID{Phase: "train", Epoch: j.epoch, Batch: int(s.Step) % steps, Of: 1}
				by, ok := computedBy[id]
				if !ok || sampledBy[id] != by || s.Trainer != async.Name("", by) || s.Stale > int64(j.bound) {
					t.Errorf("%+v: %v was sampled by %d, computed by %d (%v), applied for %s, %d stale", j, id, sampledBy[id], by, ok, s.Trainer, s.Stale)
				}
			}
			if len(all) != steps || len(computedBy) != steps || len(sampledBy) != steps {
				t.Errorf("%d steps were sampled, %d computed, %d applied, of %d", len(sampledBy), len(computedBy), len(all), steps)
			}
			for _, x := range j.params {
				if x != x {
					t.Fatalf("%+v: rows were read that nobody had loaded", j)
				}
			}
		}
	})
}

// A sampler that is slow keeps its own trainer waiting, and no other: late batches go through
// the slab as they come, not as they were dealt.
func TestLateSlowSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := sampling.NumBatches(nodes, batchSize)
		rest := make(chan struct{}, steps)
		j := lateJob{trainers: 2, credits: 1, threads: 3, bound: 2, ahead: 2, loaders: 2, slots: nodes, params: ones()}
		var slow sync.Once
		dealt := make(chan struct{}) // closed when the slow sampler has its step: the other may have been faster
		j.sampled = func(i int, _ *sampling.Batch) error {
			if i == 0 {
				slow.Do(func() {
					close(dealt)
					for range steps - 1 {
						<-rest
					}
				})
			}
			<-dealt
			return nil
		}
		j.computes = func(i int, _ *sampling.Batch) error {
			if i == 1 {
				rest <- struct{}{}
			}
			return nil
		}
		all := j.run(t)
		slowOnes := slices.DeleteFunc(slices.Clone(all), func(s async.Step) bool { return s.Trainer != async.Name("", 0) })
		if len(all) != steps || len(slowOnes) != 1 {
			t.Errorf("%d steps of %d were applied, %d for the trainer whose sampler is slow", len(all), steps, len(slowOnes))
		}
	})
}

// misdealt deals steps of another epoch.
type misdealt struct{ *async.Owner }

func (m misdealt) Deal(ctx context.Context, trainer string) (int64, error) {
	step, err := m.Owner.Deal(ctx, trainer)
	return step + 1000, err
}

// What goes wrong anywhere ends the pipeline with an error that names stage and batch, and
// wraps its cause.
func TestLateFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		breaks := func(panics bool) func(int, *sampling.Batch) error {
			return func(_ int, b *sampling.Batch) error {
				switch {
				case b.ID.Batch != 4:
					return nil
				case panics:
					panic(errBroken)
				}
				return errBroken
			}
		}
		for _, x := range []struct {
			says   string
			change func(*lateJob)
		}{
			{"train/e1/b4: sample: ", func(j *lateJob) { j.sampled = breaks(false) }},
			{"train/e1/b4: sample: ", func(j *lateJob) { j.sampled = breaks(true) }},
			{"train/e1/b4: compute: ", func(j *lateJob) { j.computes = breaks(false) }},
			{"train/e1/b4: compute: ", func(j *lateJob) { j.computes = breaks(true) }},
			{"is not of epoch 1", func(j *lateJob) { j.parameters = func(o *async.Owner) async.Parameters { return misdealt{o} } }},
			{"here 17", func(j *lateJob) {
				j.parameters = func(o *async.Owner) async.Parameters { return shortened{o} }
			}},
			{async.ErrClosed.Error(), func(j *lateJob) {
				j.parameters = func(o *async.Owner) async.Parameters { o.Close(); return o }
			}},
		} {
			j := lateJob{trainers: 2, credits: 2, threads: 2, bound: 1, ahead: 2, loaders: 1, slots: nodes, epoch: 1, params: ones()}
			x.change(&j)
			_, pl, stop := j.start(t)
			_, err := pl.Next(t.Context())
			stop()
			if err == nil || !strings.Contains(err.Error(), x.says) || strings.Contains(x.says, "b4") && !errors.Is(err, errBroken) {
				t.Errorf("the error is %v; it should say %q", err, x.says)
			}
		}
	})
}

// shortened gives out parameters of another model.
type shortened struct{ *async.Owner }

func (s shortened) Read(ctx context.Context, trainer string, step int64) (*async.Version, error) {
	v, err := s.Owner.Read(ctx, trainer, step)
	if err == nil {
		v.Params = v.Params[:3]
	}
	return v, err
}

// Stop ends what waits: trainers that would compute and gradients that cannot be applied yet, while
// an older one is computed; it waits for that one alone.
func TestLateStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, slots := range []int{0, nodes} {
			entered, leave := make(chan struct{}), make(chan struct{})
			var begun atomic.Bool
			j := lateJob{trainers: 4, credits: 2, threads: 2, bound: 1, ahead: 4, loaders: 2, slots: slots, params: ones()}
			j.computes = func(int, *sampling.Batch) error {
				if begun.CompareAndSwap(false, true) {
					close(entered)
					<-leave
					return errBroken // so that nothing goes on because of it
				}
				return nil
			}
			_, pl, stop := j.start(t)
			<-entered
			synctest.Wait() // one computes, another's gradient was applied, and all else waits for the first
			stopped := make(chan struct{})
			go func() { stop(); close(stopped) }()
			synctest.Wait()
			select {
			case <-stopped:
				t.Error("Stop did not wait for the gradient that is computed")
			default:
			}
			close(leave)
			<-stopped
			if _, err := pl.Snapshot(t.Context()); !errors.Is(err, ErrStopped) {
				t.Errorf("Snapshot after Stop: %v", err)
			}
		}
	})
}

// An epoch that is cut short: steps that are not wanted any more are given back, and those that
// others are ahead of are still made before the pipeline is over.
func TestLateCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		j := lateJob{trainers: 3, credits: 1, threads: 3, bound: 1, params: ones()}
		two := make(chan struct{}, 2)
		j.sampled = func(_ int, b *sampling.Batch) error {
			if b.ID.Batch == 2 {
				<-two
				<-two
			}
			return nil
		}
		j.computes = func(int, *sampling.Batch) error {
			two <- struct{}{}
			<-leave
			return nil
		}
		o, pl, stop := j.start(t)
		defer stop()
		synctest.Wait() // steps 0 and 1 are computed, and step 2 may not be
		over := make(chan error, 1)
		go func() {
			_, err := pl.Next(t.Context())
			over <- err
		}()
		o.Stop()
		synctest.Wait()
		select {
		case err := <-over:
			t.Errorf("two gradients are computed, and the pipeline is over: %v", err)
		default:
		}
		close(leave)
		var made []int64
		for s, err := o.Next(t.Context()); err == nil; s, err = o.Next(t.Context()) {
			made = append(made, s.Step)
		}
		slices.Sort(made)
		if err := <-over; !errors.Is(err, async.ErrOver) || !slices.Equal(made, []int64{0, 1}) {
			t.Errorf("steps %v were made, and the pipeline ended with %v", made, err)
		}
	})
}

// What the trainers are must go with late gradients.
func TestLateRefused(t *testing.T) {
	system := quiet()
	defer system.Shutdown()
	good := Config{
		System: system, Samplers: []sampling.Sampler{nil}, Credits: 1, Work: Work{BatchSize: 1, Micro: 1}, Updater: &descent{},
		Trainers: []Gradienter{&reader{table: &graph.Features{}}}, Late: []Late{{}},
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.Late = append(c.Late, Late{}) },
		func(c *Config) { c.Samplers = append(c.Samplers, nil) },
		func(c *Config) { c.Work.Micro = 2 },
		func(c *Config) { c.Trainers = nil },
	} {
		c := good
		change(&c)
		if _, err := Start(c); err == nil || !strings.Contains(err.Error(), "late") {
			t.Errorf("the error is %v", err)
		}
	}
}
