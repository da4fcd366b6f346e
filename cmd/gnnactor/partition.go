package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/partition"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
)

func newPartition(a *app) *cobra.Command {
	var (
		data, method, edges, out, memory string
		parts                            int
		seed                             uint64
		overwrite                        bool
	)
	cmd := &cobra.Command{
		Use:   "partition --data STORE --parts n [--out DIR]",
		Short: "Divide a store's nodes into clusters, or the store into pieces",
		Long: `Divide a store's nodes into clusters, and save that with the store. The cluster
sampler uses a saved partition of the method and number of parts that it is
asked for, or any when it is asked for none. One of the same method and number
of parts is replaced; 'gnnactor inspect' lists what there is.

  metis        multilevel: few cut edges, even sizes
  louvain      communities of high modularity, put together into parts
  labels       label propagation of bounded sizes, put together into parts
  hash         at random
  contiguous   by node id
  fennel       as nodes are read, to where most of their neighbours are (--out only)

With --out the store stays as it is, and DIR becomes a partition set: the graph in
pieces for machines that cannot hold it whole, each a directory with the nodes of a
part, their features and labels, and edges. Pieces hold multiples of 1,024 nodes;
"contiguous" cuts where they hold about as many bytes each and keeps the ids, the
others order nodes by piece and keep their ids beside. Without a store, --data may be
a list of edges or whatever 'gnnactor import' takes without options: it is imported
beside DIR, for as long as this takes. An edge lies with its target
(--edges target), with its source, or in the cell of a grid of pieces. The graph is
read from its first edge to its last and sorted in files, so that --memory can be
far below its size. What was interrupted goes on where it was when the same command
is given again. 'gnnactor inspect DIR' shows a set; eval, embed and predict compute on
one, and train with the sampler full; where edges lie with their targets train and plan take it for --data with
all samplers but frontier, ladies, edge and lazy: from pieces that keep the ids
(contiguous) training makes the parameters that it makes from the store, bit for bit.
The clusters of the sampler cluster are then the pieces, or finer (clusters=N), each
piece divided by metis; or partition-by=contiguous or hash says how. With the sampler
full all pieces are computed at once: bits are then a function of the partition.`,
		Example: `  gnnactor partition --data STORE --parts 1000
  gnnactor train --data STORE --sampler cluster --sampler-options clusters=1000,per-batch=20
  gnnactor partition --data STORE --parts 4 --method fennel --memory 512MiB --out PIECES
  gnnactor partition --data edges.csv.gz --parts 4 --method hash --out PIECES
  gnnactor train --data PIECES`,
		Args: a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			methods := partition.Methods()
			if out != "" {
				methods = pieces.Methods()
			}
			bytes, err := humanize.ParseBytes(memory)
			switch {
			case data == "":
				return usagef("--data: say which store to partition")
			case parts < 1:
				return usagef("--parts %d: must be 1 or more", parts)
			case method == "fennel" && out == "":
				return usagef("--method: fennel makes pieces: say where with --out, or choose one of %s", strings.Join(methods, ", "))
			case !slices.Contains(methods, method):
				return usagef("--method: %q is not one of %s", method, strings.Join(methods, ", "))
			case err != nil || bytes > math.MaxInt64:
				return usagef("--memory: %q is not a size; write 512MiB or 4GiB, say", memory)
			case !slices.Contains(pieces.EdgePlaces(), edges):
				return usagef("--edges: %q is not one of %s", edges, strings.Join(pieces.EdgePlaces(), ", "))
			}
			if out == "" {
				for _, name := range []string{"edges", "memory", "overwrite"} {
					if cmd.Flags().Changed(name) {
						return usagef("--%s is read with --out alone", name)
					}
				}
				return a.cluster(cmd.Context(), data, method, parts, seed)
			}
			o := pieces.Options{Method: method, Edges: edges, Pieces: parts, Seed: seed, Memory: int64(bytes), Overwrite: overwrite}
			return a.divide(cmd.Context(), data, out, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&data, "data", "", "`DIR` of the store; with --out, a list of edges, too")
	f.IntVar(&parts, "parts", 0, "number of clusters, or of pieces")
	f.StringVar(&method, "method", "metis", "`NAME` of the method: "+strings.Join(pieces.Methods(), ", "))
	f.Uint64Var(&seed, "seed", 1, "what every random draw derives from")
	f.StringVar(&out, "out", "", "write a partition set to the new `DIR`")
	f.StringVar(&edges, "edges", pieces.EdgesAtTarget, "with --out: `WHERE` edges lie: "+strings.Join(pieces.EdgePlaces(), ", "))
	f.StringVar(&memory, "memory", "1GiB", "with --out: `SIZE` of what may be allocated, beside mapped files")
	f.BoolVar(&overwrite, "overwrite", false, "with --out: replace a partition set that is there already")
	a.addOutputFlag(cmd)
	return cmd
}

// cluster saves a partition with the store.
func (a *app) cluster(ctx context.Context, data, method string, parts int, seed uint64) error {
	r, err := a.partition(ctx, data, method, parts, seed)
	if err != nil {
		return err
	}
	if a.output == outputJSON {
		return a.printJSON(r)
	}
	var t table
	t.row("clusters", formatCount(r.Clusters))
	t.row("nodes of the largest", formatCount(r.Largest))
	t.row("edges cut", formatPercent(r.CutShare))
	t.row("modularity", significant(r.Modularity))
	t.row("took", formatDuration(time.Duration(r.Seconds*float64(time.Second))))
	return t.write(a.stdout)
}

// partitionResult is what --output json prints.
type partitionResult struct {
	Method     string  `json:"method"`
	Parts      int     `json:"parts"`
	Clusters   int     `json:"clusters"` // that have nodes
	Largest    int     `json:"largest"`
	CutShare   float64 `json:"cut_share"`
	Modularity float64 `json:"modularity"`
	Seconds    float64 `json:"seconds"` // of the method alone
}

func (a *app) partition(ctx context.Context, dir, method string, parts int, seed uint64) (r partitionResult, err error) {
	var cluster []uint32
	err = viewChecked(ctx, dir, store.CheckOptions{WithoutEdgeFeatures: true}, func(s *store.Store) error {
		g := s.Dataset().Graph
		began := time.Now()
		if cluster, err = partition.Compute(ctx, g, method, parts, seed); err != nil {
			return err
		}
		r = partitionResult{Method: method, Parts: parts, Seconds: time.Since(began).Seconds()}
		q, err := partition.Measure(ctx, g, cluster)
		if err != nil {
			return err
		}
		r.Clusters, r.Largest, r.CutShare, r.Modularity = q.Clusters, q.Largest, q.CutShare, q.Modularity
		return nil
	})
	if errors.Is(err, partition.ErrCount) {
		return r, usagef("--parts: %w", err)
	}
	if err != nil {
		return r, err
	}
	return r, store.SavePartition(ctx, dir, graph.Partition{Method: method, Parts: parts, Seed: seed, Cluster: cluster})
}

// viewChecked calls f with the store in dir, whose files and rows are sound.
func viewChecked(ctx context.Context, dir string, o store.CheckOptions, f func(s *store.Store) error) error {
	format, err := importer.DetectFormat(dir)
	if err != nil {
		return err
	}
	if format != "store" {
		return fmt.Errorf("%s is data of format %s and no store; make one with 'gnnactor import %s STORE'", dir, format, dir)
	}
	return store.View(dir, func(s *store.Store) error {
		if err := s.Check(ctx, o); err != nil {
			return err
		}
		if err := s.CheckGraph(ctx); err != nil {
			return err
		}
		return f(s)
	})
}
