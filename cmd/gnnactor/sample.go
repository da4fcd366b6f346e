package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/rng"
	"github.com/gnnactor/gnnactor/runtime"
)

// seedsWithoutSplit is how many nodes are drawn as seeds when the data has no
// training split: the size of ogbn-products' training set, so that figures can
// be compared.
const seedsWithoutSplit = 196_615

func newSample(a *app) *cobra.Command {
	var (
		config  *configFlags
		batches int
	)
	cmd := &cobra.Command{
		Use:   "sample",
		Short: "Sample mini-batches and measure how fast that goes",
		Long: `Sample mini-batches and measure how fast that goes. Features are not loaded, and
need not exist. Seeds are the training set's nodes; without one, 196,615 nodes
drawn uniformly, or all if there are fewer.

With --output json the last line of the standard output is an object with
batches_per_second, sampled_edges_per_second, mean_edges and mean_input_nodes.`,
		Example: `  gnnactor sample --data DIR --fanouts 15,10,5 --batch-size 1024 --batches 200`,
		Args:    a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if batches < 0 {
				return usagef("--batches %d: must be 1 or more; 0 takes one epoch", batches)
			}
			cfg, err := config.load(cmd, a)
			if err != nil {
				return err
			}
			r, err := a.sample(cmd.Context(), cfg, batches)
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				return a.printJSON(r)
			}
			var t table
			t.row("batches", formatCount(r.batches), "in "+formatDuration(r.took))
			t.row("batches per second", significant(r.BatchesPerSecond))
			t.row("sampled edges per second", significant(r.EdgesPerSecond))
			t.row("edges of a batch, mean", significant(r.MeanEdges))
			t.row("input nodes of a batch, mean", significant(r.MeanInputNodes))
			return t.write(a.stdout)
		},
	}
	config = addConfigFlags(cmd, []group{dataGroup}, "layers", "sampler", "fanouts", "sampler-options", "batch-size", "micro-batches", "seed", "threads", "samplers", "credits", "local-codec")
	cmd.Flags().IntVar(&batches, "batches", 0, "batches to sample; 0: one epoch")
	a.addOutputFlag(cmd)
	return cmd
}

// sampleResult is what --output json prints.
type sampleResult struct {
	BatchesPerSecond float64 `json:"batches_per_second"`
	EdgesPerSecond   float64 `json:"sampled_edges_per_second"`
	MeanEdges        float64 `json:"mean_edges"`
	MeanInputNodes   float64 `json:"mean_input_nodes"`

	batches int
	took    time.Duration
}

// sample draws n global batches, or one epoch when n is 0.
func (a *app) sample(ctx context.Context, cfg runtime.Config, n int) (r sampleResult, err error) {
	data, err := runtime.Start(cfg)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, data.Stop()) }()
	ds := data.Dataset()
	a.logf("%s", describe(ds))
	// The same graph without features: a runtime that has some would load them.
	bare := *ds
	bare.NodeFeatures, bare.EdgeFeatures, bare.Labels = nil, nil, nil
	cfg.Dataset = &bare
	rt, err := runtime.Start(cfg)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	seeds := ds.Train
	if len(seeds) == 0 {
		seeds = drawNodes(ds.Graph, seedsWithoutSplit, cfg.Seed)
	}
	perEpoch := (len(seeds) + cfg.BatchSize - 1) / cfg.BatchSize
	if cfg.Sampler == "full" {
		perEpoch = 1
	}
	if n == 0 {
		n = perEpoch
	}
	epochs := (n + perEpoch - 1) / max(perEpoch, 1)
	var edges, inputs int64
	began := time.Now()
	for b, err := range rt.Batches(ctx, runtime.BatchesOptions{Nodes: seeds, Epochs: epochs, Phase: "sample"}) {
		if err != nil {
			return r, err
		}
		edges += int64(b.NumEdges())
		inputs += int64(b.NumInputs())
		if b.ID.Micro+1 >= b.ID.Of {
			if r.batches++; r.batches == n {
				break
			}
		}
	}
	r.took = time.Since(began)
	r.BatchesPerSecond = float64(r.batches) / r.took.Seconds()
	r.EdgesPerSecond = float64(edges) / r.took.Seconds()
	r.MeanEdges = float64(edges) / float64(r.batches)
	r.MeanInputNodes = float64(inputs) / float64(r.batches)
	return r, nil
}

// drawNodes returns k distinct nodes of g, uniformly drawn, sorted; all when
// there are not more. It is Floyd's method: one draw a node, memory for k.
func drawNodes(g *graph.Graph, k int, seed uint64) []uint32 {
	n := g.NumNodes()
	if k >= n {
		k = n
	}
	key := rng.New(seed, 0x5eed5)
	chosen := make(map[uint32]struct{}, k)
	for i := n - k; i < n; i++ {
		v := uint32(key.Uintn(uint64(i), uint64(i+1)))
		if _, taken := chosen[v]; taken {
			v = uint32(i)
		}
		chosen[v] = struct{}{}
	}
	nodes := make([]uint32, 0, k)
	for v := range chosen {
		nodes = append(nodes, v)
	}
	slices.Sort(nodes)
	return nodes
}
