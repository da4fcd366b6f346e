package actors

import (
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/overlap"
)

// Orderer chooses the order of the batches within a window, as overlap.Orderer
// does: a function of the epoch's windows so far alone.
type Orderer interface {
	// Reset begins an epoch, Resume goes on in one after the batch that has the
	// given parts.
	Reset()
	Resume(parts []overlap.Part) error
	// Order appends to dst a permutation of the window's batches, whose parts
	// are given. It keeps neither.
	Order(dst []int, batches [][]overlap.Part) ([]int, error)
	// Part returns what other processes need of a part with these inputs, rising. It may be called beside the
	// others.
	Part(inputs []uint32) overlap.Part
}

// reorder changes the order of the batches within windows (docs/algorithms.md §7). The
// windows are the batches [k·Window, (k+1)·Window) of an epoch, by index; a
// batch keeps its ID and is given the step at which it is computed.
//
// The order of a window depends on the batch that ran last in the window
// before. A run that goes on within an epoch is told which one that was
// (Work.After) and samples it, and the whole of its window, once more.
//
// Where several processes share the steps, each has its own micro-batches, and tells the others
// what the order depends on of those (messages.Inputs): all find the same order.
type reorder struct {
	base
	work    Work
	order   Orderer
	reducer Reducer // nil: all micro-batches are computed in this process
	onward  route
	begin   int64                         // first step of the window that is gathered
	got     map[int64][]*messages.Sampled // by the step of their index; bounded by the samplers' credits
	known   bool                          // order knows the batch that runs last before begin
}

func (r *reorder) start() {
	r.got = map[int64][]*messages.Sampled{}
	r.begin = r.work.windowBegin(r.work.First)
	r.known = r.begin%max(r.work.Steps(), 1) == 0
}

func (r *reorder) receive(m any) {
	switch m := m.(type) {
	case *messages.Sampled:
		r.got[m.Step] = append(r.got[m.Step], m)
	case *done:
		r.emit(m.res.([]int))
	}
	r.next()
}

// batch returns the index of the batch that is gathered as step: the one before
// the window is the one that ran last.
func (r *reorder) batch(step int64) int {
	if step < r.begin {
		return r.work.After
	}
	return int(step % r.work.Steps())
}

// next orders the window when all of it that is this process's has come.
func (r *reorder) next() {
	if r.busy() || r.work.Steps() == 0 {
		return
	}
	end := r.begin + int64(r.work.windowSize(r.begin))
	first := r.begin
	if !r.known {
		first--
	}
	batches := make([]*ordering, end-first)
	for i := range batches {
		step := first + int64(i)
		own := r.got[step]
		if len(own) < r.work.ownOf(r.batch(step)) {
			return
		}
		batches[i] = &ordering{step: step, parts: make([]overlap.Part, r.work.numMicro(r.batch(step)))}
		for _, m := range own {
			in := m.Batch.Inputs()
			batches[i].all = batches[i].all || in == nil
			batches[i].parts[m.Batch.ID.Micro] = overlap.Part{Size: len(in), Nodes: in}
		}
	}
	id := sampling.ID{Phase: r.work.Phase, Epoch: int(r.begin / r.work.Steps()), Batch: r.batch(r.begin)}
	begins := r.begin%r.work.Steps() == 0
	known := r.known
	order := func() (any, error) {
		order, err := r.find(batches, begins, known)
		if n := int(end - r.begin); err == nil && !isPermutation(order, n) {
			err = fmt.Errorf("the order %v is no permutation of %d batches", order, n)
		}
		return order, err
	}
	if r.reducer == nil {
		r.job(clock.Reorder, id, order)
		return
	}
	begin := r.begin
	r.jobElsewhere(id, func() (any, error) {
		if err := r.share(begin, batches); err != nil {
			return nil, err
		}
		span := r.clock.Begin(clock.Reorder)
		defer func() { span.End(r.label(id)) }()
		return order()
	})
}

// ordering is what an order depends on of a batch.
type ordering struct {
	step  int64          // of its index
	parts []overlap.Part // by micro-batch
	all   bool           // one of them needs every node
}

