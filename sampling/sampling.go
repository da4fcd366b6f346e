// Package sampling cuts mini-batches out of a graph.
//
// A Sampler is a plain function over CSC arrays: it turns seed nodes into
// blocks, and knows nothing of loaders or actors. Its output is a pure function
// of (key, seeds): the same bits for any number of samplers and threads, in
// every kernel set.
//
// Use it in three steps: describe the sampler with a Spec, call Prepare once
// per graph (alias tables, cache distributions and normalisations are made
// there and shared, read-only), and take one Sampler per goroutine from the
// result. An epoch's seeds come from Order and Cut, a batch's key from ID.Key.
//
// # Order
//
// Block len-1 is the output layer; its destinations are the seeds in the order
// given. A layer's sources are its destinations, then the nodes not seen
// before, in the order of their first occurrence among the layer's entries. So
// the sources of every layer are a prefix of one list of nodes. A row whose
// neighbours are all taken lists them in the order of the graph; a row that was
// sampled lists them in the order that its sampler documents.
//
// # Weights
//
// A block's weights are importance weights in the convention of a mean: over a
// row, (Σ w_e·x_e)/|S(v)|, with |S(v)| entries, estimates the mean of x over N(v).
// So do plain rows, whose weights are all 1. A sum over N(v) is estimated by
// d(v) times as much. Weights of the graph do not enter.
//
// # Memory
//
// A Sampler owns tables and buffers in proportion to its largest batch, and
// nothing else but, for subgraph and layer-wise samplers, one bit per node of the
// graph (none above 2^22 nodes), and at most another for "ladies". What grows with the graph belongs to Prepared and
// is shared: "gns" keeps 8 bytes a node, as many while it draws a generation, and
// for up to three generations 8 bytes a node and 8 per cached entry; "lazy" up to
// three mega-batches; "node" and "fastgcn" 8 to 16 bytes a node; "edge" 8 bytes a
// node, or 24 and 4 an edge where edges lack their reverse; "frontier" 4 bytes a
// node, "cluster" 8; running sums for weighted draws with replacement 8 bytes an
// edge; normalization 4 bytes a node and edge; Spec.Inductive the graph of the
// training nodes, with 8 bytes for every node.
package sampling

import (
	"fmt"

	"github.com/gnnactor/gnnactor/rng"
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

// Purposes keep the streams of draws that come from one seed apart.
const (
	purposeBatch = iota + 1
	purposeOrder
	purposeLabor
	purposeCache
	purposeNorm
	purposeLazy
	purposeClusters
)

// Key returns the key under which the micro-batch is sampled.
func (id ID) Key(seed uint64) rng.Key {
	phase := uint64(0xcbf29ce484222325) // FNV-1a
	for i := range len(id.Phase) {
		phase = (phase ^ uint64(id.Phase[i])) * 0x100000001b3
	}
	return rng.New(seed, purposeBatch, phase, uint64(id.Epoch), uint64(id.Batch), uint64(id.Micro))
}

// Sampler fills batches. It holds scratch memory: one goroutine at a time.
type Sampler interface {
	// Sample fills b.Seeds, b.Blocks, b.Targets and b.LossWeights for the
	// given seeds, reusing b's memory. b.ID is left alone, but must be set:
	// samplers whose batches depend on each other read it. seeds is not kept.
	// Duplicate seeds, and seeds out of range, are an error.
	Sample(b *Batch, key rng.Key, seeds []uint32) error
}
