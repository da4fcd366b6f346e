package actors

import (
	"context"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Inserted is a stage of the program's own between two of the pipeline's.
type Inserted struct {
	Name  string      // names it in errors
	Clock clock.Stage // has its time
	Limit int         // batches that it works on at once, at least 1
	// Process does a batch, on the worker pool. After sample it changes b; rows and x are
	// nil, and what it returns is not used. After load it returns the rows of b's inputs in
	// x, or in new memory where that is too small; rows says where they are, and b, the
	// slab and the table stay as they are. x is rows.X where another such stage was before.
	// The result must be a function of the batch and the rows alone.
	Process func(ctx context.Context, b *sampling.Batch, rows Rows, x []float32) ([]float32, error)
}

// inserted is the actor of such a stage. A batch that it has holds its sampler's credit;
// those that it works on end in any order, and go on as they do: what comes after takes
// them in the order of their steps.
type inserted struct {
	base
	stage Inserted
	loads bool // it comes after load, and passes rows on
	next  route
	queue []*messages.Loaded // bounded by the samplers' credits
}

func (s *inserted) receive(m any) {
	switch m := m.(type) {
	case *messages.Sampled:
		s.queue = append(s.queue, &messages.Loaded{Step: m.Step, From: m.From, Batch: m.Batch})
	case *messages.Loaded:
		s.queue = append(s.queue, m)
	case *done:
		s.forward(m.res.(*processed))
	}
	for s.jobs < s.stage.Limit && len(s.queue) > 0 && !s.ending.Load() {
		m := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.job(s.stage.Clock, m.Batch.ID, func() (any, error) { return s.process(m) })
	}
}

// process does a batch.
func (s *inserted) process(m *messages.Loaded) (any, error) {
	x := []float32(m.X)
	if s.loads && x == nil {
		x, _ = s.freeRows.get()
	}
	if !s.loads {
		m.Batch.There = nil // it may be changed
	}
	x, err := s.stage.Process(s.context, m.Batch, Rows{m.Slots, m.X}, x)
	return &processed{m, x}, err
}

// processed is a job's result: a batch, and the rows that were made of its own.
type processed struct {
	m *messages.Loaded
	x []float32
}

// forward passes a batch on. Its slots are free: its rows are copied.
func (s *inserted) forward(p *processed) {
	m := p.m
	to := s.next(s.lane(m.From, m.Batch.ID))
	if !s.loads {
		s.send(to, &messages.Sampled{Step: m.Step, From: m.From, Batch: m.Batch})
		return
	}
	if m.X == nil {
		s.releaseSlots(m)
	}
	s.send(to, &messages.Loaded{Step: m.Step, From: m.From, Batch: m.Batch, X: p.x})
}
