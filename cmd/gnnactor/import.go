package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/store"
)

func newImport(a *app) *cobra.Command {
	var o importer.Options
	var featureType string
	cmd := &cobra.Command{
		Use:   "import SRC STORE",
		Short: "Turn data into a store",
		Long: `Turn data into a store: one directory that opens in milliseconds at any size.

SRC is recognised by its files; --format overrides:
  graphbolt   metadata.yaml (an OnDiskDataset of DGL)
  ogb         raw/*.csv.gz and split/*/{train,valid,test}.csv.gz
  numpy       indptr.npy and indices.npy, or edges.npy; features.npy, labels.npy,
              train.npy, valid.npy and test.npy where they exist
  npz         one archive of NumPy arrays: a matrix of SciPy's save_npz (csr, csc, coo),
              adj_data, adj_indices, adj_indptr, adj_shape and the same for attr_,
              row and col, or edges; with features, labels, train_mask and so on
  mtx         one Matrix Market file of coordinates (pattern, integer or real; general
              or symmetric), plain, .gz or .zst
  edgelist    one CSV or TSV file, plain, .gz or .zst
  store       a store, to copy it with other options

In a matrix the entry in row i and column j is an edge from i to j, its value the
edge's weight, unless all are 1. Beside one .npz, .mtx or edge list in a directory
may lie features.npy and so on, as for numpy.

A few bytes can name a node or a size of any number, or unpack to any length. What
is far beyond the input is refused unless --num-nodes or --max-expansion allow it.

STORE appears only when it is complete.`,
		Example: `  gnnactor import cora-ogb cora
  gnnactor import cora_ml.npz cora_ml --undirected
  gnnactor import edges.tsv.zst graph --undirected --self-loops
  gnnactor import graph smaller --feature-type int8`,
		Args: a.args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Format != "" && !slices.Contains(importer.Formats(), o.Format) {
				return usagef("--format: %q is not one of %s", o.Format, strings.Join(importer.Formats(), ", "))
			}
			if o.NumNodes < 0 {
				return usagef("--num-nodes %d: must be positive; 0 counts them", o.NumNodes)
			}
			if o.MaxExpansion < 1 {
				return usagef("--max-expansion %d: must be 1 or more", o.MaxExpansion)
			}
			if featureType != "" {
				e, err := graph.ParseEncoding(featureType)
				if err != nil {
					return usagef("--feature-type: %q is not one of %s", featureType, strings.Join(graph.Encodings(), ", "))
				}
				o.FeatureType = e
			}
			o.Context = cmd.Context()
			began := time.Now()
			if err := importer.Import(args[0], args[1], o); err != nil {
				return err
			}
			return a.reportStore(args[1], "imported", time.Since(began))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Format, "format", "", "`NAME` of the format: "+strings.Join(importer.Formats(), ", "))
	f.StringVar(&o.Name, "name", "", "what to call the data (default: what its files say)")
	f.StringVar(&o.Split, "split", "", "which of several splits to take (OGB: the `NAME` of a directory in split/)")
	f.IntVar(&o.NumNodes, "num-nodes", 0, "how many nodes there are, where the data does not say")
	f.IntVar(&o.MaxExpansion, "max-expansion", 1024, "bytes to make of each byte read, beyond 32 MiB: of zeros, nodes, compressed files")
	f.BoolVar(&o.FollowLinks, "follow-links", false, "read what symbolic links in SRC lead to outside of it")
	f.BoolVar(&o.Undirected, "undirected", false, "add the reverse of every edge, and keep one of parallel edges")
	f.BoolVar(&o.SelfLoops, "self-loops", false, "add an edge from every node to itself, where there is none")
	f.BoolVar(&o.DropDuplicates, "drop-duplicates", false, "keep the first of parallel edges")
	f.BoolVar(&o.NormalizeFeatures, "normalize-features", false, "divide each node's features by the sum of their absolute values")
	f.StringVar(&featureType, "feature-type", "", "store node features as `TYPE`: "+strings.Join(graph.Encodings(), ", ")+" (default: as a store has them, or what holds every value)")
	f.BoolVar(&o.Overwrite, "overwrite", false, "replace a store that is there already")
	a.addOutputFlag(cmd)
	return cmd
}

// reportStore says what a store that was just made holds.
func (a *app) reportStore(dir, made string, took time.Duration) error {
	return store.View(dir, func(s *store.Store) error {
		if a.output == outputJSON {
			return a.printJSON(s.Dataset().Summary())
		}
		_, err := fmt.Fprintf(a.stdout, "%s\n%s in %s to %s\n", describe(s.Dataset()), made, formatDuration(took), dir)
		return err
	})
}
