package actors

import (
	"context"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
)

// load has the store read the rows that batches lack straight into their slots.
// Up to Loading.Loaders reads are under way, and end in any order; batches go on
// in the order in which they came, for a batch may share rows that an earlier
// one still waits for.
type load struct {
	base
	mem     *Loading
	next    route
	ctx     context.Context // ends when the stage is drained
	cancel  context.CancelFunc
	queue   []*loading // in the order of the batches; bounded by Loading.Ahead
	loaders int        // reads that may be under way
	started int        // how many of the queue were started
}

// loading is a batch on its way.
type loading struct {
	m    *messages.Matched
	done bool
}

func (s *load) start() {
	s.loaders = s.mem.Loaders
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
		m.res.(*loading).done = true
	}
	s.read()
	for len(s.queue) > 0 && s.queue[0].done {
		m := s.queue[0].m
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.started--
		s.send(s.next(s.lane(m.From, m.Batch.ID)), &messages.Loaded{Step: m.Step, From: m.From, Batch: m.Batch, Slots: m.Slots})
	}
}

// read starts the reads that are due.
func (s *load) read() {
	for s.started < len(s.queue) && s.jobs < s.loaders && s.ctx.Err() == nil {
		x := s.queue[s.started]
		s.started++
		if len(x.m.Rows) == 0 {
			x.done = true
			continue
		}
		id := x.m.Batch.ID // x's batch must not be touched when the run has failed
		s.readRows(s.ctx, s.mem.Store, features.Request{IDs: x.m.Rows, Slots: x.m.To, Dst: s.mem.Slab.Table()}, clock.Load, id, x)
	}
}
