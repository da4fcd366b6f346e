package sampling

import (
	"math"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

func prepareLabor(p *Prepared, _ *interrupt.Poll) error {
	if err := p.checkFanouts(); err != nil {
		return err
	}
	p.factory = func() Sampler {
		if p.here != nil {
			return p.newDivided(len(p.spec.Fanouts), WantDrawn)
		}
		f := p.newFused(p.spec.Fanouts, &labor{g: p.g, rows: p.rows, seed: p.seed, dependency: p.spec.Dependency})
		f.scans = unsafe.SliceData(p.g.Indices)
		return f
	}
	return nil
}

// labor is LABOR-0 (Balın and Çatalyürek, "Layer-neighbor sampling", 2023) in
// its sequential Poisson variant: every source t has one r_t in (0, 1) per
// batch and layer, shared by all destinations, and a destination keeps the k of
// its edges whose sources have the smallest, in the order of the graph; r_t is
// hash32(t), a bijection, so that different sources never tie. With a
// batch dependency of κ, r_t stays as it is over batches iκ to (i+1)κ-1 of an
// epoch, and over their micro-batches.
type labor struct {
	g          *graph.Graph
	rows       *Rows    // that have the sources' ids in the whole graph; nil: they have them
	named      []uint32 // a row's sources, by those
	seed       uint64
	dependency int
	key        rng.Key
	best       smallest[uint32]
	hits       []uint32
	all        [leastLimit]uint32 // the hits, while they are selected from
	hashes     []uint32           // of the hits, for kernels
}

func (l *labor) start(id ID, key rng.Key, hop int) {
	if l.dependency > 1 {
		key = rng.New(l.seed, purposeLabor, uint64(id.Epoch), uint64(id.Batch/l.dependency))
	}
	l.key = key.With(uint64(hop))
}

func (l *labor) pick(to *group, _ uint32, begin int64, d, k int) {
	if k < 0 || d <= k {
		to.all(begin, d)
		return
	}
	row := l.g.Indices[begin : begin+int64(d)]
	if l.rows != nil {
		l.named = resize(l.named, d)
		l.rows.name(l.named, row)
		row = l.named
	}
	k1, k2 := halves(l.key)
	// About k of the r_t are below k/d. A limit a few deviations above it leaves
	// little to select from; should it ever let too few pass, all count.
	limit := uint32(math.MaxUint32)
	if want := float64(k) + 3*math.Sqrt(float64(k)) + 3; want < 0.75*float64(d) {
		limit = uint32(want / float64(d) * 0x1p32)
	}
	hits := l.below(row, k1, k2, limit)
	if hits < k {
		hits = l.below(row, k1, k2, math.MaxUint32)
	}
	kept := l.least(row, hits, k, k1, k2)
	dst := to.extend(k)
	for i, h := range kept[:k] {
		dst[i] = begin + int64(h)
	}
}

const (
	hitSlack   = 16  // what kernels may write and read past the last hit
	leastLimit = 128 // hits up to which comparing all with all beats a heap
)

// below puts the positions in row of at least those entries whose hash is at most
// limit into the hits, and returns how many there are.
func (l *labor) below(row []uint32, k1, k2, limit uint32) int {
	l.hits = resize(l.hits, len(row)+hitSlack)
	l.hashes = resize(l.hashes, len(row)+hitSlack)
	if simd512 {
		return below512(l.hits, l.hashes, row, k1, k2, limit)
	}
	return below(l.hits, row, k1, k2, limit)
}

// least returns the k positions among the first n hits whose sources have the
// smallest r_t, in increasing order. Parallel edges have the same, and the
// earlier ones stay. It changes the hits.
func (l *labor) least(row []uint32, n, k int, k1, k2 uint32) []uint32 {
	if n == k {
		return l.hits[:k]
	}
	if simd && n <= leastLimit {
		copy(l.all[:], l.hits[:n])
		kept := 0
		if simd512 {
			kept = leastAVX512(&l.hits[0], &l.hashes[0], n, k)
		} else {
			clear(l.hits[n : n+8]) // valid positions
			kept = leastAVX2(&l.hits[0], &l.hashes[0], &row[0], n, k, k1, k2)
		}
		if kept == k {
			return l.hits[:k]
		}
		copy(l.hits, l.all[:n])
	}
	l.best.reset(k)
	for _, i := range l.hits[:n] {
		l.best.offer(hash32(row[i], k1, k2), i)
	}
	return l.best.sorted()
}
