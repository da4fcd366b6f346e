package actors

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
)

// load has the store read the rows that batches lack straight into their slots.
// Up to Loading.Loaders reads are under way, and end in any order; batches go on
// in the order in which they came, for a batch may share rows that an earlier
// one still waits for.
type load struct {
	*post
	mem     *Loading
	self    *actor.PID
	ctx     context.Context // ends when the stage is drained
	cancel  context.CancelFunc
	queue   []*loading // in the order of the batches; bounded by Loading.Ahead
	loaders int        // reads that may be under way
	started int        // how many of the queue were started
	reading int
}

// loading is a batch on its way.
type loading struct {
	m    *messages.Matched
	span clock.Span
	done bool
}

func (s *load) name() string { return "load" }
func (s *load) idle() bool   { return s.reading == 0 }

func (s *load) start(self *actor.PID) {
	s.self, s.loaders = self, s.mem.Loaders
	s.ctx, s.cancel = context.WithCancel(context.Background())
}

// drain implements drainer: nobody will use what is being read.
func (s *load) drain() { s.cancel() }

func (s *load) receive(m any) {
	switch m := m.(type) {
	case *messages.Matched:
		s.queue = append(s.queue, &loading{m: m})
	case *messages.Tune:
		s.loaders = m.Loaders
	case *done:
		s.reading--
		if m.err != nil {
			s.fail(m.id, s.name(), m.err)
			return
		}
		m.res.(*loading).done = true
	}
	s.read()
	for len(s.queue) > 0 && s.queue[0].done {
		m := s.queue[0].m
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.started--
		s.send(s.dir.loaded(s.lane(m.From, m.Batch.ID)), &messages.Loaded{Step: m.Step, From: m.From, Batch: m.Batch, Slots: m.Slots})
	}
}

// read starts the reads that are due.
func (s *load) read() {
	for s.started < len(s.queue) && s.reading < s.loaders && s.ctx.Err() == nil {
		x := s.queue[s.started]
		s.started++
		if len(x.m.Rows) == 0 {
			x.done = true
			continue
		}
		id := x.m.Batch.ID // x's batch must not be touched when the run has failed
		x.span = s.clock.Begin(clock.Load)
		s.mem.Store.Read(s.ctx, features.Request{IDs: x.m.Rows, Slots: x.m.To, Dst: s.mem.Slab.Table()}, func(err error) {
			x.span.End(s.label(id))
			s.root.Send(s.self, &done{id: id, err: err, res: x})
		})
		s.reading++ // it is under way: Read has not panicked
	}
}
