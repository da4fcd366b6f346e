package actors

import (
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Orderer chooses the order of the batches within a window, as overlap.Orderer
// does: a function of the epoch's windows so far alone.
type Orderer interface {
	// Reset begins an epoch, Resume goes on in one after the batch that has the
	// given distinct input nodes.
	Reset()
	Resume(inputs []uint32) error
	// Order appends to dst a permutation of the window's batches, whose input
	// nodes are given. It keeps neither.
	Order(dst []int, inputs [][]uint32) ([]int, error)
}

// reorder changes the order of the batches within windows (docs/algorithms.md §7). The
// windows are the batches [k·Window, (k+1)·Window) of an epoch, by index; a
// batch keeps its ID and is given the step at which it is computed.
//
// The order of a window depends on the batch that ran last in the window
// before. A run that goes on within an epoch is told which one that was
// (Work.After) and samples it, and the whole of its window, once more.
type reorder struct {
	*post
	work  Work
	order Orderer
	self  *actor.PID
	begin int64                         // first step of the window that is gathered
	got   map[int64][]*messages.Sampled // by the step of their index; bounded by the samplers' credits
	known bool                          // order knows the batch that runs last before begin
	busy  bool
}

func (r *reorder) name() string { return "reorder" }
func (r *reorder) idle() bool   { return !r.busy }

func (r *reorder) start(self *actor.PID) {
	r.self, r.got = self, map[int64][]*messages.Sampled{}
	r.begin = r.work.windowBegin(r.work.First)
	r.known = r.begin%max(r.work.Steps(), 1) == 0
}

func (r *reorder) receive(m any) {
	switch m := m.(type) {
	case *messages.Sampled:
		r.got[m.Step] = append(r.got[m.Step], m)
	case *done:
		r.busy = false
		if m.err != nil {
			r.fail(m.id, r.name(), m.err)
			return
		}
		r.emit(m.res.([]int))
	}
	r.next()
}

// complete reports whether every micro-batch of step has come.
func (r *reorder) complete(step int64) bool {
	parts := r.got[step]
	return len(parts) > 0 && len(parts) == max(parts[0].Batch.ID.Of, 1)
}

// next orders the window when all of it has come.
func (r *reorder) next() {
	if r.busy || r.work.Steps() == 0 {
		return
	}
	var lead []*messages.Sampled
	if !r.known {
		if !r.complete(r.begin - 1) {
			return
		}
		lead = r.got[r.begin-1]
	}
	n := r.work.windowSize(r.begin)
	window := make([][]*messages.Sampled, n)
	for i := range window {
		if !r.complete(r.begin + int64(i)) {
			return
		}
		window[i] = r.got[r.begin+int64(i)]
		slices.SortFunc(window[i], func(a, b *messages.Sampled) int { return a.Batch.ID.Micro - b.Batch.ID.Micro })
	}
	id := window[0][0].Batch.ID
	id.Micro, id.Of = 0, 0
	begins := r.begin%r.work.Steps() == 0
	r.busy = true
	r.job(r.self, clock.Reorder, id, func() (any, error) {
		sets := make([][]uint32, n)
		for i, parts := range window {
			sets[i] = inputs(parts)
			if sets[i] == nil { // every node, always: no order is better
				return ascending(n), nil
			}
		}
		if begins {
			r.order.Reset()
		}
		if lead != nil {
			if err := r.order.Resume(inputs(lead)); err != nil {
				return nil, err
			}
		}
		order, err := r.order.Order(nil, sets)
		if err == nil && !isPermutation(order, n) {
			err = fmt.Errorf("the order %v is no permutation of %d batches", order, n)
		}
		return order, err
	})
}

// emit passes the window on in its new order.
func (r *reorder) emit(order []int) {
	if !r.known {
		r.known = true
		for _, m := range r.got[r.begin-1] {
			r.unused(m)
		}
		delete(r.got, r.begin-1)
	}
	for i, k := range order {
		step := r.begin + int64(i)
		parts := r.got[r.begin+int64(k)]
		if r.work.Mine != nil && step >= r.work.First {
			r.send(r.dir.Parameters(), &messages.Placed{Step: step, Batch: parts[0].Batch.ID.Batch})
		}
		for _, m := range parts {
			// It was computed before the run was interrupted, or is computed elsewhere.
			if id := m.Batch.ID; step < r.work.First || !r.work.mine(id.Micro, max(id.Of, 1)) {
				r.unused(m)
				continue
			}
			m.Step = step
			r.pass(r.dir.Ordered(m.Batch.ID.Micro), m)
		}
	}
	for i := range order {
		delete(r.got, r.begin+int64(i))
	}
	r.begin += int64(len(order))
}

// unused gives back a batch that is not to be computed.
func (r *reorder) unused(m *messages.Sampled) {
	r.releaseBatch(m.Batch)
	r.send(r.dir.Sampler(m.From), &messages.Credit{N: 1})
}

// inputs returns the distinct input nodes of a global batch: nil for all.
func inputs(parts []*messages.Sampled) []uint32 {
	if len(parts) == 1 {
		return parts[0].Batch.Inputs()
	}
	var all []uint32
	for _, m := range parts {
		in := m.Batch.Inputs()
		if in == nil {
			return nil
		}
		all = append(all, in...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func ascending(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

func isPermutation(order []int, n int) bool {
	if len(order) != n {
		return false
	}
	seen := make([]bool, n)
	for _, k := range order {
		if k < 0 || k >= n || seen[k] {
			return false
		}
		seen[k] = true
	}
	return true
}

// sequence hands out micro-batches in the order of their steps, whatever the
// order in which they come. What it holds is bounded by credits.
type sequence[T any] struct {
	ready map[position]T
	next  position
	due   func(position) position // the first that comes at all, at or after one

	// Which of a reordered run's come here, reorder alone knows: it sends them in
	// order.
	ordered bool
	queue   []T
}

// position orders micro-batches.
type position struct {
	step  int64
	micro int
}

func newSequence[T any](w *Work) sequence[T] {
	if w.Window > 1 && w.Mine != nil {
		return sequence[T]{ordered: true}
	}
	return sequence[T]{ready: map[position]T{}, next: w.due(position{step: w.First}), due: w.due}
}

// put takes micro-batch id of step.
func (s *sequence[T]) put(step int64, id sampling.ID, x T) {
	if s.ordered {
		s.queue = append(s.queue, x)
		return
	}
	s.ready[position{step, id.Micro}] = x
}

// peek returns what is due, if it has come.
func (s *sequence[T]) peek() (x T, ok bool) {
	if s.ordered {
		if len(s.queue) > 0 {
			return s.queue[0], true
		}
		return x, false
	}
	x, ok = s.ready[s.next]
	return x, ok
}

// take removes what is due, which must be there; of is into how many
// micro-batches its batch is cut.
func (s *sequence[T]) take(of int) {
	if s.ordered {
		s.queue = slices.Delete(s.queue, 0, 1)
		return
	}
	delete(s.ready, s.next)
	if s.next.micro+1 < of {
		s.next.micro++
	} else {
		s.next = position{step: s.next.step + 1}
	}
	s.next = s.due(s.next)
}
