package sampling

import (
	"errors"

	"github.com/gnnactor/gnnactor/graph"
)

// Facts are what Prepare finds out, for a process that leaves sampling to others.
type Facts struct {
	Spec         Spec  // with what Prepare fills in
	ChoosesSeeds bool  // Prepared.ChoosesSeeds
	Batches      int   // in an epoch; 0: as the seeds make them
	SeenEdges    int64 // of Prepared.Dataset
	CacheNodes   int   // of a generation of "gns"
}

// Facts returns what was found out.
func (p *Prepared) Facts() Facts {
	if p.told != nil {
		return *p.told
	}
	f := Facts{Spec: p.spec, ChoosesSeeds: p.ownSeeds, Batches: p.batches, SeenEdges: p.g.NumEdges()}
	if p.caches != nil {
		f.CacheNodes = p.caches.size
	}
	return f
}

// ErrElsewhere is returned by samplers of a graph whose rows lie elsewhere.
var ErrElsewhere = errors.New("sampling: the graph's rows are not in this process, which has others sample")

// PreparedElsewhere returns what Prepare made in another process, from its facts: it answers what
// follows from those, has no Caches, and its samplers return ErrElsewhere. ds is the same data; of
// its graph the sizes are read.
func PreparedElsewhere(f Facts, ds *graph.Dataset) *Prepared {
	p := &Prepared{spec: f.Spec, given: ds, data: ds, g: ds.Graph, ownSeeds: f.ChoosesSeeds, batches: f.Batches, told: &f}
	if p.spec.Inductive {
		seen := *ds
		seen.Graph = graph.Elsewhere(ds.Graph.NumNodes(), f.SeenEdges)
		p.data, p.g = &seen, seen.Graph
	}
	p.factory = func() Sampler { return unmade{ErrElsewhere} }
	return p
}
