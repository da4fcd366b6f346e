package sampling

import (
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/internal/rng"
)

func prepareLazy(p *Prepared) error {
	if err := p.checkFanouts(); err != nil {
		return err
	}
	s := &p.spec
	if s.Recycle == 0 {
		s.Recycle = 2
	}
	if s.RecycleGrowth == 0 {
		s.RecycleGrowth = 1.1
	}
	if s.Recycle < 1 || !(s.RecycleGrowth >= 1) || math.IsInf(s.RecycleGrowth, 1) {
		return fmt.Errorf("a mega-batch serves %d batches, growing by %v; both must be at least 1", s.Recycle, s.RecycleGrowth)
	}
	p.factory = func() Sampler {
		return p.newFused(s.Fanouts, &lazy{seed: p.seed, recycle: s.Recycle, growth: s.RecycleGrowth})
	}
	return nil
}

// lazy is LazyGCN (Ramezani et al., 2020) over neighbour sampling: the graph of
// a mega-batch is sampled once and serves the R batches that it consists of; R
// grows by ρ from epoch to epoch, rounded down, and mega-batches do not cross
// epochs. A node's neighbours in that graph are a pure function of the
// mega-batch's key, so it is not stored: each batch samples its part of it, and
// parts of one mega-batch agree wherever they meet.
type lazy struct {
	seed    uint64
	recycle int
	growth  float64
	uniform
}

func (l *lazy) start(id ID, _ rng.Key, hop int) {
	r := float64(l.recycle)
	for range id.Epoch { // not math.Pow, which differs between machines
		if r = min(r*l.growth, 1e9); r == 1e9 || l.growth == 1 {
			break
		}
	}
	l.uniform.start(id, rng.New(l.seed, purposeLazy, uint64(id.Epoch), uint64(id.Batch/int(r))), hop)
}
