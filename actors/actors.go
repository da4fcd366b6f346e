// Package actors is the dataflow: one actor per stage, each a thin shell of
// protocol, credits, lifecycle and measurement around a plain library.
//
//	source ─Seeds→ sampler×S ─Sampled→ [reorder → match ─Matched→ load ─Loaded→] trainer×C ─Gradient→ parameters ─Applied→ progress
//	   ↑              │ ↑                          ↑                               │ │  ↑                  │
//	   └────Credit────┘ │                          └───────────Released────────────┘ │  └─────Version──────┘
//	                    └─────────────────────────────Credit─────────────────────────┘
//
// The stages in brackets are there if the plan wants them: reorder changes the
// order of the batches within windows, match finds the rows that are not in the
// slab yet, and load has them read; a cache may keep the rows of GNS's
// generations there. Without match and load compute reads the
// rows where the table lies. A program may insert stages of its own (Inserted): after
// sample, before reorder, where they change the batch; and after load, before the
// trainers, where they make rows of its own for it.
//
// Data flows forward and credit backward. An idle sampler grants the source
// one Credit and gets one micro-batch's seeds for it; a sampler may have
// Config.Credits batches out, and a trainer grants one back when it releases a
// batch. So at most Samplers×Credits batches exist, and because the source
// hands them out in order, the one that training waits for always has its
// credit already: the flow cannot deadlock. A window that is reordered needs
// credit for all its batches, and, where a run was resumed, for one more. Match
// takes the batches in the order in which they are computed, so the one that
// waits for room in the slab waits for earlier ones alone.
//
// Trainers compute whatever micro-batch belongs to the version of the
// parameters that they hold; parameters adds the gradients of a step in one
// fixed tree, whoever computed them and in whatever order they came. Hence the
// bits of a run do not depend on the number of samplers, trainers or credits.
//
// Where gradients may be late (Late), parameters are an async.Owner's, here or on another node. The
// source has a trainer dealt its next step when its sampler grants credit; each trainer computes
// what the sampler of its number made, on the newest version that it can have, and batches go
// through match and load as they come.
//
// Work that takes longer than some microseconds runs on the worker pool; its
// completion comes back as a message (done). Receive never blocks.
package actors

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// Gradienter computes gradients; each trainer has one of its own.
type Gradienter interface {
	// Gradient overwrites grad with the sum over b's seeds of the gradients of
	// their weighted losses, at params. Its result is a function of its
	// arguments alone. It keeps none of them.
	Gradient(grad, params []float32, b *sampling.Batch, rows Rows, key rng.Key) (messages.Stats, error)
}

// Rows says where the feature rows of a batch's inputs are: in the table, by their ids,
// unless
type Rows struct {
	Slots []uint32  // the rows of the slab that are the inputs', or
	X     []float32 // the values, row after row, that a stage of the program's own made
}

// Tuned is a Gradienter that works in several ways, all to the same result.
type Tuned interface {
	// Tune sets how many threads its kernels use, 0 being all, and whether it copies
	// a batch's rows together before it reads them. It is called between two batches.
	Tune(threads int, copied bool)
}

// Updater owns the parameters and the optimiser's state.
type Updater interface {
	// Params returns the current parameters, for Gradienters: read-only, changed by Apply.
	Params() []float32
	// Apply makes one optimiser step with the mean gradient: the sum of parts, in the tree of
	// compute.SumTree, divided by weight, or zeros without weight (a subgraph may hold no training
	// node: its step counts all the same, or a resumed run would be one step behind). parts are
	// overwritten.
	Apply(parts [][]float32, weight float64)
}

// Resident is an Updater whose parameters lie in a device's memory, which only kernels read, and
// whose gradients may.
type Resident interface {
	// NewGradient returns memory for gradients of a trainer, which stays the updater's. It is
	// called by several goroutines.
	NewGradient(trainer int) []float32
	// Copy returns a copy of the parameters in the host's memory.
	Copy() ([]float32, error)
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
	late  bool // trainers compute what the sampler of their number makes
	dir   *directory
	batches,
	gradients atomic.Int64 // how many buffers were made, for tests
	ending        atomic.Bool // Stop was called: begin no job that another would follow
	stopped       atomic.Bool // the actors are gone: what is sent would become a dead letter
	freeBatches   freeList[*sampling.Batch]
	freeGradients []freeList[[]float32] // by trainer
	freeRows      freeList[[]float32]   // of stages of the program's own

	context context.Context // of what waits for other processes; ends with Stop
	waiting sync.WaitGroup
}

// lane says by which of several consumers a batch is used: the first argument of the directory's.
func (p *post) lane(from int, id sampling.ID) int {
	if p.late {
		return from
	}
	return id.Micro
}

// releaseSlots tells match that nobody reads a batch's slots any more.
func (p *post) releaseSlots(m *messages.Loaded) {
	if match := p.dir.match; match != nil {
		p.send(match, &messages.Released{Step: m.Step, Micro: m.Batch.ID.Micro})
	}
}

