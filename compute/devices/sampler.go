package devices

import (
	"errors"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// Sampling says what a device's sampler draws: for every node of a layer some of its
// neighbours without replacement.
type Sampling struct {
	Fanouts  []int // of each layer, from the seeds outward; -1: all
	EdgeIDs  bool  // blocks say where in the graph their entries are
	Weighted bool  // by the graph's weights, not uniformly
	// Cached prefers a cache's neighbours, as "gns" does. Weights are divided by their sum or,
	// ByDegree, by the row's degree; with Only the input layer has the cache's alone.
	Cached, ByDegree, Only bool
}

// Cache is a generation of the cache that a sampler prefers.
type Cache struct {
	Generation int
	// Rows returns for every node the entries of its row whose sources are cached, those of node
	// v being entries[indptr[v]:indptr[v+1]]: where in the row an entry is, below, and above it the
	// 32 bits of its weight. It is called when the generation is another than the last.
	Rows func() (indptr []int64, entries []uint64)
}

// Sampler draws batches on a device: the same, to the bit, as package sampling's "neighbor"
// and "gns". It may be called by any goroutines; one batch is drawn at a time.
type Sampler interface {
	// Sample draws the blocks of seeds under a key, with the cache if it prefers one. Seeds that
	// are out of range, or given twice, are an error, and so is what fails on the device; what does
	// not fit its memory wraps ErrRoom. What it returns are the same blocks in the device's memory,
	// for compute.Input; again, unless nil, is what an earlier call returned and nobody uses any
	// more: its memory is used again.
	Sample(to Blocks, key rng.Key, seeds []uint32, cache Cache, again any) (there any, err error)
	// Close gives the sampler's memory back.
	Close() error
}

// Blocks is where a batch's blocks go to, in the host's memory. A sampling.Batch is one.
type Blocks interface {
	Nodes(n int) []uint32
	Block(i, numDst, numSrc, numEdges int, weights, edgeIDs bool) *graph.Block
}

// ErrRoom is wrapped where something does not fit a device's memory.
var ErrRoom = errors.New("too little memory on the device")
