package sampling

import (
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// guarded is a sampler over a graph that may lie in a damaged or shortened file:
// what it meets there is an error, see graph.Guard.
type guarded struct {
	sampler Sampler
	nodes   uint32 // of the graph
}

// Sample implements Sampler.
func (s *guarded) Sample(b *Batch, key rng.Key, seeds []uint32) error {
	return graph.Guard(func() error {
		if err := s.sampler.Sample(b, key, seeds); err != nil {
			return err
		}
		// The neighbours of the last hop were looked up nowhere, but will be.
		if u := largest(b.nodes); u >= s.nodes && len(b.nodes) > 0 {
			panic(fmt.Sprintf("sampling: node %d is somebody's neighbour in a graph of %d nodes; check it with Validate", u, s.nodes))
		}
		return nil
	})
}

// largest returns the highest of ids, 0 without any.
func largest(ids []uint32) uint32 {
	var a, b, c, d uint32
	i := 0
	for ; i+4 <= len(ids); i += 4 {
		x := ids[i : i+4 : i+4]
		a, b, c, d = max(a, x[0]), max(b, x[1]), max(c, x[2]), max(d, x[3])
	}
	for _, u := range ids[i:] {
		a = max(a, u)
	}
	return max(a, b, c, d)
}
