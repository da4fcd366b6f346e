package actors

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// witness is a Sampler that reports what it was called with.
type witness struct {
	sampling.Sampler
	saw func(id sampling.ID, key rng.Key)
}

func (w *witness) Sample(b *sampling.Batch, key rng.Key, seeds []uint32) error {
	w.saw(b.ID, key)
	return w.Sampler.Sample(b, key, seeds)
}

// A sampler is told which batch it makes, under the key that package sampling
// promises; nothing that a trainer draws comes from that key.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seed = 5
		inner, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{3, 2}}, ring(nodes, 9))
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		s := &witness{inner, func(id sampling.ID, key rng.Key) {
			seen = append(seen, id.String())
			if key != id.Key(seed) {
				t.Errorf("%v was sampled under another key than its own", id)
			}
		}}
		p := pool.New(2)
		defer p.Close()
		system := quiet()
		defer system.Shutdown()
		pl, err := Start(Config{
			System: system, Pool: p, Clock: new(clock.Recorder), Credits: 1, Samplers: []sampling.Sampler{s},
			Work: Work{Phase: "look", Seed: seed, Nodes: []uint32{1, 2, 3, 4, 5}, BatchSize: 4, Micro: 2, Epochs: 2},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			x, err := pl.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pl.Release(x.(*Delivery))
		}
		pl.Stop()
		if got, want := strings.Join(seen, " "), "look/e0/b0/m0 look/e0/b0/m1 look/e0/b1 look/e1/b0/m0 look/e1/b0/m1 look/e1/b1"; got != want {
			t.Errorf("sampled %s, want %s", got, want)
		}

		id := sampling.ID{Phase: "train", Epoch: 1, Batch: 2, Of: 1}
		sampled, computed := id.Key(seed), Key(seed, id)
		for layer := range uint64(4) {
			for other := range uint64(4) {
				if sampled.With(layer) == computed.With(other) {
					t.Errorf("layer %d is sampled under the key of dropout %d", layer, other)
				}
			}
		}
		if Key(seed, id) == Key(seed+1, id) {
			t.Error("the seed does not change the trainer's key")
		}
	})
}

// Stop begins no further micro-batch, even of the step that is open.
func TestStopWithinOneMicroBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, leave := make(chan struct{}), make(chan struct{})
		j := job{samplers: 3, trainers: 1, credits: 4, threads: 2, micro: 10, worker: mixer{calls: new(atomic.Int64)}}
		j.worker.hook = func() {
			if j.worker.calls.Load() == 1 {
				close(entered)
				<-leave
			}
		}
		pl, up, stop := j.start(t, ones())
		pl.Proceed(0)
		<-entered
		go func() {
			for !pl.post.ending.Load() {
				runtime.Gosched()
			}
			close(leave)
		}()
		stop()
		if n := j.worker.calls.Load(); n != 1 {
			t.Errorf("%d micro-batches were computed; one was when Stop was called", n)
		}
		if !slices.Equal(up.params, ones()) {
			t.Error("a part of a global batch was applied")
		}
	})
}

// gated is an Updater that fails when it is told to.
type gated struct {
	descent
	entered, leave chan struct{}
}

func (g *gated) Apply([][]float32, float64) {
	close(g.entered)
	<-g.leave
	panic(errBroken)
}

// Who asks for a snapshot gets it although the update that is running fails: it
// may be the owner, who hears of the failure only from its next Next.
func TestSnapshotDuringAFailingUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(1)
		defer p.Close()
		system := quiet()
		defer system.Shutdown()
		s, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{3}}, ring(nodes, 9))
		if err != nil {
			t.Fatal(err)
		}
		u := &gated{descent{ones()}, make(chan struct{}), make(chan struct{})}
		pl, err := Start(Config{
			System: system, Pool: p, Clock: new(clock.Recorder), Credits: 1, Samplers: []sampling.Sampler{s},
			Trainers: []Gradienter{&mixer{calls: new(atomic.Int64)}}, Updater: u,
			Work: Work{Phase: "train", Nodes: []uint32{1, 2}, BatchSize: 2, Micro: 1, Epochs: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer pl.Stop()
		pl.Proceed(0)
		<-u.entered
		reply := make(chan *messages.State, 1)
		pl.post.send(pl.post.dir.parameters, &messages.Snapshot{Reply: reply}) // its place in the queue is before the end of the update
		close(u.leave)
		<-reply
		_, err = pl.Next(t.Context())
		var stack *pool.PanicError
		if !errors.Is(err, errBroken) || !errors.As(err, &stack) || !strings.Contains(string(stack.Stack), "(*gated).Apply") {
			t.Errorf("the failure is %v, with the stack of %+v", err, stack)
		}
	})
}
