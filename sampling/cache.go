package sampling

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// Cache is a generation of GNS's cache (Dong et al.): a random set C of nodes
// whose features are kept where compute runs, and every node's neighbours in
// it. It is read-only.
type Cache struct {
	Generation int
	Nodes      []uint32 // C, in increasing order

	member []uint64  // one bit per node of the graph
	chance []float32 // probability that each of Nodes was in C
	rank   []uint32  // cached nodes before each word of member
	indptr []int64   // N(v) ∩ C is rows[indptr[v]:indptr[v+1]]
	rows   []CachedNeighbor
}

// CachedNeighbor is an entry of a row whose source is in the cache.
type CachedNeighbor struct {
	Entry  uint32  // position in the row of the graph
	Weight float32 // 1/p_C of the source
}

// Contains reports whether u is in the cache.
func (c *Cache) Contains(u uint32) bool { return c.member[u/64]>>(u%64)&1 != 0 }

// Slot returns the place of u, which must be in the cache, among Nodes.
func (c *Cache) Slot(u uint32) int {
	return int(c.rank[u/64]) + onesBelow(c.member[u/64], u%64)
}

// Neighbors returns the entries of v's row whose sources are in the cache, in the
// order of the row. The slice aliases c.
func (c *Cache) Neighbors(v uint32) []CachedNeighbor { return c.rows[c.indptr[v]:c.indptr[v+1]] }

// Chance returns the probability p_C(u) that u, which must be in the cache, was
// drawn into it, given the keys of all others (docs/algorithms.md §4).
func (c *Cache) Chance(u uint32) float64 { return float64(c.chance[c.Slot(u)]) }

// Caches draws the generations of a cache. It is safe for concurrent use.
type Caches struct {
	g      *graph.Graph
	seed   uint64
	size   int
	p      []float64 // probability to draw each node first
	withEq bool      // Dong et al., eq. 13, in place of the exact probability
	apart  *apart    // of a divided graph, with neither g nor p; nil: it is whole

	mu   sync.Mutex
	made map[int]*pending
}

type pending struct {
	mu      sync.Mutex
	drawing *drawing // nil: nobody has begun, or it is drawn
	cache   *Cache   // nil: it is not drawn
}

// advance does a piece of the work that is left, and reports whether the
// generation is drawn.
func (e *pending) advance(c *Caches, generation int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cache != nil {
		return true
	}
	if e.drawing == nil {
		e.drawing = c.begin(generation)
	}
	if e.drawing.piece() {
		e.cache, e.drawing = e.drawing.out, nil
	}
	return e.cache != nil
}

// keepGenerations bounds the memory: the generation in use, the next, and one
// that late batches may still use.
const keepGenerations = 3

// Drawn is At for any graph: of a divided one it asks the owners of rows, until ctx ends.
func (c *Caches) Drawn(ctx context.Context, generation int) (*Cache, error) {
	if c.apart == nil {
		return c.At(generation), nil
	}
	e := c.of(generation)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cache == nil {
		var err error
		if e.cache, err = c.apart.draw(ctx, c, generation); err != nil {
			return nil, err
		}
	}
	return e.cache, nil
}

// Divided reports whether the graph is divided: then a generation is there by Drawn alone.
func (c *Caches) Divided() bool { return c.apart != nil }

// Distribution returns the probabilities p(u) by which nodes are drawn into
// caches.
func (c *Caches) Distribution() []float64 { return c.p }

// At returns the given generation. It draws what of it is not drawn yet; callers
// that come meanwhile help or wait. The oldest generations are forgotten, and drawn
// again when asked for.
func (c *Caches) At(generation int) *Cache {
	e := c.of(generation)
	for !e.advance(c, generation) {
	}
	return e.cache
}

// Advance does one of the Pieces in which a generation is drawn, and reports
// whether it is drawn. So the next one can be drawn bit by bit while another
// serves; what is missing when it is needed, At draws.
func (c *Caches) Advance(generation int) bool { return c.of(generation).advance(c, generation) }

