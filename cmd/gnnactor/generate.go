package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/memlimit"
)

func newGenerate(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate rmat|sbm|builtin STORE",
		Short: "Make a store with a generated graph",
		Long: `Make a store with a generated graph. The same flags give the same bytes on any
machine and any number of cores.`,
		// Without a kind of graph that it knows, it is bad usage and no help page.
		RunE: func(cmd *cobra.Command, args []string) error {
			a.command = cmd.CommandPath()
			if len(args) == 0 {
				return usagef("say what to generate: rmat, sbm or builtin")
			}
			return usagef("cannot generate %q: only rmat, sbm or builtin", args[0])
		},
	}
	cmd.AddCommand(newGenerateRMAT(a), newGenerateSBM(a), newGenerateBuiltin(a))
	return cmd
}

func newGenerateRMAT(a *app) *cobra.Command {
	o := generate.RMATOptions{Scale: 16, Edges: 1 << 20, Seed: 1}
	cmd := &cobra.Command{
		Use:   "rmat STORE",
		Short: "A graph of skewed degrees (R-MAT), to measure speed on",
		Long: `A graph of skewed degrees (R-MAT with the parameters of Graph500), undirected,
without loops or parallel edges. Features and labels are random: they measure
speed, and nothing can be learnt from them.`,
		Example: `  gnnactor generate rmat graph --scale 20 --edges 10000000 --features 128 --classes 40`,
	}
	f := cmd.Flags()
	f.IntVar(&o.Scale, "scale", o.Scale, "log2 of the number of nodes")
	f.IntVar(&o.Edges, "edges", o.Edges, "undirected edges to draw; loops and duplicates among them go")
	f.IntVar(&o.FeatureDim, "features", o.FeatureDim, "random features per node; 0: none")
	f.IntVar(&o.Classes, "classes", o.Classes, "classes of random labels; 0: no labels and no splits")
	f.Float64Var(&o.TrainFraction, "train", 0.6, "share of the nodes for training")
	f.Float64Var(&o.ValidFraction, "valid", 0.2, "share of the nodes for validation; the rest is for testing")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "what every random draw derives from")
	return a.generator(cmd, func(ctx context.Context) (*graph.Dataset, error) {
		if err := fits(o.Bytes()); err != nil {
			return nil, err
		}
		return generate.RMAT(ctx, o)
	})
}

func newGenerateSBM(a *app) *cobra.Command {
	o := generate.SBMOptions{
		Nodes: 10_000, Classes: 8, AvgDegree: 10, Homophily: 0.7, FeatureDim: 32, Signal: 0.3,
		TrainFraction: 0.3, ValidFraction: 0.2, Seed: 1,
	}
	cmd := &cobra.Command{
		Use:   "sbm STORE",
		Short: "A graph of communities with noisy features, to measure accuracy on",
		Long: `A graph of communities (a stochastic block model), undirected, without loops or
parallel edges. A node's label is its community, and its features are a weak
sign of it under noise: who averages over neighbours sees more.`,
		Example: `  gnnactor generate sbm graph --nodes 100000 --classes 10 --degree 20`,
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", o.Nodes, "number of nodes")
	f.IntVar(&o.Classes, "classes", o.Classes, "communities, of equal size")
	f.Float64Var(&o.AvgDegree, "degree", o.AvgDegree, "edges per node; loops and duplicates among them go")
	f.Float64Var(&o.Homophily, "homophily", o.Homophily, "share of the edges that stay within a community")
	f.IntVar(&o.FeatureDim, "features", o.FeatureDim, "features per node")
	f.Float64Var(&o.Signal, "signal", o.Signal, "size of the class's pattern in the features, over noise of variance 1")
	f.Float64Var(&o.TrainFraction, "train", o.TrainFraction, "share of the nodes for training")
	f.Float64Var(&o.ValidFraction, "valid", o.ValidFraction, "share of the nodes for validation; the rest is for testing")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "what every random draw derives from")
	return a.generator(cmd, func(ctx context.Context) (*graph.Dataset, error) {
		if err := fits(o.Bytes()); err != nil {
			return nil, err
		}
		return generate.SBM(ctx, o)
	})
}

func newGenerateBuiltin(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "builtin STORE", Short: "The graph that 'gnnactor train' trains on without --data"}
	return a.generator(cmd, func(context.Context) (*graph.Dataset, error) { return generate.Builtin(), nil })
}

// generator completes a kind of graph's command. Its flags are all that make
// can refuse.
func (a *app) generator(cmd *cobra.Command, make func(context.Context) (*graph.Dataset, error)) *cobra.Command {
	var overwrite bool
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace a store that is there already")
	a.addOutputFlag(cmd)
	cmd.Args = a.args(cobra.ExactArgs(1))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		began := time.Now()
		ds, err := make(cmd.Context())
		if err != nil {
			if cmd.Context().Err() != nil {
				return err
			}
			return &usageError{err}
		}
		var options []store.CreateOption
		if overwrite {
			options = append(options, store.Overwrite())
		}
		if err := store.Create(cmd.Context(), args[0], ds, options...); err != nil {
			return err
		}
		return a.reportStore(args[0], "generated", time.Since(began))
	}
	return cmd
}

// fits reports that a graph takes more memory than there is: it is generated in
// memory before it is written.
func fits(bytes int64) error {
	limits := memlimit.Here()
	if machine, ok := memlimit.Machine(); ok {
		limits = append(limits, machine)
	}
	for _, l := range limits {
		if bytes > l.Bytes {
			return fmt.Errorf("the graph takes about %d MiB while it is made, and %s allows %d; ask for fewer nodes, edges or features, or take a larger machine", bytes>>20, l.From, l.Bytes>>20)
		}
	}
	return nil
}
