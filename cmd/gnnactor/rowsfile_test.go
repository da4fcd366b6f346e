package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/gnnactor/gnnactor/graph"
)

// parquetText returns a file's rows after its columns' names, cells by commas, as CSV has them.
func parquetText(t *testing.T, name string) (lines []string) {
	t.Helper()
	in, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r := parquet.NewReader(in)
	defer r.Close()
	var cells []string
	for _, f := range r.Schema().Fields() {
		cells = append(cells, f.Name())
	}
	lines = append(lines, strings.Join(cells, ","))
	rows := make([]parquet.Row, 8)
	for {
		n, err := r.ReadRows(rows)
		for _, row := range rows[:n] {
			cells = cells[:0]
			for _, v := range row {
				switch v.Kind() {
				case parquet.Float:
					cells = append(cells, strconv.FormatFloat(float64(v.Float()), 'g', -1, 32))
				default:
					cells = append(cells, v.String())
				}
			}
			lines = append(lines, strings.Join(cells, ","))
		}
		if err == io.EOF {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Predictions and rows of nodes go to CSV, lines of JSON or arrays as the file's name says; several classes by rank or threshold.
func TestRowsFiles(t *testing.T) {
	ds := twoRings(t)
	store, dir := storeOf(t, ds), t.TempDir()
	model := filepath.Join(dir, "m.safetensors")
	mustInvoke(t, "train", "--data", store, "--epochs", "2", "--save", model)
	file := func(name string, args ...string) []string {
		name = filepath.Join(dir, name)
		mustInvoke(t, append(args, "--data", store, "--params", model, "--ids", "7,100", "--out", name)...)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(b)), "\n")
	}
	printed, _ := mustInvoke(t, "embed", "--data", store, "--params", model, "--ids", "7,100")
	rows := strings.Split(strings.TrimSpace(strings.ReplaceAll(printed, "\t", ",")), "\n")
	if got := file("e.csv", "embed"); len(got) != 3 || got[0] != "id,x0,x1" || got[1] != rows[0] || got[2] != rows[1] {
		t.Errorf("rows in CSV\n%s\nwhere %s is printed", strings.Join(got, "\n"), printed)
	}
	if got := file("e.jsonl", "embed"); len(got) != 2 || got[0] != `{"embedding":[`+rows[0][len("7,"):]+`],"id":7}` {
		t.Errorf("rows in JSON\n%s\nwhere %s is printed", strings.Join(got, "\n"), printed)
	}
	text, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--ids", "7,100", "--top", "2")
	if f := strings.Fields(strings.Split(text, "\n")[0]); len(f) != 5 || f[0] != "7" || f[1] == f[3] {
		t.Errorf("two classes each:\n%s", text)
	}
	if got := file("p.csv", "predict", "--top", "2"); len(got) != 5 || got[0] != "id,class,probability" || !strings.HasPrefix(got[1], "7,") || !strings.HasPrefix(got[4], "100,") {
		t.Errorf("two classes each in CSV:\n%s", strings.Join(got, "\n"))
	}
	if got := file("p.jsonl", "predict"); len(got) != 2 || !strings.HasPrefix(got[0], `{"id":7,"class":`) {
		t.Errorf("predictions in JSON:\n%s", strings.Join(got, "\n"))
	}
	if got := file("all.csv", "predict", "--probabilities"); len(got) != 3 || got[0] != "id,0,1" {
		t.Errorf("all probabilities:\n%s", strings.Join(got, "\n"))
	}
	if got := strings.Join(file("all.npy", "predict", "--probabilities"), "\n"); !strings.Contains(got, "'shape': (2, 2)") {
		t.Errorf("all probabilities in an array: %q", got)
	}
	for name, want := range map[string][]string{
		"e.parquet": file("e.csv", "embed"), "p.pq": file("p.csv", "predict", "--top", "2"), "all.parquet": file("all.csv", "predict", "--probabilities"),
	} {
		args := map[string][]string{"e.parquet": {"embed"}, "p.pq": {"predict", "--top", "2"}, "all.parquet": {"predict", "--probabilities"}}[name]
		file(name, args...)
		if got := parquetText(t, filepath.Join(dir, name)); !slices.Equal(got, want) {
			t.Errorf("%s has\n%s\nand the same in CSV\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for _, args := range [][]string{{"embed", "--out", "e.txt"}, {"predict", "--out", "p.npy"}, {"predict", "--probabilities"}, {"predict", "--threshold", "2"}, {"predict", "--top", "-1"}} {
		if code, _, errs := invoke(t, append(args, "--data", store, "--params", model)...); code != exitUsage {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}

	k := ds.Labels.NumClasses
	labels := &graph.Labels{NumClasses: k, Multi: make([]uint8, len(ds.Labels.Class)*k)}
	for v, class := range ds.Labels.Class {
		labels.Multi[v*k+int(class)] = 1
	}
	several := *ds
	several.Labels, several.Name = labels, "several"
	store = storeOf(t, &several)
	mustInvoke(t, "train", "--data", store, "--epochs", "40", "--save", model)
	sets, _ := mustInvoke(t, "predict", "--data", storeOf(t, &graph.Dataset{Name: "bare", Graph: ds.Graph, NodeFeatures: ds.NodeFeatures}), "--params", model, "--output", "json")
	all := lastLine(t, sets)["predictions"].([]any)
	right := 0
	for v, p := range all {
		classes := p.(map[string]any)["classes"].([]any)
		if len(classes) == 1 && classes[0].(map[string]any)["class"] == float64(ds.Labels.Class[v]) {
			right++
		}
	}
	if right < 110 {
		t.Errorf("of %d nodes without labels %d have the set of labels that they should", len(all), right)
	}
}

// Ids may hold what separates them where they are given and printed.
func TestNamesWithSeparators(t *testing.T) {
	dir := t.TempDir()
	edges := writeTemp(t, "edges.csv", "src,dst\n\"a,1\",b\nb,\"c\td\"\n")
	nodes := writeTemp(t, "nodes.csv", "id,f,label\n\"a,1\",0,x\nb,1,y\n\"c\td\",2,x\n")
	store, model := filepath.Join(dir, "store"), filepath.Join(dir, "m.safetensors")
	mustInvoke(t, "import", "--edges", edges, "--nodes", nodes, "--split", "random:100/0/0", store)
	mustInvoke(t, "train", "--data", store, "--epochs", "1", "--save", model, "--baseline=false")
	for ids, want := range map[string]string{`"a,1"`: "a,1\t", "c\td": `"c\td"` + "\t"} {
		if out, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--ids", "b\n"+ids); strings.Count(out, "\n") != 2 {
			t.Errorf("--ids of two lines printed %q", out)
		}
		if out, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--ids", ids); !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 1 {
			t.Errorf("--ids %s printed %q, want %q and a class", ids, out, want)
		}
	}
	if code, _, errs := invoke(t, "predict", "--data", store, "--params", model, "--ids", `"a`); code != exitUsage || !strings.Contains(errs, "quoted as in CSV") {
		t.Errorf("exit %d, said %q", code, errs)
	}
	out, _ := mustInvoke(t, "eval", "--data", store, "--params", model, "--output", "json") // no node is of the test
	if test := lastLine(t, out)["test"].(map[string]any); test["macro_f1"] != nil || test["accuracy"] != nil {
		t.Errorf("of no nodes: %v", test)
	}
	if _, errs := mustInvoke(t, "partition", "--data", store, "--parts", "2", "--out", filepath.Join(dir, "pieces"), "--method", "contiguous"); !strings.Contains(errs, "some of the 2 pieces have no nodes") {
		t.Errorf("said %q", errs)
	}
}

// Columns of Parquet that would have one name, and an array of what is no number, are refused before anything is computed.
func TestColumnsOfOneName(t *testing.T) {
	dir := t.TempDir()
	edges := writeTemp(t, "edges.csv", "src,dst\n0,1\n1,2\n2,0\n")
	nodes := writeTemp(t, "nodes.csv", "id,f,label\n0,0,id\n1,1,other\n2,2,id\n")
	store, model, pieces := filepath.Join(dir, "store"), filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "pieces")
	mustInvoke(t, "import", "--edges", edges, "--nodes", nodes, "--split", "random:100/0/0", store)
	mustInvoke(t, "train", "--data", store, "--epochs", "1", "--save", model, "--baseline=false")
	mustInvoke(t, "partition", "--data", store, "--parts", "2", "--out", pieces, "--method", "contiguous")
	for _, data := range []string{store, pieces} {
		for out, want := range map[string]string{"p.parquet": `two columns would be called "id"`, "p.npy": "--probabilities"} {
			args := []string{"predict", "--data", data, "--params", model, "--ids", "99", "--out", filepath.Join(dir, out)} // who comes to the ids says that there is no 99
			if out == "p.parquet" {
				args = append(args, "--probabilities")
			}
			if code, _, errs := invoke(t, args...); code != exitUsage || !strings.Contains(errs, want) || strings.Contains(errs, "computed in") {
				t.Errorf("%s of %s: exit %d, said %q", out, data, code, errs)
			}
		}
		mustInvoke(t, "predict", "--data", data, "--params", model, "--probabilities", "--out", filepath.Join(dir, filepath.Base(data)+".csv"))
	}
}
