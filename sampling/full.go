package sampling

import (
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

func prepareFull(p *Prepared, stop *interrupt.Poll) error {
	if p.visible != nil { // the hops of all training nodes are what there is
		return prepareKHop(p, stop)
	}
	p.factory = func() Sampler { return &full{g: p.g, layers: p.spec.Depth()} }
	return nil
}

// full takes the whole graph in every layer. Its blocks alias the graph: local
// ids are global ids, and entry i of Indices is edge i, so that SrcIDs and
// EdgeIDs are nil.
type full struct {
	g      *graph.Graph
	layers int
	ids    idMap
}

// Sample implements Sampler.
func (s *full) Sample(b *Batch, _ rng.Key, seeds []uint32) error {
	s.ids.clear()
	b.start(s.layers)
	var err error
	if b.nodes, err = s.ids.seed(seeds, b.nodes, s.g.NumNodes()); err != nil {
		return err
	}
	b.Seeds, b.Targets = b.nodes, b.nodes
	for i := range b.Blocks {
		b.Blocks[i] = graph.WholeGraph(s.g)
	}
	return nil
}
