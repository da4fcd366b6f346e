package sampling

import (
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

// drawer draws the nodes of a subgraph into the empty set s. It belongs to one
// sampler.
type drawer interface {
	draw(s *nodeSet, id ID, key rng.Key) error
}

// subgraphs samples node-induced subgraphs (Zeng et al.): one square block used
// in every layer, its nodes in increasing order, its rows sorted. The seeds
// given are not used: a batch's seeds are the training nodes of its subgraph,
// or all its nodes when the data has no training nodes.
type subgraphs struct {
	p       *Prepared
	drawer  drawer
	set     *nodeSet
	inducer inducer
	asker   *asker // of a divided graph
}

func (s *subgraphs) asks() *asker { return s.asker }

// normalization holds GraphSAINT's estimates over the subgraphs that were
// sampled beforehand.
type normalization struct {
	loss []float32 // per node: N/C_v
	edge []float32 // per edge: C_v/C_uv, capped
}

const maxEdgeWeight = 1e4

// prepareSubgraph finishes the preparation of a subgraph sampler.
func (p *Prepared) prepareSubgraph(stop *interrupt.Poll, newDrawer func(a *asker) drawer) error {
	s := &p.spec
	if s.Layers < 1 {
		return fmt.Errorf("give the number of layers")
	}
	if s.EpochSubgraphs < 0 {
		return fmt.Errorf("epoch-subgraphs must not be negative")
	}
	newSampler := func() *subgraphs {
		a := p.newAsker()
		return p.newSubgraphs(newDrawer(a), a)
	}
	p.ownSeeds = true
	if len(p.data.Train) > 0 {
		p.train = make([]uint64, (p.g.NumNodes()+63)/64)
		for _, u := range p.data.Train {
			p.train[u/64] |= 1 << (u % 64)
		}
	}
	p.factory = func() Sampler { return newSampler() }
	first, mean := newSampler(), 0.0
	if first.asker != nil {
		first.asker.ctx = stop.Context()
	}
	var err error
	if s.Normalization > 0 {
		if p.norm, mean, err = p.normalize(stop, first, s.Normalization); err != nil {
			return err
		}
	}
	if s.EpochSubgraphs == 0 && p.batches == 0 {
		if p.norm == nil {
			if mean, err = first.beforehand(stop, measured, func() error { return nil }); err != nil {
				return err
			}
		}
		s.EpochSubgraphs = max(1, int(math.Ceil(float64(p.numVisible())/math.Max(mean, 1))))
	}
	return nil
}

// measured is how many subgraphs are drawn beforehand to know their mean size.
const measured = 20

// beforehand draws the nodes of n subgraphs keyed by (seed, i), calls visit for each, and
// returns the mean number of nodes.
func (s *subgraphs) beforehand(stop *interrupt.Poll, n int, visit func() error) (mean float64, err error) {
	total := 0
	for i := range n {
		if stop.Err() != nil {
			break
		}
		if err := s.nodes(ID{Phase: "norm", Batch: i}, rng.New(s.p.seed, purposeNorm, uint64(i))); err != nil {
			return 0, err
		}
		total += len(s.set.nodes)
		if err := visit(); err != nil {
			return 0, err
		}
	}
	return float64(total) / float64(n), nil
}

func (p *Prepared) newSubgraphs(d drawer, a *asker) *subgraphs {
	return &subgraphs{
		p: p, drawer: d, set: newNodeSet(p.g.NumNodes(), bitsLimit), asker: a,
		inducer: inducer{g: p.g, edgeIDs: p.edgeIDs()},
	}
}

// induce writes the rows of the drawn nodes, which are sorted, to out.
func (s *subgraphs) induce(id ID, out *block) error {
	if s.asker != nil {
		return s.asker.induce(s.set, id, out)
	}
	s.inducer.induce(s.set, out)
	return nil
}

// Sample implements Sampler; seeds are not used.
func (s *subgraphs) Sample(b *Batch, key rng.Key, _ []uint32) error {
	if err := s.nodes(b.ID, key); err != nil {
		return err
	}
	b.start(s.p.spec.Layers)
	out := &b.scratch[0]
	s.inducer.edgeIDs = s.p.edgeIDs() || s.p.norm != nil
	if err := s.induce(b.ID, out); err != nil {
		return err
	}
	b.nodes = append(reserve(b.nodes, len(s.set.nodes)), s.set.nodes...)
	blk := graph.Block{NumDst: len(b.nodes), NumSrc: len(b.nodes), Indptr: out.indptr, Indices: out.indices, SrcIDs: b.nodes}
	if s.p.norm != nil {
		out.weights = resize(out.weights, len(out.indices))
		s.weigh(&blk, out)
		blk.Weights = out.weights
	}
	if s.p.edgeIDs() {
		blk.EdgeIDs = out.edgeIDs
	}
	for i := range b.Blocks {
		b.Blocks[i] = blk
	}
	s.targets(b)
	return nil
}

// nodes draws and clips the nodes.
func (s *subgraphs) nodes(id ID, key rng.Key) error {
	s.set.clear()
	if err := s.drawer.draw(s.set, id, key.With(0)); err != nil {
		return err
	}
	s.set.clip(s.p.spec.Clip, key.With(1))
	s.set.sort()
	return nil
}

// targets sets the batch's seeds, with the weights of their losses.
func (s *subgraphs) targets(b *Batch) {
	b.targets, b.loss, b.seeds = b.targets[:0], b.loss[:0], b.seeds[:0]
	for i, u := range b.nodes {
		if s.p.train == nil || s.p.train[u/64]>>(u%64)&1 != 0 {
			b.seeds = append(b.seeds, u)
			b.targets = append(b.targets, uint32(i))
			if s.p.norm != nil {
				b.loss = append(b.loss, s.p.norm.loss[u])
			}
		}
	}
	b.Seeds, b.Targets = b.seeds, b.targets
	if s.p.norm != nil {
		b.LossWeights = b.loss
	}
}

// weigh sets the entries' weights to (C_v/C_uv)·|S(v)|/d(v): the sum over a
// row weighted by C_v/C_uv estimates the sum over N(v), and a block's weights are
// those of a mean.
func (s *subgraphs) weigh(blk *graph.Block, out *block) {
	for r, v := range blk.SrcIDs {
		begin, end := out.indptr[r], out.indptr[r+1]
		scale := float64(end-begin) / float64(max(1, s.p.g.Degree(v)))
		for e := begin; e < end; e++ {
			out.weights[e] = float32(float64(s.p.norm.edge[out.edgeIDs[e]]) * scale)
		}
	}
}

// normalize counts, over n subgraphs, how often each node and each edge occurs, and
// returns their mean number of nodes, too. A count of 0 is taken as 0.1.
func (p *Prepared) normalize(stop *interrupt.Poll, s *subgraphs, n int) (norm *normalization, mean float64, err error) {
	nodes := make([]uint32, p.g.NumNodes())
	edges := make([]uint32, p.g.NumEdges())
	s.inducer.edgeIDs = true
	var out block
	mean, err = s.beforehand(stop, n, func() error {
		s.inducer.induce(s.set, &out)
		for _, u := range s.set.nodes {
			nodes[u]++
		}
		for _, e := range out.edgeIDs {
			edges[e]++
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	norm = &normalization{loss: make([]float32, len(nodes)), edge: make([]float32, len(edges))}
	count := func(c uint32) float64 { return math.Max(float64(c), 0.1) }
	for v, c := range nodes {
		if stop.Ended() {
			break
		}
		norm.loss[v] = float32(float64(n) / count(c))
		for e := p.g.Indptr[v]; e < p.g.Indptr[v+1]; e++ {
			norm.edge[e] = float32(min(count(c)/count(edges[e]), maxEdgeWeight))
		}
	}
	return norm, mean, nil
}
