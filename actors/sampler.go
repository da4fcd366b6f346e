package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// sampler turns seeds into blocks, one micro-batch at a time.
type sampler struct {
	*post
	index   int
	seed    uint64
	sampler sampling.Sampler
	limit   int // batches it may have out
	free    int // of them, those that it has not; below 0 after the limit fell
	self    *actor.PID
	asked   bool
	busy    bool
}

func (s *sampler) name() string          { return "sample" }
func (s *sampler) idle() bool            { return !s.busy }
func (s *sampler) start(self *actor.PID) { s.self = self }

// ask grants the source one credit when there is nothing to do.
func (s *sampler) ask() {
	if s.asked || s.busy || s.free <= 0 {
		return
	}
	s.asked = true
	s.send(s.dir.Source(), &messages.Credit{From: s.index, N: 1})
}

func (s *sampler) receive(m any) {
	switch m := m.(type) {
	case *messages.Seeds:
		s.asked, s.busy = false, true
		s.free--
		s.job(s.self, clock.Sample, m.ID, func() (any, error) { return s.sample(m) })
	case *messages.Credit:
		s.free += m.N
	case *messages.Tune:
		limit := 0
		if s.index < m.Samplers {
			limit = m.Credits
		}
		s.free += limit - s.limit
		s.limit = limit
	case *done:
		s.busy = false
		if m.err != nil {
			s.fail(m.id, s.name(), m.err)
			return
		}
		s.send(s.dir.Sampled(m.id.Micro), m.res.(*messages.Sampled))
	}
	s.ask()
}

func (s *sampler) sample(m *messages.Seeds) (any, error) {
	b, ok := s.freeBatches.get()
	if !ok {
		s.batches.Add(1)
		b = new(sampling.Batch)
	}
	b.Reset()
	b.ID = m.ID // samplers whose batches depend on each other read it
	if err := s.sampler.Sample(b, m.ID.Key(s.seed), m.Seeds); err != nil {
		s.freeBatches.put(b)
		return nil, err
	}
	return &messages.Sampled{Step: m.Step, From: s.index, Batch: b}, nil
}
