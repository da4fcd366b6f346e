package actors

import (
	"context"
	"errors"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/internal/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Generations is a cache of rows that is drawn anew every Period epochs, such
// as that of GNS (ALGORITHMS §4).
type Generations struct {
	Period int
	// Nodes returns the distinct nodes of a generation. It may take its time, and
	// is called on the worker pool.
	Nodes func(generation int) []uint32
}

// cache keeps the rows of a generation in the slab. While one serves, the next
// is drawn, and its rows are read in small pieces, between those of the batches,
// so that nothing waits when the epochs of one end and those of the other begin.
// A batch whose generation is not there yet reads its rows like any others.
type cache struct {
	*post
	work   Work
	mem    *Memory
	self   *actor.PID
	ctx    context.Context // ends when the stage is drained
	cancel context.CancelFunc

	wanted  int // the newest generation that batches of have been matched
	next    int // the generation to be prepared
	pins    map[int]*features.Pin
	pin     *features.Pin // of next, while it is read
	read    int           // rows of it that were
	nodes   []uint32      // of next, while the slab has no room for it
	waiting bool          // for room
	busy    bool
}

// pieceRows is how many rows of a generation are read at once.
const pieceRows = 1024

func (s *cache) name() string { return "cache" }
func (s *cache) idle() bool   { return !s.busy }
func (s *cache) drain()       { s.cancel() }

func (s *cache) start(self *actor.PID) {
	s.self, s.pins = self, map[int]*features.Pin{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if steps := s.work.Steps(); steps > 0 {
		s.wanted = s.generation(int(s.work.First / steps))
	}
	s.next = s.wanted
}

func (s *cache) generation(epoch int) int { return epoch / max(s.mem.Cache.Period, 1) }

func (s *cache) receive(m any) {
	switch m := m.(type) {
	case *messages.Begun:
		s.wanted = max(s.wanted, s.generation(m.Epoch))
	case *messages.Released:
		s.waiting = false
	case *done:
		s.busy = false
		if m.err != nil {
			s.fail(m.id, s.name(), m.err)
			return
		}
		switch res := m.res.(type) {
		case *pinned:
			s.nodes, s.pin, s.waiting = res.nodes, res.pin, res.pin == nil
		case int: // a piece was read
			s.read += res
		}
	}
	s.step()
}

// pinned is a job's result: pin is nil where there was no room.
type pinned struct {
	nodes []uint32
	pin   *features.Pin
}

// step does what is due: it drops generations that are over, and prepares the
// one that serves, then the one after it.
func (s *cache) step() {
	if s.busy || s.ctx.Err() != nil {
		return
	}
	slab := s.mem.Slab
	if s.next < s.wanted && s.pin == nil { // it came too late
		s.next, s.nodes, s.waiting = s.wanted, nil, false
	}
	over := s.over()
	id := sampling.ID{Phase: s.work.Phase, Epoch: s.next * max(s.mem.Cache.Period, 1)}
	switch {
	case s.pin != nil && s.read < len(s.pin.Load):
		n := min(pieceRows, len(s.pin.Load)-s.read)
		request := features.Request{IDs: s.pin.Load[s.read : s.read+n], Slots: s.pin.LoadSlots[s.read : s.read+n], Dst: slab.Table()}
		s.busy = true
		span := s.clock.Begin(clock.Cache)
		s.mem.Store.Read(s.ctx, request, func(err error) {
			span.End(s.label(id))
			s.root.Send(s.self, &done{id: id, err: err, res: n})
		})
	case s.pin != nil:
		pin := s.pin
		s.pins[s.next] = pin
		s.pin, s.nodes, s.read = nil, nil, 0
		s.next++
		s.busy = true
		s.job(s.self, clock.Cache, id, func() (any, error) {
			slab.Publish(pin)
			return nil, nil
		})
	case over >= 0:
		old := s.pins[over]
		delete(s.pins, over)
		s.busy = true
		s.job(s.self, clock.Cache, id, func() (any, error) {
			slab.Unpin(old)
			return nil, nil
		})
	case s.waiting:
	case s.next <= s.wanted+1 && s.next <= s.generation(s.work.Epochs-1):
		generation, nodes := s.next, s.nodes
		s.busy = true
		s.job(s.self, clock.Cache, id, func() (any, error) {
			if nodes == nil {
				nodes = s.mem.Cache.Nodes(generation)
			}
			pin, err := slab.Pin(nodes)
			if errors.Is(err, features.ErrFull) {
				return &pinned{nodes: nodes}, nil
			}
			return &pinned{nodes, pin}, err
		})
	}
}

// over returns a generation that no batch to come uses, or -1.
func (s *cache) over() int {
	for g := range s.pins {
		if g < s.wanted {
			return g
		}
	}
	return -1
}
