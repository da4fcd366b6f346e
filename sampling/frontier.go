package sampling

import (
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

const defaultDegreeCap = 256

func prepareFrontier(p *Prepared, stop *interrupt.Poll) error {
	s := &p.spec
	if s.DegreeCap == 0 {
		s.DegreeCap = defaultDegreeCap
	}
	f := frontier{g: p.g, size: s.Frontier, budget: s.Budget, cap: s.DegreeCap, distinct: s.Distinct}
	pins := 0.0
	for v := range p.g.NumNodes() {
		if stop.Ended() {
			break
		}
		if d := p.g.Degree(uint32(v)); d > 0 {
			f.walkable = append(f.walkable, uint32(v))
			pins += float64(min(d, f.cap))
		}
	}
	if len(f.walkable) == 0 {
		return fmt.Errorf("no node has a neighbour to walk to")
	}
	pins /= float64(len(f.walkable))
	return p.prepareSubgraph(stop, func(*asker) drawer {
		own := f
		own.queue = newDashboard(int(dashboardSlack*pins*float64(s.Frontier)) + 1)
		return &own
	})
}

// frontier is frontier sampling, an m-dimensional random walk (Zeng et al.): of m
// nodes on the frontier, pop u with probability min(d(u), cap)/Σ_w min(d(w),
// cap), add it to the subgraph, and put a uniform neighbour of it in its place;
// if that has no neighbours, a uniform node that has. The frontier begins with m
// uniform nodes of d > 0.
type frontier struct {
	g        *graph.Graph
	size     int
	budget   int
	cap      int
	distinct bool     // the budget counts distinct nodes, not pops
	walkable []uint32 // nodes with d > 0
	queue    weightedQueue
	slots    []walker
}

// walker is a place on the frontier. Its next step is drawn when it arrives, so
// that what the step needs is in the cache when it is taken.
type walker struct {
	node uint32
	next int64 // position in the graph of the neighbour that comes after
}

// stepsAhead is after how many pops a walker's next neighbour is read, to fetch
// that neighbour's row pointers.
const stepsAhead = 8

// weightedQueue holds items and pops one with a probability in proportion to
// its weight.
type weightedQueue interface {
	reset()
	push(item uint32, weight int)
	pop(key rng.Key) uint32
}

func (f *frontier) draw(s *nodeSet, _ ID, key rng.Key) error {
	f.queue.reset()
	f.slots = resize(f.slots, f.size)
	roots := key.With(0)
	for i := range f.size {
		f.arrive(i, f.walkable[roots.Uintn(uint64(i), uint64(len(f.walkable)))], roots.With(uint64(i)))
	}
	goal := f.budget
	if f.distinct {
		goal = min(goal, len(f.walkable))
	}
	var recent [stepsAhead]int
	// A walk that stays in a small component never finds as many distinct
	// nodes as are asked for.
	const patience = 64
	for pops := 0; pops < patience*goal; pops++ {
		if !f.distinct && pops == goal || f.distinct && len(s.nodes) == goal {
			return nil
		}
		step := key.With(uint64(pops) + 1)
		i := int(f.queue.pop(step))
		s.add(f.slots[i].node)
		next := f.g.Indices[f.slots[i].next]
		if f.g.Degree(next) == 0 {
			next = f.walkable[step.With(0).Uintn(0, uint64(len(f.walkable)))]
		}
		f.arrive(i, next, step.With(1))
		prefetchRow(f.g, f.g.Indices[f.slots[recent[pops%stepsAhead]].next])
		recent[pops%stepsAhead] = i
	}
	return nil
}

// arrive puts u on the frontier in place i.
func (f *frontier) arrive(i int, u uint32, key rng.Key) {
	begin, d := f.g.Indptr[u], f.g.Degree(u)
	if d <= 0 { // it had neighbours before: an empty queue would be searched for ever
		panic("sampling: frontier: a node on the frontier has no neighbours")
	}
	f.slots[i] = walker{u, begin + int64(key.Uintn(0, uint64(d)))}
	prefetch4(&f.g.Indices[0], &f.slots[i].next, 1)
	f.queue.push(uint32(i), min(d, f.cap))
}
