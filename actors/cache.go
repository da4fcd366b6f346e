package actors

import (
	"context"
	"errors"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Generations is a cache of rows that is drawn anew every Period epochs, such
// as that of GNS (docs/algorithms.md §4).
type Generations struct {
	Period int
	// Nodes returns the distinct nodes of a generation. It may take its time, until ctx
	// ends, and is called on the worker pool.
	Nodes func(ctx context.Context, generation int) ([]uint32, error)
	// Advance does one of about Pieces pieces of the work that Nodes has with a
	// generation, and reports whether nothing is left. It is called while another
	// generation serves. nil: Nodes does it all.
	Advance func(generation int) bool
	Pieces  int
}

// cache keeps the rows of a generation in the slab. While one serves, the next
// is drawn, and then its rows are read, both in small pieces: some when a step's
// batch is released, so that the work is spread over the steps that are left, and
// nothing waits when the epochs of one end and those of the other begin. A batch
// whose generation is not there yet reads its rows like any others.
type cache struct {
	base
	work   Work
	mem    *Loading
	ctx    context.Context // ends when the stage is drained
	cancel context.CancelFunc

	lead int // micro-batches that may be sampled ahead of those that are computed

	wanted  int   // the newest generation that batches of have been matched
	newest  int64 // step of which a batch was released
	due     bool  // that step has not been given its share of the next generation
	allowed int   // pieces of it that may be drawn or read now
	next    int   // the generation to be prepared
	pins    map[int]*features.Pin
	pin     *features.Pin // of next, while it is read
	read    int           // rows of it that were
	pieces  int           // of next that were drawn
	drawn   bool          // it is
	nodes   []uint32      // of next, while the slab has no room for it
	waiting bool          // for room
}

// pieceRows is how many rows of a generation are read at once.
const pieceRows = 1024

func (s *cache) drain() { s.cancel() }

func (s *cache) start() {
	s.pins, s.newest = map[int]*features.Pin{}, -1
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if steps := s.work.Steps(); steps > 0 {
		s.wanted = s.generation(int(s.work.First / steps))
	}
	s.next = s.wanted
}

func (s *cache) generation(epoch int) int { return epoch / max(s.mem.Cache.Period, 1) }

func (s *cache) receive(m any) {
	switch m := m.(type) {
	case *messages.Tune:
		s.lead = m.Samplers * m.Credits
	case *messages.Begun:
		s.wanted = max(s.wanted, s.generation(m.Epoch))
	case *messages.Released:
		s.waiting = false
		if m.Step > s.newest {
			s.newest, s.due = m.Step, true
		}
	case *done:
		switch res := m.res.(type) {
		case bool:
			s.drawn = res
		case *pinned:
			s.drawn, s.nodes, s.pin, s.waiting = true, res.nodes, res.pin, res.pin == nil
		case int: // a piece was read
			s.read += res
		}
	}
	s.step()
}

// may reports whether a piece of the next generation is due. Those that are left are
// spread over the steps until samplers, which are ahead, need the generation; but the
// last eighth of the steps that a generation serves is for its rows, which nobody
// needs before its batches are matched. Where all of a generation is sampled
// ahead, the next has a quarter of its steps.
func (s *cache) may() bool {
	if !s.due {
		return s.allowed > 0
	}
	serves := s.work.Steps() * int64(max(s.mem.Cache.Period, 1))
	needed := max(int64(s.next)*serves-int64(s.lead/max(s.work.Micro, 1)), int64(s.next-1)*serves+serves/4)
	left := s.mem.Cache.Pieces - s.pieces
	if s.pin != nil {
		left = (len(s.pin.Load) - s.read + pieceRows - 1) / pieceRows
	} else {
		needed -= serves / 8
	}
	over := int(max(needed-s.newest-1, 1))
	s.due, s.allowed = false, max(1, (left+over-1)/over)
	return true
}

// pinned is a job's result: pin is nil where there was no room.
type pinned struct {
	nodes []uint32
	pin   *features.Pin
}

// step does what is due: it drops generations that are over, and prepares the
// one that serves, then the one after it.
func (s *cache) step() {
	if s.busy() || s.ctx.Err() != nil {
		return
	}
	slab := s.mem.Slab
	if s.next < s.wanted && s.pin == nil { // it came too late
		s.next, s.nodes, s.pieces, s.drawn, s.waiting = s.wanted, nil, 0, false, false
	}
	over, early := s.over(), s.next > s.wanted
	id := sampling.ID{Phase: s.work.Phase, Epoch: s.next * max(s.mem.Cache.Period, 1)}
	switch {
	case s.pin != nil && s.read < len(s.pin.Load):
		if early && !s.may() {
			return
		}
		s.allowed = max(0, s.allowed-1)
		n := min(pieceRows, len(s.pin.Load)-s.read)
		request := features.Request{IDs: s.pin.Load[s.read : s.read+n], Slots: s.pin.LoadSlots[s.read : s.read+n], Dst: slab.Table()}
		s.readRows(s.ctx, s.mem.Store, request, clock.Cache, id, n)
	case s.pin != nil:
		pin := s.pin
		s.pins[s.next] = pin
		s.pin, s.nodes, s.pieces, s.drawn, s.read = nil, nil, 0, false, 0
		s.next++
		s.job(clock.Cache, id, func() (any, error) {
			slab.Publish(pin)
			return nil, nil
		})
	case over >= 0:
		old := s.pins[over]
		delete(s.pins, over)
		s.job(clock.Cache, id, func() (any, error) {
			slab.Unpin(old)
			return nil, nil
		})
	case s.waiting:
	case s.next > s.wanted+1 || s.next > s.generation(s.work.Epochs-1):
	case early && !s.drawn && s.mem.Cache.Advance != nil:
		if !s.may() {
			return
		}
		n, generation := s.allowed, s.next
		s.pieces += n
		s.allowed = 0
		s.job(clock.Cache, id, func() (any, error) {
			for range n {
				if s.mem.Cache.Advance(generation) {
					return true, nil
				}
			}
			return false, nil
		})
	default:
		generation, nodes := s.next, s.nodes
		s.job(clock.Cache, id, func() (any, error) {
			if nodes == nil {
				var err error
				if nodes, err = s.mem.Cache.Nodes(s.ctx, generation); err != nil {
					return nil, err
				}
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
