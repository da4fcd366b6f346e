package importer

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/gnnactor/gnnactor/graph"
)

// inUTF16 is s in little-endian UTF-16, with its mark.
func inUTF16(s string) string {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(s)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

// namedEdges lists the edges of a dataset by the names of their nodes, sorted, with weights and times.
func namedEdges(ds *graph.Dataset) (list []string) {
	g := ds.Graph
	for v := range uint32(g.NumNodes()) {
		for i := g.Indptr[v]; i < g.Indptr[v+1]; i++ {
			s := ds.Names.Of(g.Indices[i]) + ">" + ds.Names.Of(v)
			if g.Weights != nil {
				s += fmt.Sprintf(" w%v", g.Weights[i])
			}
			if ds.EdgeTimes != nil {
				s += fmt.Sprintf(" t%d", ds.EdgeTimes[i])
			}
			list = append(list, s)
		}
	}
	slices.Sort(list)
	return list
}

// The ways in which programs and people write graphs: each is read for what it is, or refused with what
// to say. The bytes are those that the programs write.
func TestTablesAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	plain := []string{"0>5", "5>7"}
	for name, c := range map[string]struct {
		file, content string
		o             Options
		want          []string // edges; nil: it is refused
		refused       string
	}{
		"plain":                             {"e.csv", "0,5\n5,7\n", Options{}, plain, ""},
		"SNAP":                              {"e.txt", "# Directed graph: x.txt\n# Nodes: 3 Edges: 2\n# FromNodeId\tToNodeId\n0\t5\n5\t7\n", Options{}, plain, ""},
		"SNAP, carriage returns":            {"e.txt", "# FromNodeId\tToNodeId\r\n0\t5\r\n5\t7\r\n", Options{}, plain, ""},
		"SNAP temporal":                     {"e.txt", "0 5 1082040961\n5 7 1082155839\n", Options{}, nil, "--time 3"},
		"SNAP temporal, said":               {"e.txt", "0 5 1082040961\n5 7 1082155839\n", Options{Time: "3"}, []string{"0>5 t1082040961", "5>7 t1082155839"}, ""},
		"pandas":                            {"e.csv", ",src,dst\n0,0,5\n1,5,7\n", Options{}, plain, ""},
		"pandas, no index":                  {"e.csv", "src,dst\n0,5\n5,7\n", Options{}, plain, ""},
		"pandas, columns without names":     {"e.csv", ",0,1\n0,0,5\n1,5,7\n", Options{}, nil, "--src COL --dst COL"},
		"pandas, columns said":              {"e.csv", ",0,1\n0,0,5\n1,5,7\n", Options{Src: "0", Dst: "1"}, plain, ""},
		"pandas, tabs":                      {"e.tsv", "\tsource\ttarget\tweight\n0\t0\t5\t0.5\n1\t5\t7\t2.0\n", Options{}, []string{"0>5 w0.5", "5>7 w2"}, ""},
		"pandas, a float column":            {"e.csv", "src,dst\n0,5.0\n5,7.0\n", Options{}, nil, "Int64"},
		"pandas, JSON lines":                {"e.jsonl", `{"src":0,"dst":5}` + "\n" + `{"src":5,"dst":7}` + "\n", Options{}, plain, ""},
		"pandas, a column that misses":      {"e.csv", "src,dst\n0,5\n5,\n", Options{}, nil, "line 3: a node id is missing"},
		"columns by another name":           {"e.csv", "citing,cited\n0,5\n5,7\n", Options{}, nil, `"citing", "cited": which is the source`},
		"columns by another name, said":     {"e.csv", "citing,cited\n0,5\n5,7\n", Options{Src: "citing", Dst: "cited"}, plain, ""},
		"one end by another name":           {"e.csv", "src,cited\n0,5\n5,7\n", Options{}, nil, "which is the destination"},
		"reversed":                          {"e.csv", "dst,src\n5,0\n7,5\n", Options{}, plain, ""},
		"a type is no weight":               {"e.csv", "src,dst,type\n0,5,3\n5,7,4\n", Options{}, plain, ""},
		"two sources":                       {"e.csv", "src,source,dst\n0,5,1\n", Options{}, nil, "--src"},
		"networkx edgelist":                 {"e.edgelist", "0 5 {}\n5 7 {}\n", Options{}, nil, "--weight none"},
		"networkx edgelist, said":           {"e.edgelist", "0 5 {}\n5 7 {}\n", Options{Weight: "none", Src: "1"}, plain, ""},
		"networkx weighted":                 {"e.edgelist", "0 5 0.5\n5 7 2\n", Options{}, []string{"0>5 w0.5", "5>7 w2"}, ""},
		"networkx adjacency":                {"e.txt", "#me.py\n# GMT Mon\n#\n0 5 7\n5 7\n7\n", Options{}, nil, "write_edgelist"},
		"networkx multiline adjacency":      {"e.txt", "# GMT Mon\n# \n0 1\n5 {}\n5 1\n7 {}\n7 0\n", Options{}, nil, "write_edgelist"},
		"igraph names":                      {"e.txt", "alice bob\nbob carol\n", Options{}, nil, "--header no"},
		"igraph names, said":                {"e.txt", "alice bob\nbob carol\n", Options{Header: "no"}, []string{"alice>bob", "bob>carol"}, ""},
		"R write.csv":                       {"e.csv", "\"\",\"from\",\"to\"\n\"1\",0,5\n\"2\",5,7\n", Options{}, plain, ""},
		"R write.table":                     {"e.txt", "\"from\" \"to\" \"weight\"\n\"1\" 0 5 0.5\n\"2\" 5 7 2\n", Options{}, []string{"0>5 w0.5", "5>7 w2"}, ""},
		"R write.csv2":                      {"e.csv", "\"from\";\"to\";\"weight\"\n0;5;0,5\n5;7;2\n", Options{}, nil, "--decimal-comma"},
		"R write.csv2, said":                {"e.csv", "\"from\";\"to\";\"weight\"\n0;5;0,5\n5;7;2\n", Options{DecimalComma: true}, []string{"0>5 w0.5", "5>7 w2"}, ""},
		"sqlite3 .mode csv":                 {"e.csv", "src,dst\r\n0,5\r\n5,7\r\n", Options{}, plain, ""},
		"sqlite3 list":                      {"e.txt", "src|dst\n0|5\n5|7\n", Options{}, plain, ""},
		"Neo4j relationships":               {"e.csv", ":START_ID(Person),:END_ID(Person),:TYPE,weight:float\np0,p5,KNOWS,1.5\np5,p7,LIKES,2\n", Options{}, []string{"p0>p5 w1.5", "p5>p7 w2"}, ""},
		"Gephi":                             {"e.csv", "Source,Target,Type,Id,Label,Weight\n0,5,Directed,0,,1.0\n5,7,Directed,1,,2.0\n", Options{}, []string{"0>5 w1", "5>7 w2"}, ""},
		"Gephi, undirected":                 {"e.csv", "Source,Target,Type,Id,Label,Weight\n0,5,Undirected,0,,1.0\n", Options{}, nil, "--undirected"},
		"Excel, Unicode text":               {"e.txt", inUTF16("src\tdst\r\n0\t5\r\n5\t7\r\n"), Options{}, plain, ""},
		"Excel, UTF-8 with a mark":          {"e.csv", "\xef\xbb\xbfsrc;dst\r\n0;5\r\n5;7\r\n", Options{}, plain, ""},
		"Excel, sep=":                       {"e.csv", "sep=|\r\nsrc|dst\r\n0|5\r\n5|7\r\n", Options{}, plain, ""},
		"UTF-16 without a mark":             {"e.csv", inUTF16("0,5\n5,7\n")[2:], Options{}, nil, "iconv"},
		"carriage returns alone":            {"e.csv", "0,5\r5,7\r", Options{}, nil, "tr '"},
		"Latin-1":                           {"e.csv", "src,dst\nJos\xe9,Ana\n", Options{}, nil, "iconv -f LATIN1"},
		"numpy savetxt":                     {"e.txt", "0.000000000000000000e+00 5.0e+00\n", Options{}, nil, `fmt="%d"`},
		"numpy savetxt, quotes as they are": {"e.txt", "0.0e+00 5.0e+00\n", Options{Quotes: "none"}, []string{"0.0e+00>5.0e+00"}, ""},
		"psql":                              {"e.txt", " src | dst \n-----+-----\n   0 |   5\n   5 |   7\n(2 rows)\n", Options{}, nil, "--separator"},
		"mysql":                             {"e.txt", "+-----+-----+\n| src | dst |\n+-----+-----+\n|   0 |   5 |\n+-----+-----+\n", Options{}, nil, "--src"},
		"Neo4j's apoc.export":               {"e.csv", "\"_id\",\"_labels\",\"name\",\"_start\",\"_end\",\"_type\"\n\"0\",\":P\",\"x\",,,\n,,,\"0\",\"0\",\"KNOWS\"\n", Options{}, nil, "line 2: a node id is missing"},
		"a name that is a missing value":    {"e.csv", "src,dst\nNA,DE\n", Options{}, nil, "--quotes none"},
		"a name, in quotes":                 {"e.csv", "src,dst\n\"NA\",DE\n", Options{}, []string{"NA>DE"}, ""},
		"a name, quotes as they are":        {"e.csv", "src,dst\nNA,DE\n", Options{Quotes: "none"}, []string{"NA>DE"}, ""},
		"weights where ids should be":       {"e.csv", "0.5,0\n2,5\n", Options{}, nil, "--src 1 --dst 2"},
		"a matrix of 0 and 1":               {"e.csv", "1,1,0\n0,1,0\n0,0,1\n", Options{}, nil, "--src COL --dst COL"},
		"edges, as many as columns":         {"e.csv", "0,1,1\n1,2,1\n2,0,5\n", Options{}, []string{"0>1 w1", "1>2 w1", "2>0 w5"}, ""},
		"numpy savetxt, header":             {"e.csv", "# time,src,dst\n9,0,5\n8,5,7\n", Options{}, []string{"0>5 t9", "5>7 t8"}, ""},
		"five columns":                      {"e.csv", "0,1,2,3,4\n", Options{}, nil, "--src 1 --dst 2"},
		"quoted ids with a separator":       {"e.csv", "src,dst\n\"Doe, J\",\"Roe \"\"X\"\"\"\n\"two\nlines\",\"Doe, J\"\n", Options{}, []string{"Doe, J>Roe \"X\"", "two\nlines>Doe, J"}, ""},
		"a quote that is none":              {"e.tsv", "src\tdst\n5\"disk\ta\na\t\"b\n", Options{}, nil, "--quotes none"},
		"a quote that is none, said":        {"e.tsv", "src\tdst\n5\"disk\ta\na\t\"b\n", Options{Quotes: "none"}, []string{"5\"disk>a", "a>\"b"}, ""},
		"UUIDs":                             {"e.csv", "src,dst\n6fa459ea-ee8a-3ca4-894e-db77e160355e,16fd2706-8baf-433b-82eb-8c7fada847da\n", Options{}, []string{"6fa459ea-ee8a-3ca4-894e-db77e160355e>16fd2706-8baf-433b-82eb-8c7fada847da"}, ""},
		"64 bits, and negative":             {"e.csv", "9223372036854775807,-3\n-3,0\n", Options{}, []string{"-3>0", "9223372036854775807>-3"}, ""},
		"beyond 64 bits":                    {"e.csv", "src,dst\n18446744073709551616,1\n", Options{}, []string{"18446744073709551616>1"}, ""},
		"zeros in front":                    {"e.csv", "src,dst\n007,7\n", Options{}, []string{"007>7"}, ""},
		"hash tags":                         {"e.csv", "src,dst\n#go,#graph\n", Options{}, []string{"#go>#graph"}, ""},
		"numbers, then a text":              {"e.csv", "src,dst\n0,5\n5,7\nx,0\n", Options{}, []string{"0>5", "5>7", "x>0"}, ""},
		"dates":                             {"e.csv", "src,dst,time\n0,5,1970-01-02\n5,7,1970-01-01T00:00:09Z\n", Options{}, []string{"0>5 t86400", "5>7 t9"}, ""},
		"JSON, texts and what is not there": {"e.jsonl", `{"dst":"b\u00e9","weight":1.5,"src":"a"}` + "\n\n" + `{"src":"b\u00e9","dst":"a","weight":2}`, Options{}, []string{"a>bé w1.5", "bé>a w2"}, ""},
		"JSON, an array":                    {"e.jsonl", `[{"src":1,"dst":2}]`, Options{}, nil, "one JSON object a line"},
		"JSON, a number with an exponent":   {"e.jsonl", `{"src":1000,"dst":1e3}`, Options{}, nil, `the id "1e3" is a number with an exponent`},
		"JSON, texts like numbers":          {"e.jsonl", `{"src":1000,"dst":"1e3"}`, Options{}, []string{"1000>1e3"}, ""},
		"hashes like numbers":               {"e.csv", "src,dst\n1000,1e3\n007,7\n", Options{}, []string{"007>7", "1000>1e3"}, ""},
		"whole numbers and decimals":        {"e.csv", "src,dst\n7,1\n5,7.00\n", Options{}, nil, "the ids 7 and 7.00 both occur"},
		"a header again":                    {"e.csv", "src,dst\n0,5\nsrc,dst\n5,7\n", Options{}, nil, "line 3: the header is here again"},
		"nodes called as columns":           {"e.csv", "src,dst\nsrc,5\n5,dst\n", Options{}, []string{"5>dst", "src>5"}, ""},
		"JSON, nested":                      {"e.jsonl", `{"src":{"id":1},"dst":2}`, Options{}, nil, `take it out (jq -c 'del(.["src"])')`},
		"rows of several lengths":           {"e.csv", "src,dst\n0,5\n1,2,3\n", Options{}, nil, "line 3: 3 columns"},
		"nodes by number":                   {"e.csv", "0,5\n5,7\n", Options{NumNodes: 9}, plain, ""},
		"nodes by number, floats":           {"e.csv", "0,5\n5.0,7\n", Options{NumNodes: 9}, nil, `line 2: "5.0" is not a node id; write it as 5 (`},
		"nodes by number, and a text":       {"e.csv", "0,5\nx,7\n", Options{NumNodes: 9}, nil, `line 2: "x" is not a node id`},
	} {
		dst := filepath.Join(t.TempDir(), "store")
		src := filepath.Join(files{c.file: c.content}.write(t), c.file)
		err := Import(t.Context(), src, dst, c.o)
		if c.want == nil {
			if !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want %q", name, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := namedEdges(opened(t, dst).Dataset()); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What is known of nodes is under their ids, whatever the order of the rows.
func TestTableOfNodes(t *testing.T) {
	f := files{
		"edges.csv": "src,dst\ncarl,anna\nanna,bob\n",
		"nodes.csv": "id,age,city,label,split,note\nbob,3,Rome,spam,train,x\ncarl,,Paris,ham,test,y z\nanna,5,?,spam,valid,x\n",
	}
	ds := imported(t, f.write(t), Options{Features: []string{"age", "city", "note:text"}})
	if got := namedEdges(ds); !slices.Equal(got, []string{"anna>bob", "carl>anna"}) {
		t.Errorf("edges %q", got)
	}
	r, err := ParseRecipe(ds.Recipe)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ds.Labels.Class, []int32{1, 1, 0}) || r.ClassName(0) != "ham" || r.ClassName(1) != "spam" {
		t.Errorf("labels %v of %q", ds.Labels.Class, r.Label.Classes)
	}
	if !slices.Equal(ds.Train, []uint32{1}) || !slices.Equal(ds.Valid, []uint32{0}) || !slices.Equal(ds.Test, []uint32{2}) {
		t.Errorf("splits %v %v %v", ds.Train, ds.Valid, ds.Test)
	}
	x := make([]float32, ds.NodeFeatures.Cols)
	for v, want := range [][]float32{{5, 0, 0, 0, 1}, {3, 0, 0, 1, 0}, {3, 1, 1, 0, 0}} { // the mean over training nodes is 3
		ds.NodeFeatures.Row(x, v)
		if !slices.Equal(x[:5], want) {
			t.Errorf("node %d: features %v, want %v", v, x[:5], want)
		}
		words := float32(0)
		for _, n := range x[5:] {
			words += n
		}
		if want := []float32{1, 1, 2}[v]; len(x) != 5+textColumns || words != want {
			t.Errorf("node %d: %v words in %d columns", v, words, len(x)-5)
		}
	}
	// Other data by the same recipe: unknown categories have their column, unknown labels are refused.
	other := files{"edges.csv": "src,dst\n1,2\n", "nodes.csv": "id,note,city,age,label\n2,x,Oslo,7,spam\n1,x,Rome,,ham\n"}
	ds = imported(t, other.write(t), Options{Recipe: r})
	for v, want := range [][]float32{{3, 1, 0, 1, 0}, {7, 0, 0, 0, 1}} {
		ds.NodeFeatures.Row(x, v)
		if !slices.Equal(x[:5], want) {
			t.Errorf("other node %d: features %v, want %v", v, x[:5], want)
		}
	}
	if !slices.Equal(ds.Labels.Class, []int32{0, 1}) || ds.Labels.NumClasses != 2 {
		t.Errorf("other labels %v of %d", ds.Labels.Class, ds.Labels.NumClasses)
	}
	scaled := imported(t, f.with("nodes.csv", "id,a,split\nanna,1,train\nbob,3,train\ncarl,100,test\n").write(t), Options{Scale: "standard"})
	if x, _, _ := scaled.NodeFeatures.Float32s(); !slices.Equal(x, []float32{-1, 1, 98}) {
		t.Errorf("scaled by the training nodes: %v", x)
	}
}

func TestTablesOfNodesThatAreRefused(t *testing.T) {
	edges := "src,dst\na,b\n"
	for name, c := range map[string]struct {
		nodes string
		o     Options
		want  string
	}{
		"no id":                {"x,y2\n1,2\n", Options{}, "--id COL"},
		"twice":                {"id,x\na,1\nb,2\na,3\n", Options{}, `line 4: the node "a" is there twice`},
		"missing":              {"id,x\na,1\n", Options{}, `line 2: `},
		"a label too many":     {"id,label\na,x\nb,y\n", Options{Recipe: &Recipe{Version: 1, Label: &LabelColumn{Column: "label", Classes: []string{"x", "z"}}}}, `"y"; the classes are ["x" "z"]`},
		"a split by no name":   {"id,split\na,x\nb,train\n", Options{}, "train, valid and test"},
		"-1 and 1":             {"id,label\na,-1\nb,1\n", Options{}, "-1 is a node without label"},
		"decimal commas":       {"id;x\na;0,5\nb;1,5\n", Options{}, "--decimal-comma"},
		"decimal commas asked": {"id;x\na;0,5\nb;1,5\n", Options{Features: []string{"x"}}, "--decimal-comma"},
		"commas in numbers":    {"id;x\na;0,5\nb;1,5\n", Options{Features: []string{"x:number"}}, "x:category, x:text"},
		"lists asked for":      {"id;x\na;[1,2]\nb;[3]\n", Options{Features: []string{"x"}}, `the column "x" has lists, like "[1,2]"`},
		"thousands":            {"id,x\na,\"1,000\"\nb,\"2,500\"\n", Options{}, "between thousands"},
		"a column by no name":  {"id,x\na,1\nb,1\n", Options{Features: []string{"y"}}, `no column "y" (--feature)`},
		"a label by its name":  {"id,x,y\na,1,0.5\nb,2,1.25\n", Options{}, "(--label y:number), classes (--label y), or no labels (--label none)"},
		"thousands, fractions": {"id,x\na,\"1,000.5\"\nb,\"2,500.5\"\n", Options{}, "between thousands"},
		"a number":             {"id,price\na,12\nb,cheap\n", Options{Label: "price:number"}, `line 3: a label: "cheap" is not a number; leave :number off`},
		"a label that is text": {"id,price\na,12\nb,3\n", Options{Label: "price:text"}, "numbers to predict (price:number)"},
		"no shares":            {"id,x\na,1\nb,1\n", Options{Split: "random:60/40"}, "60/20/20"},
		"too large shares":     {"id,x\na,1\nb,1\n", Options{Split: "random:60/20/30"}, "60/20/30 are 110 in all"},
		"too small shares":     {"id,x\na,1\nb,1\n", Options{Split: "random:60/20/10:stratified"}, "60/20/10 are 90 in all"},
	} {
		err := Import(t.Context(), files{"edges.csv": edges, "nodes.csv": c.nodes}.write(t), filepath.Join(t.TempDir(), "s"), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := Import(t.Context(), files{"a.csv": edges, "b.csv": edges}.write(t), filepath.Join(t.TempDir(), "s"), Options{Format: "table"}); err == nil || !strings.Contains(err.Error(), "--edges FILE --nodes FILE") {
		t.Error(err)
	}
}

// A column that has numbers but for a value or two is named with the first that is none: it is not used, unless somebody says what it is.
func TestColumnsOfMostlyNumbers(t *testing.T) {
	nodes := "id,good,infinite,typo,name,list,large\na,1,2,3,x,[1 2],1e39\nb,1,inf,3o,7,[],2\nc,2,3,4,y,[2],3\n"
	var use []string
	ds := imported(t, files{"edges.csv": "src,dst\na,b\nb,c\n", "nodes.csv": nodes}.write(t), Options{Understood: func(t Table) {
		if t.Of == "nodes" {
			for _, c := range t.Columns {
				use = append(use, c.Use)
			}
		}
	}})
	const not = "not used: most values are numbers, and %q is not (--feature %s:number says where)"
	if want := []string{"id", "feature: number", fmt.Sprintf(not, "inf", "infinite"), fmt.Sprintf(not, "3o", "typo"), "not used: words (--feature name:category or name:text takes them)", "not used: lists; give each of their values a column of its own", fmt.Sprintf(not, "1e39", "large")}; !slices.Equal(use, want) || ds.NodeFeatures.Cols != 1 {
		t.Errorf("columns are %q, want %q", use, want)
	}
}

// An edge to a node that is written as a float, or the other way round, is refused by what is wrong.
func TestEdgesToNodesOtherwiseWritten(t *testing.T) {
	for _, c := range []struct{ edges, nodes, want string }{
		{"0,1\n", "0.0\n1.0\n", "the ids 0 and 0.0 both occur"},
		{"5.0,9\n", "5\n9\n", "the ids 5 and 5.0 both occur"},
		{"5.00,9\n", "5\n9\n", "the ids 5 and 5.00 both occur"},
		{"5,9\n", "5\n9.5\n", `no node "9"; add it`},
	} {
		err := Import(t.Context(), files{"edges.csv": "src,dst\n" + c.edges, "nodes.csv": "id\n" + c.nodes}.write(t), filepath.Join(t.TempDir(), "s"), Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "edges.csv line 2") {
			t.Errorf("%q to nodes %q: %v, want %q", c.edges, c.nodes, err, c.want)
		}
	}
}

// In a table of ids alone the column's name is no node but where it is in quotes.
func TestHeaderAgainOfIDs(t *testing.T) {
	from := func(nodes string) string {
		return files{"edges.csv": "src,dst\na,b\n", "nodes.csv": nodes}.write(t)
	}
	err := Import(t.Context(), from("id\na\nid\nb\n"), filepath.Join(t.TempDir(), "s"), Options{})
	if err == nil || !strings.Contains(err.Error(), "nodes.csv line 3: the header is here again") || !strings.Contains(err.Error(), "in quotes") {
		t.Errorf("the header again: %v", err)
	}
	if ds := imported(t, from("id\na\n\"id\"\nb\n"), Options{}); ds.Graph.NumNodes() != 3 {
		t.Errorf("a node called so: %d nodes", ds.Graph.NumNodes())
	}
}

// Splits are drawn by the seed, alike within classes, whatever the order of the rows, or by time.
func TestDrawnSplits(t *testing.T) {
	var rows []string
	for i := range 200 {
		rows = append(rows, fmt.Sprintf("n%03d,%d,%d\n", i, i%2, 1000-i))
	}
	draw := func(split string, seed uint64) *graph.Dataset {
		return imported(t, files{"edges.csv": "src,dst\nn000,n001\n", "nodes.csv": "id,label,time\n" + strings.Join(rows, "")}.write(t), Options{Split: split, Seed: seed})
	}
	one := draw("random:60/20/20:stratified", 1)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	again, other, timed := draw("random:60/20/20:stratified", 1), draw("random:60/20/20:stratified", 2), draw("time:time:5/2.5/2.5", 0)
	if !slices.Equal(one.Train, again.Train) || slices.Equal(one.Train, other.Train) || one.Fingerprint != again.Fingerprint {
		t.Error("the split does not follow from the seed alone")
	}
	even := 0
	for _, v := range one.Train {
		even += int(1 - v%2)
	}
	if len(one.Train) != 120 || len(one.Valid) != 40 || len(one.Test) != 40 || even != 60 {
		t.Errorf("splits of %d, %d and %d nodes, %d of class 0", len(one.Train), len(one.Valid), len(one.Test), even)
	}
	if len(timed.Train) != 100 || timed.Train[0] != 100 || timed.Test[len(timed.Test)-1] != 49 {
		t.Errorf("by time: %v … %v", timed.Train[:3], timed.Test)
	}
}

// A whole number is read as strconv reads it, unless it is written otherwise: with any byte at any place, too.
func TestParseNumber(t *testing.T) {
	check := func(s string) {
		want, err := strconv.ParseInt(s, 10, 64)
		ok := err == nil && strconv.FormatInt(want, 10) == s
		if got, is := parseNumber([]byte(s)); is != ok || ok && got != want {
			t.Errorf("%q: %d, %v", s, got, is)
		}
	}
	for _, s := range []string{"", "-", "0", "-0", "-1", "12", "007", "1.0", "+1", "x", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
		"9999999999999999999", "-9999999999999999999", "18446744073709551616", "99999999999999999999"} {
		check(s)
	}
	for n := 1; n < 20; n++ {
		digits := []byte("7182818284590452353")[:n]
		for at := range n {
			for c := range 256 {
				b := bytes.Clone(digits)
				b[at] = byte(c)
				check(string(b))
			}
		}
	}
}

// A field ends at the first separator or end of line, wherever these lie and whatever is around them.
func TestFieldLength(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for range 20000 {
		b := make([]byte, r.IntN(30))
		for i := range b {
			b[i] = []byte(",\n-+.\v\x00\x80\xff\xac\x8a")[min(r.IntN(50), 10)]
		}
		want := bytes.IndexAny(b, ",\n")
		if want < 0 {
			want = len(b)
		}
		if got := fieldLength(b, ','); got != want {
			t.Fatalf("%q: %d, want %d", b, got, want)
		}
	}
}

// Names are found by binary search, whatever they are.
func TestNamesAreFound(t *testing.T) {
	ds := imported(t, filepath.Join(files{"e.csv": "src,dst\nb,a\nd,c\n"}.write(t), "e.csv"), Options{})
	for v, name := range []string{"a", "b", "c", "d"} {
		if got, ok := ds.Names.Find(name, 4); !ok || int(got) != v || ds.Names.Of(uint32(v)) != name {
			t.Errorf("%s is node %d, %v", name, got, ok)
		}
	}
	if _, ok := ds.Names.Find("bb", 4); ok {
		t.Error("bb was found")
	}
	copied := imported(t, created(t, ds), Options{})
	if copied.Fingerprint != ds.Fingerprint || !reflect.DeepEqual(copied.Names, ds.Names) {
		t.Error("importing the store loses names")
	}
}

// Any bytes are tables or refused; what is read can be written plainly and is read the same.
func FuzzTable(f *testing.F) {
	for _, s := range []string{"src,dst\n1,2\n", "a b\n", "\"x\"\"y\",z\n# c\n1;2\n", "{\"src\":1,\"dst\":\"\\u00e9\"}\n", "sep=;\n1;2", inUTF16("0,1\n"), "\"\n\",1\n", "0\t1\t2\n", ",0,1\n0,1,2\n", "{\"src\":\"\\u0000\",\"dst\":1}\n"} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, json bool) {
		path := filepath.Join(dir, map[bool]string{true: "e.jsonl", false: "e.csv"}[json])
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		in, err := openSource(path, false)
		if err != nil {
			t.Fatal(err)
		}
		defer in.close()
		im := &importer{src: in, nodes: -1, ctx: t.Context()}
		tb, err := im.openTable(path, knownEdgeColumn)
		if err != nil || tb.cols == 0 || tb.cols > 100 {
			return
		}
		var rows [][]string
		all := wholeRow(tb.cols)
		err = eachBatch(tb, all, func(*records, *struct{}) error { return nil }, func(r *records, _ *struct{}) error {
			for i := range r.rows {
				rows = append(rows, r.strings(i))
			}
			return nil
		})
		if err != nil || slices.ContainsFunc(rows, func(row []string) bool { return strings.ContainsRune(strings.Join(row, ""), 0) }) {
			return // JSON writes a byte of 0 as \u0000; text cannot hold one
		}
		var plain bytes.Buffer
		plain.WriteString(strings.Repeat("\"src\",", tb.cols-1) + "\"src\"\n")
		for _, row := range rows {
			for k, s := range row {
				if k > 0 {
					plain.WriteByte(',')
				}
				plain.WriteString(`"` + strings.ReplaceAll(s, `"`, `""`) + `"`)
			}
			plain.WriteByte('\n')
		}
		s := &textSyntax{sep: ',', quotes: true, cols: tb.cols, skip: 1}
		r := &records{t: tb, buf: plain.Bytes(), line: 1, first: true, width: tb.cols}
		if err := s.split(r, all); err != nil || r.rows != len(rows) {
			t.Fatalf("%q: %v, %d rows of %d", plain.String(), err, r.rows, len(rows))
		}
		for i, row := range rows {
			if !slices.Equal(r.strings(i), row) {
				t.Fatalf("row %d: %q, want %q", i, r.strings(i), row)
			}
		}
	})
}

// Labels that are numbers stay what they are; nodes without one are in no split, and the recipe makes other tables the same.
func TestLabelsThatAreNumbers(t *testing.T) {
	read := func(nodes string, o Options) *graph.Dataset {
		t.Helper()
		return imported(t, files{"edges.csv": "src,dst\na,b\nb,c\n", "nodes.csv": nodes}.write(t), o)
	}
	ds := read("id,price,x,split\na,12.5,1,train\nb,,2,train\nc,-3,3,test\n", Options{Label: "price:number"})
	l := ds.Labels
	if l.NumClasses != 1 || l.Class != nil || len(l.Values) != 3 || l.Values[0] != 12.5 || l.Known(1) || l.Values[2] != -3 {
		t.Errorf("labels %+v", l)
	}
	if !slices.Equal(ds.Train, []uint32{0}) || !slices.Equal(ds.Test, []uint32{2}) || ds.NodeFeatures.Cols != 1 {
		t.Errorf("splits %v, %v; %d features", ds.Train, ds.Test, ds.NodeFeatures.Cols)
	}
	recipe, err := ParseRecipe(ds.Recipe)
	if err != nil || recipe.Version != 2 || !recipe.Label.Number {
		t.Fatalf("recipe %s, %v", ds.Recipe, err)
	}
	drawn := read("id,price\na,12.5\nb,\nc,-3\n", Options{Label: "price:number", Split: "random:100/0/0"})
	if slices.Sort(drawn.Train); !slices.Equal(drawn.Train, []uint32{0, 2}) {
		t.Errorf("drawn for training: %v", drawn.Train)
	}
	again := read("id,x,price\na,1,7\nb,2,8\nc,3,NA\n", Options{Recipe: recipe})
	if l := again.Labels; l.Values[0] != 7 || l.Known(2) {
		t.Errorf("by the recipe: %+v", l)
	}
}
