package runtime

import (
	"context"
	"fmt"
	"strings"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/scheduler"
)

const (
	// triedNodes is how many nodes the pieces have at most that a plan tries: their values do not fit caches.
	triedNodes = 1 << 17
	triedEdges = 1 << 22
	// triedSteps is how many steps each takes; the fastest counts.
	triedSteps = 3
)

// TryParts finds what global batches (the sampler full) of config's model take of the partition set of which sum is known: it computes
// gradients of random pieces like those, on one core of this machine. ErrConfig: config cannot be trained so. The caller sets what
// the nodes are like.
func TryParts(ctx context.Context, config Config, sum *pieces.Summary) (s scheduler.Parts, err error) {
	cfg, err := config.compile()
	if err == nil {
		err = sum.Check()
	}
	if err != nil {
		return s, err
	}
	if cfg.Sampling.Sampler != "full" || cfg.task() == "link" || cfg.Model.EdgeFeatures {
		return s, fmt.Errorf("%w: what is planned of a partition set's report are global batches (sampler: full) of node classification without features of edges", ErrConfig)
	}
	if bad := cfg.NotInPieces(); bad != nil {
		return s, fmt.Errorf("%w: global batches over a partition set do not have: %s", ErrConfig, strings.Join(bad, "; "))
	}
	kernels, err := cpu.Detect()
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := cfg.checkPrecision(kernels); err != nil {
		return s, err
	}
	edges := int64(0)
	var typical compute.PieceSizes
	some := 0
	for i, p := range sum.Pieces {
		edges += p.Edges
		mapped := p.Edges*sum.Values.EdgeBytes + 8*(p.Masters+1) + p.Masters*sum.Values.FeatureBytes
		s.Parts = append(s.Parts, scheduler.Part{
			Masters: p.Masters, Others: p.Sources, Entries: p.Edges, Train: p.Train, Reads: sum.Reads[i], Mapped: mapped, Once: max(p.Bytes-mapped, 0),
		})
		if p.Masters > 0 {
			some++
			typical.Others, typical.Targets = typical.Others+int(p.Sources), typical.Targets+int(p.Train)
		}
	}
	ds := &graph.Dataset{
		Graph: graph.Elsewhere(int(sum.Nodes), edges), NodeFeatures: &graph.Features{Rows: int(sum.Nodes), Cols: sum.Values.Features, DType: graph.Float32},
		Labels: &graph.Labels{NumClasses: sum.Values.Classes},
	}
	model, err := compute.NewModel(cfg.modelSpec(ds), ds.Graph)
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	s.Parameters = int64(model.Layout().Len())
	for i := range s.Parts {
		for l := range model.Blocks() {
			if model.AllRows() {
				break
			}
			s.Parts[i].Active = append(s.Parts[i].Active, sum.ActiveReads(model.Blocks() - 1 - l)[i])
		}
	}
	// The piece that is tried first has a mean piece's proportions; of the others each has twice of something.
	mean := func(n int64) float64 { return float64(n) / float64(some) }
	scale := min(1, triedNodes/mean(sum.Nodes), triedEdges/max(mean(edges), 1))
	part := func(n int64, least int) int { return max(int(mean(n)*scale), least) }
	first := compute.PieceSizes{Mean: int(mean(sum.Nodes)), Masters: part(sum.Nodes, 1024), Entries: part(edges, 1024), Others: part(int64(typical.Others), 256), In: sum.InDegrees, Out: sum.OutDegrees}
	first.Targets, first.Sent = min(part(int64(typical.Targets), 1), first.Masters), first.Others
	tried := []compute.PieceSizes{first, first, first, first}
	tried[1].Targets = 2 * first.Targets // a last layer is computed of their edges
	tried[1].Masters, tried[2].Others, tried[2].Sent, tried[3].Entries = 2*first.Masters, 2*first.Others, 2*first.Sent, 2*first.Entries
	workers := pool.New(1)
	defer workers.Close()
	trials, err := model.TryPieces(ctx, func() *cpu.Exec {
		x := cpu.NewExec(workers, kernels)
		x.SetPrecision(cfg.precision)
		return x
	}, sum.Values.NonZero, cfg.Training.Recompute, triedSteps, tried...)
	if err != nil {
		return s, err
	}
	for _, r := range trials[0].Rows {
		s.Rounds = append(s.Rounds, scheduler.PartRound{Layer: r.Layer, Back: r.Back, Width: r.Width})
	}
	s.Told, s.Inputs = int64(trials[0].Told), trials[0].Inputs
	of := func(get func(t *compute.PieceTrial) float64) (fixed, master, other, entry float64) {
		base := get(&trials[0])
		per := func(i, n int) float64 { return max(get(&trials[i])-base, 0) / float64(n) }
		master, other, entry = per(1, first.Masters), per(2, first.Others), per(3, first.Entries)
		found := master*float64(first.Masters) + other*float64(first.Others) + entry*float64(first.Entries)
		if found > base { // of noise
			master, other, entry = master*base/found, other*base/found, entry*base/found
		}
		return max(base-found, 0), master, other, entry
	}
	for _, what := range []struct {
		get func(t *compute.PieceTrial) float64
		put func(c *scheduler.PartCost) *float64
	}{
		{func(t *compute.PieceTrial) float64 { return float64(t.Bytes) }, func(c *scheduler.PartCost) *float64 { return &c.Bytes }},
		{func(t *compute.PieceTrial) float64 { return t.Forward.Seconds() }, func(c *scheduler.PartCost) *float64 { return &c.Forward }},
		{func(t *compute.PieceTrial) float64 { return t.Backward.Seconds() }, func(c *scheduler.PartCost) *float64 { return &c.Backward }},
	} {
		*what.put(&s.Fixed), *what.put(&s.Master), *what.put(&s.Other), *what.put(&s.Entry) = of(what.get)
	}
	return s, nil
}
