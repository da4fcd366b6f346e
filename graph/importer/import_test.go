package importer

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
	"github.com/gnnactor/gnnactor/graph/store"
)

// npy returns a version 1 file of the values, little-endian.
func npy(descr, shape string, values any) string {
	h := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
	h += strings.Repeat(" ", 63-(10+len(h))%64) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(h)), byte(len(h)>>8))
	b = append(b, h...)
	b, err := binary.Append(b, binary.LittleEndian, values)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func gz(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(s))
	w.Close()
	return b.String()
}

func zst(s string) string {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return string(w.EncodeAll([]byte(s), nil))
}

// createdStore returns the store that store.Create makes of ds.
func created(t testing.TB, ds *graph.Dataset) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := store.Create(t.Context(), dir, ds); err != nil {
		t.Fatal(err)
	}
	return dir
}

func opened(t testing.TB, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

type files map[string]string

// with returns a copy of f with one file changed; "" takes it away.
func (f files) with(name, content string) files {
	g := files{}
	for k, v := range f {
		g[k] = v
	}
	if g[name] = content; content == "" {
		delete(g, name)
	}
	return g
}

func (f files) write(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	for name, content := range f {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The same four nodes and five edges in every format, in shuffled order.
var (
	smallNumPy = files{
		"edges.npy":         npy("<i8", "(2, 5)", []int64{3, 0, 1, 2, 1, 0, 1, 0, 2, 3}),
		"weights.npy":       npy("<f4", "(5,)", []float32{5, 1, 3, 4, 2}),
		"edge_features.npy": npy("<f8", "(5, 2)", []float64{50, .5, 10, .1, 30, .3, 40, .4, 20, .2}),
		"features.npy":      npy("<f4", "(4, 2)", []float32{1, 2, 3, 4, 5, 6, 7, 255}),
		"labels.npy":        npy("<i4", "(4,)", []int32{1, 0, -1, 2}),
		"train.npy":         npy("<i8", "(2,)", []int64{3, 0}),
		"valid.npy":         npy("|b1", "(4,)", []bool{false, true, false, false}),
	}
	smallOGB = files{
		"raw/edge.csv.gz":            gz("3,0\n0,1\n1,0\n2,2\n1,3\n"),
		"raw/num-node-list.csv.gz":   gz("4\n"),
		"raw/num-edge-list.csv.gz":   gz("5\n"),
		"raw/edge_weight.csv.gz":     gz("5\n1\n3\n4\n2\n"),
		"raw/edge-feat.csv.gz":       gz("50,.5\n10,.1\n30,.3\n40,.4\n20,.2\n"),
		"raw/node-feat.csv.gz":       gz("1,2\n3,4\n5,6\n7.0,2.55e2\n"),
		"raw/node-label.csv.gz":      gz("1\n0\nnan\n2.0\n"),
		"split/random/train.csv.gz":  gz("3\n0\n"),
		"split/random/valid.csv.gz":  gz("1\n"),
		"split/random/test.csv.gz":   gz(""),
		"split/README":               "not a split",
		"raw/something-else.csv.gz2": "ignored",
	}
	smallBolt = files{
		"metadata.yaml": `
dataset_name: small
graph:
  nodes: [{num: 4}]
  edges: [{format: numpy, path: edges.npy}]
feature_data:
  - {domain: node, name: year, format: numpy, path: year.npy}
  - {domain: node, name: feat, format: numpy, path: feat.npy}
  - {domain: edge, name: weight, format: numpy, path: weight.npy}
  - {domain: edge, name: anything, format: numpy, path: edge-feat.npy}
tasks:
  - name: link_prediction
  - name: node_classification
    num_classes: 3
    train_set: [{data: [{name: seeds, format: numpy, path: train.npy}, {name: labels, format: numpy, path: train-labels.npy}]}]
    validation_set: [{data: [{name: seeds, format: numpy, path: valid.npy}, {name: labels, format: numpy, path: valid-labels.npy}]}]
`,
		"edges.npy":        npy("<u4", "(2, 5)", []uint32{3, 0, 1, 2, 1, 0, 1, 0, 2, 3}),
		"weight.npy":       npy("<f8", "(5, 1)", []float64{5, 1, 3, 4, 2}),
		"edge-feat.npy":    npy("<f4", "(5, 2)", []float32{50, .5, 10, .1, 30, .3, 40, .4, 20, .2}),
		"feat.npy":         npy("|u1", "(4, 2)", []uint8{1, 2, 3, 4, 5, 6, 7, 255}),
		"train.npy":        npy("<i8", "(2,)", []int64{3, 0}),
		"train-labels.npy": npy("<i8", "(2,)", []int64{2, 1}),
		"valid.npy":        npy("<i4", "(1,)", []int32{1}),
		"valid-labels.npy": npy("<f4", "(1, 1)", []float32{0}),
	}
	smallList = smallNumPy.with("edges.npy", "").with("weights.npy", "").with("graph.tsv.zst",
		zst("from\tto\tweight\n# a comment\n3\t0\t5\n0\t1\t1\r\n\n1\t0\t3e0\n2\t2\t4.0\n1\t3\t2"))
)

func checkSmall(t *testing.T, ds *graph.Dataset) {
	t.Helper()
	g := ds.Graph
	if !reflect.DeepEqual(g.Indptr, []int64{0, 2, 3, 4, 5}) || !reflect.DeepEqual(g.Indices, []uint32{1, 3, 0, 2, 1}) {
		t.Errorf("graph %v %v", g.Indptr, g.Indices)
	}
	if !reflect.DeepEqual(g.Weights, []float32{3, 5, 1, 4, 2}) {
		t.Errorf("weights %v", g.Weights)
	}
	if f := ds.NodeFeatures; f.DType != graph.Uint8 || !bytes.Equal(f.Data, []byte{1, 2, 3, 4, 5, 6, 7, 255}) {
		t.Errorf("features %+v", f)
	}
	x, _, ok := ds.EdgeFeatures.Float32s()
	if !ok || !reflect.DeepEqual(x, []float32{30, .3, 50, .5, 10, .1, 40, .4, 20, .2}) {
		t.Errorf("edge features %v", x)
	}
	if !reflect.DeepEqual(ds.Labels.Class, []int32{1, 0, graph.Unlabeled, 2}) || ds.Labels.NumClasses != 3 {
		t.Errorf("labels %+v", ds.Labels)
	}
	if !reflect.DeepEqual(ds.Train, []uint32{0, 3}) || !reflect.DeepEqual(ds.Valid, []uint32{1}) || len(ds.Test) != 0 {
		t.Errorf("splits %v %v %v", ds.Train, ds.Valid, ds.Test)
	}
}

func TestEveryFormatGivesTheSameDataset(t *testing.T) {
	prints := map[string]string{}
	texts := strings.NewReplacer("numpy, path: feat.npy", "csv, path: feat.csv", "numpy, path: weight.npy", "csv, path: weight.csv", "numpy, path: edge-feat.npy", "csv, path: edge-feat.csv")
	boltTexts := smallBolt.with("metadata.yaml", texts.Replace(smallBolt["metadata.yaml"])).with("feat.npy", "").with("weight.npy", "").with("edge-feat.npy", "").
		with("feat.csv", "1,2\n3,4\n5,6\n7,255\n").with("weight.csv", "5\n1\n3\n4\n2\n").with("edge-feat.csv", "50,.5\n10,.1\n30,.3\n40,.4\n20,.2\n")
	for name, f := range map[string]files{"numpy": smallNumPy, "ogb": smallOGB, "graphbolt": smallBolt, "graphbolt of texts": boltTexts, "table": smallList} {
		src := f.write(t)
		if got, err := DetectFormat(src); err != nil || got != strings.TrimSuffix(name, " of texts") {
			t.Errorf("%s is taken for %q, %v", name, got, err)
		}
		dst := filepath.Join(t.TempDir(), "store")
		if err := Import(t.Context(), src, dst, Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ds := opened(t, dst).Dataset()
		checkSmall(t, ds)
		if want := map[bool]string{true: "small", false: "data"}[strings.HasPrefix(name, "graphbolt")]; ds.Name != want {
			t.Errorf("%s: name %q, want %q", name, ds.Name, want)
		}
		prints[ds.Fingerprint] = name
		if got, err := DetectFormat(dst); err != nil || got != "store" {
			t.Errorf("a store is taken for %q, %v", got, err)
		}
		again := imported(t, dst, Options{})
		if again.Fingerprint != ds.Fingerprint {
			t.Errorf("%s: importing the store changes it", name)
		}
	}
	if len(prints) != 1 {
		t.Errorf("fingerprints differ: %v", prints)
	}
	if got := Formats(); !reflect.DeepEqual(got, []string{"store", "graphbolt", "ogb", "numpy", "npz", "mtx", "table"}) {
		t.Errorf("formats %q", got)
	}
}

func TestCompressedRowBoundsAreRead(t *testing.T) {
	f := files{
		"indptr.npy":        npy("<i8", "(5,)", []int64{0, 2, 3, 4, 5}),
		"indices.npy":       npy("<i4", "(5,)", []int32{3, 1, 0, 2, 1}),
		"weights.npy":       npy("<f4", "(5,)", []float32{5, 3, 1, 4, 2}),
		"edge_features.npy": npy("<f4", "(5, 2)", []float32{50, .5, 30, .3, 10, .1, 40, .4, 20, .2}),
		"features.npy":      smallNumPy["features.npy"], "labels.npy": smallNumPy["labels.npy"],
		"train.npy": smallNumPy["train.npy"], "valid.npy": smallNumPy["valid.npy"],
	}
	checkSmall(t, imported(t, f.write(t), Options{}))
}

func TestEdgeListsOfEveryShape(t *testing.T) {
	for name, content := range map[string]string{
		"e.csv": "0,1\n1,0\n", "e.tsv": "0\t1\n1\t0\n", "e.txt": "% x\n0 1\n1  0\n", "e.edges": "\xef\xbb\xbf0;1\n1;0",
		"e.csv.gz": gz("src,dst\n0,1\n1,0\n"), "e.CSV": "0, 1\n 1, 0\n",
	} {
		src := filepath.Join(files{name: content}.write(t), name)
		ds := imported(t, src, Options{})
		if !reflect.DeepEqual(ds.Graph, &graph.Graph{Indptr: []int64{0, 1, 2}, Indices: []uint32{1, 0}}) || ds.Name != name {
			t.Errorf("%s: %q %+v", name, ds.Name, ds.Graph)
		}
	}
	ds := imported(t, files{"e.csv": "0,1\n"}.write(t), Options{NumNodes: 5})
	if ds.Graph.NumNodes() != 5 {
		t.Errorf("%d nodes, want 5", ds.Graph.NumNodes())
	}
}

func TestOptionsChangeTheGraphAsTheySay(t *testing.T) {
	f := files{"e.csv": "0,1,1\n0,1,2\n1,0,3\n2,2,4\n2,1,5\n", "edge_features.npy": npy("<f4", "(5,)", []float32{1.5, 2.5, 3.5, 4.5, 5.5}),
		"features.npy": npy("<f4", "(4, 3)", []float32{1, -3, 0, 0, 0, 0, .5, .5, 0, 0, 0, 7})}
	src := f.write(t)
	for _, c := range []struct {
		o       Options
		indptr  []int64
		indices []uint32
		weights []float32
		edge    []float32
	}{
		{Options{}, []int64{0, 1, 4, 5, 5}, []uint32{1, 0, 0, 2, 2}, []float32{3, 1, 2, 5, 4}, []float32{3.5, 1.5, 2.5, 5.5, 4.5}},
		{Options{DropDuplicates: true}, []int64{0, 1, 3, 4, 4}, []uint32{1, 0, 2, 2}, []float32{3, 1, 5, 4}, []float32{3.5, 1.5, 5.5, 4.5}},
		{Options{SelfLoops: true}, []int64{0, 2, 6, 7, 8}, []uint32{0, 1, 0, 0, 1, 2, 2, 3}, []float32{1, 3, 1, 2, 1, 5, 4, 1}, []float32{0, 3.5, 1.5, 2.5, 0, 5.5, 4.5, 0}},
		{Options{Undirected: true}, []int64{0, 1, 3, 5, 5}, []uint32{1, 0, 2, 1, 2}, []float32{1, 1, 5, 5, 4}, []float32{1.5, 1.5, 5.5, 5.5, 4.5}},
	} {
		ds := imported(t, src, c.o)
		x, _, _ := ds.EdgeFeatures.Float32s()
		if !reflect.DeepEqual(ds.Graph, &graph.Graph{Indptr: c.indptr, Indices: c.indices, Weights: c.weights}) || !reflect.DeepEqual(x, c.edge) {
			t.Errorf("%+v: %+v, edge features %v", c.o, ds.Graph, x)
		}
	}
	plain := imported(t, src, Options{})
	norm := imported(t, src, Options{NormalizeFeatures: true})
	x, _, ok := norm.NodeFeatures.Float32s()
	if !ok || !reflect.DeepEqual(x, []float32{.25, -.75, 0, 0, 0, 0, .5, .5, 0, 0, 0, 1}) {
		t.Errorf("normalised features %v", x)
	}
	if normalized, err := plain.NodeFeatures.Normalized(t.Context()); err != nil || !bytes.Equal(normalized.Data, norm.NodeFeatures.Data) {
		t.Error("Normalized and NormalizeFeatures differ")
	}
}

// Rows are put together range by range; where ranges end must not show.
func TestRangesOfRowsDoNotShow(t *testing.T) {
	t.Parallel()
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 7, Edges: 600, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for v := range uint32(ds.Graph.NumNodes()) {
		for i, u := range ds.Graph.InNeighbors(v) {
			fmt.Fprintf(&b, "%d,%d,%d\n%d,%d,%d\n", u, v/2, i, u/2, v, i)
		}
	}
	// A store is read row by row, so its edges come sorted by destination.
	for _, src := range []string{files{"e.csv": b.String()}.write(t), created(t, ds), created(t, graphtest.Everything(t))} {
		for _, o := range []Options{{}, {DropDuplicates: true}, {Undirected: true}, {SelfLoops: true}, {Undirected: true, SelfLoops: true}} {
			whole := imported(t, src, o)
			for _, size := range []int64{1, 7, 100} {
				o.rangeEdges = size
				if parts := imported(t, src, o); parts.Fingerprint != whole.Fingerprint {
					t.Errorf("%+v gives other data", o)
				}
			}
		}
	}
}

func TestMultiLabelsAndFloat16(t *testing.T) {
	f := files{
		"edges.npy":    npy("<i4", "(3, 2)", []int32{0, 1, 1, 2, 2, 0}),
		"labels.npy":   npy("|u1", "(3, 2)", []uint8{1, 1, 0, 0, 0, 1}),
		"features.npy": npy("<f2", "(3, 1)", []uint16{0x3c00, 0x3800, 0xbc00}), // 1, 0.5, -1
		"test.npy":     npy("<i8", "(1,)", []int64{1}),
	}
	ds := imported(t, f.write(t), Options{})
	if l := ds.Labels; !l.IsMulti() || l.NumClasses != 2 || !bytes.Equal(l.Multi, []byte{1, 1, 0, 0, 0, 1}) {
		t.Errorf("labels %+v", l)
	}
	if f := ds.NodeFeatures; f.DType != graph.Float16 || !bytes.Equal(f.Data, []byte{0, 0x3c, 0, 0x38, 0, 0xbc}) {
		t.Errorf("features %+v", f)
	}
	if !reflect.DeepEqual(ds.Graph.Indices, []uint32{2, 0, 1}) {
		t.Errorf("edges of shape (E, 2): %v", ds.Graph.Indices)
	}
	f["features.npy"] = npy("|i1", "(3, 1)", []int8{-7, 0, 100})
	if f := imported(t, f.write(t), Options{}).NodeFeatures; f.DType != graph.Int8 || !bytes.Equal(f.Data, []byte{249, 0, 100}) {
		t.Errorf("features %+v", f)
	}
}

func TestBadDataIsRefusedWithPlaceAndRemedy(t *testing.T) {
	t.Parallel()
	line := func(n int, f func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(f(i))
		}
		return b.String()
	}
	long := gz(line(50000, func(i int) string { return fmt.Sprintf("%d,%d\n", i*7919%4, i*104729%4) }))
	yaml := smallBolt["metadata.yaml"]
	for name, c := range map[string]struct {
		f     files
		wants []string
	}{
		"id out of range":        {smallOGB.with("raw/edge.csv.gz", gz("3,0\n0,4\n")), []string{"edge.csv.gz line 2", "node 4 is out of range [0, 4)"}},
		"negative id":            {smallOGB.with("raw/edge.csv.gz", gz("3,0\n0,-1\n")), []string{"line 2", "-1 is negative"}},
		"huge id":                {smallList.with("graph.tsv.zst", zst("4294967295\t0\n")), []string{"line 1", "above the largest one supported"}},
		"id is a word":           {smallOGB.with("raw/edge.csv.gz", gz("3,0\n0,x\n")), []string{"line 2", `"x" is not a node id`}},
		"splits of links":        {smallOGB.with("split/random/train.csv.gz", "").with("split/random/train.pt", "PK"), []string{"train.pt", "pickled PyTorch file", "task link"}},
		"one column":             {smallOGB.with("raw/edge.csv.gz", gz("3\n")), []string{"line 1", "1 column"}},
		"three columns":          {smallOGB.with("raw/edge.csv.gz", gz("3,0,1\n")), []string{"line 1", "3 columns"}},
		"ragged edges":           {smallList.with("graph.tsv.zst", zst("0\t1\t2\n0\t1\n")), []string{"line 2", "2 columns", "3"}},
		"ragged features":        {smallOGB.with("raw/node-feat.csv.gz", gz("1,2\n3\n")), []string{"node-feat.csv.gz line 2", "1 columns"}},
		"NaN in text":            {smallOGB.with("raw/node-feat.csv.gz", gz("1,2\n3,nan\n")), []string{"line 2", "column 2", "not finite"}},
		"Inf in text":            {smallOGB.with("raw/node-feat.csv.gz", gz("1,2\n-inf,1\n")), []string{"line 2", "column 1"}},
		"float32 overflow":       {smallOGB.with("raw/node-feat.csv.gz", gz("1e39,2\n")), []string{"line 1", "beyond the range"}},
		"empty feature":          {smallOGB.with("raw/node-feat.csv.gz", gz("1,\n")), []string{"line 1", "column 2"}},
		"too few feature rows":   {smallOGB.with("raw/node-feat.csv.gz", gz("1,2\n3,4\n")), []string{"node-feat.csv.gz", "2 nodes", "num-node-list", "4"}},
		"too few label rows":     {smallOGB.with("raw/node-label.csv.gz", gz("1\n2\n")), []string{"node-label.csv.gz", "2 nodes"}},
		"edge count":             {smallOGB.with("raw/num-edge-list.csv.gz", gz("6\n")), []string{"6 edges", "5 lines"}},
		"several graphs":         {smallOGB.with("raw/num-node-list.csv.gz", gz("4\n4\n")), []string{"line 2", "several graphs"}},
		"count is a word":        {smallOGB.with("raw/num-node-list.csv.gz", gz("four\n")), []string{"line 1", "not a count"}},
		"fractional label":       {smallOGB.with("raw/node-label.csv.gz", gz("1\n0.5\n")), []string{"node-label.csv.gz line 2", "0.5 is not a class"}},
		"negative label":         {smallOGB.with("raw/node-label.csv.gz", gz("1\n-2\n")), []string{"line 2", "-2 is not a class"}},
		"multi-label of 2":       {smallOGB.with("raw/node-label.csv.gz", gz("1,0\n0,2\n")), []string{"line 2", "0 or 1"}},
		"no label in split":      {smallOGB.with("split/random/test.csv.gz", gz("2\n")), []string{"test[0]", "node 2 has no label"}},
		"node twice":             {smallOGB.with("split/random/train.csv.gz", gz("3\n3\n")), []string{"train[1]", "node 3", "twice"}},
		"overlapping splits":     {smallOGB.with("split/random/test.csv.gz", gz("1\n")), []string{"test[0]", "node 1", "valid"}},
		"split id out of range":  {smallOGB.with("split/random/test.csv.gz", gz("4\n")), []string{"test.csv.gz line 1", "out of range"}},
		"two splits":             {smallOGB.with("split/time/train.csv.gz", gz("")), []string{"random, time", "Split"}},
		"truncated gz":           {smallOGB.with("raw/edge.csv.gz", long[:len(long)/2]), []string{"edge.csv.gz", "truncated or damaged"}},
		"truncated gz header":    {smallOGB.with("raw/edge.csv.gz", long[:5]), []string{"edge.csv.gz", "truncated or damaged"}},
		"corrupted gz":           {smallOGB.with("raw/edge.csv.gz", long[:len(long)-6]+"\x00"+long[len(long)-5:]), []string{"edge.csv.gz", "damaged"}},
		"not gz":                 {smallOGB.with("raw/edge.csv.gz", "0,1\n"), []string{"edge.csv.gz"}},
		"truncated zst":          {smallList.with("graph.tsv.zst", zst("0\t1\t2\n")[:12]), []string{"graph.tsv.zst", "truncated or damaged"}},
		"not zst":                {smallList.with("graph.tsv.zst", "0\t1\t2\n"), []string{"graph.tsv.zst"}},
		"edge weight NaN":        {smallList.with("graph.tsv.zst", zst("0\t1\tnan\n")), []string{"line 1", "weight", "not finite"}},
		"weights twice":          {smallList.with("weights.npy", smallNumPy["weights.npy"]), []string{"weights.npy", "weights already"}},
		"truncated npy":          {smallNumPy.with("edges.npy", smallNumPy["edges.npy"][:150]), []string{"edges.npy", "22 bytes", "needs 80", "truncated"}},
		"npy too long":           {smallNumPy.with("labels.npy", smallNumPy["labels.npy"]+"x"), []string{"labels.npy", "17 bytes", "needs 16"}},
		"npy header cut":         {smallNumPy.with("labels.npy", smallNumPy["labels.npy"][:50]), []string{"labels.npy", "ends inside its header"}},
		"npy claims terabytes":   {smallNumPy.with("features.npy", npy("<f4", "(4, 1099511627776)", []float32{1})), []string{"features.npy", "truncated"}},
		"npy of objects":         {smallNumPy.with("labels.npy", npy("|O", "(4,)", []int32{1})), []string{"labels.npy", `"|O"`, "not supported"}},
		"npy float ids":          {smallNumPy.with("train.npy", npy("<f8", "(2,)", []float64{0, 1})), []string{"train.npy", "float64", "integers"}},
		"npy negative id":        {smallNumPy.with("edges.npy", npy("<i8", "(2, 2)", []int64{0, 1, 1, -5})), []string{"edges.npy offset 152 (value 3)", "-5 is negative"}},
		"npy id out of range":    {smallNumPy.with("edges.npy", npy("<i8", "(2, 2)", []int64{0, 9, 1, 1})), []string{"offset 136 (value 1)", "node 9 is out of range [0, 4)"}},
		"npy id above uint32":    {smallNumPy.with("edges.npy", npy("<i8", "(2, 2)", []int64{0, 1 << 40, 1, 1})), []string{"offset 136", "above the largest one"}},
		"npy uint64 beyond":      {smallNumPy.with("edges.npy", npy("<u8", "(2, 1)", []uint64{1 << 63, 0})), []string{"offset 128", "too large"}},
		"npy edges shape":        {smallNumPy.with("edges.npy", npy("<i8", "(3, 3)", make([]int64, 9))), []string{"edges.npy", "shape (3, 3)", "(2, E)"}},
		"npy NaN":                {smallNumPy.with("features.npy", npy("<u4", "(1, 2)", []uint32{0, 0})).with("features.npy", strings.Replace(npy("<u4", "(4, 1)", []uint32{0, 0, 0x7fc00000, 0}), "<u4", "<f4", 1)), []string{"features.npy offset 136 (value 2)", "not a finite"}},
		"npy float64 overflow":   {smallNumPy.with("features.npy", npy("<f8", "(4, 1)", []float64{0, 0, 0, 1e300})), []string{"offset 152 (value 3)", "1e+300 is not a finite float32"}},
		"npy weights count":      {smallNumPy.with("weights.npy", npy("<f4", "(4,)", make([]float32, 4))), []string{"weights.npy", "4 rows", "5 edges"}},
		"npy features rows":      {smallNumPy.with("features.npy", npy("<f4", "(3, 1)", make([]float32, 3))), []string{"labels.npy", "4 nodes", "features.npy", "3"}},
		"npy mask length":        {smallNumPy.with("valid.npy", npy("|b1", "(3,)", make([]bool, 3))), []string{"valid.npy", "3 values for 4 nodes"}},
		"npy cube":               {smallNumPy.with("features.npy", npy("<f4", "(4, 1, 1)", make([]float32, 4))), []string{"features.npy", "shape (4, 1, 1)"}},
		"indptr falls":           {files{"indptr.npy": npy("<i8", "(3,)", []int64{0, 2, 1}), "indices.npy": npy("<i4", "(2,)", []int32{0, 1})}, []string{"indptr.npy offset 144 (value 2)", "must not decrease"}},
		"indptr too far":         {files{"indptr.npy": npy("<i8", "(3,)", []int64{0, 2, 3}), "indices.npy": npy("<i4", "(2,)", []int32{0, 1})}, []string{"indptr.npy offset 144", "end at 2"}},
		"indptr too short":       {files{"indptr.npy": npy("<i8", "(3,)", []int64{0, 1, 1}), "indices.npy": npy("<i4", "(2,)", []int32{0, 1})}, []string{"ends at 1", "2 values"}},
		"indptr starts late":     {files{"indptr.npy": npy("<i8", "(3,)", []int64{1, 2, 2}), "indices.npy": npy("<i4", "(2,)", []int32{0, 1})}, []string{"offset 128", "start at 0"}},
		"indices out of range":   {files{"indptr.npy": npy("<i8", "(3,)", []int64{0, 1, 2}), "indices.npy": npy("<i4", "(2,)", []int32{0, 2})}, []string{"indices.npy offset 132 (value 1)", "node 2 is out of range [0, 2)"}},
		"both kinds of edges":    {smallNumPy.with("indptr.npy", "x"), []string{"both indptr.npy and edges.npy"}},
		"yaml is not yaml":       {smallBolt.with("metadata.yaml", "graph: ]["), []string{"metadata.yaml: yaml:"}},
		"yaml without a graph":   {smallBolt.with("metadata.yaml", "dataset_name: x"), []string{"metadata.yaml", "graph is missing"}},
		"yaml of two types":      {smallBolt.with("metadata.yaml", strings.Replace(yaml, "[{num: 4}]", "[{num: 4}, {num: 2}]", 1)), []string{"2 node types"}},
		"yaml leaves its folder": {smallBolt.with("metadata.yaml", strings.Replace(yaml, "feat.npy", "../feat.npy", 1)), []string{"../feat.npy", "inside of the dataset"}},
		"yaml format":            {smallBolt.with("metadata.yaml", strings.Replace(yaml, "format: numpy", "format: torch", 1)), []string{"graph.edges.format", `"torch"`}},
		"yaml node count":        {smallBolt.with("metadata.yaml", strings.Replace(yaml, "num: 4", "num: 5", 1)), []string{"feat.npy", "4 nodes", "5"}},
		"yaml class count":       {smallBolt.with("metadata.yaml", strings.Replace(yaml, "num_classes: 3", "num_classes: 2", 1)), []string{"train-labels.npy", "label 2 is out of range [0, 2)"}},
		"yaml of links":          {smallBolt.with("train.npy", npy("<i8", "(2, 2)", []int64{3, 0, 1, 2})), []string{"metadata.yaml", "train.npy has two nodes per row", "take the task out"}},
		"yaml labels count":      {smallBolt.with("train-labels.npy", npy("<i8", "(3,)", []int64{1, 1, 1})), []string{"train-labels.npy", "3 rows for 2 seeds"}},
		"yaml features names":    {smallBolt.with("metadata.yaml", strings.Replace(yaml, "name: feat,", "name: other,", 1)), []string{"year", "other", `"feat"`}},
		"no edges":               {files{"e.csv": "# nothing\n"}, []string{"no edges"}},
		"two lists":              {files{"a.csv": "0,1", "b.csv": "0,1"}, []string{"2 tables", "a.csv", "b.csv", "--edges FILE --nodes FILE"}},
		"a table too many":       {files{"edges.csv": "0,1", "nodes.csv": "0", "other.csv": "0"}, []string{"3 tables", "other.csv", "--edges FILE --nodes FILE"}},
		"nothing":                {files{"README.md": "hello"}, []string{"not a known format", "metadata.yaml", "indptr.npy"}},
	} {
		src := c.f.write(t)
		dst := filepath.Join(t.TempDir(), "store")
		err := Import(t.Context(), src, dst, Options{})
		if !errors.Is(err, graph.ErrFormat) {
			t.Errorf("%s: the error does not wrap ErrFormat: %v", name, err)
			continue
		}
		for _, want := range c.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in the error: %v", name, want, err)
			}
		}
		if !strings.HasPrefix(err.Error(), "graph: ") || strings.Count(err.Error(), "graph: ") != 1 {
			t.Errorf("%s: the error should say \"graph: \" once: %v", name, err)
		}
		graphtest.OnlyContains(t, filepath.Dir(dst))
	}
}

// A directory that may not be read is not called one of no known format.
func TestDetectFormatOfAnUnreadableDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadDir(dir); err == nil {
		t.Skip("this user may read every directory")
	}
	if _, err := DetectFormat(dir); !errors.Is(err, os.ErrPermission) || errors.Is(err, graph.ErrFormat) {
		t.Errorf("got %v, want a permission error", err)
	}
}

