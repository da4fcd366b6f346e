package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/sampling"
)

// statsBatches is how many batches --stats samples when nothing else is asked
// for: the error of aggregation reads all neighbours of every row.
const statsBatches = 20

// samplerStats is what --stats --output json prints of a sampler. Figures are
// means over batches.
type samplerStats struct {
	Name string `json:"sampler"`
	sampleResult
	Layers        []layerStats `json:"layers"` // from the seeds outward
	RowEntries    quantiles    `json:"row_entries"`
	InputDegrees  quantiles    `json:"input_degrees"` // in the graph
	IsolatedShare float64      `json:"isolated_share"`
	MatchDegree   finite       `json:"match_degree"`
	SquaredError  finite       `json:"squared_error"`

	stats sampling.Stats
}

type layerStats struct {
	Nodes         float64 `json:"nodes"` // distinct ones, the layer's targets among them
	Edges         float64 `json:"edges"`
	IsolatedShare float64 `json:"isolated_share"`
	SquaredError  finite  `json:"squared_error"`
}

// quantiles describe a distribution of degrees.
type quantiles struct {
	Mean   float64 `json:"mean"`
	Median int     `json:"median"`
	P90    int     `json:"p90"`
	P99    int     `json:"p99"`
	Max    int     `json:"max"`
}

