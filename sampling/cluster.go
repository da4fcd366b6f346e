package sampling

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"github.com/gnnactor/gnnactor/graph/partition"
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
	if p.partition == nil {
		if saved := p.data.Partition(s.PartitionBy, s.Clusters); saved != nil {
			p.partition, s.PartitionBy, s.Clusters = saved.Cluster, saved.Method, saved.Parts
		}
	}
	if s.Clusters < 1 || s.Clusters > maxClusters || s.PerBatch < 1 || s.PerBatch > s.Clusters {
		return fmt.Errorf("batches of %d out of %d clusters; give the number of clusters, or save a partition with the data, and take at least 1 and at most all of them a batch", s.PerBatch, s.Clusters)
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
	newDrawer := func() drawer {
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
		return &boundary{nodes: p.newSubgraphs(newDrawer()), hops: p.newFused(fanouts, new(uniform))}
	}
	return nil
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

func (c *clusters) draw(s *nodeSet, id ID, _ rng.Key) {
	if c.order == nil || c.epoch != id.Epoch {
		c.epoch = id.Epoch
		c.order = resize(c.order, len(c.start)-1)
		rng.New(c.seed, purposeClusters, uint64(id.Epoch)).Perm(c.order)
	}
	if len(c.order) == 0 {
		return
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
}

// boundary samples cluster-batches whose targets see all their neighbours,
// those outside of the clusters too, L hops out.
type boundary struct {
	nodes *subgraphs
	hops  *fused
	seeds []uint32
}

// Sample implements Sampler; seeds are not used.
func (s *boundary) Sample(b *Batch, key rng.Key, _ []uint32) error {
	s.nodes.nodes(b.ID, key)
	s.seeds = s.seeds[:0]
	train := s.nodes.p.train
	for _, u := range s.nodes.set.nodes {
		if train == nil || train[u/64]>>(u%64)&1 != 0 {
			s.seeds = append(s.seeds, u)
		}
	}
	return s.hops.Sample(b, key, s.seeds)
}
