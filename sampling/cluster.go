package sampling

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/partition"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

// WithPartition gives "cluster" a partition made before: the cluster of every
// node. It is not copied. The Spec keeps its hash.
func WithPartition(part []uint32) Option { return func(p *Prepared) { p.partition = part } }

// Partition returns the cluster of every node that "cluster" samples by, nil for
// other samplers. It is there to be saved; WithPartition takes it back.
func (p *Prepared) Partition() []uint32 { return p.partition }

// maxClusters bounds the number of clusters, whose numbers are uint32.
const maxClusters = math.MaxInt32

func prepareCluster(p *Prepared, stop *interrupt.Poll) error {
	s := &p.spec
	n := p.g.NumNodes()
	if s.PerBatch == 0 {
		s.PerBatch = 1
	}
	if p.here != nil {
		if err := p.dividedClusters(stop); err != nil {
			return err
		}
	}
	if p.partition == nil {
		if saved := p.data.Partition(s.PartitionBy, s.Clusters); saved != nil {
			p.partition, s.PartitionBy, s.Clusters = saved.Cluster, saved.Method, saved.Parts
		}
	}
	if s.Clusters < 1 || s.Clusters > maxClusters || s.PerBatch < 1 || s.PerBatch > s.Clusters {
		return fmt.Errorf("batches of %d out of %d clusters; give how many there are, like clusters=1000, or save a partition with the data ('gnnactor partition'), and per-batch=20 for those of a batch, at most all", s.PerBatch, s.Clusters)
	}
	if s.PartitionBy == "" {
		s.PartitionBy = "metis"
	}
	if p.partition == nil {
		part, err := partition.Compute(stop.Context(), p.compact(), s.PartitionBy, s.Clusters, p.seed)
		if err != nil {
			return err
		}
		if p.partition = part; p.visible != nil { // others are in no batch
			p.partition = make([]uint32, n)
			for i, u := range p.visible {
				p.partition[u] = part[i]
			}
		}
	}
	if len(p.partition) != n {
		return fmt.Errorf("the partition has %d nodes, the graph %d", len(p.partition), n)
	}
	if sum := partitionSum(p.partition); s.PartitionSHA256 == "" {
		s.PartitionSHA256 = sum
	} else if s.PartitionSHA256 != sum {
		return fmt.Errorf("the partition has the SHA-256 %s, not %s as asked for; restore that one, or leave partition-sha256 away", sum, s.PartitionSHA256)
	}
	size := make([]int64, s.Clusters)
	for i := range p.numVisible() {
		v := p.node(i)
		c := p.partition[v]
		if int(c) >= s.Clusters {
			return fmt.Errorf("the partition puts node %d into cluster %d; there are %d", v, c, s.Clusters)
		}
		size[c]++
	}
	// Louvain may find fewer communities than clusters were asked for: those
	// without nodes are left out, lest batches be empty.
	c := &clusters{seed: p.seed, perBatch: s.PerBatch, members: make([]uint32, p.numVisible())}
	at := make([]int64, s.Clusters)
	begin := int64(0)
	for k, nodes := range size {
		at[k] = begin
		if nodes > 0 {
			c.start = append(c.start, begin)
		}
		begin += nodes
	}
	c.start = slices.Clip(append(c.start, begin))
	for i := range c.members {
		v := p.node(i)
		k := p.partition[v]
		c.members[at[k]] = v
		at[k]++
	}
	p.batches = max((len(c.start)-1+s.PerBatch-1)/s.PerBatch, 1)
	newDrawer := func(*asker) drawer {
		own := *c
		return &own
	}
	if err := p.prepareSubgraph(stop, newDrawer); err != nil {
		return err
	}
	if !s.Boundary {
		return nil
	}
	if s.Normalization > 0 || s.Clip > 0 {
		return fmt.Errorf("with boundary neighbours nothing is left out: normalization and clip do not apply")
	}
	fanouts := make([]int, s.Layers)
	for i := range fanouts {
		fanouts[i] = -1
	}
	p.factory = func() Sampler {
		b := &boundary{nodes: p.newSubgraphs(newDrawer(nil), nil)}
		if p.here != nil {
			hops := p.newDivided(s.Layers, WantAll)
			b.hops, b.asker = hops, hops.asker
		} else {
			b.hops = p.newFused(fanouts, new(uniform))
		}
		return b
	}
	return nil
}

// byPieces is the partition into the pieces of a divided graph, or finer: each piece has a cluster, and its share of those that are left, into which it is
// divided by METIS's method without the edges that cross its border.
const byPieces = "pieces"