func TestImportErrorsThatAreNotAboutData(t *testing.T) {
	src := smallNumPy.write(t)
	parent := t.TempDir()
	dst := filepath.Join(parent, "store")
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		src  string
		o    Options
		want string
	}{
		"missing source":    {filepath.Join(parent, "nowhere"), Options{}, "nowhere"},
		"missing, format":   {filepath.Join(parent, "nowhere"), Options{Format: "ogb"}, "nowhere"},
		"unknown format":    {src, Options{Format: "dgl"}, `"dgl" is not one of store, graphbolt`},
		"other format":      {src, Options{Format: "ogb"}, "edge.csv.gz"},
		"negative nodes":    {src, Options{NumNodes: -1}, "-1 nodes"},
		"unknown split":     {smallOGB.write(t), Options{Split: "time"}, filepath.Join("split", "time")},
		"split elsewhere":   {smallOGB.write(t), Options{Split: "../.."}, "not the name of a directory"},
		"missing yaml file": {smallBolt.with("feat.npy", "").write(t), Options{}, "feat.npy"},
		"cancelled":         {src, Options{}, "context canceled"},
	} {
		ctx := t.Context()
		if name == "cancelled" {
			ctx = cancelled
		}
		err := Import(ctx, c.src, dst, c.o)
		if err == nil || errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		graphtest.OnlyContains(t, parent)
	}
	if err := Import(t.Context(), src, dst, Options{NumNodes: 9}); !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), "NumNodes") {
		t.Error(err)
	}
	if err := Import(t.Context(), src, dst, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := Import(t.Context(), src, dst, Options{}); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	if err := Import(t.Context(), src, dst, Options{Overwrite: true}); err != nil {
		t.Error(err)
	}
	graphtest.OnlyContains(t, parent, "store")
}

