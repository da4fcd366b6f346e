package devices

import (
	"errors"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// Sampling says what a device's sampler draws: for every node of a layer some of its
// neighbours, uniformly and without replacement.
type Sampling struct {
	Fanouts []int // of each layer, from the seeds outward; -1: all
	EdgeIDs bool  // blocks say where in the graph their entries are
}

// Sampler draws batches on a device: the same, to the bit, as package sampling's "neighbor".
// It may be called by any goroutines; one batch is drawn at a time.
type Sampler interface {
	// Sample draws the blocks of seeds under a key. Seeds that are out of range, or given
	// twice, are an error, and so is what fails on the device.
	Sample(to Blocks, key rng.Key, seeds []uint32) error
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
