package actors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/drawn"
	"github.com/gnnactor/gnnactor/internal/leak"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

func TestMain(m *testing.M) { leak.Main(m) }

// ring is a graph in which v has the in-neighbours v+1 … v+degree.
func ring(n, degree int) *graph.Graph {
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	for v := range n {
		for i := range degree {
			g.Indices = append(g.Indices, uint32((v+i+1)%n))
		}
		slices.Sort(g.Indices[g.Indptr[v]:])
		g.Indptr[v+1] = int64(len(g.Indices))
	}
	return g
}

// mixer is a Gradienter whose result depends on every bit of what it is given:
// if a batch were lost, doubled, reordered or computed with the wrong version,
// the parameters would end up different.
type mixer struct {
	calls  *atomic.Int64
	failAt string
	panics bool
	hook   func()
}

var errBroken = errors.New("the mixer broke")

func (m *mixer) Gradient(grad, params []float32, b *sampling.Batch, _ Rows, key rng.Key) (messages.Stats, error) {
	m.calls.Add(1)
	if m.hook != nil {
		m.hook()
	}
	if b.ID.String() == m.failAt {
		if m.panics {
			panic(errBroken)
		}
		return messages.Stats{}, errBroken
	}
	h := key
	for i := range b.Blocks {
		for _, u := range b.Blocks[i].Indices {
			h = h.With(uint64(u))
		}
		for _, u := range b.Blocks[i].SrcIDs {
			h = h.With(uint64(u))
		}
	}
	for j := range grad {
		grad[j] = params[j] + float32(h.Float64(uint64(j)))
	}
	return messages.Stats{Loss: float64(params[0]), Weight: float64(len(b.Seeds)), Count: len(b.Seeds)}, nil
}

// descent is an Updater: plain gradient descent.
type descent struct{ params []float32 }

func (d *descent) Params() []float32 { return d.params }
func (d *descent) Apply(parts [][]float32, weight float64) {
	for j, g := range mean(parts, weight) {
		d.params[j] -= float32(0.1 * g)
	}
}

// mean is compute.Mean, without kernels.
func mean(parts [][]float32, weight float64) []float32 {
	compute.SumTree(parts)
	for j := range parts[0] {
		if parts[0][j] /= float32(weight); weight == 0 {
			parts[0][j] = 0
		}
	}
	return parts[0]
}

// job is a training pipeline under test.
type job struct {
	samplers, trainers, credits, threads, micro int
	first                                       int64
	worker                                      mixer
}

const (
	nodes     = 203
	batchSize = 20
	epochs    = 3
	width     = 17
)

func quiet() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}))
}

// start returns a running pipeline and the function that ends everything.
func (j job) start(t testing.TB, params []float32) (*Pipeline, *descent, func()) {
	t.Helper()
	g := ring(nodes, 9)
	seeds := make([]uint32, nodes)
	for i := range seeds {
		seeds[i] = uint32(i)
	}
	p := pool.New(j.threads)
	system := quiet()
	up := &descent{slices.Clone(params)}
	c := Config{
		System: system, Pool: p, Clock: new(clock.Recorder), Credits: j.credits, Updater: up,
		Work: Work{Phase: "train", Seed: 5, Nodes: seeds, BatchSize: batchSize, Micro: j.micro, Epochs: epochs, First: j.first},
	}
	for range j.samplers {
		s, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{3, 2}}, g)
		if err != nil {
			t.Fatal(err)
		}
		c.Samplers = append(c.Samplers, s)
	}
	for range j.trainers {
		w := j.worker
		c.Trainers = append(c.Trainers, &w)
	}
	pl, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	return pl, up, func() {
		pl.Stop()
		system.Shutdown()
		p.Close()
	}
}

