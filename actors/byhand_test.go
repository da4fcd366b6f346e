package actors

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/overlap"
)

// byHand is what a stage needs whose messages a test gives it one by one: what the stage is sent by its jobs comes out of inbox.
func byHand(t *testing.T) (p *post, self *actor.PID, inbox chan any) {
	system, workers := quiet(), pool.New(1)
	t.Cleanup(func() { system.Shutdown(); workers.Close() })
	inbox = make(chan any, 16)
	self = system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *done, *messages.Credit, *messages.Sampled:
			inbox <- m
		}
	}))
	p = &post{root: system.Root, pool: workers, clock: new(clock.Recorder)}
	ctx, cancel := context.WithCancel(t.Context())
	p.context = ctx
	t.Cleanup(func() { cancel(); p.waiting.Wait() })
	return p, self, inbox
}

// Buffers returns how many batch and gradient buffers were ever made.
func (p *Pipeline) Buffers() (batches, gradients int64) {
	return p.post.batches.Load(), p.post.gradients.Load()
}

// reads keeps which rows were read.
type reads struct {
	features.Store
	ids [][]uint32
}

func (r *reads) Read(ctx context.Context, q features.Request, then func(error)) {
	r.ids = append(r.ids, slices.Clone(q.IDs))
	r.Store.Read(ctx, q, then)
}

// The cache does one thing at a time; it reads all rows of a generation, draws none twice, and begins the one that serves
// at once when it was left behind, whatever it waited for.
func TestCacheByHand(t *testing.T) {
	p, self, inbox := byHand(t)
	store := &reads{Store: features.InMemory(featureTable())}
	slab, err := features.NewSlab(store.Layout(), features.SlabOptions{Slots: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer slab.Close()
	generation := func(g int) []uint32 { u := uint32(5 * g); return []uint32{u, u + 1, u + 2, u + 3, u + 4} }
	drawn, advanced := map[int]int{}, map[int]int{}
	s := &cache{base: base{post: p, self: self}, work: Work{Nodes: make([]uint32, nodes), BatchSize: batchSize, Micro: 1, Epochs: 9}, mem: &Loading{Store: store, Slab: slab, Cache: &Generations{
		Period: 1, Pieces: 2, Advance: func(g int) bool { advanced[g]++; return advanced[g] == 2 },
		Nodes: func(_ context.Context, g int) ([]uint32, error) { drawn[g]++; return generation(g), nil },
	}}}
	s.start()
	by := &shell{base: s.common(), stage: s}
	// jobs gives the stage a message and lets it do that many jobs.
	jobs := func(m any, n int) {
		t.Helper()
		by.dispatch(m, self)
		for i := range n {
			if !s.busy() {
				t.Fatalf("after %T it is idle after %d jobs of %d", m, i, n)
			}
			d := (<-inbox).(*done)
			if d.err != nil {
				t.Fatal(d.err)
			}
			by.dispatch(d, self)
		}
		if s.busy() {
			t.Fatalf("after %T it does more than %d jobs: next %d", m, n, s.next)
		}
	}
	jobs(&messages.Begun{}, 3) // drawn, read, published
	others, err := slab.Match([]uint32{100, 101, 102, 103, 104})
	if err != nil {
		t.Fatal(err)
	}
	jobs(&messages.Released{Step: 8}, 2) // the next: both pieces, as no step is left for another, and its nodes, which there is no room for
	if s.pin != nil || s.next != 1 || !s.drawn {
		t.Errorf("%d is next, drawn %t, with a slot for each row: %t", s.next, s.drawn, s.pin != nil)
	}
	slab.Release(others)
	jobs(&messages.Released{Step: 9}, 3) // now there is: read and published
	jobs(&messages.Begun{Epoch: 1}, 1)   // the first one is over
	if _, err = slab.Match([]uint32{100, 101, 102, 103, 104}); err != nil {
		t.Fatal(err)
	}
	jobs(&messages.Released{Step: 19}, 2) // again there is no room
	if s.next != 2 || !s.waiting {
		t.Errorf("%d is next, waiting %t", s.next, s.waiting)
	}
	jobs(&messages.Begun{Epoch: 4}, 4) // it is left behind: the second one is over; drawn, read and published
	for g, want := range map[int]int{0: 1, 1: 1, 2: 1, 3: 0, 4: 1} {
		if drawn[g] != want || (advanced[g] == 2) != (g == 1 || g == 2) || advanced[g] > 2 {
			t.Errorf("generation %d is drawn %d times, by %d pieces", g, drawn[g], advanced[g])
		}
	}
	if want := [][]uint32{generation(0), generation(1), generation(4)}; !slices.EqualFunc(store.ids, want, slices.Equal[[]uint32]) {
		t.Errorf("read are %v, want %v", store.ids, want)
	}
}

// away draws nothing until it ends.
type away struct{ Elsewhere }

func (away) Here(int) bool { return false }
func (away) Draw(ctx context.Context, _ int, _ *messages.Seeds, _ *sampling.Batch) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// A sampler on another node asks for a second micro-batch while one is drawn there, and for no third, however much credit it has.
func TestTwoAreDrawnElsewhere(t *testing.T) {
	p, self, inbox := byHand(t)
	p.dir = &directory{source: self, progress: self}
	s := &sampler{base: base{post: p, self: self}, elsewhere: away{}, limit: 9, free: 9}
	s.ask()
	for i := range 2 {
		<-inbox
		s.receive(&messages.Seeds{ID: sampling.ID{Batch: i}, Step: int64(i)})
	}
	if s.asked || s.under != 2 {
		t.Errorf("%d are drawn, asked for another: %t", s.under, s.asked)
	}
}

// A stage that is drained takes its jobs back, and nothing else.
func TestDrainedStageTakesNothing(t *testing.T) {
	p, self, _ := byHand(t)
	s := &sampler{base: base{post: p, self: self, jobs: 1}}
	by := &shell{base: s.common(), stage: s}
	idle := make(chan struct{})
	by.dispatch(&messages.Drain{Idle: idle}, self)
	by.drained()
	select {
	case <-idle:
		t.Error("it is idle while it has a job")
	default:
	}
	by.dispatch(&messages.Credit{N: 1}, self)
	by.dispatch(&done{res: new(messages.Seeds)}, self)
	if by.drained(); s.free != 0 || len(s.due) != 0 || s.local == nil {
		t.Errorf("it has %d credits, and %d that wait", s.free, len(s.due))
	}
}

// What is left in an outbox is taken at once, in order.
func TestOutboxRest(t *testing.T) {
	o := newOutbox()
	o.put(1)
	o.put(2)
	if got := o.rest(); !slices.Equal(got, []any{1, 2}) {
		t.Errorf("%v", got)
	}
	if got := o.rest(); len(got) != 0 {
		t.Errorf("then %v", got)
	}
}

// wrongOrder names a batch of a window twice.
type wrongOrder struct{ Orderer }

func (o wrongOrder) Order(dst []int, batches [][]overlap.Part) ([]int, error) {
	dst, err := o.Orderer.Order(dst, batches)
	if len(dst) > 1 {
		dst[1] = dst[0]
	}
	return dst, err
}

// An order that leaves a batch out ends the run.
func TestNoPermutation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := plainMemoryJob()
		j.window, j.credits = 3, 12
		j.insert = func(c *Config, _ *graph.Features) { c.Order = wrongOrder{c.Order} }
		if _, _, err := j.run(t, t.Context()); err == nil || !strings.Contains(err.Error(), "is no permutation of 3 batches") {
			t.Errorf("%v", err)
		}
	})
}
