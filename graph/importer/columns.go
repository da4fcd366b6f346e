package importer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// What columns are called by those who do not say what they are, as plainName gives it. Of
// several of one kind the first in its list is taken in a table of nodes; of edges, where
// taking the wrong one would make another graph, two are refused.
var (
	sourceNames = []string{"src", "source", "from", "u", "start", "startid", "sourceid", "srcid", "fromid", "fromnode", "fromnodeid",
		"sourcenode", "sourcenodeid", "srcnode", "startnode", "node1", "id1", "nodeid1"}
	targetNames = []string{"dst", "target", "to", "v", "end", "endid", "targetid", "dstid", "toid", "tonode", "tonodeid",
		"targetnode", "targetnodeid", "dstnode", "endnode", "node2", "id2", "nodeid2", "dest", "destination", "destid"}
	weightNames = []string{"weight", "weights", "w", "edgeweight"}
	timeNames   = []string{"time", "timestamp", "ts", "unixts", "unixtime"}
	idNames     = []string{"id", "nodeid", "node", "vertex", "vertexid", "key", "name"}
	labelNames  = []string{"label", "class", "y", "labels"}
	splitColumn = []string{"split", "set", "subset"}
	maskNames   = [3][]string{{"trainmask", "istrain"}, {"validmask", "valmask", "isvalid", "isval"}, {"testmask", "istest"}}
)

// EndsOfEdges reports whether names are what tables call the source and the destination of an edge, in this order: src and dst, from and to.
func EndsOfEdges(names []string) bool {
	return len(names) == 2 && slices.Contains(sourceNames, plainName(names[0])) && slices.Contains(targetNames, plainName(names[1]))
}

func knownEdgeColumn(name string) bool {
	n := plainName(name)
	return slices.Contains(sourceNames, n) || slices.Contains(targetNames, n) || slices.Contains(weightNames, n) || slices.Contains(timeNames, n)
}

func knownNodeColumn(name string) bool {
	n := plainName(name)
	return slices.Contains(idNames, n) || slices.Contains(labelNames, n) || slices.Contains(splitColumn, n) || slices.Contains(timeNames, n)
}

// named returns the columns whose names are in the list, in the list's order.
func (t *table) named(list []string) []int {
	var found []int
	for _, want := range list {
		for i, n := range t.names {
			if plainName(n) == want {
				found = append(found, i)
			}
		}
	}
	return found
}

// none is what a flag says that takes no column.
const none = "none"

// only is the column that the user or the header names; -1: neither does.
func (t *table) only(flag, given, what string, list []string) (int, error) {
	switch given {
	case none:
		return -1, nil
	case "":
	default:
		return t.column(flag, given)
	}
	found := t.named(list)
	if len(found) > 1 {
		return 0, dataerr.Bad("%s: the columns %q and %q could both be the %s; say which (%s)", t.path, t.names[found[0]], t.names[found[1]], what, flag)
	}
	if len(found) == 0 {
		return -1, nil
	}
	return found[0], nil
}

// edgeColumns says where an edge's parts are; -1: nowhere.
type edgeColumns struct {
	src, dst, weight, time int
	features               []int
}

// edgeColumns finds out what the columns of a table of edges are.
func (t *table) edgeColumns() (c edgeColumns, err error) {
	o := &t.im.o
	if t.names == nil {
		return t.edgesByPosition()
	}
	for _, x := range []struct {
		at          *int
		flag, given string
		what        string
		list        []string
	}{{&c.src, "--src", o.Src, "source", sourceNames}, {&c.dst, "--dst", o.Dst, "destination", targetNames},
		{&c.weight, "--weight", o.Weight, "weight", weightNames}, {&c.time, "--time", o.Time, "time", timeNames}} {
		if *x.at, err = t.only(x.flag, x.given, x.what, x.list); err != nil {
			return c, err
		}
	}
	if c.src < 0 || c.dst < 0 {
		if t.isMatrix() {
			return c, t.errMatrix()
		}
		missing := map[[2]bool]string{{true, true}: "the source and the destination", {true, false}: "the source", {false, true}: "the destination"}[[2]bool{c.src < 0, c.dst < 0}]
		also := ""
		if t.unsure || allNumbers(t.names) {
			also = "; if the first line is no header, say so (--header no)"
		}
		return c, dataerr.Bad("%s: its header names %s: which is %s of an edge? Say it to 'gnnactor import' (--src COL --dst COL)%s", t.path, t.columns(), missing, also)
	}
	if c.src == c.dst {
		return c, dataerr.Bad("%s: the column %q is both source and destination; say which (--src COL --dst COL)", t.path, t.name(c.src))
	}
	if i := slices.IndexFunc(t.names, func(n string) bool { return plainName(n) == "type" }); i >= 0 && !o.Undirected {
		for _, row := range t.sample {
			if strings.EqualFold(row[i], "undirected") {
				return c, dataerr.Bad("%s: the column %q says that edges are undirected; add the reverse of each (--undirected), or take the column away", t.path, t.names[i])
			}
		}
	}
	for _, name := range o.EdgeFeatures {
		name, _ = cutKind(name)
		i, err := t.column("--edge-feature", name)
		if err != nil {
			return c, err
		}
		c.features = append(c.features, i)
	}
	return c, nil
}

