package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
	_ "github.com/gnnactor/gnnactor/graph/importer/parquet" // its tables are read as well
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/runtime"
)

func newImport(a *app) *cobra.Command {
	var o importer.Options
	var featureType, recipe string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "import [SRC] STORE",
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
  table       a table of edges, or two of edges and nodes (below)
  store       a store, to copy it with other options

Tables are text with a separator (.csv, .tsv, .txt, .edges) or lines of JSON (.jsonl), plain,
.gz or .zst, or Parquet (.parquet, .pq); in a directory the one of edges is called edges, links or relations. Columns are
found by their names: src, source, from, u and dst, target, to, v; weight, w; time, timestamp, ts;
and of nodes id, node, name; label, class, y (words and whole numbers are classes; numbers with fractions are asked about); split,
set; time. What is called otherwise, or is not what its name says, is told by --src, --dst and so on, by
name or by number from 1. Without a header they are source, destination, weight, time. Ids are
numbers of any size or texts; the store keeps them, and predict and embed print them. What is written alike is one
node: 1000 and 1e3, 7 and 007 are two, and 7 beside 7.0 is refused; NA, null and
the like are missing unless they are in quotes. Nodes
are those of the table of nodes, or those that edges name, without gaps unless --num-nodes
says how many there are. All other columns of numbers are features; --feature chooses, and
makes categories and words features, too. A number that is missing becomes the mean over the
training nodes, and another column says so; a category that is missing or new has a column of
its own. --dry-run shows what columns are taken for.

In a matrix the entry in row i and column j is an edge from i to j, its value the
edge's weight, unless all are 1. Beside one .npz, .mtx or table in a directory
may lie features.npy and so on, as for numpy.

A few bytes can name a node or a size of any number, or unpack to any length. What
is far beyond the input is refused unless --num-nodes or --max-expansion allow it.

STORE appears only when it is complete. An import that was killed leaves a hidden directory
.STORE.tmp-NUMBER beside it. The next one to the same STORE removes it; one of another name may be
removed by hand, unless somebody is importing to that STORE.`,
		Example: `  gnnactor import cora-ogb cora
  gnnactor import cora_ml.npz cora_ml --undirected
  gnnactor import edges.tsv.zst graph --undirected --self-loops
  gnnactor import --edges edges.csv --nodes nodes.csv graph --label class --split random:60/20/20
  gnnactor import graph smaller --feature-type int8`,
		Args: a.args(cobra.RangeArgs(0, 2)),
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
			if o.Separator == "\\t" {
				o.Separator = "tab"
			}
			src, dst := "", ""
			switch n := len(args); {
			case n == 2:
				src, dst = args[0], args[1]
			case n == 1 && o.Edges != "":
				dst = args[0]
			case n == 1 && dryRun:
				src = args[0]
			case n == 0 && dryRun && o.Edges != "":
			default:
				return usagef("%s: give SRC and STORE, or --edges FILE and STORE", countOf(n, "argument"))
			}
			if recipe != "" {
				r, err := readRecipe(cmd.Context(), recipe)
				if err != nil {
					return err
				}
				o.Recipe = r
			}
			var tables []importer.Table
			o.Understood = func(t importer.Table) { tables = append(tables, t) }
			if dryRun {
				if err := importer.Describe(cmd.Context(), src, o); err != nil {
					return err
				}
				return a.printTables(tables)
			}
			began := time.Now()
			if err := importer.Import(cmd.Context(), src, dst, o); err != nil {
				return err
			}
			if a.output != outputJSON {
				if err := a.printUses(tables); err != nil {
					return err
				}
			}
			return a.reportStore(dst, "imported", time.Since(began))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Format, "format", "", "`NAME` of the format: "+strings.Join(importer.Formats(), ", "))
	f.StringVar(&o.Name, "name", "", "what to call the data (default: what its files say)")
	f.StringVar(&o.Split, "split", "", "`SPLIT` to take: the column of nodes that says train, valid or test; random:60/20/20, random:60/20/20:stratified, time:COL:60/20/20; of OGB's a directory in split/")
	f.Uint64Var(&o.Seed, "seed", 0, "seed of a random split")
	f.StringVar(&o.Edges, "edges", "", "`FILE` of edges, a table")
	f.StringVar(&o.Nodes, "nodes", "", "`FILE` of nodes, a table")
	f.StringVar(&o.Src, "src", "", "`COL`umn of edges' sources: its name, or its number from 1")
	f.StringVar(&o.Dst, "dst", "", "`COL`umn of edges' destinations")
	f.StringVar(&o.Weight, "weight", "", "`COL`umn of edges' weights; none: take none")
	f.StringVar(&o.Time, "time", "", "`COL`umn of edges' times, whole numbers or dates; none: take none")
	f.StringArrayVar(&o.EdgeFeatures, "edge-feature", nil, "`COL`umn of edges' features, again for each; COL:number, COL:category or COL:text says of which kind")
	f.StringVar(&o.ID, "id", "", "`COL`umn of nodes' ids; row: nodes are 0, 1, … in the order of the rows")
	f.StringVar(&o.Label, "label", "", "`COL`umn of nodes' labels, classes by numbers or names; COL:number: numbers to predict; none: take none")
	f.StringArrayVar(&o.Features, "feature", nil, "`COL`umn of nodes' features, again for each, as for --edge-feature; all; none (default: all other columns of numbers)")
	f.StringVar(&o.Scale, "scale", "", "standard: give features that are numbers mean 0 and deviation 1 over the training nodes")
	f.StringVar(&recipe, "recipe", "", "make features and classes as those of `STORE`, or of the data of a saved model, were made")
	f.StringVar(&o.Header, "header", "", "yes or no: whether tables begin with names of columns (default: found out)")
	f.StringVar(&o.Separator, "separator", "", "`CHARACTER` between a table's columns, or tab or space (default: found out)")
	f.StringVar(&o.Quotes, "quotes", "", "none: take quotes in tables as they are")
	f.BoolVar(&o.DecimalComma, "decimal-comma", false, "read 0,5 in tables as a half")
	f.BoolVar(&dryRun, "dry-run", false, "show what the columns of tables are taken for, and five rows; write nothing")
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

// readRecipe reads the recipe that a store or a saved model keeps.
func readRecipe(ctx context.Context, path string) (r *importer.Recipe, err error) {
	parse := func(b []byte) error {
		if b == nil {
			return fmt.Errorf("--recipe: %s keeps none: it was not made of tables with features or labels", path)
		}
		r, err = importer.ParseRecipe(b)
		return err
	}
	if st, err := os.Stat(path); err == nil && !st.IsDir() {
		m, err := runtime.OpenModel(ctx, path)
		if err != nil {
			return nil, err
		}
		err = parse(m.Recipe())
		return r, err
	}
	err = store.View(path, func(s *store.Store) error { return graph.Guard(func() error { return parse(s.Dataset().Recipe) }) })
	return r, err
}

// printTables shows what columns are taken for, and five rows.
func (a *app) printTables(tables []importer.Table) error {
	if a.output == outputJSON {
		return a.printJSON(map[string]any{"tables": tables})
	}
	for _, t := range tables {
		header := "the first line has their names"
		if !t.Header {
			header = "no names: by position"
		}
		fmt.Fprintf(a.stdout, "%s: %s; %d columns, %s\n", t.Path, t.Of, len(t.Columns), header)
		show := new(table)
		for k, c := range t.Columns[:min(len(t.Columns), 40)] {
			row := []string{c.Name, c.Use}
			for _, r := range t.Rows {
				row = append(row, shortened(r[k]))
			}
			show.row(row...)
		}
		if err := show.write(a.stdout); err != nil {
			return err
		}
		if n := len(t.Columns) - 40; n > 0 {
			fmt.Fprintf(a.stdout, "and %d more columns\n", n)
		}
	}
	return nil
}

// printUses says in a line for each table what its columns were taken for.
func (a *app) printUses(tables []importer.Table) error {
	for _, t := range tables {
		uses := map[string][]string{}
		var order []string
		for _, c := range t.Columns {
			if uses[c.Use] == nil {
				order = append(order, c.Use)
			}
			uses[c.Use] = append(uses[c.Use], shortened(c.Name))
		}
		var parts []string
		for _, use := range order {
			names := uses[use]
			more := ""
			if len(names) > 6 {
				names, more = names[:6], fmt.Sprintf(" and %d more", len(uses[use])-6)
			}
			parts = append(parts, use+" = "+strings.Join(names, ", ")+more)
		}
		if _, err := fmt.Fprintf(a.stdout, "%s: %s\n", t.Path, strings.Join(parts, "; ")); err != nil {
			return err
		}
	}
	return nil
}

// shortened makes a field fit into a column of a table, and fit to be printed.
func shortened(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 24 {
		return string(r[:23]) + "…"
	}
	return s
}
