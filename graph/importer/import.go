// Package importer turns the data that people have into a store: GraphBolt's and OGB's
// directories, arrays of NumPy and SciPy, Matrix Market, and tables of edges and nodes as people write
// them.
package importer

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/store"
)

// ImportOptions says what Import does with the data on its way. The zero value
// takes it as it is.
type Options struct {
	// Format is one of Formats; empty: recognised by the files that are there.
	Format string
	// Name is what the dataset is called; empty: what its files say, or else
	// the source's base name.
	Name string
	// NumNodes is the number of nodes, for formats that do not say it; 0: the
	// rows of the features or labels, or else the largest id + 1. It must
	// agree with what the files say.
	NumNodes int
	// Undirected adds the reverse of every edge, with the same weight and
	// features, and keeps one of each set of parallel edges.
	Undirected bool
	// SelfLoops adds an edge from every node to itself, of weight 1 and
	// features 0, where there is none.
	SelfLoops bool
	// DropDuplicates keeps the first of each set of parallel edges.
	DropDuplicates bool
	// NormalizeFeatures divides each node's features by the sum of their
	// absolute values and stores float32; rows of zeros stay zero.
	NormalizeFeatures bool
	// FeatureType is how node features are stored; zero: in the type that holds
	// every value as it is. Other than by rounding to it values do not change.
	FeatureType graph.Encoding
	// MaxExpansion bounds what is made from little: the bytes of row bounds,
	// labels, tables written out from a sparse form and unpacked files are at most
	// 32 MiB and MaxExpansion times the bytes of the files that were read; 0: 1024.
	// Nodes that NumNodes counts are free.
	MaxExpansion int
	// FollowLinks lets links in a directory lead out of it.
	FollowLinks bool
	// Split chooses among several splits (OGB: the directories in split/). Of tables it is the column of
	// nodes that says train, valid or test, or it is drawn: "random:60/20/20" by Seed,
	// "random:60/20/20:stratified" alike within each class, "time:COL:60/20/20" the oldest
	// first. Only nodes with labels are in one, if there are labels.
	Split string
	Seed  uint64

	// Edges and Nodes are the files of tables, in place of what Import finds in src.
	Edges, Nodes string
	// Src, Dst, Weight and Time are columns of the table of edges: the name in its header or, where that has
	// none of that name, the number from 1. Empty: what the header calls so; without a header the
	// first, second, third and fourth. "none": there are no weights or times.
	Src, Dst, Weight, Time string
	// EdgeFeatures and Features are columns that become features, as COL, COL:number,
	// COL:category or COL:text. Without a kind, a column of numbers alone is numbers, one of at most
	// 256 values categories, another one text. No Features: all columns of the table of nodes that hold
	// numbers alone and are nothing else; "all": every column, "none": no column.
	EdgeFeatures, Features []string
	// ID, Label are columns of the table of nodes. ID "row": rows are nodes 0, 1, …. Label COL:number: labels are numbers
	// to predict, and not classes.
	ID, Label string
	// Scale "standard" gives numbers the mean 0 and the standard deviation 1 over the training nodes; empty:
	// they stay what they are.
	Scale string
	// Recipe, of other data, makes features and classes of tables the same way.
	Recipe *Recipe
	// Header says whether tables begin with their columns' names: "yes", "no", or empty to find out.
	Header string
	// Separator is what is between fields: one character, "tab" or "space"; empty to find out.
	Separator string
	// Quotes "none" takes quotes as they are.
	Quotes string
	// DecimalComma reads 0,5 as a half.
	DecimalComma bool
	// Understood, when set, is told what the columns of each table are taken for.
	Understood func(Table)

	// Overwrite replaces a store that is there already.
	Overwrite bool

	rangeEdges int64           // tests cut rows into smaller ranges
	runIDs     int             // and ids into smaller runs
	sorted     func(bytes int) // is told how many bytes of ids' texts are sorted in memory, where they lie twice
	dryRun     bool
}

// format is a layout that Import reads.
type format struct {
	name   string
	expect string
	detect func(path string) bool
	read   func(im *importer, path string) error
}

// formats in the order in which they are tried.
func formats() []format {
	return []format{
		{"store", "store.json", has(store.Manifest), (*importer).readStore},
		{"graphbolt", "metadata.yaml", has("metadata.yaml"), (*importer).readGraphBolt},
		{"ogb", "raw/edge.csv.gz", has("raw/edge.csv.gz"), (*importer).readOGB},
		{"numpy", "indptr.npy and indices.npy, or edges.npy", func(p string) bool {
			return has("edges.npy")(p) || has("indptr.npy")(p)
		}, (*importer).readNumPy},
		{"npz", "one .npz file", oneFile(npzName), (*importer).readNPZ},
		{"mtx", "one .mtx file (also .gz, .zst)", oneFile(mtxName), (*importer).readMatrixMarket},
		{"table", "one or two tables, .csv, .tsv, .txt or .jsonl (also .gz, .zst) or .parquet", hasTables, (*importer).readTables},
	}
}