// train runs the job to its end and returns the parameters and losses.
func (j job) train(t *testing.T, params []float32) ([]float32, []float64) {
	t.Helper()
	if j.worker.calls == nil {
		j.worker.calls = new(atomic.Int64)
	}
	pl, up, stop := j.start(t, params)
	defer stop()
	steps := int64(sampling.NumBatches(nodes, batchSize))
	var losses []float64
	pl.Proceed(j.first)
	for step := j.first; step < steps*epochs; step++ {
		x, err := pl.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		a := x.(*messages.Applied)
		if a.Step != step || a.ID.Batch != int(step%steps) || a.ID.Epoch != int(step/steps) {
			t.Fatalf("step %d was reported as %+v", step, a)
		}
		losses = append(losses, a.Stats.Loss)
		if a.Last {
			pl.Proceed(step + 1)
		}
	}
	made, grads := pl.Buffers()
	if most := int64(j.samplers * j.credits); made > most {
		t.Errorf("%d batch buffers were made; the credits allow %d", made, most)
	}
	if most := int64(j.micro + j.trainers); grads > most {
		t.Errorf("%d gradient buffers were made; %d micro-batches and %d trainers need no more than %d", grads, j.micro, j.trainers, most)
	}
	return up.params, losses
}

func ones() []float32 {
	p := make([]float32, width)
	for i := range p {
		p[i] = 1
	}
	return p
}

// Metamorphic: whatever the plan, the bits are the same.
func TestPlanDoesNotChangeBits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := drawn.Cases(t)
		for _, micro := range []int{1, 4, 32} {
			plain := job{samplers: 1, trainers: 1, credits: 1, threads: 1, micro: micro}
			want, wantLoss := plain.train(t, ones())
			for range 8 {
				j := job{
					samplers: 1 + r.IntN(5), credits: 1 + r.IntN(4), threads: 1 + r.IntN(3), micro: micro,
					trainers: 1 + r.IntN(min(micro, 4)),
				}
				got, loss := j.train(t, ones())
				if !slices.Equal(got, want) || !slices.Equal(loss, wantLoss) {
					t.Fatalf("%+v: the bits differ from those of %+v", j, plain)
				}
			}
		}
	})
}

// Going on from step k with the parameters of step k ends at the same bits.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want, _ := job{samplers: 2, trainers: 1, credits: 2, threads: 2, micro: 2}.train(t, ones())
		for _, k := range []int{1, 11, 17} {
			j := job{samplers: 2, trainers: 2, credits: 2, threads: 2, micro: 2, worker: mixer{calls: new(atomic.Int64)}}
			pl, up, stop := j.start(t, ones())
			pl.Proceed(0)
			for range k {
				x, err := pl.Next(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if a := x.(*messages.Applied); a.Last {
					pl.Proceed(a.Step + 1)
				}
			}
			stop()
			done := k + len(pl.Rest()) // steps that were applied before the stop
			j.first = int64(done)
			if got, _ := j.train(t, up.params); !slices.Equal(got, want) {
				t.Errorf("stopped after %d steps and resumed: the bits differ", done)
			}
		}
	})
}

func TestFailureNamesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, panics := range []bool{false, true} {
			j := job{samplers: 2, trainers: 1, credits: 2, threads: 2, micro: 1,
				worker: mixer{calls: new(atomic.Int64), failAt: "train/e0/b7", panics: panics}}
			pl, _, stop := j.start(t, ones())
			pl.Proceed(0)
			var err error
			for err == nil {
				_, err = pl.Next(context.Background())
			}
			stop()
			if !strings.HasPrefix(err.Error(), "train/e0/b7: compute: ") || !strings.Contains(err.Error(), errBroken.Error()) {
				t.Errorf("panics %v: the error is %q", panics, err)
			}
			if !errors.Is(err, errBroken) {
				t.Errorf("panics %v: %q does not wrap its cause", panics, err)
			}
			if n := j.worker.calls.Load(); n != 8 {
				t.Errorf("%d batches were computed; the eighth failed", n)
			}
		}
	})
}

