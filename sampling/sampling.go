// Package sampling cuts mini-batches out of a graph.
//
// A Sampler is a plain function over CSC arrays: it turns seed nodes into
// blocks, and knows nothing of loaders or actors. Its output is a pure function
// of (key, seeds): the same bits for any number of samplers and threads, in
// every kernel set.
package sampling

import (
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/rng"
)

// ID names a micro-batch, the unit that is sampled and computed.
type ID struct {
	Phase string // "train", or what the caller of Batches names it
	Epoch int
	Batch int // index within the epoch
	Micro int // index within the batch
	Of    int // micro-batches that the batch was cut into; 0 and 1 both mean not cut
}

// String returns the canonical name, "train/e3/b17" or "train/e3/b17/m2", used
// in logs, traces, errors and file names alike.
func (id ID) String() string {
	s := fmt.Sprintf("%s/e%d/b%d", id.Phase, id.Epoch, id.Batch)
	if id.Of > 1 {
		s += fmt.Sprintf("/m%d", id.Micro)
	}
	return s
}

// Batch is one sampled micro-batch. Its memory is reused: who holds it owns it
// until it is released to the pool it came from.
type Batch struct {
	ID     ID
	Seeds  []uint32      // the nodes that carry loss, global ids
	Blocks []graph.Block // Blocks[0] is the input layer, the last one the output layer
	// Targets are the rows of the last block's destinations that belong to
	// Seeds; nil: row i belongs to Seeds[i].
	Targets []uint32
	// LossWeights weight each seed's loss; nil: all 1.
	LossWeights []float32

	nodes   []uint32 // backs SrcIDs of every block: layers are prefixes of it
	scratch []block  // backs the blocks' own arrays, kept between uses
}

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

// Sampler fills batches. It holds scratch memory: one goroutine at a time.
type Sampler interface {
	// Sample fills b.Seeds, b.Blocks, b.Targets and b.LossWeights for the
	// given seeds, reusing b's memory. b.ID is left alone. seeds is not kept.
	// Duplicate seeds are an error.
	Sample(b *Batch, key rng.Key, seeds []uint32) error
}

// block is the reusable memory behind one graph.Block.
type block struct {
	indptr  []int64
	indices []uint32
	weights []float32
	edgeIDs []int64
}
