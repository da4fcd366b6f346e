package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/links"
)

// ErrTask is wrapped by a call that the run's task has no answer to.
var ErrTask = errors.New("runtime: not of this task")

// Links names a split of the links in task link: of all pairs of nodes that an edge
// joins, 5 % are for validation and 10 % for the test (see links.Set).
type Links = links.Set

// The splits.
const (
	TrainLinks = links.Train
	ValidLinks = links.Valid
	TestLinks  = links.Test
)

// LinkMetrics say how well scores tell links from pairs that no edge joins.
type LinkMetrics = compute.LinkMetrics

// rankedAgainst is how many negatives each link is ranked among.
const rankedAgainst = 100

// splitLinks returns the links of ds, and ds with a graph that lacks those held
// out: nothing that is trained or evaluated sees them as edges.
func splitLinks(ds *graph.Dataset) (*links.Links, *graph.Dataset, error) {
	l, kept, err := links.Split(ds.Graph)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: task: %s: %w", ErrConfig, ds.Name, err)
	}
	copied := *ds
	copied.Graph = kept
	return l, withoutLinks(&copied), nil
}

// withoutLinks takes out of ds, which is a copy, what is known of the edges of another graph.
func withoutLinks(ds *graph.Dataset) *graph.Dataset {
	ds.EdgeFeatures, ds.EdgeTimes, ds.Partitions = nil, nil, nil
	return ds
}

// negatives returns how many pairs that nothing joins are drawn for each link.
func (c *Config) negatives() int { return max(c.Sampling.Negatives, 1) }

// validateLinks reports settings that link prediction does without.
func (c *Config) validateLinks(p *problems) {
	if c.Model.Task != "" {
		p.oneOf("task", c.Model.Task, "node", "link", taskRegression)
	}
	if c.Model.Task != "link" {
		p.check(c.Sampling.Negatives == 0, "negatives: are drawn for task link alone")
		p.check(c.Model.LinkDecoder == "", "link-decoder: is for task link alone")
		p.check(!c.Sampling.KeepTargetEdges, "keep-target-edges: is for task link alone")
		return
	}
	p.oneOf("link-decoder", c.Model.LinkDecoder, "", "dot", "mlp")
	p.check(slices.Contains(links.Samplers(), c.Sampling.Sampler), "sampler: %s does not start from given nodes, and task link needs the ends of edges; choose one of %v", c.Sampling.Sampler, links.Samplers())
	p.check(!c.Sampling.Inductive, "inductive: training nodes are not what task link is trained on; leave the setting out")
	p.check(!c.Model.EdgeFeatures, "edge-features: are not read in task link; leave the setting out")
}

// newSampler returns a sampler for one goroutine.
func (r *Runtime) newSampler() sampling.Sampler {
	if r.drawn != nil {
		return r.aroundLinks(deviceSampler{r.drawn, r.sampler})
	}
	return r.aroundLinks(r.sampler.NewSampler())
}

// aroundLinks returns s or, in link prediction, a sampler of links that has s sample around
// their ends.
func (r *Runtime) aroundLinks(s sampling.Sampler) sampling.Sampler {
	if r.links == nil {
		return s
	}
	return r.links.NewSampler(s, r.cfg.negatives(), r.cfg.Sampling.KeepTargetEdges)
}

// seeds returns what an epoch goes through: the nodes of the training set, or
// in link prediction the numbers of its links.
func (r *Runtime) seeds() []uint32 {
	if r.links != nil {
		return r.links.Of(links.Train)
	}
	return r.data.ds.Train
}

// appendLinks appends the links of a batch.
func appendLinks(dst []compute.Link, b *sampling.Batch) []compute.Link {
	for i := 0; i+1 < len(b.Targets); i += 2 {
		dst = append(dst, compute.Link{Src: b.Targets[i], Dst: b.Targets[i+1], Positive: b.Positive[i]})
	}
	return dst
}

// NumLinks returns how many links a split has; 0 unless the task is link.
func (r *Runtime) NumLinks(split Links) int {
	if r.links == nil {
		return 0
	}
	return len(r.links.Of(split))
}

// EvaluateLinks measures the links of a split by exact inference over the
// training edges: what is held out is never an edge. Like Evaluate it computes
// every layer over all neighbours, and it ranks each link among 100 negatives. The
// training links are scored with their own edges in place, so their figures flatter.
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
		if m, err = r.measureLinks(ctx, params, out, split); err != nil {
			return err
		}
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

// classesOnly reports that the task has no classes.
func (r *Runtime) classesOnly(what string) error {
	if r.Regression() {
		return fmt.Errorf("%w: %s are of nodes with classes; with task regression use Evaluate and PredictValues", ErrTask, what)
	}
	return r.nodesOnly(what)
}

// rankedLinks is how many links are measured at once.
const rankedLinks = 512

// appendRanked appends, of the links from one place to another of a split, how many pairs each is measured by, and their
// ends: itself, and those that nothing joins.
func (r *Runtime) appendRanked(ctx context.Context, dst []uint32, split Links, from, to int) ([]uint32, error) {
	if r.cfg.Cluster.Away {
		x, err := r.askMessage(ctx, &messages.Seeds{Want: messages.WantLinks, Step: int64(split), Seeds: []uint32{uint32(from), uint32(to)}}, "nodes")
		if err != nil {
			return nil, err
		}
		return append(dst, x.(*messages.Nodes).Nodes...), nil
	}
	for _, i := range r.links.Of(split)[from:to] {
		at := len(dst)
		u, v := r.links.Ends(i)
		dst = r.links.AppendNegatives(append(dst, 0, u, v), links.EvaluationKey, i, rankedAgainst)
		dst[at] = uint32(len(dst)-at) / 2
	}
	return dst, nil
}

// measureLinks scores the links of a split by the embeddings of all nodes.
func (r *Runtime) measureLinks(ctx context.Context, params []float32, embeddings cpu.Matrix[float32], split Links) (LinkMetrics, error) {
	var m compute.LinkMeasure
	var ranked []uint32
	var pairs []compute.Link
	var scores []float32
	x := r.exec() // a few pairs at a time would keep no device busy
	defer r.releaseExec(x)
	scorer := r.model.NewLinkScorer(x)
	all := len(r.links.Of(split))
	for from := 0; from < all; from += rankedLinks {
		if ctx.Err() != nil {
			return LinkMetrics{}, context.Cause(ctx)
		}
		to := min(from+rankedLinks, all)
		var err error
		if ranked, err = r.appendRanked(ctx, ranked[:0], split, from, to); err != nil {
			return LinkMetrics{}, err
		}
		rest := ranked
		for range to - from {
			n := 0
			if len(rest) > 0 {
				n, rest = int(rest[0]), rest[1:]
			}
			if n < 1 || n > len(rest)/2 || int(slices.Max(rest[:2*n])) >= embeddings.Rows {
				return LinkMetrics{}, fmt.Errorf("runtime: asking those who sample for %s: %d pairs, of %d numbers, or of nodes that there are not", messages.WantLinks, n, len(rest))
			}
			pairs = pairs[:0]
			for k := range n {
				pairs = append(pairs, compute.Link{Src: rest[2*k], Dst: rest[2*k+1], Positive: k == 0})
			}
			rest = rest[2*n:]
			scores = scorer.Scores(scores[:0], params, embeddings, pairs)
			m.Add(scores)
		}
	}
	return m.Metrics(), nil
}
