package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/rng"
)

// ErrTask is wrapped by a call that the run's task has no answer to.
var ErrTask = errors.New("runtime: not of this task")

// Links names a split of the links in task link: of all pairs of nodes that an
// edge joins, 5 % are for validation and 10 % for the test. Which ones is a
// function of the pair alone, the same in every run.
type Links int

// The splits.
const (
	TrainLinks Links = iota
	ValidLinks
	TestLinks
)

// rankedAgainst is how many negatives each link is ranked among.
const rankedAgainst = 100

// LinkMetrics say how well scores tell links from pairs that no edge joins.
type LinkMetrics struct {
	// AUC is the area under the ROC curve of the links and as many negatives; NaN
	// without any link.
	AUC float64
	// MRR is the mean of 1/rank, and Hits10 the share of ranks up to 10, of each
	// link among 100 negatives that share one end with it. Equal scores take the
	// middle of the ranks that they fill.
	MRR, Hits10 float64
	Loss        float64 // mean binary cross-entropy of the scores behind AUC
	Count       int     // links
}

// NumLinks returns how many links a split has; 0 unless the task is link.
func (r *Runtime) NumLinks(split Links) int { return len(r.linksOf(split)) }

func (r *Runtime) linksOf(split Links) []uint32 {
	switch {
	case r.links == nil:
		return nil
	case split == ValidLinks:
		return r.links.valid
	case split == TestLinks:
		return r.links.test
	}
	return r.links.train
}

// EvaluateLinks measures the links of a split by exact inference over the
// training edges: what is held out is never an edge. Like Evaluate it computes
// every layer over all neighbours. The training links are scored with their own
// edges in place, so their figures flatter.
func (r *Runtime) EvaluateLinks(ctx context.Context, split Links) (LinkMetrics, error) {
	if r.links == nil {
		return LinkMetrics{}, fmt.Errorf("%w: links are evaluated with task link", ErrTask)
	}
	var m LinkMetrics
	err := r.call(ctx, nil, func(ctx context.Context) error {
		params, err := r.current(ctx)
		if err != nil {
			return err
		}
		out, err := r.infer(ctx, params, nil)
		if err != nil {
			return err
		}
		m = r.measureLinks(params, out, r.linksOf(split))
		return r.Verified(ctx)
	})
	return m, err
}

// nodesOnly reports that the task has no classes.
func (r *Runtime) nodesOnly(what string) error {
	if r.links != nil {
		return fmt.Errorf("%w: %s are of nodes with classes; with task link use Train, EvaluateLinks and Embed", ErrTask, what)
	}
	return nil
}

// measureLinks scores the given links by the embeddings of all nodes.
func (r *Runtime) measureLinks(params []float32, embeddings cpu.Matrix[float32], which []uint32) LinkMetrics {
	l := r.links
	m := LinkMetrics{Count: len(which)}
	if len(which) == 0 {
		return LinkMetrics{AUC: math.NaN(), MRR: math.NaN(), Hits10: math.NaN(), Loss: math.NaN()}
	}
	key := rng.New(splitDomain)
	var scores []float32
	var positive []bool
	var ends []uint32
	var pairs []compute.Link
	var s []float32
	x := r.exec()
	defer r.releaseExec(x)
	scorer := r.model.NewLinkScorer(x)
	for _, i := range which {
		u, v := l.pair(i)
		ends = l.appendNegatives(ends[:0], key, i, rankedAgainst)
		pairs = append(pairs[:0], compute.Link{Src: u, Dst: v, Positive: true})
		for k := 0; k < len(ends); k += 2 {
			pairs = append(pairs, compute.Link{Src: ends[k], Dst: ends[k+1]})
		}
		s = scorer.Scores(s[:0], params, embeddings, pairs)
		rank := 1.0
		for _, x := range s[1:] {
			switch {
			case x > s[0]:
				rank++
			case x == s[0]:
				rank += 0.5
			}
		}
		m.MRR += 1 / rank
		if rank <= 10 {
			m.Hits10++
		}
		n := min(2, len(s)) // one negative for the curve, if there is any
		scores = append(scores, s[:n]...)
		positive = append(positive, []bool{true, false}[:n]...)
	}
	m.MRR /= float64(len(which))
	m.Hits10 /= float64(len(which))
	m.AUC = compute.AUC(scores, positive)
	for i, s := range scores {
		x := float64(s)
		if positive[i] {
			x = -x
		}
		m.Loss += math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))
	}
	m.Loss /= float64(len(scores))
	return m
}