func oneFile(named func(string) bool) func(string) bool {
	return func(path string) bool {
		_, err := findFile(path, named, "")
		return err == nil
	}
}

func hasTables(path string) bool {
	_, _, err := (&Options{}).tables(path)
	return err == nil
}

func has(name string) func(string) bool {
	return func(dir string) bool {
		st, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name)))
		return err == nil && !st.IsDir() // what is no file is refused by its name, later
	}
}

// Formats returns the names of the formats that Import reads, in the order in
// which DetectFormat tries them: "store" (package store's), "graphbolt"
// (an OnDiskDataset with metadata.yaml), "ogb" (raw/ and split/), "numpy" (.npy
// files), "npz" (an archive of NumPy arrays, as SciPy's sparse matrices are saved),
// "mtx" (Matrix Market) and "table" (CSV, TSV, white space, JSON lines, and Parquet where
// package importer/parquet is linked; of edges, and perhaps of nodes).
func Formats() []string {
	var names []string
	for _, f := range formats() {
		names = append(names, f.name)
	}
	return names
}

// DetectFormat tells the format of a directory, or of a file, by
// the files that are there. When it is none, the error wraps graph.ErrFormat and
// says what was looked for.
func DetectFormat(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("graph: %w; check the path", err)
	}
	if st.IsDir() { // what may not be read is not of an unknown format
		if _, err := os.ReadDir(path); err != nil {
			return "", fmt.Errorf("graph: %w", err)
		}
	}
	if _, err := os.Stat(filepath.Join(path, arrays.SetManifest)); err == nil {
		return "", dataerr.Bad("%s is a partition set, a graph in pieces, which 'gnnactor train', eval, embed, predict, plan and inspect read; here give the store that it was made of", path)
	}
	var looked []string
	for _, f := range formats() {
		if f.detect(path) {
			return f.name, nil
		}
		looked = append(looked, f.name+" ("+f.expect+")")
	}
	if found, _ := findFiles(path, func(name string) bool { return tableExt(name) != "" }, ""); len(found) > 1 {
		_, _, err := (&Options{}).tables(path)
		return "", fmt.Errorf("%w; of other formats there was looked for %s", err, strings.Join(looked, "; "))
	}
	if remedy := otherFormat(path); remedy != "" && !st.IsDir() {
		return "", dataerr.Bad("%s: %s", path, remedy)
	}
	return "", dataerr.Bad("%s: not a known format; looked for %s", path, strings.Join(looked, "; "))
}

// otherFormat says how a file whose name is of a format that Import does not read becomes one that it does; "": it is none
// of them.
func otherFormat(path string) string {
	name := strings.ToLower(filepath.Base(path))
	switch ext := filepath.Ext(strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")); ext {
	case ".gml", ".graphml", ".gexf", ".net", ".paj", ".dot", ".gv", ".lgl", ".lgr", ".g6", ".s6", ".adjlist":
		return ext + " is not read; write the edges as a table (Python: networkx.to_pandas_edgelist(G).to_csv(\"edges.csv\", index=False), R: write.csv(igraph::as_data_frame(g), \"edges.csv\", row.names = FALSE), Gephi: export the edges table)"
	case ".json":
		return "JSON is read as one object a line, .jsonl (pandas: df.to_json(\"edges.jsonl\", orient=\"records\", lines=True); of a list: jq -c '.[]' edges.json >edges.jsonl)"
	case ".xlsx", ".xls", ".ods":
		return "spreadsheets are not read; save each table as CSV"
	case ".pkl", ".pickle", ".pt", ".pth", ".rds", ".rdata", ".mat", ".h5", ".hdf5", ".feather", ".arrow", ".db", ".sqlite", ".sqlite3":
		return ext + " is not read; write tables (.csv, .jsonl, .parquet) or arrays (.npy, .npz)"
	}
	return ""
}

