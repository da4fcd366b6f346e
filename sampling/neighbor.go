package sampling

import (
	"fmt"
	"math"
	"sort"
	"unsafe"

	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

func prepareKHop(p *Prepared, _ *interrupt.Poll) error {
	if len(p.spec.Fanouts) != 0 {
		return fmt.Errorf("it takes all neighbours; give layers and no fan-outs")
	}
	fanouts := make([]int, p.spec.Depth())
	for i := range fanouts {
		fanouts[i] = -1
	}
	if p.here != nil {
		p.factory = func() Sampler { return p.newDivided(len(fanouts), WantAll) }
		return nil
	}
	return p.prepareUniform(fanouts)
}

// prepareUniform prepares uniform sampling without replacement.
func (p *Prepared) prepareUniform(fanouts []int) error {
	if !p.spec.Temporal {
		p.factory = func() Sampler { return p.newFused(fanouts, new(uniform)) }
		return nil
	}
	p.factory = func() Sampler { return &temporal{p: p, fanouts: fanouts} }
	if p.rows != nil { // it gets the times when all are known
		return nil
	}
	return p.checkTimes()
}

func prepareNeighbor(p *Prepared, stop *interrupt.Poll) error {
	if err := p.checkFanouts(); err != nil {
		return err
	}
	s := &p.spec
	if s.Temporal && (s.Weighted || s.Replace) {
		return fmt.Errorf("a temporal sampler draws uniformly without replacement only")
	}
	if p.here != nil {
		p.factory = func() Sampler { return p.newDivided(len(s.Fanouts), WantDrawn) }
		return nil
	}
	if s.Weighted {
		if err := p.checkWeights(stop); err != nil {
			return err
		}
	}
	var newPicker func() picker
	switch {
	case s.Weighted && s.Replace:
		sums := p.weightSums(stop)
		newPicker = func() picker { return &weightedReplace{sums: sums} }
	case s.Weighted:
		newPicker = func() picker { return &weighted{weights: p.g.Weights} }
	case s.Replace:
		newPicker = func() picker { return new(replace) }
	default:
		return p.prepareUniform(s.Fanouts)
	}
	p.factory = func() Sampler {
		f := p.newFused(s.Fanouts, newPicker())
		if s.Weighted && !s.Replace {
			f.scans = (*uint32)(unsafe.Pointer(unsafe.SliceData(p.g.Weights)))
		}
		return f
	}
	return nil
}

func (p *Prepared) checkFanouts() error {
	if len(p.spec.Fanouts) != p.spec.Depth() {
		return fmt.Errorf("%d fan-outs given for %d layers; give one per layer, from the seeds outward", len(p.spec.Fanouts), p.spec.Depth())
	}
	return nil
}

func (p *Prepared) checkWeights(stop *interrupt.Poll) error {
	if p.g.Weights == nil {
		return fmt.Errorf("the graph has no edge weights to sample by")
	}
	for e, w := range p.g.Weights {
		if stop.Ended() {
			break
		}
		if !(w >= 0) || math.IsInf(float64(w), 1) {
			return fmt.Errorf("edge %d has weight %v; weights to sample by must be finite and not negative", e, w)
		}
	}
	return nil
}

// weightSums returns for every edge the sum of its row's weights up to and
// including it.
func (p *Prepared) weightSums(stop *interrupt.Poll) []float64 {
	sums := make([]float64, len(p.g.Weights))
	for v := range p.g.NumNodes() {
		if stop.Ended() {
			break
		}
		sum := 0.0
		for e := p.g.Indptr[v]; e < p.g.Indptr[v+1]; e++ {
			sum += float64(p.g.Weights[e])
			sums[e] = sum
		}
	}
	return sums
}

// uniform takes all of up to k edges, else k of them uniformly without
// replacement, in the order that Floyd's method draws them.
type uniform struct {
	key rng.Key
	chooser
}

func (u *uniform) start(_ ID, key rng.Key, hop int) { u.key = key.With(uint64(hop)) }

func (u *uniform) pick(to *group, v uint32, begin int64, d, k int) {
	if k < 0 || d <= k {
		to.all(begin, d)
		return
	}
	u.choose(to.extend(k), u.key.With(uint64(v)), begin, k, d)
}

// replace draws k edges independently, also from rows with fewer; a fan-out of
// -1 still takes every edge once.
type replace struct{ key rng.Key }

func (r *replace) start(_ ID, key rng.Key, hop int) { r.key = key.With(uint64(hop)) }

func (r *replace) pick(to *group, v uint32, begin int64, d, k int) {
	if k < 0 {
		to.all(begin, d)
		return
	}
	key := r.key.With(uint64(v))
	for i, dst := 0, to.extend(k); i < k; i++ {
		dst[i] = begin + int64(key.Uintn(uint64(i), uint64(d)))
	}
}

// weightedReplace draws k edges independently with probabilities in proportion
// to their weights, by inversion of the row's running sums.
type weightedReplace struct {
	key  rng.Key
	sums []float64
}

func (r *weightedReplace) start(_ ID, key rng.Key, hop int) { r.key = key.With(uint64(hop)) }

func (r *weightedReplace) pick(to *group, v uint32, begin int64, d, k int) {
	if k < 0 {
		to.all(begin, d)
		return
	}
	row := r.sums[begin : begin+int64(d)]
	total := row[d-1]
	if total == 0 {
		return
	}
	key := r.key.With(uint64(v))
	for i, dst := 0, to.extend(k); i < k; i++ {
		x := key.Float64(uint64(i)) * total
		// The first edge whose running sum exceeds x has a positive weight.
		// Rounding can take x up to total: then the last such edge.
		e := sort.Search(d, func(j int) bool { return row[j] > x })
		if e == d {
			e = sort.SearchFloat64s(row, total)
		}
		dst[i] = begin + int64(e)
	}
}

// weighted takes k edges without replacement in proportion to their weights: the
// k smallest of the exponential keys −ln(u_e)/w_e (Efraimidis and Spirakis,
// 2006), in the order of the graph. An edge of weight 0 is never taken, in no
// row; rows with at most k others are taken without it.
type weighted struct {
	key     rng.Key
	weights []float32
	best    smallest[float64]
}

func (w *weighted) start(_ ID, key rng.Key, hop int) { w.key = key.With(uint64(hop)) }

func (w *weighted) pick(to *group, v uint32, begin int64, d, k int) {
	row := w.weights[begin : begin+int64(d)]
	if k < 0 || d <= k {
		for i, x := range row {
			if x > 0 {
				to.pos = append(to.pos, begin+int64(i))
			}
		}
		return
	}
	key := w.key.With(uint64(v))
	w.best.reset(k)
	for i, x := range row {
		if x > 0 {
			w.best.offer(exponential(key.Uint64(uint64(i)))/float64(x), uint32(i))
		}
	}
	to.pos = w.best.appendTo(to.pos, begin)
}