// find returns the order of a window, whose batches come after the one that ran last, if that is not
// known yet.
func (r *reorder) find(batches []*ordering, begins, known bool) ([]int, error) {
	window := batches
	if !known {
		window = window[1:]
	}
	sets := make([][]overlap.Part, len(window))
	for i, b := range window {
		if b.all { // every node, always: no order is better
			return ascending(len(window)), nil
		}
		sets[i] = b.parts
	}
	if begins {
		r.order.Reset()
	}
	if !known {
		lead := batches[0].parts
		if batches[0].all {
			lead = nil
		}
		if err := r.order.Resume(lead); err != nil {
			return nil, err
		}
	}
	return r.order.Order(nil, sets)
}

// share makes the parts of batches those of all processes.
func (r *reorder) share(begin int64, batches []*ordering) error {
	var mine messages.Inputs
	for _, b := range batches {
		for m, p := range b.parts {
			if r.work.mine(m, len(b.parts)) {
				x := messages.InputPart{Step: b.step, Micro: m, All: b.all}
				if !x.All {
					p = r.order.Part(p.Nodes)
					x.Size, x.Nodes = p.Size, p.Nodes
				}
				mine.Parts = append(mine.Parts, x)
			}
		}
	}
	body, err := messages.Marshal(&mine)
	if err != nil {
		return err
	}
	told, err := r.reducer.Gather(r.context, begin, body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReduce, err)
	}
	missing := 0
	for _, b := range batches {
		clear(b.parts)
		missing += len(b.parts)
	}
	seen := map[position]bool{}
	for _, body := range told {
		m, err := messages.Unmarshal("inputs", body)
		if err != nil {
			return err
		}
		for _, p := range m.(*messages.Inputs).Parts {
			i := p.Step - batches[0].step
			if i < 0 || i >= int64(len(batches)) || p.Micro < 0 || p.Micro >= len(batches[i].parts) || seen[position{p.Step, p.Micro}] {
				return fmt.Errorf("another process tells of micro-batch %d of step %d, which the window from step %d has not, or twice", p.Micro, p.Step, begin)
			}
			seen[position{p.Step, p.Micro}] = true
			b := batches[i]
			b.all, b.parts[p.Micro] = b.all || p.All, overlap.Part{Size: p.Size, Nodes: p.Nodes}
			missing--
		}
	}
	if missing > 0 {
		return fmt.Errorf("nobody tells of %d micro-batches of the window from step %d", missing, begin)
	}
	return nil
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
		step, was := r.begin+int64(i), r.begin+int64(k)
		if r.work.Mine != nil && step >= r.work.First {
			r.send(r.dir.parameters, &messages.Placed{Step: step, Batch: r.batch(was)})
		}
		parts := r.got[was]
		slices.SortFunc(parts, func(a, b *messages.Sampled) int { return a.Batch.ID.Micro - b.Batch.ID.Micro })
		for _, m := range parts {
			if step < r.work.First { // it was computed before the run was interrupted
				r.unused(m)
				continue
			}
			m.Step = step
			r.send(r.onward(m.Batch.ID.Micro), m)
		}
	}
	for i := range order {
		delete(r.got, r.begin+int64(i))
	}
	r.begin += int64(len(order))
}

// unused gives back a batch that is not to be computed.
func (r *reorder) unused(m *messages.Sampled) {
	r.freeBatches.put(m.Batch)
	r.send(r.dir.samplers[m.From], &messages.Credit{N: 1})
}

func ascending(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

func isPermutation(order []int, n int) bool {
	return slices.Equal(slices.Sorted(slices.Values(order)), ascending(n))
}

// sequence hands out micro-batches in the order of their steps, whatever the
// order in which they come. What it holds is bounded by credits.
type sequence[T any] struct {
	ready map[position]T
	next  position
	due   func(position) position // the first that comes at all, at or after one

	// Which of a reordered run's come here, reorder alone knows: it sends them in
	// order. Late ones have none.
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
