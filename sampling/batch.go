package sampling

import (
	"slices"

	"github.com/gnnactor/gnnactor/graph"
)

// Batch is one sampled micro-batch. Its memory is reused: who holds it owns it
// until it is released to the pool it came from. The exported fields are all
// there is to a batch; a decoder may fill them with memory of its own, or take
// memory from Nodes and Block.
type Batch struct {
	ID     ID
	Seeds  []uint32      // the nodes that carry loss, global ids
	Blocks []graph.Block // Blocks[0] is the input layer, the last one the output layer
	// Targets are the rows of the last block's destinations that belong to
	// Seeds; nil: row i belongs to Seeds[i].
	Targets []uint32
	// LossWeights weight each seed's loss; nil: all 1.
	LossWeights []float32
	// Positive says, in link prediction, whether an edge joins the two seeds that follow each other, at both of them;
	// nil: the seeds are no ends of links.
	Positive []bool
	// There is what a device that sampled the batch has of its Blocks, as compute.Input wants
	// it. Who changes Blocks sets it to nil.
	There any

	spent    any
	nodes    []uint32 // backs SrcIDs of every block: layers are prefixes of it
	seeds    []uint32 // backs Seeds where they are not the first nodes
	targets  []uint32
	loss     []float32
	positive []bool
	seen     []bool  // scratch of CheckOf
	scratch  []block // backs the blocks' own arrays, kept between uses
}

// block is the reusable memory behind one graph.Block.
type block struct {
	indptr  []int64
	indices []uint32
	weights []float32
	edgeIDs []int64
}

// Reset empties b and keeps the memory that it owns for the next use.
func (b *Batch) Reset() {
	if b.There != nil {
		b.spent = b.There
	}
	clear(b.Blocks)
	b.ID, b.Seeds, b.Blocks, b.Targets, b.LossWeights, b.Positive, b.There = ID{}, nil, b.Blocks[:0], nil, nil, nil, nil
}

// Spent returns the last There that b had before Reset: a device draws to that memory again.
func (b *Batch) Spent() any { return b.spent }

// Inputs returns the global ids of the nodes whose features the batch needs,
// or nil when it needs every node's, in order.
func (b *Batch) Inputs() []uint32 { return b.Blocks[0].SrcIDs }

// NumInputs returns how many nodes' features the batch needs.
func (b *Batch) NumInputs() int { return b.Blocks[0].NumSrc }

// NumEdges returns the number of entries of all blocks.
func (b *Batch) NumEdges() int {
	n := 0
	for i := range b.Blocks {
		n += b.Blocks[i].NumEdges()
	}
	return n
}

// Nodes returns n values, undefined, of the memory that b owns for node ids;
// it is there for decoders, to point Seeds and the blocks' SrcIDs at.
func (b *Batch) Nodes(n int) []uint32 {
	b.nodes = resize(b.nodes, n)
	return b.nodes
}

// Block sets b.Blocks[i] to a block of the given size whose arrays, undefined,
// lie in the memory that b owns, and returns it; it is there for decoders.
// SrcIDs is left nil.
func (b *Batch) Block(i, numDst, numSrc, numEdges int, weights, edgeIDs bool) *graph.Block {
	b.layers(max(i+1, len(b.Blocks)))
	s := &b.scratch[i]
	s.indptr, s.indices = resize(s.indptr, numDst+1), resize(s.indices, numEdges)
	blk := graph.Block{NumDst: numDst, NumSrc: numSrc, Indptr: s.indptr, Indices: s.indices}
	if weights {
		s.weights = resize(s.weights, numEdges)
		blk.Weights = s.weights
	}
	if edgeIDs {
		s.edgeIDs = resize(s.edgeIDs, numEdges)
		blk.EdgeIDs = s.edgeIDs
	}
	b.Blocks[i] = blk
	return &b.Blocks[i]
}

// SetTargets makes seeds and the rows of the last block's destinations that
// belong to them b's Seeds and Targets, by copying both; it is there for samplers
// that wrap another one.
func (b *Batch) SetTargets(seeds, rows []uint32) {
	b.seeds, b.targets = append(b.seeds[:0], seeds...), append(b.targets[:0], rows...)
	b.Seeds, b.Targets = b.seeds, b.targets
}

// SetPositive says that an edge joins the first so many of the seeds, which are the ends of links, and none the others.
func (b *Batch) SetPositive(ends int) {
	b.positive = resize(b.positive, len(b.Seeds))
	for i := range b.positive {
		b.positive[i] = i < ends
	}
	b.Positive = b.positive
}

// layers gives b n blocks, keeping those it has.
func (b *Batch) layers(n int) {
	for len(b.scratch) < n {
		b.scratch = append(b.scratch, block{})
	}
	for len(b.Blocks) < n {
		b.Blocks = append(b.Blocks, graph.Block{})
	}
	b.Blocks = b.Blocks[:n]
}

// start readies b for n layers: everything but the ID is emptied.
func (b *Batch) start(n int) {
	b.Seeds, b.Targets, b.LossWeights, b.Positive = nil, nil, nil, nil
	b.layers(n)
	clear(b.Blocks)
	b.nodes = slices.Grow(b.nodes[:0], 1) // not nil, which stands for all nodes
}

// resize returns s with length n, its contents undefined when it had to grow.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}

// reserve returns s with room for n more values.
func reserve[T any](s []T, n int) []T {
	if len(s)+n <= cap(s) {
		return s
	}
	t := make([]T, len(s), len(s)+n+(len(s)+n)/2)
	copy(t, s)
	return t
}
