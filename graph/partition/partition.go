// Package partition divides a graph's nodes into clusters, for cluster-batch
// training and for placing a graph on several machines.
//
// Edge directions and self-loops play no role. Every method is a pure function
// of the graph and the seed.
package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

// Methods returns the names of the methods.
func Methods() []string { return []string{"metis", "louvain", "labels", "hash", "contiguous"} }

// Imbalance is by how much the size of a cluster of "metis" and "labels" may
// exceed the average, as a share of it.
const Imbalance = 0.1

// ErrCount is wrapped by the error of more clusters than nodes.
var ErrCount = errors.New("partition: too many clusters")

// Compute assigns every node of g to one of count clusters.
//
// "metis" is multilevel partitioning (Karypis and Kumar, 1998): few cut edges,
// clusters of at most 1+Imbalance of the average size, as far as single nodes
// allow. "louvain" finds communities of high modularity (Blondel et al., 2008)
// and "labels" by size-constrained label propagation (Raghavan et al., 2007;
// Meyerhenke et al., 2014); these are put together into count clusters, the
// larger ones first, each into the smallest cluster. A community of "louvain"
// is never split, so clusters can be larger than the average. "hash" deals nodes
// out at random and "contiguous" by their ids, in runs of equal length to within
// one; neither looks at the edges. When ctx ends first, the error wraps its cause.
func Compute(ctx context.Context, g *graph.Graph, method string, count int, seed uint64) (part []uint32, err error) {
	err = graph.Guard(func() error {
		stop := interrupt.New(ctx)
		if part, err = compute(stop, g, method, count, seed); err == nil {
			err = stop.Err()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return part, nil
}

func compute(stop *interrupt.Poll, g *graph.Graph, method string, count int, seed uint64) ([]uint32, error) {
	if count < 1 {
		return nil, fmt.Errorf("partition: %d clusters asked for; it must be at least 1", count)
	}
	n := g.NumNodes()
	if count > max(n, 1) {
		return nil, fmt.Errorf("%w: %d asked for of %d nodes; there can be at most as many as nodes", ErrCount, count, n)
	}
	key := rng.New(seed)
	switch method {
	case "hash":
		out := make([]uint32, n)
		for v := range out {
			out[v] = uint32(key.Uintn(uint64(v), uint64(count)))
		}
		return out, nil
	case "contiguous":
		out := make([]uint32, n)
		for v := range out {
			out[v] = uint32(uint64(v) * uint64(count) / uint64(n))
		}
		return out, nil
	case "metis":
		return multilevel(newNetwork(stop, g), count, key), nil
	case "louvain":
		return pack(louvain(newNetwork(stop, g), key), n, count), nil
	case "labels":
		net := newNetwork(stop, g)
		label := make([]uint32, n)
		net.spread(label, int64(n/count)+1, labelRounds, key)
		return pack(label, n, count), nil
	}
	return nil, fmt.Errorf("partition: there is no method %q; choose one of %v", method, Methods())
}

// pack puts communities, given by dense labels, together into count clusters.
func pack(label []uint32, n, count int) []uint32 {
	communities := 0
	for _, l := range label {
		communities = max(communities, int(l)+1)
	}
	size := make([]int, communities)
	for _, l := range label {
		size[l]++
	}
	order := make([]uint32, communities)
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(size[b], size[a]) })
	bins := make(loads, min(count, max(communities, 1)))
	for i := range bins {
		bins[i].cluster = uint32(i)
	}
	cluster := make([]uint32, communities)
	for _, c := range order {
		cluster[c] = bins[0].cluster
		bins[0].size += size[c]
		bins.down()
	}
	out := make([]uint32, n)
	for v, l := range label {
		out[v] = cluster[l]
	}
	return out
}

// loads is a heap of clusters with the smallest on top.
type loads []struct {
	size    int
	cluster uint32
}

func (l loads) down() {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(l) {
			return
		}
		less := func(a, b int) bool {
			return l[a].size < l[b].size || l[a].size == l[b].size && l[a].cluster < l[b].cluster
		}
		if c+1 < len(l) && less(c+1, c) {
			c++
		}
		if less(i, c) {
			return
		}
		l[i], l[c] = l[c], l[i]
		i = c
	}
}

// Quality describes a partition.
type Quality struct {
	Clusters   int     // that have nodes
	Largest    int     // nodes of the largest
	CutEdges   int64   // edges between clusters
	CutShare   float64 // of all edges but self-loops
	Modularity float64 // of the undirected graph
}

// Measure returns the quality of a partition of g. When ctx ends first, the error wraps its
// cause.
func Measure(ctx context.Context, g *graph.Graph, part []uint32) (Quality, error) {
	stop := interrupt.New(ctx)
	clusters := 0
	for _, c := range part {
		clusters = max(clusters, int(c)+1)
	}
	size := make([]int, clusters)
	degree := make([]float64, clusters) // ends of edges
	var q Quality
	edges, inside := int64(0), 0.0
	for v, c := range part {
		if stop.Ended() {
			return Quality{}, stop.Err()
		}
		size[c]++
		for _, u := range g.InNeighbors(uint32(v)) {
			if int(u) == v {
				continue
			}
			edges++
			degree[c]++
			degree[part[u]]++
			if part[u] == c {
				inside++
			} else {
				q.CutEdges++
			}
		}
	}
	for _, s := range size {
		if s > 0 {
			q.Clusters++
		}
		q.Largest = max(q.Largest, s)
	}
	if edges > 0 {
		q.CutShare = float64(q.CutEdges) / float64(edges)
		q.Modularity = inside / float64(edges)
		for _, d := range degree {
			share := d / (2 * float64(edges))
			q.Modularity -= share * share
		}
	}
	return q, nil
}
