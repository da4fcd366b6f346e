// Package links makes the examples of link prediction: it splits the pairs of nodes
// that a graph joins into those to train on, to validate and to test with, draws
// pairs that nothing joins, and samples batches around the ends of both.
package links

import (
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// Set names a split of the links: of all pairs of nodes that an edge joins, 5 % are
// for validation and 10 % for the test, as Kipf and Welling (2016) hold them out.
// Which ones is a function of the pair alone, the same in every run.
type Set int

// The splits.
const (
	Train Set = iota
	Valid
	Test
)

const (
	validShare = 0.05
	testShare  = 0.10
)

// The streams of draws of link prediction.
const (
	splitDomain    = 0x6c696e6b73 // "links"
	negativeDomain = 0x6e6f6c696e6b
)

// EvaluationKey is what the pairs are drawn under that links are measured against.
var EvaluationKey = rng.New(splitDomain)

// negativeTries bounds the draws for one negative.
const negativeTries = 64

// Links are the joined pairs of a graph, whichever way their edges run, numbered from
// 0: the examples of link prediction. A loop joins nothing. They are read-only.
type Links struct {
	pairs []uint64    // the lower node in the upper half, sorted
	sets  [3][]uint32 // indices of pairs, ascending
	nodes uint64
}

func pairOf(u, v uint32) uint64 {
	if u > v {
		u, v = v, u
	}
	return uint64(u)<<32 | uint64(v)
}

// setOf says which split a pair belongs to. It is a function of the pair alone, so
// that whoever evaluates a model later holds out the same.
func setOf(pair uint64) Set {
	switch x := rng.New(splitDomain).Float64(pair); {
	case x < validShare:
		return Valid
	case x < validShare+testShare:
		return Test
	}
	return Train
}

// Split returns the links of g, and g without the edges of those held out: nothing
// that is trained or evaluated on it sees them. The returned graph owns its memory. A
// graph with nothing to learn from, or of more than 2^32 links, is an error.
func Split(g *graph.Graph) (*Links, *graph.Graph, error) {
	l := &Links{nodes: uint64(g.NumNodes())}
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
		return nil, nil, fmt.Errorf("links: edges join %d pairs of nodes; link prediction takes at most 2^32", len(l.pairs))
	}
	for i, p := range l.pairs {
		s := setOf(p)
		l.sets[s] = append(l.sets[s], uint32(i))
	}
	if len(l.sets[Train]) == 0 {
		return nil, nil, fmt.Errorf("links: there are no edges between different nodes to learn links from")
	}
	kept := &graph.Graph{Indptr: make([]int64, g.NumNodes()+1), Indices: make([]uint32, 0, len(g.Indices))}
	for v := range uint32(g.NumNodes()) {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			if g.Indices[e] != v && setOf(pairOf(g.Indices[e], v)) != Train {
				continue
			}
			kept.Indices = append(kept.Indices, g.Indices[e])
			if g.Weights != nil {
				kept.Weights = append(kept.Weights, g.Weights[e])
			}
		}
		kept.Indptr[v+1] = int64(len(kept.Indices))
	}
	return l, kept, nil
}

// Elsewhere returns so many links of each split whose ends another process has: in each they are numbered from 0, by
// their places in Of there.
func Elsewhere(counts [3]int) *Links {
	l := new(Links)
	for s, n := range counts {
		l.sets[s] = make([]uint32, n)
		for i := range l.sets[s] {
			l.sets[s][i] = uint32(i)
		}
	}
	return l
}

// Of returns the numbers of a split's links, ascending. The slice is read-only.
func (l *Links) Of(s Set) []uint32 { return l.sets[s] }

// Len returns the number of links.
func (l *Links) Len() int { return len(l.pairs) }

// Ends returns the ends of link i, the lower one first.
func (l *Links) Ends(i uint32) (u, v uint32) { return uint32(l.pairs[i] >> 32), uint32(l.pairs[i]) }

// Joined reports whether an edge of the whole graph joins u and v.
func (l *Links) Joined(u, v uint32) bool {
	_, ok := slices.BinarySearch(l.pairs, pairOf(u, v))
	return ok
}

// AppendNegatives appends to dst k pairs, two nodes each, that no edge joins: link i
// with one of its ends, drawn evenly, replaced by a node drawn evenly. It is a pure
// function of its arguments. A node that nearly all others are joined to may get
// fewer.
func (l *Links) AppendNegatives(dst []uint32, key rng.Key, i uint32, k int) []uint32 {
	stream := key.With(negativeDomain).With(l.pairs[i])
	draw := uint64(0)
	for range k {
		for range negativeTries {
			stay, other := l.Ends(i)
			if stream.Uint64(draw)>>63 == 1 {
				stay, other = other, stay
			}
			with := uint32(stream.Uintn(draw+1, l.nodes))
			draw += 2
			if with != stay && with != other && !l.Joined(stay, with) {
				dst = append(dst, stay, with)
				break
			}
		}
	}
	return dst
}
