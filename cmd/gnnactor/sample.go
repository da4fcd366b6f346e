package main

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/sampling"
)

// seedsWithoutSplit is how many nodes are drawn as seeds when the data has no
// training split: the size of ogbn-products' training set, so that figures can
// be compared.
const seedsWithoutSplit = 196_615

func newSample(a *app) *cobra.Command {
	var (
		config  *configFlags
		batches int
		stats   bool
		plot    string
	)
	cmd := &cobra.Command{
		Use:   "sample",
		Short: "Sample mini-batches, measure how fast that goes, and compare samplers",
		Long: `Sample mini-batches and measure how fast that goes. Features are not loaded, and
need not exist. Seeds are the training set's nodes; without one, 196,615 nodes
drawn uniformly, or all if there are fewer.

With --features, --match, --reorder or --cache the feature rows that batches need are
brought to memory as in training, and counted: how many are there because the
batches before needed them or a cache holds them, and how many are read. Data
without features counts as a byte for each node.

With --stats it also says what the batches are like, for one sampler or for
several beside each other (--sampler neighbor,labor,gns): distinct nodes and edges
by layer, degrees, rows that got no neighbour although they have some, how much
consecutive batches overlap (match degree: the share of the smaller batch's input
nodes that the other has too), and the mean squared error of aggregation: of the
mean over a row's sampled neighbours, for a signal of ±1 drawn per node, against
the mean over all. Each takes those of the --sampler-options that it reads.

What --sampler-options sets, here and in training:
  neighbor   weighted=true, replace=true, temporal=true (no neighbour newer than the
             seed; the data have times)
  khop       temporal=true
  labor      dependency (batches that share random numbers)
  pinsage    walks, walk-length, restart (a probability)
  lazy       mega-batch (seeds), recycle (steps that use a mega-batch), recycle-growth
  gns        cache-fraction, cache-period (epochs), cache-by=degree|walks, cache-only=true,
             cache-approximate=true, normalize=sum|degree
  node       budget (nodes)
  edge       budget (edges)
  walk       roots, walk-length
  frontier   frontier (nodes), budget (pops), degree-cap, distinct=true
  cluster    clusters, per-batch, partition-by (see 'gnnactor partition --help'; of a
             partition set pieces, contiguous or hash),
             partition-sha256, boundary=true
  these five  normalization (subgraphs sampled beforehand), clip (to a multiple)

With --output json the last line of the standard output is an object with
batches_per_second, sampled_edges_per_second, mean_edges and mean_input_nodes; with
--stats, one with graph_degrees and samplers, an object for each of them.`,
		Example: `  gnnactor sample --data DIR --fanouts 15,10,5 --batch-size 1024 --batches 200
  gnnactor sample --data DIR --fanouts 15,10,5 --stats --sampler neighbor,labor,gns --plot samplers.svg
  gnnactor sample --data DIR --fanouts 5,10,15 --batch-size 8000 --match on --reorder 8 --cache degree:5%
  gnnactor sample --data DIR --stats --sampler frontier,cluster \
    --sampler-options budget=8000,frontier=1000,clusters=1000,per-batch=20`,
		Args: a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if batches < 0 {
				return usagef("--batches %d: must be 1 or more; 0 takes one epoch", batches)
			}
			if plot != "" && !stats {
				return usagef("--plot draws what --stats measures; give that, too")
			}
			if err := checkPlot(plot, ".svg", ".png"); err != nil {
				return err
			}
			cfg, err := config.load(cmd, a)
			if err != nil {
				return err
			}
			cfg.Memory.Gather = "" // nothing is computed
			// From wherever they came: flags, the environment, a file.
			rows := cfg.Memory.Features != "" || cfg.Memory.Match != "" || cfg.Sampling.Reorder > 1 || cfg.Memory.Cache != ""
			if stats {
				if rows {
					return usagef("--stats says what the batches are like, not where their rows come from: leave out --features, --match, --reorder and --cache, or --stats")
				}
				if !cmd.Flags().Changed("batches") {
					batches = statsBatches
				}
				return a.compareSamplers(cmd.Context(), cfg, batches, plot)
			}
			if strings.Contains(cfg.Sampling.Sampler, ",") {
				return usagef("--sampler %s: several are compared by --stats; give that, too, or name one", cfg.Sampling.Sampler)
			}
			rt, ds, err := a.openBare(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if rows {
				cfg = withRows(cfg, ds, rt.Dataset().NodeFeatures != nil)
			} else {
				cfg.Data.Dataset = ds
			}
			r, err := a.sample(cmd.Context(), cfg, batches, nil)
			if err == nil {
				err = rt.Verified(cmd.Context())
			}
			if err = errors.Join(err, rt.Stop()); err != nil {
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
			if r.Rows != nil {
				t.gap()
				addRows(&t, *r.Rows)
			}
			return t.write(a.stdout)
		},
	}
	names := []string{"layers", "sampler", "fanouts", "sampler-options", "batch-size", "micro-batches", "epoch-subgraphs", "inductive", "seed", "threads", "samplers", "credits"}
	config = addConfigFlags(cmd, []group{dataGroup}, append(names, rowSettings...)...)
	cmd.Flags().IntVar(&batches, "batches", 0, "batches to sample; 0: one epoch (default with --stats: 20)")
	cmd.Flags().BoolVar(&stats, "stats", false, "say what the batches are like; --sampler may name several, divided by commas")
	cmd.Flags().StringVar(&plot, "plot", "", "`FILE`.svg or .png to draw the statistics to")
	a.addOutputFlag(cmd)
	return cmd
}

// sampleResult is what --output json prints.
type sampleResult struct {
	BatchesPerSecond float64 `json:"batches_per_second"`
	EdgesPerSecond   float64 `json:"sampled_edges_per_second"`
	MeanEdges        float64 `json:"mean_edges"`
	MeanInputNodes   float64 `json:"mean_input_nodes"`

	Rows *runtime.RowStats `json:"rows,omitempty"`

	batches int
	took    time.Duration
}

// openBare opens the data and returns it without features and labels, too: a
// runtime that has some would load them. The data lives until rt is stopped.
func (a *app) openBare(ctx context.Context, cfg runtime.Config) (rt *runtime.Runtime, bare *graph.Dataset, err error) {
	if pieces.IsSet(cfg.Data.Path) {
		return nil, nil, usagef("--data: %s is a partition set; sampling alone is measured on the store that it was made of", cfg.Data.Path)
	}
	// The whole-graph sampler has nothing to prepare.
	cfg.Sampling.Sampler, cfg.Sampling.Options, cfg.Sampling.EpochSubgraphs = "full", nil, 0
	cfg.Memory.Features, cfg.Memory.Match, cfg.Memory.Cache, cfg.Memory.Loaders = "", "", "", 0
	rt, err = runtime.Start(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	a.logf("%s", describe(rt.Dataset()))
	copied := *rt.Dataset()
	copied.NodeFeatures, copied.EdgeFeatures, copied.Labels = nil, nil, nil
	return rt, &copied, nil
}

// rowSettings are the settings that say how feature rows are brought to memory.
var rowSettings = []string{"features", "match", "reorder", "reorder-method", "cache", "loaders"}

// withRows readies cfg, whose data ds was bare of, to count rows: with the
// features that the data has, or a byte for each node.
func withRows(cfg runtime.Config, ds *graph.Dataset, features bool) runtime.Config {
	if cfg.Memory.Match == "" && cfg.Memory.Features == "" {
		cfg.Memory.Match = "on"
	}
	if features {
		return cfg
	}
	n := ds.Graph.NumNodes()
	ds.NodeFeatures = &graph.Features{Rows: n, Cols: 1, DType: graph.Uint8, Stride: 1, Data: make([]byte, n)}
	cfg.Data.Dataset = ds
	return cfg
}

// sample draws n global batches of cfg.Dataset, or one epoch when n is 0, and
// times that. Then visit, unless it is nil, is called with each of the same
// micro-batches again, of one epoch at most.
func (a *app) sample(ctx context.Context, cfg runtime.Config, n int, visit func(*sampling.Batch)) (r sampleResult, err error) {
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	ds := rt.Dataset()
	o := runtime.BatchesOptions{Nodes: ds.Train, Epochs: max(n, 1), Phase: "sample", NoCopy: true}
	if len(o.Nodes) == 0 {
		o.Nodes = drawNodes(ds.Graph, seedsWithoutSplit, cfg.Training.Seed)
	}
	if visit != nil {
		o.Epochs = 1
	}
	var edges, inputs int64
	began := time.Now()
	r.batches, err = countBatches(rt.Batches(ctx, o), n, func(b *sampling.Batch) {
		edges += int64(b.NumEdges())
		inputs += int64(b.NumInputs())
	})
	if err != nil {
		return r, err
	}
	r.took = time.Since(began)
	if rows := rt.Stats().Rows; rows.Asked > 0 {
		r.Rows = &rows
	}
	r.BatchesPerSecond = float64(r.batches) / r.took.Seconds()
	r.EdgesPerSecond = float64(edges) / r.took.Seconds()
	r.MeanEdges = float64(edges) / float64(r.batches)
	r.MeanInputNodes = float64(inputs) / float64(r.batches)
	if visit != nil {
		_, err = countBatches(rt.Batches(ctx, o), n, visit)
	}
	return r, err
}

// countBatches calls visit with every micro-batch until n global batches have
// gone by, or all when n is 0, and returns how many went by.
func countBatches(batches iter.Seq2[*runtime.Batch, error], n int, visit func(*sampling.Batch)) (count int, err error) {
	for b, err := range batches {
		if err != nil {
			return count, err
		}
		visit(b.Batch)
		if b.ID.Micro+1 >= b.ID.Of {
			if count++; count == n {
				break
			}
		}
	}
	return count, nil
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