// Partitions are of nodes, so a store that is made from one that has some has them,
// too.
func TestPartitionsAreKept(t *testing.T) {
	dir := created(t, graphtest.Everything(t))
	for _, p := range []graph.Partition{
		{Method: "louvain", Parts: 3, Cluster: []uint32{2, 2, 2, 0, 0}},
		{Method: "metis", Parts: 2, Seed: 8, Cluster: []uint32{1, 0, 0, 1, 1}},
	} {
		if err := store.SavePartition(t.Context(), dir, p); err != nil {
			t.Fatal(err)
		}
	}
	want := opened(t, dir).Dataset().Partitions
	if got := imported(t, dir, Options{Undirected: true}).Partitions; len(got) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("partitions %+v, want %+v", got, want)
	}
}

// A store of an older version is imported whole, and not with a damaged byte in any
// file of the data.
func TestStoreOfVersion1(t *testing.T) {
	old := filepath.Join("..", "store", "testdata", "version1")
	s := opened(t, old)
	fresh := filepath.Join(t.TempDir(), "new")
	if err := Import(t.Context(), old, fresh, Options{}); err != nil {
		t.Fatal(err)
	}
	if got := opened(t, fresh); got.Lacks() != "" || got.Dataset().Fingerprint != s.Dataset().Fingerprint {
		t.Errorf("imported: lacks %q, fingerprint %s", got.Lacks(), got.Dataset().Fingerprint)
	}
	for _, name := range s.Files(store.Whole)[:8] {
		bad := filepath.Join(t.TempDir(), "bad")
		if err := os.CopyFS(bad, os.DirFS(old)); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(bad, name))
		if err != nil {
			t.Fatal(err)
		}
		b[137] ^= 4
		if err := os.WriteFile(filepath.Join(bad, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := Import(t.Context(), bad, filepath.Join(t.TempDir(), "new"), Options{}); !errors.Is(err, graph.ErrFormat) && !strings.HasPrefix(name, "partition-") {
			t.Errorf("damaged %s was imported: %v", name, err)
		}
	}
}
