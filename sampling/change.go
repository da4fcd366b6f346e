package sampling

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
)

// Own has b's arrays lie in b's own memory, each for itself: those that are a graph's,
// a sampler's or another block's are copied. Only the blocks' SrcIDs stay prefixes of one
// list. What b is then made of may be changed in place. b must be one that Check finds
// right.
func (b *Batch) Own() {
	b.layers(len(b.Blocks))
	for i := range b.Blocks {
		k, s := &b.Blocks[i], &b.scratch[i]
		s.indptr, s.indices = owned(s.indptr, k.Indptr), owned(s.indices, k.Indices)
		k.Indptr, k.Indices = s.indptr, s.indices
		if k.Weights != nil {
			s.weights = owned(s.weights, k.Weights)
			k.Weights = s.weights
		}
		if k.EdgeIDs != nil {
			s.edgeIDs = owned(s.edgeIDs, k.EdgeIDs)
			k.EdgeIDs = s.edgeIDs
		}
	}
	b.seeds = owned(b.seeds, b.Seeds)
	b.Seeds = b.seeds
	if b.Targets != nil {
		b.targets = owned(b.targets, b.Targets)
		b.Targets = b.targets
	}
	if b.LossWeights != nil {
		b.loss = owned(b.loss, b.LossWeights)
		b.LossWeights = b.loss
	}
	if b.Positive != nil {
		b.positive = owned(b.positive, b.Positive)
		b.Positive = b.positive
	}
	if ids := b.Inputs(); ids != nil {
		b.nodes = owned(b.nodes, ids)
		for i := range b.Blocks {
			n := b.Blocks[i].NumSrc
			b.Blocks[i].SrcIDs = b.nodes[:n:n]
		}
	}
}

// owned returns what x holds in the memory of mine.
func owned[T any](mine, x []T) []T {
	if len(x) == 0 {
		return slices.Grow(mine[:0], 1) // not nil
	}
	mine = resize(mine, len(x))
	if unsafe.SliceData(mine) != unsafe.SliceData(x) {
		copy(mine, x)
	}
	return mine
}

// KeepSeeds leaves those of b's seeds with their loss for which keep is true; i counts
// them. The nodes stay in the blocks: others may need them.
func (b *Batch) KeepSeeds(keep func(i int, seed uint32) bool) {
	seeds, targets, weights, positive := b.seeds[:0], b.targets[:0], b.loss[:0], b.positive[:0]
	for i, v := range b.Seeds {
		if !keep(i, v) {
			continue
		}
		row := uint32(i)
		if b.Targets != nil {
			row = b.Targets[i]
		}
		seeds, targets = append(seeds, v), append(targets, row) // never ahead of what is read
		if b.LossWeights != nil {
			weights = append(weights, b.LossWeights[i])
		}
		if b.Positive != nil {
			positive = append(positive, b.Positive[i])
		}
	}
	b.seeds, b.targets = seeds, targets
	b.Seeds, b.Targets = seeds, slices.Grow(targets, 1)
	if b.LossWeights != nil {
		b.loss, b.LossWeights = weights, slices.Grow(weights, 1)
	}
	if b.Positive != nil {
		b.positive, b.Positive = positive, slices.Grow(positive, 1)
	}
}

// Check reports what does not fit together in b: blocks that do not follow each other,
// ids outside of them, seeds without a row. What passes can be computed without bounds
// errors, save that ids of nodes and edges still have to be checked against the graph.
func (b *Batch) Check() error {
	if len(b.Blocks) == 0 {
		return fmt.Errorf("it has no block")
	}
	nodes := b.Inputs()
	for i := range b.Blocks {
		k := &b.Blocks[i]
		if err := k.Check(); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
		if i > 0 && b.Blocks[i-1].NumDst != k.NumSrc {
			return fmt.Errorf("block %d: %d sources but the block before has %d destinations", i, k.NumSrc, b.Blocks[i-1].NumDst)
		}
		if (k.SrcIDs == nil) != (nodes == nil) || !same(k.SrcIDs, nodes) {
			return fmt.Errorf("block %d: its sources are not the first of block 0's", i)
		}
	}
	out := b.Blocks[len(b.Blocks)-1].NumDst
	if b.Targets == nil && len(b.Seeds) > out {
		return fmt.Errorf("%d seeds but %d outputs", len(b.Seeds), out)
	}
	if b.Targets != nil && len(b.Targets) != len(b.Seeds) {
		return fmt.Errorf("%d targets for %d seeds", len(b.Targets), len(b.Seeds))
	}
	for i, t := range b.Targets {
		if int64(t) >= int64(out) {
			return fmt.Errorf("target %d is row %d of %d", i, t, out)
		}
	}
	if b.LossWeights != nil && len(b.LossWeights) != len(b.Seeds) {
		return fmt.Errorf("%d loss weights for %d seeds", len(b.LossWeights), len(b.Seeds))
	}
	if b.Positive != nil && (len(b.Positive) != len(b.Seeds) || b.Targets == nil || len(b.Seeds)%2 != 0) {
		return fmt.Errorf("%d ends of links, which are two each, with %d targets, and %d of which it says whether they are joined", len(b.Seeds), len(b.Targets), len(b.Positive))
	}
	for i := 0; i < len(b.Positive); i += 2 {
		if b.Positive[i] != b.Positive[i+1] {
			return fmt.Errorf("of link %d only one end is said to be joined", i/2)
		}
	}
	return nil
}

// same reports whether x is the beginning of all.
func same(x, all []uint32) bool {
	return len(x) == 0 || unsafe.SliceData(x) == unsafe.SliceData(all) || slices.Equal(x, all[:len(x)])
}

// CheckOf is Check, and reports ids that g does not have, seeds that are not the node
// of their row, and, if they are to be distinct, those that are there twice.
func (b *Batch) CheckOf(g *graph.Graph, distinct bool) error {
	if err := b.Check(); err != nil {
		return err
	}
	n, nodes := g.NumNodes(), b.Inputs()
	if nodes == nil && b.NumInputs() != n && b.NumInputs() > 0 {
		return fmt.Errorf("block 0 names no sources, and has %d of %d nodes", b.NumInputs(), n)
	}
	if u := largest(nodes); len(nodes) > 0 && int64(u) >= int64(n) {
		return fmt.Errorf("node %d is out of range [0, %d)", u, n)
	}
	for i := range b.Blocks {
		for e, id := range b.Blocks[i].EdgeIDs {
			if id < 0 || id >= g.NumEdges() {
				return fmt.Errorf("block %d: entry %d is edge %d of %d", i, e, id, g.NumEdges())
			}
		}
	}
	b.seen = resize(b.seen, b.Blocks[len(b.Blocks)-1].NumDst)
	clear(b.seen)
	for i, v := range b.Seeds {
		row := uint32(i)
		if b.Targets != nil {
			row = b.Targets[i]
		}
		if distinct && b.seen[row] {
			return fmt.Errorf("seed %d is there twice", v)
		}
		b.seen[row] = true
		if nodes != nil {
			row = nodes[row]
		}
		if row != v {
			return fmt.Errorf("seed %d is node %d, and its output that of node %d", i, v, row)
		}
	}
	return nil
}
