package sampling

import (
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

func prepareNode(p *Prepared, stop *interrupt.Poll) error {
	q := make([]float64, p.g.NumNodes())
	if p.here != nil {
		var err error
		if q, err = gathered[float64](stop.Context(), p.here, columnNode); err != nil {
			return err
		}
	} else {
		for v := range q {
			if stop.Ended() {
				break
			}
			share := nodeShare(p.g.Degree(uint32(v)))
			for _, u := range p.g.InNeighbors(uint32(v)) {
				q[u] += share
			}
		}
	}
	table := newAlias(stop, len(q), func(i int) float64 { return q[i] })
	budget := p.spec.Budget
	return p.prepareSubgraph(stop, func(*asker) drawer { return &nodeDrawer{table: table, drawn: make([]uint32, budget)} })
}

// nodeShare is what a node of degree d adds to the chance of each of its neighbours.
func nodeShare(d int) float64 {
	inv := 1 / float64(max(1, d))
	return float64(inv * inv) // the same bits everywhere
}

// nodeDrawer draws nodes independently with P(u) ∝ Σ_v Â_vu², with GraphSAINT's
// Â = D⁻¹A: without self-loops, which would favour isolated nodes over all.
type nodeDrawer struct {
	table *alias
	drawn []uint32
}

func (d *nodeDrawer) draw(s *nodeSet, _ ID, key rng.Key) error {
	if d.table != nil {
		d.table.draws(d.drawn, key)
		s.addAll(d.drawn)
	}
	return nil
}

func prepareWalk(p *Prepared, stop *interrupt.Poll) error {
	s := &p.spec
	if p.numVisible() == 0 {
		return fmt.Errorf("the graph has no nodes")
	}
	return p.prepareSubgraph(stop, func(a *asker) drawer {
		return &walkDrawer{p: p, g: p.g, asker: a, roots: s.Roots, length: s.WalkLength}
	})
}

// walkDrawer takes what walks of the given length visit, from roots drawn
// uniformly; a step goes to a uniform in-neighbour, and a walk ends where there
// is none.
type walkDrawer struct {
	g             *graph.Graph
	p             *Prepared
	asker         *asker // of a divided graph
	roots, length int
	at            []uint32
	pos           []int64 // of the neighbours that come next; -1: there is none
	draws         []uint64
}

func (d *walkDrawer) draw(s *nodeSet, id ID, key rng.Key) error {
	d.at = resize(d.at, d.roots)
	step := key.With(0)
	for i := range d.at {
		d.at[i] = d.p.node(int(step.Uintn(uint64(i), uint64(d.p.numVisible()))))
	}
	s.addAll(d.at)
	if d.asker != nil {
		return d.ask(s, id, key)
	}
	// All walks go one step at a time, so that their loads overlap: each was
	// asked for while those of all walks before it were.
	d.pos = resize(d.pos, d.roots)
	for t := 1; t <= d.length; t++ {
		step := key.With(uint64(t))
		prefetchRows(d.g.Indptr, d.at)
		walking := 0
		for i, v := range d.at {
			begin, end := d.g.Indptr[v], d.g.Indptr[v+1]
			d.pos[i] = -1
			if begin < end {
				d.pos[i] = begin + int64(step.Uintn(uint64(i), uint64(end-begin)))
				prefetch4(&d.g.Indices[0], &d.pos[i], 1)
				walking++
			}
		}
		if walking == 0 {
			return nil
		}
		for i, p := range d.pos {
			if p >= 0 {
				d.at[i] = d.g.Indices[p]
				s.prefetch(d.at[i])
			}
		}
		for i, p := range d.pos {
			if p >= 0 {
				s.add(d.at[i])
			}
		}
	}
	return nil
}

// ask has the owners of the nodes take the steps.
func (d *walkDrawer) ask(s *nodeSet, id ID, key rng.Key) error {
	d.draws = resize(d.draws, d.roots)
	for t := 1; t <= d.length; t++ {
		step := key.With(uint64(t))
		for i := range d.draws {
			d.draws[i] = step.Uint64(uint64(i))
		}
		// A walk that ended stays where there is no neighbour.
		if walking, err := d.asker.step(id, d.at, d.draws); walking == 0 || err != nil {
			return err
		}
		s.addAll(d.at)
	}
	return nil
}
