package runtime

import (
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// The shares of the pairs that are held out, as Kipf and Welling (2016) do.
const (
	validLinks = 0.05
	testLinks  = 0.10
)

// The streams of draws of link prediction.
const (
	splitDomain    = 0x6c696e6b73 // "links"
	negativeDomain = 0x6e6f6c696e6b
)

// negativeTries bounds the draws for one negative.
const negativeTries = 64

// links are the joined pairs of a graph, whichever way their edges run: the
// examples of link prediction. A loop joins nothing. It is read-only.
type links struct {
	pairs              []uint64 // the lower node in the upper half, sorted
	train, valid, test []uint32 // indices of pairs, ascending
	nodes              uint64
	negatives          int  // per positive, in training
	keep               bool // leave the edges of a batch's links in its blocks
}

func pairOf(u, v uint32) uint64 {
	if u > v {
		u, v = v, u
	}
	return uint64(u)<<32 | uint64(v)
}

// joined reports whether an edge of the whole graph joins u and v.
func (l *links) joined(u, v uint32) bool {
	_, ok := slices.BinarySearch(l.pairs, pairOf(u, v))
	return ok
}

// heldOut says which split a pair belongs to. It is a function of the pair
// alone, so that whoever evaluates a model later holds out the same.
func heldOut(pair uint64) (valid, test bool) {
	x := rng.New(splitDomain).Float64(pair)
	return x < validLinks, x >= validLinks && x < validLinks+testLinks
}

// splitLinks returns the links of ds, and ds with a graph that lacks those held
// out: nothing that is trained or evaluated sees them as edges.
func splitLinks(cfg *Config, ds *graph.Dataset) (*links, *graph.Dataset, error) {
	g := ds.Graph
	l := &links{nodes: uint64(g.NumNodes()), negatives: max(cfg.Negatives, 1), keep: cfg.KeepTargetEdges}
	l.pairs = make([]uint64, 0, len(g.Indices))
	for v := range uint32(g.NumNodes()) {
		for _, u := range g.InNeighbors(v) {
			if u != v {
				l.pairs = append(l.pairs, pairOf(u, v))
			}
		}
	}
	slices.Sort(l.pairs)
	l.pairs = slices.Clip(slices.Compact(l.pairs))
	if uint64(len(l.pairs)) > 1<<32 {
		return nil, nil, fmt.Errorf("%w: task: %s joins %d pairs of nodes; link prediction takes at most 2^32", ErrConfig, ds.Name, len(l.pairs))
	}
	for i, p := range l.pairs {
		switch valid, test := heldOut(p); {
		case valid:
			l.valid = append(l.valid, uint32(i))
		case test:
			l.test = append(l.test, uint32(i))
		default:
			l.train = append(l.train, uint32(i))
		}
	}
	if len(l.train) == 0 {
		return nil, nil, fmt.Errorf("%w: task: %s has no edges between different nodes to learn links from", ErrConfig, ds.Name)
	}
	kept := &graph.Graph{Indptr: make([]int64, g.NumNodes()+1), Indices: make([]uint32, 0, len(g.Indices))}
	for v := range uint32(g.NumNodes()) {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			if valid, test := heldOut(pairOf(g.Indices[e], v)); g.Indices[e] != v && (valid || test) {
				continue
			}
			kept.Indices = append(kept.Indices, g.Indices[e])
			if g.Weights != nil {
				kept.Weights = append(kept.Weights, g.Weights[e])
			}
		}
		kept.Indptr[v+1] = int64(len(kept.Indices))
	}
	copied := *ds
	copied.Graph, copied.EdgeFeatures, copied.EdgeTimes, copied.Partitions = kept, nil, nil, nil
	return l, &copied, nil
}

// pair returns the ends of link i.
func (l *links) pair(i uint32) (u, v uint32) { return uint32(l.pairs[i] >> 32), uint32(l.pairs[i]) }

// appendNegatives appends to dst k pairs, two nodes each, that no edge joins:
// link i with one of its ends, drawn evenly, replaced by a node drawn evenly.
// It is a pure function of its arguments. A node that nearly all others are
// joined to may get fewer.
func (l *links) appendNegatives(dst []uint32, key rng.Key, i uint32, k int) []uint32 {
	stream := key.With(negativeDomain).With(l.pairs[i])
	draw := uint64(0)
	for range k {
		for range negativeTries {
			stay, other := l.pair(i)
			if stream.Uint64(draw)>>63 == 1 {
				stay, other = other, stay
			}
			with := uint32(stream.Uintn(draw+1, l.nodes))
			draw += 2
			if with != stay && with != other && !l.joined(stay, with) {
				dst = append(dst, stay, with)
				break
			}
		}
	}
	return dst
}

// validateLinks reports settings that link prediction does without.
func (c *Config) validateLinks(check func(ok bool, format string, args ...any), oneOf func(name, v string, allowed ...string)) {
	if c.Task != "" {
		oneOf("task", c.Task, "node", "link")
	}
	check(c.Negatives >= 0 && c.Negatives <= maxNegatives, "negatives: %d is not in [0, %d]; 0 is 1", c.Negatives, maxNegatives)
	if c.Task != "link" {
		check(c.Negatives == 0, "negatives: are drawn for task link alone")
		check(c.LinkDecoder == "", "link-decoder: is for task link alone")
		check(!c.KeepTargetEdges, "keep-target-edges: is for task link alone")
		return
	}
	oneOf("link-decoder", c.LinkDecoder, "", "dot", "mlp")
	check(slices.Contains(linkSamplers, c.Sampler), "sampler: %s does not start from given nodes, and task link needs the ends of edges; choose one of %v", c.Sampler, linkSamplers)
	check(!c.Inductive, "inductive: training nodes are not what task link is trained on; leave the setting out")
	check(!c.EdgeFeatures, "edge-features: are not read in task link; leave the setting out")
	check(c.SamplerOptions["temporal"] == "" || c.SamplerOptions["temporal"] == "false", "sampler-options: temporal does not go with task link")
}

// linkSamplers begin with the seeds, and the entries of their blocks, which they
// own, are edges.
var linkSamplers = []string{"neighbor", "labor", "khop"}

// seeds returns what an epoch goes through: the nodes of the training set, or
// in link prediction the numbers of its links.
func (r *Runtime) seeds() []uint32 {
	if r.links != nil {
		return r.links.train
	}
	return r.data.ds.Train
}

// learning returns the links of a batch that a linkSampler made: two seeds each,
// and their rows. They are positive if the graph has them.
func (l *links) learning(dst []compute.Link, seeds, rows []uint32) []compute.Link {
	for i := 0; i+1 < len(seeds); i += 2 {
		dst = append(dst, compute.Link{Src: rows[i], Dst: rows[i+1], Positive: l.joined(seeds[i], seeds[i+1])})
	}
	return dst
}