// Import reads the data in src, a directory or a file, and writes
// it as a store in the new directory dst, which appears only when it is
// complete. When Import fails, or ctx ends it, nothing is left behind.
//
// The result is canonical, so that it does not depend on the format or on the
// order of the input: rows are sorted by source id (parallel edges stay in
// input order), splits by node id, and features have the type uint8 when every
// value is an integer in [0, 255], otherwise float16 or int8 when the source
// has that type, otherwise float32, unless the option FeatureType says so. Node features
// that a store holds with scales stay as they are stored, those of edges become float32.
// Edge weights and features follow their edges.
//
// Data is streamed: peak memory is at most the store's size plus 256 MiB, for
// any length of input, and with a table of nodes some 16 bytes for each node besides; ids are sorted on
// the disk where they take more than some 500 MiB. The disk needs room for the store, twice the ids of that table
// and up to 12 bytes per edge besides. Errors about the data wrap graph.ErrFormat and name file, line
// or offset, and remedy.
func Import(ctx context.Context, src, dst string, o Options) error {
	i, err := o.settle(src)
	if err != nil {
		return err
	}
	in, err := openSource(cmp.Or(src, "."), o.FollowLinks || src == "")
	if err != nil {
		return err
	}
	defer in.close()
	var opts []store.CreateOption
	if o.Overwrite {
		opts = append(opts, store.Overwrite())
	}
	w, err := store.NewWriter(dst, opts...)
	if err != nil {
		return err
	}
	defer w.Abort() // unless it was committed, whatever happens, a panic too
	im := &importer{ctx: ctx, w: w, o: o, nodes: -1, src: in}
	defer im.close()
	if o.NumNodes > 0 {
		im.nodes, im.nodesFrom, im.idLimit = int64(o.NumNodes), "the option NumNodes", int64(o.NumNodes)
	}
	if o.Name != "" {
		w.SetName(o.Name)
	} else if src == "" {
		w.SetName(filepath.Base(o.Edges))
	} else if abs, err := filepath.Abs(src); err == nil {
		w.SetName(filepath.Base(abs))
	}
	if err := formats()[i].read(im, src); err != nil {
		return err
	}
	if err := im.finish(); err != nil {
		return err
	}
	if o.FeatureType != (graph.Encoding{}) {
		if err := w.EncodeFeatures(ctx, o.FeatureType); err != nil {
			return err
		}
	}
	return w.Commit(ctx)
}

// settle finds the format, which it returns by its place in formats, and checks the options.
func (o *Options) settle(src string) (int, error) {
	if o.Edges != "" || o.Nodes != "" {
		if src != "" || o.Format != "" && o.Format != "table" {
			return 0, fmt.Errorf("graph: Edges and Nodes are tables by themselves; give no other source or format")
		}
		o.Format = "table"
	} else if o.Format == "" {
		name, err := DetectFormat(src)
		if err != nil {
			return 0, err
		}
		o.Format = name
	} else if _, err := os.Stat(src); err != nil {
		return 0, fmt.Errorf("graph: %w", err)
	}
	i := slices.IndexFunc(formats(), func(f format) bool { return f.name == o.Format })
	if i < 0 {
		return 0, fmt.Errorf("graph: format %q is not one of %s", o.Format, strings.Join(Formats(), ", "))
	}
	if o.NumNodes < 0 || int64(o.NumNodes) > graph.MaxNodes {
		return 0, fmt.Errorf("graph: %d nodes is out of range [0, %d]", o.NumNodes, graph.MaxNodes)
	}
	if o.MaxExpansion < 0 {
		return 0, fmt.Errorf("graph: an expansion of %d: it must be positive, or 0 for %d", o.MaxExpansion, defaultExpansion)
	}
	for _, x := range []struct{ name, is, other string }{{"Header", o.Header, "yes no"}, {"Quotes", o.Quotes, none}, {"Scale", o.Scale, scaleStandard}} {
		if x.is != "" && !slices.Contains(strings.Fields(x.other), x.is) {
			return 0, fmt.Errorf("graph: the option %s: %q is none of: %s", x.name, clip(x.is), x.other)
		}
	}
	if len(o.Separator) > 1 && o.Separator != "tab" && o.Separator != "space" {
		return 0, fmt.Errorf("graph: the option Separator: %q is not one character, tab or space", clip(o.Separator))
	}
	return i, nil
}

// Describe says how Import would understand the tables in src, or those that the options
// name, and reads no more of them than that needs. Errors are those of Import.
func Describe(ctx context.Context, src string, o Options) error {
	i, err := o.settle(src)
	if err != nil {
		return err
	}
	if o.Format != "table" {
		return fmt.Errorf("graph: %s is of format %s; what is understood of columns can be shown of tables", src, o.Format)
	}
	in, err := openSource(cmp.Or(src, "."), o.FollowLinks || src == "")
	if err != nil {
		return err
	}
	defer in.close()
	o.dryRun = true
	im := &importer{ctx: ctx, o: o, nodes: -1, src: in}
	if o.NumNodes > 0 {
		im.nodes, im.nodesFrom, im.idLimit = int64(o.NumNodes), "the option NumNodes", int64(o.NumNodes)
	}
	return formats()[i].read(im, src)
}