// compareSamplers measures n batches of each of the samplers that cfg.Sampler
// names, at most an epoch, prints what they are like and draws it to plot.
func (a *app) compareSamplers(ctx context.Context, cfg runtime.Config, n int, plot string) (err error) {
	var names []string
	for name := range strings.SplitSeq(cfg.Sampling.Sampler, ",") {
		names = append(names, strings.TrimSpace(name))
	}
	configs := make([]runtime.Config, len(names))
	unread := maps.Clone(cfg.Sampling.Options)
	for i, name := range names { // before any work is done
		configs[i] = cfg
		configs[i].Sampling.Sampler, configs[i].Sampling.Options = name, map[string]string{}
		for _, option := range append(sampling.Reads(name), "edge-ids") {
			if value, ok := cfg.Sampling.Options[option]; ok {
				configs[i].Sampling.Options[option] = value
				delete(unread, option)
			}
		}
		if err := configs[i].Validate(); err != nil {
			return err
		}
	}
	if len(unread) > 0 {
		return usagef("--sampler-options: none of %s reads %s", strings.Join(names, ", "), strings.Join(slices.Sorted(maps.Keys(unread)), ", "))
	}
	rt, ds, err := a.openBare(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	return graph.Guard(func() error { return a.compareOn(ctx, rt, ds, configs, n, plot) })
}

// compareOn is compareSamplers over an open graph.
func (a *app) compareOn(ctx context.Context, rt *runtime.Runtime, ds *graph.Dataset, configs []runtime.Config, n int, plot string) (err error) {
	all := make([]*samplerStats, len(configs))
	seen := rt.TrainingDataset().Graph // by the samplers
	nodes := allNodes(seen.NumNodes())
	if configs[0].Sampling.Inductive {
		nodes = ds.Train
	}
	for i := range configs {
		configs[i].Data.Dataset = ds
		s := &samplerStats{Name: configs[i].Sampling.Sampler}
		s.sampleResult, err = a.sample(ctx, configs[i], n, func(b *sampling.Batch) { s.stats.Add(seen, b, true) })
		if err != nil {
			return err
		}
		s.sum()
		all[i] = s
	}
	degrees := graphDegrees(seen, nodes)
	if err := rt.Verified(ctx); err != nil {
		return err
	}
	if plot != "" {
		if err := drawStats(plot, all, degrees); err != nil {
			return err
		}
		a.logf("statistics drawn to %s", plot)
	}
	if a.output == outputJSON {
		return a.printJSON(struct {
			GraphDegrees quantiles       `json:"graph_degrees"`
			Samplers     []*samplerStats `json:"samplers"`
		}{quantilesOf(degrees), all})
	}
	return statsTable(all, quantilesOf(degrees)).write(a.stdout)
}

// sum turns counts into means.
func (s *samplerStats) sum() {
	st := &s.stats
	n := float64(st.Batches)
	for i := range st.Layers {
		l := &st.Layers[i]
		s.Layers = append(s.Layers, layerStats{
			Nodes: float64(l.Sources) / n, Edges: float64(l.Edges) / n,
			IsolatedShare: float64(l.Isolated) / math.Max(1, float64(l.Rows)),
			SquaredError:  finite(l.SquaredError / float64(l.ErrorRows)),
		})
	}
	t := st.Total()
	s.RowEntries, s.InputDegrees = quantilesOf(st.Degrees), quantilesOf(st.InputDegrees)
	s.IsolatedShare = float64(t.Isolated) / math.Max(1, float64(t.Rows))
	s.MatchDegree = finite(st.Match / float64(st.Pairs))
	s.SquaredError = finite(t.SquaredError / float64(t.ErrorRows))
}

// graphDegrees counts nodes by in-degree.
func graphDegrees(g *graph.Graph, nodes []uint32) []int64 {
	var count []int64
	for _, v := range nodes {
		d := g.Degree(v)
		count = append(count, make([]int64, max(0, d+1-len(count)))...)
		count[d]++
	}
	return count
}

// quantilesOf describes a distribution of which count[d] are d.
func quantilesOf(count []int64) quantiles {
	var q quantiles
	total, sum := int64(0), 0.0
	for d, c := range count {
		total += c
		sum += float64(d) * float64(c)
		if c > 0 {
			q.Max = d
		}
	}
	if total == 0 {
		return q
	}
	q.Mean = sum / float64(total)
	below := int64(0)
	for d, c := range count { // the smallest d that so great a share is not above
		for _, p := range []struct {
			share float64
			to    *int
		}{{0.5, &q.Median}, {0.9, &q.P90}, {0.99, &q.P99}} {
			if want := p.share * float64(total); float64(below) < want && float64(below+c) >= want {
				*p.to = d
			}
		}
		below += c
	}
	return q
}

// statsTable has a column for each sampler.
func statsTable(all []*samplerStats, graph quantiles) *table {
	t := new(table)
	row := func(name string, value func(s *samplerStats) string) {
		cells := []string{name}
		for _, s := range all {
			cells = append(cells, value(s))
		}
		t.row(cells...)
	}
	depth := 0
	for _, s := range all {
		depth = max(depth, len(s.Layers))
	}
	layer := func(s *samplerStats, i int, value func(l *layerStats) string) string {
		if i >= len(s.Layers) {
			return "–"
		}
		return value(&s.Layers[i])
	}
	row("a batch, mean", func(s *samplerStats) string { return s.Name })
	row("batches", func(s *samplerStats) string { return formatCount(s.batches) })
	for i := range depth {
		row(fmt.Sprintf("distinct nodes, layer %d", i+1), func(s *samplerStats) string {
			return layer(s, i, func(l *layerStats) string { return significant(l.Nodes) })
		})
	}
	for i := range depth {
		row(fmt.Sprintf("edges, layer %d", i+1), func(s *samplerStats) string {
			return layer(s, i, func(l *layerStats) string { return significant(l.Edges) })
		})
	}
	row("edges per second", func(s *samplerStats) string { return significant(s.EdgesPerSecond) })
	row("isolated rows", func(s *samplerStats) string { return formatPercent(s.IsolatedShare) })
	row("match degree", func(s *samplerStats) string { return formatPercent(float64(s.MatchDegree)) })
	row("squared error", func(s *samplerStats) string { return significant(float64(s.SquaredError)) })
	for i := range depth {
		row(fmt.Sprintf("squared error, layer %d", i+1), func(s *samplerStats) string {
			return layer(s, i, func(l *layerStats) string { return significant(float64(l.SquaredError)) })
		})
	}
	t.gap()
	t.row("degrees", "mean", "median", "90 %", "99 %", "largest")
	degrees := func(name string, q quantiles) {
		t.row(name, significant(q.Mean), formatCount(q.Median), formatCount(q.P90), formatCount(q.P99), formatCount(q.Max))
	}
	degrees("graph", graph)
	for _, s := range all {
		degrees(s.Name+", entries of a row", s.RowEntries)
		degrees(s.Name+", graph's of input nodes", s.InputDegrees)
	}
	return t
}
