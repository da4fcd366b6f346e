package sampling

import (
	"fmt"
	"math"
	"sync"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

func prepareLazy(p *Prepared, _ *interrupt.Poll) error {
	if err := p.checkFanouts(); err != nil {
		return err
	}
	s := &p.spec
	if s.MiniBatch < 1 {
		return fmt.Errorf("mini-batches are of %d seeds; give mini-batch, at least 1: it cuts them out of mega-batches itself", s.MiniBatch)
	}
	if s.Recycle == 0 {
		s.Recycle = 2
	}
	if s.RecycleGrowth == 0 {
		s.RecycleGrowth = 1.1
	}
	if s.MegaBatch == 0 {
		s.MegaBatch = min(s.Recycle, math.MaxUint32/s.MiniBatch) * s.MiniBatch
	}
	if s.MegaBatch < s.MiniBatch {
		return fmt.Errorf("mega-batch=%d: that is less than a mini-batch, of %d seeds; it takes at least as many, like mega-batch=%d", s.MegaBatch, s.MiniBatch, 4*s.MiniBatch)
	}
	m := &megaBatches{p: p, train: p.data.Train, n: len(p.data.Train), made: make(map[int]*megaBatch)}
	if m.n == 0 {
		m.train, m.n = nil, p.g.NumNodes()
	}
	p.ownSeeds, p.mega, p.batches = true, m, NumBatches(m.n, s.MiniBatch)
	p.factory = func() Sampler { return &lazy{all: m, rows: p.newFused(nil, new(uniform))} }
	return nil
}

// megaBatches draws the mega-batches of "lazy". It is safe for concurrent use.
type megaBatches struct {
	p     *Prepared
	train []uint32 // what seeds are drawn from; nil: all nodes
	n     int      // how many those are

	mu   sync.Mutex
	made map[int]*megaBatch
}

// megaBatch is a sampled graph that several steps train on. Its local ids are those of
// a batch: seeds first. It is read-only once it is drawn.
type megaBatch struct {
	mu      sync.Mutex
	nodes   []uint32 // nil: it is not drawn
	seeds   int
	layers  []graph.Graph // by hop: rows of local ids
	edgeIDs [][]int64     // by hop; nil: not asked for
}

// keepMegaBatches bounds the memory: the one in use, the next, and one that late steps
// may still use.
const keepMegaBatches = 3

// at returns mega-batch k, and draws it unless that was done.
func (m *megaBatches) at(k int) (*megaBatch, error) {
	m.mu.Lock()
	b := m.made[k]
	if b == nil {
		b = new(megaBatch)
		m.made[k] = b
		for len(m.made) > keepMegaBatches {
			delete(m.made, farthest(m.made, k))
		}
	}
	m.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.nodes != nil {
		return b, nil
	}
	return b, m.draw(b, k)
}

// draw draws the seeds of mega-batch k, uniformly without replacement, and samples
// their neighbours.
func (m *megaBatches) draw(b *megaBatch, k int) error {
	p := m.p
	key := rng.New(p.seed, purposeLazy, uint64(k))
	size := min(p.spec.MegaBatch, m.n)
	at := make([]int64, size)
	if size < m.n {
		new(chooser).choose(at, key.With(0), 0, size, m.n)
	} else {
		for i := range at {
			at[i] = int64(i)
		}
	}
	seeds := make([]uint32, size)
	for i, j := range at {
		if seeds[i] = uint32(j); m.train != nil {
			seeds[i] = m.train[j]
		}
	}
	sampled := new(Batch)
	if err := p.newFused(p.spec.Fanouts, new(uniform)).Sample(sampled, key.With(1), seeds); err != nil {
		return err
	}
	b.layers, b.edgeIDs = nil, nil // what a panic left
	for hop := range p.spec.Fanouts {
		blk := &sampled.Blocks[len(p.spec.Fanouts)-1-hop]
		b.layers = append(b.layers, graph.Graph{Indptr: blk.Indptr, Indices: blk.Indices})
		b.edgeIDs = append(b.edgeIDs, blk.EdgeIDs)
	}
	b.seeds, b.nodes = size, append([]uint32{}, sampled.nodes...)
	return nil
}

// lazy is LazyGCN (Ramezani et al., 2020; docs/algorithms.md §3) over uniform neighbour
// sampling. Mega-batch k, M seeds drawn from the training nodes and their sampled
// neighbours, is sampled once and serves the next R_k = ⌊R₀·ρ^k⌋ steps of the run, over
// the ends of epochs. A step trains on a mini-batch of its seeds: they are gone through
// in a random order, again and again, each time in another one. What a mini-batch sees
// is its part of the mega-batch's graph.
type lazy struct {
	all  *megaBatches
	rows *fused // takes rows of the mega-batch as they are

	k     int // of the newest step
	begin int // its mega-batch's first step
	r     float64

	shuffled [2]int   // mega-batch and pass of order
	order    []uint32 // of the mega-batch's seeds, as local ids
}

// serves returns the mega-batch of a step of the run, and the step's number there.
func (l *lazy) serves(step int) (k, r int) {
	s := &l.all.p.spec
	if l.r == 0 || step < l.begin {
		l.k, l.begin, l.r = 0, 0, float64(s.Recycle)
	}
	if s.RecycleGrowth == 1 {
		return step / s.Recycle, step % s.Recycle
	}
	for step-l.begin >= int(l.r) {
		l.k, l.begin, l.r = l.k+1, l.begin+int(l.r), min(l.r*s.RecycleGrowth, math.MaxInt32)
	}
	return l.k, step - l.begin
}

// seeds returns the micro-batch's seeds in mega-batch b, which is number k, as local
// ids; r is the number of the step there.
func (l *lazy) seeds(id ID, b *megaBatch, k, r int) []uint32 {
	mini := l.all.p.spec.MiniBatch
	batches := NumBatches(b.seeds, mini)
	if batches == 0 {
		return nil
	}
	if now := [2]int{k, r / batches}; now != l.shuffled || len(l.order) != b.seeds {
		l.order = resize(l.order, b.seeds)
		rng.New(l.all.p.seed, purposeLazy, uint64(k)).With(2).With(uint64(now[1])).Perm(l.order)
		l.shuffled = now
	}
	i := r % batches
	if id.Micro >= NumMicro(b.seeds, mini, max(id.Of, 1), i) { // the last mini-batch may have fewer seeds
		return nil
	}
	return Cut(l.order, mini, max(id.Of, 1), i, id.Micro)
}

// Sample implements Sampler; the seeds given are not used.
func (l *lazy) Sample(b *Batch, _ rng.Key, _ []uint32) error {
	k, r := l.serves(b.ID.Epoch*l.all.p.batches + b.ID.Batch)
	m, err := l.all.at(k)
	if err != nil {
		return err
	}
	seeds := l.seeds(b.ID, m, k, r)
	s := l.rows
	s.ids.clear()
	b.start(len(m.layers))
	if b.nodes, err = s.ids.seed(seeds, b.nodes, m.seeds); err != nil {
		return err
	}
	for hop := range m.layers {
		i := len(m.layers) - 1 - hop
		s.g = &m.layers[hop]
		s.layer(b, i, -1)
		for e, at := range b.Blocks[i].EdgeIDs {
			b.Blocks[i].EdgeIDs[e] = m.edgeIDs[hop][at]
		}
	}
	for i, u := range b.nodes {
		b.nodes[i] = m.nodes[u]
	}
	finish(b, len(seeds))
	return nil
}
