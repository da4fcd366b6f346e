package runtime

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
)

// scoredAtOnce is how many pairs are scored at a time.
const scoredAtOnce = 4096

// LinkScore says how much a node and another one look like a link.
type LinkScore struct {
	Node        uint32
	Score       float32
	Probability float32 // the logistic function of Score; negatives are as frequent as links in training, so that it is for telling pairs apart
}

func scored(v uint32, score float32) LinkScore {
	return LinkScore{v, score, float32(1 / (1 + math.Exp(-float64(score))))}
}

// ScoreLinks returns the scores of the pairs of src[i] and dst[i], with Node dst[i], of a model of task link: by exact inference of the
// neighbourhoods of their nodes, over the edges that it was trained on. It holds an embedding for each node that occurs.
func (r *Runtime) ScoreLinks(ctx context.Context, src, dst []uint32) ([]LinkScore, error) {
	if len(src) != len(dst) {
		return nil, fmt.Errorf("%w: %d sources of pairs, and %d destinations", ErrConfig, len(src), len(dst))
	}
	nodes := slices.Concat(src, dst)
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	row := func(v uint32) uint32 {
		i, _ := slices.BinarySearch(nodes, v)
		return uint32(i)
	}
	scores := make([]LinkScore, 0, len(src))
	err := r.scoreLinks(ctx, nodes, len(src), func(i int) compute.Link { return compute.Link{Src: row(src[i]), Dst: row(dst[i])} }, func(i int, score float32) {
		scores = append(scores, scored(dst[i], score))
	})
	return scores, err
}

// TopLinks returns, of each of some nodes, the k nodes whose links with it score highest, the highest first, ties to the lower node: of all others that
// no edge joins to it, held-out ones included, or with joined of all others; among, unless it is nil, names those that may be among them. It computes
// the embeddings of all nodes, or of those, exactly and once.
func (r *Runtime) TopLinks(ctx context.Context, of []uint32, k int, joined bool, among []uint32) ([][]LinkScore, error) {
	if k < 1 {
		return nil, fmt.Errorf("%w: the %d best links; ask for 1 or more", ErrConfig, k)
	}
	n := r.data.ds.Graph.NumNodes()
	for _, v := range slices.Concat(of, among) {
		if int(v) >= n {
			return nil, fmt.Errorf("%w: node %d is out of range [0, %d)", ErrNode, v, n)
		}
	}
	top := make([][]LinkScore, len(of))
	var nodes []uint32 // whose embeddings are needed; nil: all
	row := func(v uint32) uint32 { return v }
	if among != nil {
		among = slices.Clone(among)
		slices.Sort(among)
		if among = slices.Compact(among); len(among) == 0 {
			return top, nil
		}
		nodes = slices.Concat(of, among)
		slices.Sort(nodes)
		nodes = slices.Compact(nodes)
		row = func(v uint32) uint32 {
			i, _ := slices.BinarySearch(nodes, v)
			return uint32(i)
		}
		n = len(among)
	}
	candidate := func(i int) uint32 {
		if among != nil {
			return among[i]
		}
		return uint32(i)
	}
	better := func(a, b LinkScore) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Node, b.Node)) }
	err := r.scoreLinks(ctx, nodes, len(of)*n, func(i int) compute.Link { return compute.Link{Src: row(of[i/n]), Dst: row(candidate(i % n))} }, func(i int, score float32) {
		u, v, best := of[i/n], candidate(i%n), &top[i/n]
		if v == u || !joined && r.links.Joined(u, v) {
			return
		}
		s := scored(v, score)
		at, _ := slices.BinarySearchFunc(*best, s, better)
		if *best = slices.Insert(*best, at, s); len(*best) > k {
			*best = (*best)[:k]
		}
	})
	return top, err
}

// scoreLinks tells take the scores of n pairs of rows of the nodes' embeddings; nil: of all nodes.
func (r *Runtime) scoreLinks(ctx context.Context, nodes []uint32, n int, pair func(i int) compute.Link, take func(i int, score float32)) error {
	if r.links == nil {
		return fmt.Errorf("%w: links are scored by a model of task link", ErrTask)
	}
	return r.call(ctx, nil, func(ctx context.Context) error {
		params, err := r.current(ctx)
		if err != nil {
			return err
		}
		var out cpu.Matrix[float32]
		if nodes == nil || len(nodes) > 0 {
			if out, err = r.infer(ctx, params, nodes); err != nil {
				return err
			}
		}
		x := r.exec()
		defer r.releaseExec(x)
		scorer := r.model.NewLinkScorer(x)
		var pairs []compute.Link
		var scores []float32
		for from := 0; from < n; from += scoredAtOnce {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			pairs = pairs[:0]
			for i := from; i < min(n, from+scoredAtOnce); i++ {
				pairs = append(pairs, pair(i))
			}
			scores = scorer.Scores(scores[:0], params, out, pairs)
			for k, s := range scores {
				take(from+k, s)
			}
		}
		return r.Verified(ctx)
	})
}
