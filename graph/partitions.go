package graph

import (
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// Partition divides the nodes into clusters, for cluster-batch training and for
// placing a graph on several machines.
type Partition struct {
	Method  string   // how it was made: "metis", "louvain", …
	Parts   int      // clusters, numbered from 0; some may be empty
	Seed    uint64   // of the method's draws
	Cluster []uint32 // of each node
	SHA256  string   // hex, of Cluster's bytes; set by store.Open
}

// Partition returns the saved partition of the given method and number of
// parts; an empty method and 0 parts mean any. It is nil when there is none.
func (d *Dataset) Partition(method string, parts int) *Partition {
	for i := range d.Partitions {
		if p := &d.Partitions[i]; (method == "" || p.Method == method) && (parts == 0 || p.Parts == parts) {
			return p
		}
	}
	return nil
}

// Validate checks that the partition puts each of so many nodes into one of its parts,
// and that its method has a name. Errors wrap ErrFormat.
func (p *Partition) Validate(nodes int) error {
	if !arrays.MethodName().MatchString(p.Method) {
		return dataerr.Bad("a partition's method is called %q; use small letters, digits and dashes", p.Method)
	}
	if p.Parts < 1 || p.Parts > arrays.MaxParts {
		return dataerr.Bad("a partition of %d parts; give 1 to %d", p.Parts, arrays.MaxParts)
	}
	if len(p.Cluster) != nodes {
		return dataerr.Bad("a partition of %d nodes for a graph of %d", len(p.Cluster), nodes)
	}
	for v, c := range p.Cluster {
		if int64(c) >= int64(p.Parts) {
			return dataerr.Bad("the partition puts node %d into cluster %d, out of range [0, %d)", v, c, p.Parts)
		}
	}
	return nil
}

func (p *Partition) summary() PartitionSummary {
	size, largest := make([]int, p.Parts), 0
	for _, c := range p.Cluster {
		if int(c) >= p.Parts {
			continue // damaged: Verify says so
		}
		size[c]++
		largest = max(largest, size[c])
	}
	return PartitionSummary{Method: p.Method, Parts: p.Parts, Seed: p.Seed, Largest: largest, SHA256: p.SHA256}
}
