package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/partition"
	"github.com/gnnactor/gnnactor/graph/store"
)

func newPartition(a *app) *cobra.Command {
	var (
		data, method string
		parts        int
		seed         uint64
	)
	cmd := &cobra.Command{
		Use:   "partition --data STORE --parts n",
		Short: "Divide a store's nodes into clusters, and save that with it",
		Long: `Divide a store's nodes into clusters, and save that with the store. The cluster
sampler uses a saved partition of the method and number of parts that it is
asked for, or any when it is asked for none. One of the same method and number
of parts is replaced; 'gnnactor inspect' lists what there is.

  metis        multilevel: few cut edges, even sizes
  louvain      communities of high modularity, put together into parts
  labels       label propagation of bounded sizes, put together into parts
  hash         at random
  contiguous   by node id`,
		Example: `  gnnactor partition --data STORE --parts 1000
  gnnactor train --data STORE --sampler cluster --sampler-options clusters=1000,per-batch=20`,
		Args: a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case data == "":
				return usagef("--data: say which store to partition")
			case parts < 1:
				return usagef("--parts %d: must be 1 or more", parts)
			case !slices.Contains(partition.Methods(), method):
				return usagef("--method: %q is not one of %s", method, strings.Join(partition.Methods(), ", "))
			}
			r, err := a.partition(cmd.Context(), data, method, parts, seed)
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
		},
	}
	f := cmd.Flags()
	f.StringVar(&data, "data", "", "`DIR` of the store")
	f.IntVar(&parts, "parts", 0, "number of clusters")
	f.StringVar(&method, "method", "metis", "`NAME` of the method: "+strings.Join(partition.Methods(), ", "))
	f.Uint64Var(&seed, "seed", 1, "what every random draw derives from")
	a.addOutputFlag(cmd)
	return cmd
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
	format, err := importer.DetectFormat(dir)
	if err != nil {
		return r, err
	}
	if format != "store" {
		return r, fmt.Errorf("%s is data of format %s and no store; make one with 'gnnactor import %s STORE'", dir, format, dir)
	}
	var cluster []uint32
	err = store.View(dir, func(s *store.Store) error {
		if err := s.Check(ctx, store.CheckOptions{WithoutEdgeFeatures: true}); err != nil {
			return err
		}
		if err := s.CheckGraph(ctx); err != nil {
			return err
		}
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
