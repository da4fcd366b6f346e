package importer

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// What programs of Debian 12 wrote (testdata/written/make.sh): pandas, networkx, igraph, numpy, Python's csv and json, R and its igraph, sqlite3.
// Each file is the graph that was written, or is refused with what mends it; and where that is a flag, with the flag it is that graph.
func TestWrittenByPrograms(t *testing.T) {
	t.Parallel()
	readWritten(t, filepath.Join("testdata", "written"))
}

// The same of what the programs that are installed write now, where GNNACTOR_PROGRAMS is 1.
func TestWrittenNow(t *testing.T) {
	if os.Getenv("GNNACTOR_PROGRAMS") != "1" {
		t.Skip("GNNACTOR_PROGRAMS=1 runs the programs (apt-get install python3-pandas python3-networkx python3-igraph r-cran-igraph sqlite3)")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "sh", filepath.Join("testdata", "written", "make.sh"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	readWritten(t, dir)
}

func readWritten(t *testing.T, dir string) {
	plain, weighted := []string{"0>5", "12>0", "5>7"}, []string{"0>5 w0.5", "12>0 w1", "5>7 w2"}
	names, people := []string{"Doe, J>Roe", "Roe>the \"X\"", "Łódź>Doe, J"}, []string{"anna>bob w0.5", "bob>carl w2", "carl>anna w1"}
	isPeople := func(o Options) mended { return mended{o, people} }
	for name, c := range map[string]struct {
		want    []string // nil: it is refused
		refused string
		mended  mended
	}{
		"pandas.csv":               {weighted, "", mended{}},
		"pandas-index.csv":         {weighted, "", mended{}},
		"pandas-index-label.csv":   {weighted, "", mended{}},
		"pandas-multiindex.csv":    {weighted, "", mended{}},
		"pandas-header-none.csv":   {weighted, "", mended{}},
		"pandas-tabs.tsv":          {weighted, "", mended{}},
		"pandas.csv.gz":            {weighted, "", mended{}},
		"pandas.csv.zst":           {weighted, "", mended{}},
		"pandas-utf16.csv":         {weighted, "", mended{}},
		"pandas-utf8-sig.csv":      {weighted, "", mended{}},
		"pandas-crlf.csv":          {weighted, "", mended{}},
		"pandas-quote-all.csv":     {weighted, "", mended{}},
		"pandas-string.txt":        {weighted, "", mended{}},
		"pandas-lines.jsonl":       {weighted, "", mended{}},
		"pandas-excel.csv":         {nil, "--decimal-comma", mended{Options{DecimalComma: true}, weighted}},
		"pandas-unnamed.csv":       {nil, "--src COL --dst COL", mended{Options{Src: "0", Dst: "1", Weight: "2"}, weighted}},
		"pandas-dates.csv":         {[]string{"0>5 w0.5 t86400", "12>0 w1 t172800", "5>7 w2 t9"}, "", mended{}},
		"pandas-negative.csv":      {[]string{"-12>0 w1", "-5>7 w2", "0>5 w0.5", "0>5 w0.5", "12>0 w1", "5>7 w2"}, "", mended{}},
		"pandas-floats.csv":        {nil, `df.astype("Int64")`, mended{}},
		"pandas-missing.csv":       {nil, "line 4: a node id is missing", mended{}},
		"pandas-missing-int64.csv": {nil, "line 4: a node id is missing", mended{}},
		"pandas-records.jsonl":     {nil, "jq -c '.[]'", mended{}},
		"pandas.json":              {nil, "orient=\"records\", lines=True", mended{}},
		"pandas-names.csv":         {names, "", mended{}},
		"pandas-names.jsonl":       {names, "", mended{}},
		"pandas-latin2.csv":        {nil, "iconv", mended{}},
		"pandas-escape.csv":        {nil, "go in quotes", mended{}},

		"csv-excel.csv":      {plain, "", mended{}},
		"csv-excel-tab.csv":  {plain, "", mended{}},
		"csv-unix.csv":       {plain, "", mended{}},
		"json-dumps.jsonl":   {[]string{"Doe, J>Roe w1", "Roe>the \"X\" w1", "Łódź>Doe, J w1"}, "", mended{}},
		"json-nested.jsonl":  {nil, `(jq -c 'del(.["nodes"])')`, mended{}},
		"numpy.txt":          {nil, `fmt="%d"`, mended{}},
		"numpy-integers.txt": {plain, "", mended{}}, "numpy-header.csv": {plain, "", mended{}}, "numpy-header-plain.csv": {plain, "", mended{}},
		"numpy-weights.csv":      {weighted, "", mended{}},
		"numpy-matrix.txt":       {nil, "save_npz", mended{}},
		"numpy-matrix-small.txt": {nil, "save_npz", mended{}},

		"networkx.edgelist":            {nil, "write_weighted_edgelist", mended{Options{Src: "1", Dst: "2"}, plain}},
		"networkx-empty.edgelist":      {nil, "--weight none", mended{Options{Weight: none}, plain}},
		"networkx-nodata.edgelist":     {plain, "", mended{}},
		"networkx-weight.edgelist":     {weighted, "", mended{}},
		"networkx-weighted.edgelist":   {weighted, "", mended{}},
		"networkx-comma.csv":           {plain, "", mended{}},
		"networkx-pandas.csv":          {weighted, "", mended{}},
		"networkx-undirected.edgelist": {[]string{"0>12 w1", "0>5 w0.5", "5>7 w2"}, "", mended{Options{Undirected: true}, []string{"0>12 w1", "0>5 w0.5", "12>0 w1", "5>0 w0.5", "5>7 w2", "7>5 w2"}}},
		"networkx-spaces.edgelist":     {nil, "--src COL --dst COL", mended{}},
		"networkx-adjlist.txt":         {nil, "write_edgelist", mended{}},
		"networkx-adjlist-regular.txt": {nil, "write_edgelist", mended{}},
		"networkx-multiline.txt":       {nil, "write_edgelist", mended{}},
		"networkx-matrix.csv":          {nil, "save_npz", mended{}},
		"networkx-node-link.json":      {nil, ".jsonl", mended{}},
		"networkx.gml":                 {nil, "to_pandas_edgelist", mended{}}, "networkx.graphml": {nil, "to_pandas_edgelist", mended{}}, "networkx.gexf": {nil, "to_pandas_edgelist", mended{}},
		"networkx.net": {nil, "to_pandas_edgelist", mended{}}, "networkx.s6": {nil, "to_pandas_edgelist", mended{}},

		"igraph.edgelist":          {[]string{"0>1", "1>2"}, "", mended{}},
		"igraph-pandas.csv":        {[]string{"0>1 w0.5", "1>2 w2"}, "", mended{}},
		"igraph-ncol.txt":          {nil, "--header no", mended{Options{Header: "no"}, people[:2]}},
		"igraph-ncol-noweight.txt": {nil, "--header no", mended{Options{Header: "no"}, []string{"anna>bob", "bob>carl"}}},
		"igraph-lgl.txt":           {nil, "write_ncol", mended{}}, "igraph-lgl-plain.txt": {nil, "write_ncol", mended{}}, "igraph-lgl-numbers.txt": {nil, "write_ncol", mended{}},
		"igraph-adjacency.txt": {nil, "save_npz", mended{}},
		"igraph.gml":           {nil, "as_data_frame", mended{}}, "igraph.graphml": {nil, "as_data_frame", mended{}}, "igraph.net": {nil, "as_data_frame", mended{}},
		"igraph.dot": {nil, "as_data_frame", mended{}}, "igraph.lgr": {nil, "as_data_frame", mended{}},
		"igraph-gml.txt": {nil, "--src COL --dst COL", mended{}}, "igraph-graphml.txt": {nil, "--src COL --dst COL", mended{}}, "igraph-pajek.txt": {nil, "--src COL --dst COL", mended{}},

		"R-csv.csv": {people, "", mended{}}, "R-csv-norows.csv": {people, "", mended{}}, "R-table.txt": {people, "", mended{}}, "R-table-tabs.tsv": {people, "", mended{}},
		"R-csv2.csv":            {nil, "--decimal-comma", isPeople(Options{DecimalComma: true})},
		"R-table-bare.txt":      {nil, "--header no", isPeople(Options{Header: "no"})},
		"R-1e5.csv":             {nil, "scipen", mended{}},
		"R-missing.csv":         {nil, `a node id is missing ("NA")`, mended{}},
		"R-matrix.csv":          {nil, "save_npz", mended{}},
		"R-igraph-edgelist.txt": {[]string{"0>1", "1>2", "2>0"}, "", mended{}},
		"R-igraph-ncol.txt":     {nil, "--header no", isPeople(Options{Header: "no"})},
		"R-igraph-lgl.txt":      {nil, "write_graph(g, path, \"ncol\")", mended{}},
		"R-igraph.gml":          {nil, "as_data_frame", mended{}}, "R-igraph.graphml": {nil, "as_data_frame", mended{}}, "R-igraph.net": {nil, "as_data_frame", mended{}},

		"sqlite3-csv.csv": {weighted, "", mended{}}, "sqlite3-tabs.txt": {weighted, "", mended{}}, "sqlite3-list.txt": {weighted, "", mended{}}, "sqlite3-csv-noheader.csv": {plain, "", mended{}},
		"sqlite3-quote.txt":        {nil, "--src COL --dst COL", mended{Options{Src: "'src'", Dst: "'dst'", Weight: "'weight'"}, weighted}},
		"sqlite3-null.csv":         {nil, "--weight none", mended{Options{Weight: none}, []string{"Doe, J>two\nlines"}}},
		"sqlite3-json.jsonl":       {nil, "jq -c '.[]'", mended{}},
		"sqlite3-column.txt":       {nil, "sqlite3 -csv", mended{}},
		"sqlite3-column-ids.txt":   {nil, "sqlite3 -csv", mended{}},
		"sqlite3-markdown.txt":     {nil, "sqlite3 -csv", mended{}},
		"sqlite3-markdown-ids.txt": {nil, "sqlite3 -csv", mended{}},
		"sqlite3-line.txt":         {nil, "--src COL --dst COL", mended{}}, "sqlite3-insert.txt": {nil, "--src COL --dst COL", mended{}}, "sqlite3-box.txt": {nil, "--src COL --dst COL", mended{}},
		"sqlite3-html.txt":  {nil, "--src COL --dst COL", mended{}},
		"sqlite3-ascii.txt": {nil, "--header no", mended{}},
	} {
		path := filepath.Join(dir, name)
		read := func(o Options) ([]string, error) {
			dst := filepath.Join(t.TempDir(), "store")
			if err := Import(t.Context(), path, dst, o); err != nil {
				return nil, err
			}
			return namedEdges(opened(t, dst).Dataset()), nil
		}
		switch got, err := read(Options{}); {
		case c.want == nil && (!errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %q, %v; want it refused with %q", name, got, err, c.refused)
		case c.want != nil && (err != nil || !slices.Equal(got, c.want)):
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
		if c.mended.want != nil {
			if got, err := read(c.mended.o); err != nil || !slices.Equal(got, c.mended.want) {
				t.Errorf("%s, mended: %q, %v, want %q", name, got, err, c.mended.want)
			}
		}
	}
}

// mended is what a file is read as with options.
type mended struct {
	o    Options
	want []string
}