// released gives back a batch that was used, its slots or rows first.
func (p *post) released(m *messages.Loaded, by int) {
	switch {
	case m.X == nil:
		p.releaseSlots(m)
	default:
		p.freeRows.put(m.X)
	}
	p.freeBatches.put(m.Batch)
	p.send(p.dir.samplers[m.From], &messages.Credit{From: by, N: 1})
}

// send passes m, of package messages, on. What it carries belongs to the receiver from now on.
func (p *post) send(to *actor.PID, m any) {
	if !p.stopped.Load() {
		p.root.Send(to, m)
	}
}

// fail ends the run: stage could not do id.
func (p *post) fail(id sampling.ID, stage string, err error) {
	p.send(p.dir.progress, &messages.Failed{ID: id, Stage: stage, Err: err})
}

// done is the completion of a job, sent to the actor that started it.
type done struct {
	id  sampling.ID
	err error
	res any
}

// base is what every stage has beside what it is.
type base struct {
	*post
	name string // in errors
	self *actor.PID
	jobs int // that it has begun, and whose *done has not come
}

func (b *base) common() *base { return b }
func (b *base) start()        {}
func (b *base) busy() bool    { return b.jobs > 0 }

// job runs f on the worker pool; the stage gets its result as *done, and the
// time it took is booked on a stage of the clock.
func (b *base) job(on clock.Stage, id sampling.ID, f func() (any, error)) {
	var span clock.Span
	d := &done{id: id}
	b.jobs++
	b.pool.Go(func() (err error) {
		span = b.clock.BeginThread(on)
		d.res, err = f()
		return err
	}, func(err error) {
		d.err = err
		span.End(b.label(id))
		b.root.Send(b.self, d)
	})
}

// jobElsewhere is job for f that waits for others: it has a goroutine of its
// own, so that the pool's workers go on.
func (b *base) jobElsewhere(id sampling.ID, f func() (any, error)) {
	b.jobs++
	b.waiting.Go(func() {
		d := &done{id: id}
		d.err = pool.Recovered(func() (err error) {
			d.res, err = f()
			return err
		})
		b.root.Send(b.self, d)
	})
}

// readRows is job for what a store reads; res is its result.
func (b *base) readRows(ctx context.Context, store features.Store, r features.Request, on clock.Stage, id sampling.ID, res any) {
	span := b.clock.Begin(on)
	store.Read(ctx, r, func(err error) {
		span.End(b.label(id))
		b.root.Send(b.self, &done{id: id, err: err, res: res})
	})
	b.jobs++ // it is under way: Read has not panicked
}

// label names a span, if anybody will read it.
func (p *post) label(id sampling.ID) string {
	switch {
	case !p.clock.Keeping():
		return ""
	case id == (sampling.ID{}):
		return "release"
	}
	return id.String()
}

// stage is what an actor does with its messages; the shell does the rest.
type stage interface {
	// start is called once, before the first message.
	start()
	// receive gets messages of package messages, *begin, and *done of jobs that did not fail: one that does ends the run.
	receive(m any)
	common() *base
}

// drainer is a stage that waits for what others do: drain has them stop.
type drainer interface{ drain() }

// failer is a stage that somebody may wait for: failed tells it that a job of its own did.
type failer interface{ failed() }

// begin tells an actor that every actor of its pipeline exists.
type begin struct{}

// shell gives a stage its lifecycle: starting, draining, failing.
type shell struct {
	*base
	stage    stage
	failed   bool
	draining *messages.Drain
}

// Receive implements actor.Actor.
func (s *shell) Receive(c actor.Context) {
	defer s.drained()
	err := pool.Recovered(func() error { s.dispatch(c.Message(), c.Self()); return nil })
	if err != nil && !s.failed {
		s.failed = true
		s.fail(sampling.ID{}, s.name, err)
	}
}

func (s *shell) dispatch(m any, self *actor.PID) {
	switch m := m.(type) {
	case *actor.Started:
		s.self = self
		s.stage.start()
	case actor.SystemMessage, actor.AutoReceiveMessage:
	case *messages.Drain:
		s.draining = m
		if d, ok := s.stage.(drainer); ok {
			d.drain()
		}
	case *done:
		if s.jobs--; m.err == nil {
			s.stage.receive(m)
			return
		}
		s.fail(m.id, s.name, m.err)
		if f, ok := s.stage.(failer); ok {
			f.failed()
		}
	default:
		if s.draining == nil && !s.failed {
			s.stage.receive(m)
		}
	}
}

// drained answers when no job is running: one of a stage that failed may still
// use what its owner frees next.
func (s *shell) drained() {
	if s.draining != nil && s.draining.Idle != nil && !s.busy() {
		close(s.draining.Idle)
		s.draining.Idle = nil
	}
}
