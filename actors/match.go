package actors

import (
	"errors"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Loading is how a pipeline brings the rows of its batches into a slab.
type Loading struct {
	Store   features.Store
	Slab    *features.Slab // of this pipeline alone
	Ahead   int            // batches that may hold slots, at least 1
	Loaders int            // reads that may be under way, at least 1
	Cache   *Generations   // whose rows the slab keeps besides; nil: none
}

// match gives batches their slots in the slab, in the order in which they are
// computed, or come, of late ones: rows that are there stay where they are (docs/algorithms.md §7). At most
// Loading.Ahead batches hold slots; where the slab is full, the next waits until
// compute releases one.
type match struct {
	base
	mem    *Loading
	work   Work
	due    sequence[*messages.Sampled]
	leases map[position]*features.Lease // of batches that are on their way
	given  []*features.Lease            // released, and not yet given back to the slab
	full   *matching                    // waits for room
	ahead  int                          // batches that may hold slots
	cached int                          // rows that stay though no batch needs them, once tuned
	tuned  bool                         // the slab has not been told of cached
	epoch  int                          // of the newest batch that was matched
}

// matching is a batch with its lease.
type matching struct {
	m     *messages.Sampled
	lease *features.Lease
	full  bool
}

func (s *match) start() {
	s.ahead = s.mem.Ahead
	s.due, s.leases = newSequence[*messages.Sampled](&s.work), map[position]*features.Lease{}
	if s.late {
		s.due = sequence[*messages.Sampled]{ordered: true}
	}
}

func (s *match) receive(m any) {
	switch m := m.(type) {
	case *messages.Sampled:
		s.due.put(m.Step, m.Batch.ID, m)
	case *messages.Released:
		at := position{m.Step, m.Micro}
		if l := s.leases[at]; l != nil {
			s.given = append(s.given, l)
			delete(s.leases, at)
		}
		if c := s.dir.cache; c != nil {
			s.send(c, m)
		}
	case *done:
		if x, ok := m.res.(*matching); ok {
			s.matched(x)
		}
	case *messages.Tune:
		s.ahead, s.cached, s.tuned = m.Ahead, m.Cache, true
	}
	s.next()
}

// matched passes on a batch that has its slots.
func (s *match) matched(x *matching) {
	if x.full {
		s.full = x
		return
	}
	if c := s.dir.cache; c != nil && x.m.Batch.ID.Epoch > s.epoch {
		s.epoch = x.m.Batch.ID.Epoch
		s.send(c, &messages.Begun{Epoch: s.epoch})
	}
	s.leases[position{x.m.Step, x.m.Batch.ID.Micro}] = x.lease
	s.send(s.dir.load, &messages.Matched{
		Step: x.m.Step, From: x.m.From, Batch: x.m.Batch, Slots: x.lease.Slots, Rows: x.lease.Load, To: x.lease.LoadSlots,
	})
}

// begin starts a job, which first gives back what was released and tells the slab
// what was tuned.
func (s *match) begin(id sampling.ID, f func() (any, error)) {
	given, tuned, cached, slab := s.given, s.tuned, s.cached, s.mem.Slab
	s.given, s.tuned = nil, false
	s.job(clock.Match, id, func() (any, error) {
		for _, l := range given {
			slab.Release(l)
		}
		if tuned {
			slab.SetCache(cached)
		}
		return f()
	})
}

// next gives back what was released and matches the batch that is due.
func (s *match) next() {
	if s.busy() {
		return
	}
	slab, news := s.mem.Slab, len(s.given) > 0 || s.tuned
	x := s.full
	if m, ok := s.due.peek(); x == nil && ok && len(s.leases) < s.ahead {
		s.due.take(m.Batch.ID.Of)
		x = &matching{m: m}
	}
	switch {
	case x == nil && news:
		s.begin(sampling.ID{}, func() (any, error) { return nil, nil })
	case x != nil && (s.full == nil || news): // one that waits for room does until there may be more
		s.full = nil
		s.begin(x.m.Batch.ID, func() (_ any, err error) {
			if x.lease == nil {
				x.lease, err = slab.Match(x.m.Batch.Inputs())
			} else {
				err = slab.Resume(x.lease)
			}
			if x.full = errors.Is(err, features.ErrFull); x.full {
				err = nil
			}
			return x, err
		})
	}
}