// Stopping waits for the batch that is computed, and begins no other.
func TestStopWithinOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, leave := make(chan struct{}), make(chan struct{})
		j := job{samplers: 3, trainers: 1, credits: 3, threads: 2, micro: 1, worker: mixer{calls: new(atomic.Int64)}}
		first := true
		j.worker.hook = func() {
			if first { // only one trainer calls it
				first = false
				close(entered)
				<-leave
			}
		}
		pl, _, stop := j.start(t, ones())
		pl.Proceed(0)
		<-entered
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := pl.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Next after cancelling: %v", err)
		}
		go func() {
			for !pl.post.ending.Load() {
				runtime.Gosched()
			}
			close(leave)
		}()
		stop()
		if n := j.worker.calls.Load(); n != 1 {
			t.Errorf("%d batches were computed; one was when Stop was called", n)
		}
		if _, err := pl.Snapshot(context.Background()); !errors.Is(err, ErrStopped) {
			t.Errorf("Snapshot after Stop: %v", err)
		}
	})
}

// Nothing is computed before Proceed, nor beyond the end of an epoch.
func TestEpochsWaitForTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := job{samplers: 2, trainers: 1, credits: 4, threads: 2, micro: 1, worker: mixer{calls: new(atomic.Int64)}}
		pl, up, stop := j.start(t, ones())
		defer stop()
		s, err := pl.Snapshot(context.Background())
		if err != nil || s.Step != 0 || !slices.Equal(s.Params, ones()) {
			t.Fatalf("the first snapshot is %+v, %v", s, err)
		}
		pl.Proceed(0)
		steps := sampling.NumBatches(nodes, batchSize)
		for range steps {
			if _, err := pl.Next(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if s, err = pl.Snapshot(context.Background()); err != nil || s.Step != int64(steps) || !slices.Equal(s.Params, up.params) {
			t.Fatalf("the snapshot after an epoch is of step %d, %v", s.Step, err)
		}
		if n := j.worker.calls.Load(); n != int64(steps) {
			t.Errorf("%d batches were computed, an epoch has %d", n, steps)
		}
	})
}

// A pipeline without trainers delivers every batch, in order, and the same
// ones that training sees.
func TestDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := quiet()
		p := pool.New(2)
		defer p.Close()
		defer system.Shutdown()
		g := ring(nodes, 9)
		seeds := []uint32{5, 1, 7, 9, 100, 42, 43}
		want := ""
		for _, samplers := range []int{1, 3} {
			c := Config{
				System: system, Pool: p, Clock: new(clock.Recorder), Credits: 2,
				Work: Work{Phase: "look", Seed: 5, Nodes: seeds, BatchSize: 3, Micro: 2, Epochs: 4},
				Load: func(d *Delivery) error { d.X = append(d.X[:0], float32(d.Batch.NumInputs())); return nil },
			}
			for range samplers {
				s, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{3, 2}}, g)
				if err != nil {
					t.Fatal(err)
				}
				c.Samplers = append(c.Samplers, s)
			}
			pl, err := Start(c)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for range 4 * (2 + 2 + 1) {
				x, err := pl.Next(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				d := x.(*Delivery)
				if d.X[0] != float32(d.Batch.NumInputs()) {
					t.Errorf("%v was loaded as %v", d.Batch.ID, d.X)
				}
				got += fmt.Sprintln(d.Batch.ID, d.Batch.Seeds, d.Batch.Blocks)
				pl.Release(d)
			}
			if made, _ := pl.Buffers(); made > int64(2*samplers) {
				t.Errorf("%d buffers for %d samplers", made, samplers)
			}
			pl.Stop()
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%d samplers deliver other batches than one", samplers)
			}
		}
		if !strings.HasPrefix(want, "look/e0/b0/m0 ") {
			t.Errorf("the first batch is %.40q", want)
		}
	})
}

func TestStartRefuses(t *testing.T) {
	if _, err := Start(Config{System: quiet()}); err == nil {
		t.Error("a pipeline without samplers was started")
	}
}