// edgesByPosition is for a table without names: source, destination and perhaps a weight and a time,
// unless the user says where they are.
func (t *table) edgesByPosition() (c edgeColumns, err error) {
	o := &t.im.o
	c = edgeColumns{src: 0, dst: 1, weight: -1, time: -1}
	if t.cols < 2 {
		return c, dataerr.Bad("%s line 1: the line has 1 column; an edge needs a source and a destination (what separates them: --separator C)", t.path)
	}
	said := false
	for _, x := range []struct {
		at          *int
		flag, given string
	}{{&c.src, "--src", o.Src}, {&c.dst, "--dst", o.Dst}, {&c.weight, "--weight", o.Weight}, {&c.time, "--time", o.Time}} {
		if x.given == "" {
			continue
		}
		said = true
		if x.given != none {
			if *x.at, err = t.column(x.flag, x.given); err != nil {
				return c, err
			}
		}
	}
	for _, name := range o.EdgeFeatures {
		name, _ = cutKind(name)
		i, err := t.column("--edge-feature", name)
		if err != nil {
			return c, err
		}
		c.features = append(c.features, i)
		said = true
	}
	if said {
		return c, nil
	}
	if t.isMatrix() {
		return c, t.errMatrix()
	}
	for _, row := range t.sample {
		for _, f := range row[:2] {
			if x, err := strconv.ParseFloat(f, 64); err == nil && x != math.Trunc(x) {
				return c, dataerr.Bad("%s: %s in the first two of its columns, which have no names, does not look like an id; say which they are (--src 1 --dst 2 --weight 3)", t.path, clip(f))
			}
		}
	}
	if t.cols == 2 {
		return c, nil
	}
	if t.cols > 4 {
		return c, dataerr.Bad("%s: %d columns without names, which is more than source, destination, weight and time; say which they are by number (--src 1 --dst 2 --weight 3 --edge-feature 5)", t.path, t.cols)
	}
	if t.cols == 3 && len(t.sample) > 0 {
		times := true
		for _, row := range t.sample {
			x, whole := parseNumber([]byte(row[2]))
			times = times && whole && x >= 1e8
		}
		if times {
			return c, dataerr.Bad("%s: the third column has no name, and %s and so on look like times; say what it is (--time 3, or --weight 3)", t.path, clip(t.sample[0][2]))
		}
	}
	c.weight = 2
	if t.cols == 4 {
		c.time = 3
	}
	return c, nil
}

// isMatrix tells whether a table is rather a matrix of adjacency: its rows are called as its columns, or it has three or more
// of both without names, and zeros on the diagonal or nothing but 0 and 1.
func (t *table) isMatrix() bool {
	rows := t.sample
	if t.names != nil {
		if len(rows) < 2 || len(rows) > t.cols-1 || len(rows) < min(t.cols-1, sampled-1) {
			return false
		}
		for i, row := range rows {
			if row[0] != t.names[i+1] {
				return false
			}
		}
		return true
	}
	if len(rows) != t.cols || t.cols < 3 {
		return false
	}
	diagonal, bits := true, true
	for i, row := range rows {
		for k, f := range row {
			x, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return false
			}
			diagonal = diagonal && (i != k || x == 0)
			bits = bits && (x == 0 || x == 1)
		}
	}
	return diagonal || bits
}

func (t *table) errMatrix() error {
	return dataerr.Bad("%s: this looks like a matrix of adjacency; write its edges (scipy.sparse.save_npz(\"edges.npz\", scipy.sparse.csr_matrix(A)), networkx.to_pandas_edgelist(G).to_csv(\"edges.csv\"))"+
		", or if it is a table of edges, say which columns are its ends (--src COL --dst COL)", t.path)
}

func allNumbers(fields []string) bool {
	return !slices.ContainsFunc(fields, func(f string) bool { return f != "" && !numeric(f) })
}

// kinds of features.
const (
	kindNumber   = "number"
	kindCategory = "category"
	kindText     = "text"
)

// cutKind takes the kind off what --feature names: COL:category.
func cutKind(s string) (name, kind string) {
	for _, k := range []string{kindNumber, kindCategory, kindText} {
		if name, ok := strings.CutSuffix(s, ":"+k); ok {
			return name, k
		}
	}
	return s, ""
}

// Table says how a table of the input was understood.
type Table struct {
	Path    string     `json:"path"`
	Of      string     `json:"of"`     // "edges" or "nodes"
	Header  bool       `json:"header"` // its columns have names
	Columns []Column   `json:"columns"`
	Rows    [][]string `json:"rows"` // the first five
}

// Column says what a column is taken for.
type Column struct {
	Name string `json:"name"` // or its number, from 1
	Use  string `json:"use"`  // "source", "weight", "feature: category of 7 values"…; "not used"
}

// understood tells the user what the columns are taken for.
func (t *table) understood(of string, use map[int]string) {
	if t.im.o.Understood == nil {
		return
	}
	u := Table{Path: t.path, Of: of, Header: t.names != nil, Rows: t.sample[:min(len(t.sample), 5)]}
	for i := range t.cols {
		use := use[i]
		if use == "" {
			use = "not used"
		}
		u.Columns = append(u.Columns, Column{t.name(i), use})
	}
	t.im.o.Understood(u)
}

func (c *edgeColumns) uses(fitted []FeatureColumn) map[int]string {
	use := map[int]string{c.src: "source", c.dst: "destination"}
	if c.weight >= 0 {
		use[c.weight] = "weight"
	}
	if c.time >= 0 {
		use[c.time] = "time"
	}
	for i, f := range c.features {
		use[f] = fitted[i].describe()
	}
	return use
}

func (f *FeatureColumn) describe() string {
	switch f.Kind {
	case kindCategory:
		return fmt.Sprintf("feature: category of %d values", len(f.Values))
	case kindText:
		return fmt.Sprintf("feature: words in %d columns", f.Width)
	}
	if f.Missing {
		return "feature: number, some missing"
	}
	return "feature: number"
}
