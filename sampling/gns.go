package sampling

import (
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

func prepareGNS(p *Prepared, stop *interrupt.Poll) error {
	if err := p.checkFanouts(); err != nil {
		return err
	}
	if p.spec.Normalize == "" {
		p.spec.Normalize = "sum"
	}
	switch {
	case p.here != nil:
		p.spec, p.caches = p.here.spec, p.here.caches // with what Prepare fills in
		p.factory = func() Sampler { return p.newDivided(len(p.spec.Fanouts), WantDrawn) }
		return nil
	case p.rows == nil: // else who draws is told the generation
		var err error
		if p.caches, err = p.newCaches(stop); err != nil {
			return err
		}
	}
	p.factory = func() Sampler {
		f := p.newFused(p.spec.Fanouts, &gns{
			caches: p.caches, period: p.spec.CachePeriod, byDegree: p.spec.Normalize == "degree",
			cacheOnly: p.spec.CacheOnly, layers: len(p.spec.Fanouts),
		})
		f.picker.(*gns).first = f.first
		f.weights = true
		return f
	}
	return nil
}

// gns is global neighbour sampling (Dong et al., docs/algorithms.md §4): rows with more
// than k edges take up to k cached neighbours, uniformly, and the rest from the
// others. Batches of epoch e use the cache of generation ⌊e/period⌋.
//
// With raw importance weights W_e, Σ W_e·x_e estimates the sum over N(v). A
// block's weights are W_e·|S(v)|/ΣW, or W_e·|S(v)|/d(v) when normalised by
// degree, so that their mean over the row's entries estimates the mean over N(v).
//
// A row lists the cached entries in the order drawn, then the others in the
// order drawn.
type gns struct {
	caches    *Caches
	period    int
	byDegree  bool // divide by d(v): unbiased when cache-only
	cacheOnly bool // of the input layer
	layers    int
	first     uint32 // id of the node of the cache's first row

	key   rng.Key
	only  bool // this layer takes cached neighbours only
	cache *Cache
	lines []int64
	chooser
}

func (s *gns) start(id ID, key rng.Key, hop int) {
	s.key = key.With(uint64(hop))
	s.only = s.cacheOnly && hop == s.layers-1
	if gen := id.Epoch / s.period; s.cache == nil || s.cache.Generation != gen {
		s.cache = s.caches.At(gen)
	}
}

func (s *gns) pick(to *group, v uint32, begin int64, d, k int) {
	w := len(to.weights)
	if !s.only && (k < 0 || d <= k) {
		to.all(begin, d)
		to.weights = append(to.weights, make([]float32, d)...)
		for i := range to.weights[w:] {
			to.weights[w+i] = 1
		}
		return
	}
	cached := s.cache.Neighbors(v - s.first)
	c := len(cached)
	key := s.key.With(uint64(v))
	cachedKey, otherKey := key.With(0), key.With(1)
	switch {
	case s.only || c >= k:
		take := c
		if k >= 0 {
			take = min(k, c)
		}
		dst := to.extend(take)
		s.chooseOrAll(dst, cachedKey, c)
		scale := float32(c) / float32(take)
		for i, j := range dst {
			dst[i] = begin + int64(cached[j].Entry)
			to.weights = append(to.weights, scale*cached[j].Weight)
		}
	default: // c < k < d
		dst := to.extend(k)
		for i, j := range cached {
			dst[i] = begin + int64(j.Entry)
			to.weights = append(to.weights, 1)
		}
		rest := dst[c:]
		s.chooseOrAll(rest, otherKey, d-c)
		other := float32(float64(d-c) / float64(k-c))
		for i, j := range rest {
			rest[i] = begin + int64(skip(cached, uint32(j)))
			to.weights = append(to.weights, other)
		}
	}
	s.normalize(to.weights[w:], d)
}

// prefetchAhead implements prefetcher.
func (s *gns) prefetchAhead(nodes []uint32) { prefetchRows(s.cache.indptr, nodes) }

// prefetchNext implements prefetcher.
func (s *gns) prefetchNext(nodes []uint32) {
	s.lines = s.lines[:0]
	for _, v := range nodes {
		s.lines = append(s.lines, 2*s.cache.indptr[v])
	}
	if len(s.cache.rows) > 0 {
		prefetchCached(s.cache.rows, s.lines)
	}
}

// chooseOrAll writes a uniform len(dst)-subset of [0, n), or all of it in order.
func (s *gns) chooseOrAll(dst []int64, key rng.Key, n int) {
	if len(dst) < n {
		s.choose(dst, key, 0, len(dst), n)
		return
	}
	for i := range dst {
		dst[i] = int64(i)
	}
}

// skip returns the number of rank j among those that are not in the increasing
// list.
func skip(list []CachedNeighbor, j uint32) uint32 {
	// Before an entry and outside of the list lie Entry − i numbers: find how many
	// entries have at most j of those.
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := (lo + hi) / 2; list[mid].Entry-uint32(mid) <= j {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return j + uint32(lo)
}

// normalize turns raw weights into those of a mean over the row.
func (s *gns) normalize(w []float32, d int) {
	total := float64(d)
	if !s.byDegree {
		total = 0
		for _, x := range w {
			total += float64(x)
		}
	}
	scale := float64(len(w)) / total
	for i := range w {
		w[i] = float32(float64(w[i]) * scale)
	}
}