func (c *Caches) of(generation int) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.made[generation]
	if e == nil {
		e = new(pending)
		c.made[generation] = e
		for len(c.made) > keepGenerations {
			delete(c.made, farthest(c.made, generation))
		}
	}
	return e
}

// farthest returns the key of made that is farthest from the one in demand.
func farthest[T any](made map[int]T, demand int) int {
	worst, distance := 0, -1
	for k := range made {
		d := max(k-demand, demand-k)
		if d > distance || d == distance && k < worst {
			worst, distance = k, d
		}
	}
	return worst
}

// degreeDistribution is p(u) ∝ out-degree: how many nodes may aggregate u.
func degreeDistribution(stop *interrupt.Poll, g *graph.Graph) []float64 {
	p := make([]float64, g.NumNodes())
	for _, u := range g.Indices {
		if stop.Ended() {
			break
		}
		p[u]++
	}
	for i := range p {
		p[i] /= float64(max(len(g.Indices), 1))
	}
	return p
}

// walkDistribution is p = P^L normalised, with P⁰ uniform on the training set
// and P^l(u) = P^{l−1}(u) + Σ_{v: u∈N(v)} min(1, k_l/d(v))·P^{l−1}(v).
func walkDistribution(stop *interrupt.Poll, g *graph.Graph, train []uint32, fanouts []int) []float64 {
	p := uniformOn(train, g.NumNodes())
	next := make([]float64, len(p))
	for _, k := range fanouts {
		copy(next, p)
		for v, pv := range p {
			if stop.Ended() {
				break
			}
			d := g.Degree(uint32(v))
			if pv == 0 || d == 0 {
				continue
			}
			share := walkShare(pv, d, k)
			for _, u := range g.InNeighbors(uint32(v)) {
				next[u] += share
			}
		}
		p, next = next, p
	}
	return normalized(p)
}

// uniformOn returns P⁰.
func uniformOn(train []uint32, n int) []float64 {
	p := make([]float64, n)
	for _, v := range train {
		p[v] += 1 / float64(len(train))
	}
	return p
}

// walkShare is what a node of degree d, where walks are with probability p, adds to each of its neighbours, k of which are taken.
func walkShare(p float64, d, k int) float64 {
	if k >= 0 && k < d {
		return p * float64(k) / float64(d)
	}
	return p
}

// normalized divides p by its sum.
func normalized(p []float64) []float64 {
	total := 0.0
	for _, x := range p {
		total += x
	}
	for i := range p {
		p[i] /= total
	}
	return p
}

var errNoTrain = errors.New("a cache by walks starts from the training nodes, and the data has none; choose degree")

func (p *Prepared) newCaches(stop *interrupt.Poll) (*Caches, error) {
	s := &p.spec
	c := s.cachesOf(p.g.NumNodes(), p.seed)
	c.g = p.g
	switch s.CacheBy {
	case "degree":
		c.p = degreeDistribution(stop, p.g)
	case "walks":
		if len(p.data.Train) == 0 {
			return nil, errNoTrain
		}
		c.p = walkDistribution(stop, p.g, p.data.Train, s.Fanouts)
	}
	return c, nil
}

// cachesOf fills in what is not set of the cache, and returns the caches of a graph of n nodes without their distribution.
func (s *Spec) cachesOf(n int, seed uint64) *Caches {
	if s.CacheFraction == 0 {
		s.CacheFraction = 0.01
	}
	s.CachePeriod = max(s.CachePeriod, 1)
	if s.CacheBy == "" {
		s.CacheBy = "degree"
	}
	return &Caches{seed: seed, size: int(math.Ceil(s.CacheFraction * float64(n))), withEq: s.CacheApproximate, made: make(map[int]*pending)}
}

func (c *Caches) chance(p, tau float64) float64 {
	switch {
	case c.withEq: // 1 − (1 − p)^|C|
		return oneMinusExp(-float64(c.size) * log1m(p))
	case math.IsInf(tau, 1):
		return 1
	}
	return oneMinusExp(float64(p * tau))
}
