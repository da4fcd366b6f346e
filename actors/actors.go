// Package actors is the dataflow: one actor per stage, each a thin shell of
// protocol, credits, lifecycle and measurement around a plain library.
//
//	source ─Seeds→ sampler×S ─Sampled→ trainer×C ─Gradient→ parameters ─Applied→ progress
//	   ↑              │ ↑                 │  ↑                  │
//	   └────Credit────┘ └─────Credit──────┘  └─────Version──────┘
//
// Data flows forward and credit backward. An idle sampler grants the source
// one Credit and gets one micro-batch's seeds for it; a sampler may have
// Config.Credits batches out, and a trainer grants one back when it releases a
// batch. So at most Samplers×Credits batches exist, and because the source
// hands them out in order, the one that training waits for always has its
// credit already: the flow cannot deadlock.
//
// Trainers compute whatever micro-batch belongs to the version of the
// parameters that they hold; parameters adds the gradients of a step in one
// fixed tree, whoever computed them and in whatever order they came. Hence the
// bits of a run do not depend on the number of samplers, trainers or credits.
//
// Work that takes longer than some microseconds runs on the worker pool; its
// completion comes back as a message (done). Receive never blocks.
package actors

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/internal/clock"
	"github.com/gnnactor/gnnactor/internal/pool"
	"github.com/gnnactor/gnnactor/internal/rng"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Gradienter computes gradients; each trainer has one of its own.
type Gradienter interface {
	// Gradient overwrites grad with the sum over b's seeds of the gradients of
	// their weighted losses, at params. Its result is a function of its
	// arguments alone. It keeps none of them.
	Gradient(grad, params []float32, b *sampling.Batch, key rng.Key) (messages.Stats, error)
}

// Updater owns the parameters and the optimiser's state.
type Updater interface {
	// Params returns the current parameters: read-only, changed by Apply.
	Params() []float32
	// Apply makes one optimiser step with the mean gradient.
	Apply(grad []float32)
}

// Directory finds the actors of a pipeline, wherever they run.
type Directory interface {
	Source() *actor.PID
	Sampler(i int) *actor.PID
	// Consumer is where a sampled micro-batch goes: a trainer or the deliverer.
	Consumer(micro int) *actor.PID
	Trainers() []*actor.PID
	Parameters() *actor.PID
	Progress() *actor.PID
	Asks() *actor.PID
}

// computeDomain keeps what a trainer draws for a micro-batch apart from what
// its sampler draws: both fold the layer and the node into their key next, so
// that under one key the neighbours of a node would decide which of its values
// are dropped.
const computeDomain = 0x636f6d70757465 // "compute"

// Key returns the key under which a trainer computes a micro-batch: that of
// dropout. The batch is sampled under id.Key.
func Key(seed uint64, id sampling.ID) rng.Key { return id.Key(seed).With(computeDomain) }

// post is what every actor of a pipeline can do: send, run jobs, keep time.
type post struct {
	root  *actor.RootContext
	pool  *pool.Pool
	clock *clock.Recorder
	bytes bool // send every message through its bytes
	dir   Directory
	batches,
	gradients atomic.Int64 // how many buffers were made, for tests
	ending        atomic.Bool // Stop was called: begin no job that another would follow
	stopped       atomic.Bool // the actors are gone: what is sent would become a dead letter
	freeBatches   freeList[*sampling.Batch]
	freeGradients freeList[[]float32]
}

// releaseBatch gives back a batch that came in a message.
func (p *post) releaseBatch(b *sampling.Batch) {
	if !p.bytes { // else the batch was decoded, and the sampler's own is back already
		p.freeBatches.put(b)
	}
}

// releaseGradient gives back a gradient that came in a message.
func (p *post) releaseGradient(g []float32) {
	if !p.bytes {
		p.freeGradients.put(g)
	}
}

// send passes m on. What m carries belongs to the receiver from now on.
func (p *post) send(to *actor.PID, m messages.Message) {
	if p.stopped.Load() {
		return
	}
	if p.bytes {
		again, err := throughBytes(m)
		if err != nil {
			again = &messages.Failed{Stage: "codec", Cause: err.Error(), Err: err}
			to = p.dir.Progress()
		}
		switch m := m.(type) {
		case *messages.Sampled:
			p.freeBatches.put(m.Batch)
		case *messages.Gradient:
			p.freeGradients.put(m.Data)
		}
		m = again
	}
	p.root.Send(to, m)
}

func throughBytes(m messages.Message) (messages.Message, error) {
	body, err := messages.Marshal(m)
	if err != nil {
		return nil, err
	}
	return messages.Unmarshal(m.Kind(), body)
}

// fail ends the run: stage could not do id.
func (p *post) fail(id sampling.ID, stage string, err error) {
	p.send(p.dir.Progress(), &messages.Failed{ID: id, Stage: stage, Cause: err.Error(), Err: err})
}

// done is the completion of a job, sent to the actor that started it.
type done struct {
	id  sampling.ID
	err error
	res any
}

// job runs f on the worker pool and sends its result to self as *done; the
// time it took is booked on stage.
func (p *post) job(self *actor.PID, stage clock.Stage, id sampling.ID, f func() (any, error)) {
	p.pool.Go(func() {
		begin := time.Now()
		d := &done{id: id}
		d.res, d.err = guarded(f)
		p.clock.Add(stage, time.Since(begin))
		p.root.Send(self, d)
	})
}

// guarded calls f and turns a panic into an error.
func guarded(f func() (any, error)) (res any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicError(r)
		}
	}()
	return f()
}

// panicError is what was recovered from a panic, with the stack of the place
// that panicked.
func panicError(r any) error {
	if e, ok := r.(*pool.PanicError); ok {
		return e
	}
	return &pool.PanicError{Value: r, Stack: debug.Stack()}
}

// stage is what an actor does with its messages; the shell does the rest.
type stage interface {
	name() string
	// start is called once, before the first message.
	start(self *actor.PID)
	// receive gets messages of package messages, *begin and *done.
	receive(m any)
	// idle reports that no job is running.
	idle() bool
}

// begin tells an actor that every actor of its pipeline exists.
type begin struct{}

// shell gives a stage its lifecycle: starting, draining, failing.
type shell struct {
	*post
	stage    stage
	failed   bool
	draining bool
	asks     []uint64
}

// Receive implements actor.Actor.
func (s *shell) Receive(c actor.Context) {
	defer func() {
		if r := recover(); r != nil && !s.failed {
			s.failed = true
			s.fail(sampling.ID{}, s.stage.name(), panicError(r))
		}
	}()
	switch m := c.Message().(type) {
	case *actor.Started:
		s.stage.start(c.Self())
	case actor.SystemMessage, actor.AutoReceiveMessage:
	case *messages.Drain:
		s.draining = true
		s.asks = append(s.asks, m.Ask)
	default:
		// A draining actor takes back its jobs and ignores everything else.
		if _, isDone := m.(*done); isDone || !s.draining && !s.failed {
			s.stage.receive(m)
		}
	}
	if s.draining && (s.failed || s.stage.idle()) {
		for _, a := range s.asks {
			s.send(s.dir.Asks(), &messages.Drained{Ask: a})
		}
		s.asks = nil
	}
}