// dividedClusters finds the partition of a divided graph.
func (p *Prepared) dividedClusters(stop *interrupt.Poll) (err error) {
	s := &p.spec
	switch s.PartitionBy {
	case "", byPieces:
		s.PartitionBy, s.Clusters = byPieces, s.dividedInto(p.here.borders)
		p.partition, err = gathered[uint32](stop.Context(), p.here, columnClusters)
	default: // which look at no edge
		p.partition, err = partition.Compute(stop.Context(), p.g, s.PartitionBy, s.Clusters, p.seed)
	}
	return err
}

// dividedInto returns into how many clusters "pieces" divides a graph.
func (s *Spec) dividedInto(b pieces.Borders) int {
	if s.Clusters == 0 {
		return len(b) - 1
	}
	return s.Clusters
}

// clusters returns the cluster of each of the rows' own nodes by "pieces", little-endian.
func (d *drawers) clusters(ctx context.Context, owner int, all *Drawers) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clustered != nil {
		return d.clustered, nil
	}
	b, own := all.borders, d.Graph.NumNodes()
	rest := uint64(all.spec.dividedInto(b) - (len(b) - 1))
	share := func(v uint32) int { return int(rest * uint64(v) / uint64(max(b.Nodes(), 1))) }
	first, count := owner+share(b[owner]), 1+share(b[owner+1])-share(b[owner])
	part := make([]uint32, own)
	if count = min(count, max(own, 1)); count > 1 {
		inner := &graph.Graph{Indptr: make([]int64, 1, own+1)}
		for v := range own {
			for _, u := range d.Graph.InNeighbors(uint32(v)) {
				if int(u) < own {
					inner.Indices = append(inner.Indices, u)
				}
			}
			inner.Indptr = append(inner.Indptr, int64(len(inner.Indices)))
		}
		var err error
		if part, err = partition.Compute(ctx, inner, "metis", count, all.seed); err != nil {
			return nil, err
		}
	}
	d.clustered = make([]byte, 0, 4*own)
	for _, c := range part {
		d.clustered = binary.LittleEndian.AppendUint32(d.clustered, uint32(first)+c)
	}
	return d.clustered, nil
}

// partitionSum returns the SHA-256 of the clusters' numbers, in hex.
func partitionSum(part []uint32) string {
	h := sha256.New()
	buf := make([]byte, 0, 1<<14)
	for _, c := range part {
		if buf = binary.LittleEndian.AppendUint32(buf, c); len(buf) == cap(buf) {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	h.Write(buf)
	return hex.EncodeToString(h.Sum(nil))
}

// clusters draws the nodes of cluster-batches (GraphTheta): an epoch visits the
// clusters in a random order, perBatch of them a batch, the rest in the last.
type clusters struct {
	seed     uint64
	perBatch int
	start    []int64 // cluster c, of those with nodes, has members[start[c]:start[c+1]]
	members  []uint32

	epoch int
	order []uint32 // of epoch
}

func (c *clusters) draw(s *nodeSet, id ID, _ rng.Key) error {
	if c.order == nil || c.epoch != id.Epoch {
		c.epoch = id.Epoch
		c.order = resize(c.order, len(c.start)-1)
		rng.New(c.seed, purposeClusters, uint64(id.Epoch)).Perm(c.order)
	}
	if len(c.order) == 0 {
		return nil
	}
	batches := (len(c.order) + c.perBatch - 1) / c.perBatch
	lo := id.Batch % batches * c.perBatch
	mine := c.order[lo:min(lo+c.perBatch, len(c.order))]
	for i, k := range mine {
		// A batch that is cut into micro-batches has its clusters dealt out.
		if id.Of > 1 && i%id.Of != id.Micro {
			continue
		}
		for _, u := range c.members[c.start[k]:c.start[k+1]] {
			s.add(u)
		}
	}
	return nil
}

// boundary samples cluster-batches whose targets see all their neighbours,
// those outside of the clusters too, L hops out.
type boundary struct {
	nodes *subgraphs
	hops  Sampler
	asker *asker // of hops, where the graph is divided
	seeds []uint32
}

func (s *boundary) asks() *asker { return s.asker }

// Sample implements Sampler; seeds are not used.
func (s *boundary) Sample(b *Batch, key rng.Key, _ []uint32) error {
	if err := s.nodes.nodes(b.ID, key); err != nil {
		return err
	}
	s.seeds = s.seeds[:0]
	train := s.nodes.p.train
	for _, u := range s.nodes.set.nodes {
		if train == nil || train[u/64]>>(u%64)&1 != 0 {
			s.seeds = append(s.seeds, u)
		}
	}
	return s.hops.Sample(b, key, s.seeds)
}
