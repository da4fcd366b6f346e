package actors

import (
	"context"
	"errors"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Elsewhere has the samplers of a pipeline sample on other nodes. Where each of them is
// may change at any time.
type Elsewhere interface {
	// Here reports whether sampler i is in this process.
	Here(i int) bool
	// Draw makes b, which is empty, the micro-batch of m, as sampler i does wherever it
	// is, and returns the node: it waits for one that can, as long as ctx lets it. ErrHere:
	// the sampler is in this process by now, and b is still empty.
	Draw(ctx context.Context, i int, m *messages.Seeds, b *sampling.Batch) (node string, err error)
	// Ask returns what m wants, a packed batch (messages.ReadBatch) or a message, of any node that
	// samples: it waits for one that can, as long as ctx lets it. Any number may ask at once.
	Ask(ctx context.Context, m *messages.Seeds) ([]byte, error)
}

// ErrHere is returned by Elsewhere for a sampler that is in this process.
var ErrHere = errors.New("actors: the sampler is in this process")

// sampler turns seeds into blocks, one micro-batch at a time. While it is on another
// node two are under way, so that one is sampled while the other travels; but of a late trainer
// one, so that its batches come in the order in which they were dealt.
type sampler struct {
	base
	index     int
	seed      uint64
	sampler   sampling.Sampler
	elsewhere Elsewhere // nil: it is always in this process
	to        route
	limit     int // batches it may have out
	free      int // of them, those that it has not; below 0 after the limit fell
	asked     bool
	under     int               // micro-batches under way
	due       []*messages.Seeds // of them, those that wait to be sampled in this process
	local     *messages.Seeds   // the one that is; nil: none
}

// here reports whether this process samples.
func (s *sampler) here() bool { return s.elsewhere == nil || s.elsewhere.Here(s.index) }

// ask grants the source one credit when there is room for a micro-batch.
func (s *sampler) ask() {
	if s.asked || s.free <= 0 || s.under > 1 || s.under > 0 && (s.late || s.here()) {
		return
	}
	s.asked = true
	s.send(s.dir.source, &messages.Credit{From: s.index, N: 1})
}

func (s *sampler) receive(m any) {
	switch m := m.(type) {
	case *messages.Seeds:
		s.asked = false
		s.under++
		s.free--
		if s.here() {
			s.due = append(s.due, m)
			break
		}
		s.jobElsewhere(m.ID, func() (any, error) {
			x, err := s.sample(m, func(b *sampling.Batch) error {
				_, err := s.elsewhere.Draw(s.context, s.index, m, b)
				return err
			})
			if errors.Is(err, ErrHere) {
				return m, nil
			}
			return x, err
		})
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
		if back, ok := m.res.(*messages.Seeds); ok {
			s.due = append(s.due, back)
			break
		}
		s.under--
		if s.local != nil && s.local.ID == m.id {
			s.local = nil
		}
		s.send(s.to(s.lane(s.index, m.id)), m.res.(*messages.Sampled))
	}
	s.next()
	s.ask()
}

// next samples what is due in this process.
func (s *sampler) next() {
	if s.local != nil || len(s.due) == 0 {
		return
	}
	m := s.due[0]
	s.local, s.due = m, s.due[1:]
	s.job(clock.Sample, m.ID, func() (any, error) {
		return s.sample(m, func(b *sampling.Batch) error {
			return sampling.Within(s.context, s.sampler).Sample(b, m.ID.Key(s.seed), m.Seeds)
		})
	})
}

// sample has f make the micro-batch of m.
func (s *sampler) sample(m *messages.Seeds, f func(*sampling.Batch) error) (any, error) {
	b, ok := s.freeBatches.get()
	if !ok {
		s.batches.Add(1)
		b = new(sampling.Batch)
	}
	b.Reset()
	b.ID = m.ID // samplers whose batches depend on each other read it
	if err := f(b); err != nil {
		s.freeBatches.put(b)
		return nil, err
	}
	return &messages.Sampled{Step: m.Step, From: s.index, Batch: b}, nil
}
