package importer

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// npz returns an archive of arrays; every second one is compressed.
func npz(t testing.TB, arrays files) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	var names []string
	for name := range arrays {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: []uint16{zip.Store, zip.Deflate}[i%2]})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(arrays[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func npyText(s string) string { return npy(fmt.Sprintf("|S%d", len(s)), "()", []byte(s)) }

// The small graph's matrix: an edge from i to j is entry (i, j).
var (
	smallCSR = files{
		"indptr":  npy("<i4", "(5,)", []int32{0, 1, 3, 4, 5}),
		"indices": npy("<i4", "(5,)", []int32{1, 0, 3, 2, 0}),
		"data":    npy("<f8", "(5,)", []float64{1, 3, 2, 4, 5}),
		"shape":   npy("<i8", "(2,)", []int64{4, 4}), "format": npyText("csr"),
	}
	smallCSC = files{
		"indptr":  npy("<i4", "(5,)", []int32{0, 2, 3, 4, 5}),
		"indices": npy("<i4", "(5,)", []int32{3, 1, 0, 2, 1}),
		"data":    npy("<f4", "(5,)", []float32{5, 3, 1, 4, 2}),
		"shape":   npy("<i8", "(2,)", []int64{4, 4}), "format": npyText("csc"),
	}
	smallCOO = files{
		"row":   npy("<i4", "(5,)", []int32{3, 0, 1, 2, 1}),
		"col":   npy("<i4", "(5,)", []int32{0, 1, 0, 2, 3}),
		"data":  npy("<i8", "(5,)", []int64{5, 1, 3, 4, 2}),
		"shape": npy("<i8", "(2,)", []int64{4, 4}), "format": npy("<U3", "()", []int32{'c', 'o', 'o'}),
	}
	smallMTX = "%%MatrixMarket matrix coordinate real general\n% a comment\n\n4 4 5\n4 1 5\n1 2 1e0\n2 1 3.0\n3 3 4\n2\t4 2\n"
)

// sparseFiles returns a file of edges with the small graph's other tables
// beside it; the edges' features are by increasing row.
func sparseFiles(name, content string, byRow bool) files {
	f := files{
		name: content, "features.npy": smallNumPy["features.npy"], "labels.npy": smallNumPy["labels.npy"],
		"train.npy": smallNumPy["train.npy"], "valid.npy": smallNumPy["valid.npy"], "edge_features.npy": smallNumPy["edge_features.npy"],
	}
	if byRow {
		f["edge_features.npy"] = npy("<f4", "(5, 2)", []float32{10, .1, 30, .3, 20, .2, 40, .4, 50, .5})
	}
	return f
}

func TestSparseMatricesGiveTheSameDataset(t *testing.T) {
	adj := files{}
	for name, content := range smallCSR {
		if name != "format" {
			adj["adj_"+name] = content
		}
	}
	for name, f := range map[string]files{
		"csr": sparseFiles("a.npz", npz(t, smallCSR), true), "coo": sparseFiles("a.npz", npz(t, smallCOO), false),
		"adj": sparseFiles("a.npz", npz(t, adj), true),
		"csc": sparseFiles("a.npz", npz(t, smallCSC), false).with("edge_features.npy", npy("<f4", "(5, 2)", []float32{50, .5, 30, .3, 10, .1, 40, .4, 20, .2})),
		"mtx": sparseFiles("a.mtx", smallMTX, false), "mtx.gz": sparseFiles("a.mtx.gz", gz(smallMTX), false),
	} {
		t.Run(name, func(t *testing.T) { checkSmall(t, imported(t, f.write(t), Options{})) })
	}
}

// One archive that holds it all, in the layout of many papers' data.
func TestArchiveWithFeaturesAndLabels(t *testing.T) {
	all := files{
		"attr_matrix.indptr":  npy("<i8", "(5,)", []int64{0, 2, 2, 4, 5}),
		"attr_matrix.indices": npy("<i8", "(5,)", []int64{2, 0, 1, 1, 2}),
		"attr_matrix.data":    npy("<f4", "(5,)", []float32{.5, 2, 3, 4, 1}),
		"attr_matrix.shape":   npy("<i8", "(2,)", []int64{4, 3}),
		"labels":              npy("<i8", "(4,)", []int64{1, 0, -1, 2}),
		"train_mask":          npy("|b1", "(4,)", []bool{true, false, false, true}),
		"val_idx":             npy("<i8", "(1,)", []int64{1}),
		"attr_names":          "pickled objects, which are left alone",
	}
	for name, content := range smallCSR {
		if name != "format" {
			all["adj_matrix."+name] = content
		}
	}
	all["adj_matrix.data"] = npy("<f4", "(5,)", []float32{1, 1, 1, 1, 1})
	path := filepath.Join(files{"papers.npz": npz(t, all)}.write(t), "papers.npz")
	ds := imported(t, path, Options{})
	if g := ds.Graph; !slices.Equal(g.Indptr, []int64{0, 2, 3, 4, 5}) || !slices.Equal(g.Indices, []uint32{1, 3, 0, 2, 1}) || g.Weights != nil {
		t.Errorf("graph %+v", g)
	}
	if x, _, ok := ds.NodeFeatures.Float32s(); !ok || !slices.Equal(x, []float32{2, 0, .5, 0, 0, 0, 0, 7, 0, 0, 0, 1}) {
		t.Errorf("features %v", x)
	}
	if !slices.Equal(ds.Labels.Class, []int32{1, 0, -1, 2}) || !slices.Equal(ds.Train, []uint32{0, 3}) || !slices.Equal(ds.Valid, []uint32{1}) || ds.Name != "papers.npz" {
		t.Errorf("%q: labels %v, splits %v %v", ds.Name, ds.Labels.Class, ds.Train, ds.Valid)
	}
}

func TestArchivesOfEdges(t *testing.T) {
	want := &graph.Graph{Indptr: []int64{0, 1, 1, 3}, Indices: []uint32{1, 0, 1}}
	for name, arrays := range map[string]files{
		"edges":   {"edge_index": npy("<i8", "(2, 3)", []int64{1, 1, 0, 0, 2, 2}), "x": npy("<f4", "(3, 1)", []float32{1, 2, 3})},
		"indptr":  {"indptr": npy("<i8", "(4,)", []int64{0, 1, 1, 3}), "indices": npy("<i8", "(3,)", []int64{1, 0, 1})},
		"row/col": {"row": npy("<u2", "(3,)", []uint16{1, 0, 1}), "col": npy("<u2", "(3,)", []uint16{0, 2, 2}), "train": npy("<i8", "(1,)", []int64{2})},
	} {
		if ds := imported(t, files{"a.npz": npz(t, arrays)}.write(t), Options{}); !reflect.DeepEqual(ds.Graph, want) {
			t.Errorf("%s: %+v", name, ds.Graph)
		}
	}
}

func TestSymmetricMatrixMarket(t *testing.T) {
	want := &graph.Graph{Indptr: []int64{0, 1, 3, 4}, Indices: []uint32{1, 0, 2, 1}}
	for _, field := range []string{"pattern", "integer", "real"} {
		one := map[bool]string{true: "", false: " 1"}[field == "pattern"]
		file := fmt.Sprintf("%%%%matrixmarket MATRIX Coordinate %s symmetric\n3 3 2\n2 1%s\n3 2%s", field, one, one)
		if ds := imported(t, files{"a.mtx": file}.write(t), Options{}); !reflect.DeepEqual(ds.Graph, want) {
			t.Errorf("%s: %+v", field, ds.Graph)
		}
	}
	ds := imported(t, files{"a.mtx": "%%MatrixMarket matrix coordinate integer symmetric\n2 2 2\n2 1 -7\n2 2 3\n"}.write(t), Options{})
	if g := ds.Graph; !slices.Equal(g.Indices, []uint32{1, 0, 1}) || !slices.Equal(g.Weights, []float32{-7, -7, 3}) {
		t.Errorf("weights %v of %v; a loop is there once", g.Weights, g.Indices)
	}
}

func replaceLast(s, old, new string) string {
	i := strings.LastIndex(s, old)
	return s[:i] + new + s[i+len(old):]
}

func TestBadSparseMatricesAreRefusedWithThePlace(t *testing.T) {
	csr := func(member, content string) string { return npz(t, smallCSR.with(member, content)) }
	head := "%%MatrixMarket matrix coordinate "
	for _, c := range []struct{ file, content, want string }{
		{"a.npz", "PK not an archive", "a.npz: zip"},
		{"a.npz", npz(t, files{"z": npy("<f4", "(1,)", []float32{1})}), "no adjacency matrix"},
		{"a.npz", csr("format", npyText("bsr")), `a.npz:format: "bsr"; csr, csc and coo`},
		{"a.npz", csr("indices", ""), "a.npz:indices is missing"},
		{"a.npz", csr("shape", ""), "a.npz:shape is missing"},
		{"a.npz", csr("shape", npy("<i8", "(2,)", []int64{4, 5})), "4 rows and 5 columns"},
		{"a.npz", csr("shape", npy("<i8", "(2,)", []int64{1 << 40, 1 << 40})), "out of range"},
		{"a.npz", csr("shape", npy("<i8", "(3,)", []int64{4, 4, 4})), "a shape has two values"},
		{"a.npz", csr("shape", npy("<i8", "(2,)", []int64{3, 3})), "4 nodes, but"},
		{"a.npz", csr("indices", npy("<i4", "(5,)", []int32{1, 0, 4, 2, 0})), "a.npz:indices offset 136 (value 2): node 4 is out of range"},
		{"a.npz", csr("indptr", npy("<i4", "(5,)", []int32{0, 1, 0, 4, 5})), "a.npz:indptr offset 136 (value 2): row bound 0"},
		{"a.npz", csr("data", npy("<f4", "(4,)", []float32{1, 2, 3, 4})), "4 rows, but there are 5 edges"},
		{"a.npz", csr("data", npy("<f4", "(9,)", []float32{1, 2, 3, 4})), "bytes, but float32 of shape (9) needs 164"},
		{"a.npz", npz(t, smallCOO.with("col", npy("<i4", "(1,)", []int32{0}))), "want one dimension each, as long as the other"},
		{"a.npz", npz(t, smallCOO.with("row", npy("<i4", "(5,)", []int32{0, 0, -1, 0, 0}))), "a.npz:row offset 136 (value 2): node id -1 is negative"},
		{"a.npz", npz(t, files{
			"attr_indptr": npy("<i8", "(2,)", []int64{0, 1}), "attr_indices": npy("<i8", "(1,)", []int64{7}),
			"attr_data": npy("<f4", "(1,)", []float32{1}), "attr_shape": npy("<i8", "(2,)", []int64{1, 7}),
		}), "a.npz:attr_indices offset 128 (value 0): column 7 is out of range [0, 7)"},
		{"a.npz", npz(t, files{
			"attr_indptr": npy("<i8", "(2,)", []int64{0, 1}), "attr_indices": npy("<i8", "(1,)", []int64{0}),
			"attr_data": npy("<f4", "(1,)", []float32{1}), "attr_shape": npy("<i8", "(2,)", []int64{4_000_000_000, 1_000_000}),
		}), "--max-expansion 16877637130803"},
		{"a.mtx", "1 1 0\n", "a.mtx line 1: the file does not begin with"},
		{"a.mtx", "%%MatrixMarket matrix array real general\n", "line 1: it holds \"array matrix\""},
		{"a.mtx", head + "complex general\n", `line 1: values of the field "complex"`},
		{"a.mtx", head + "real hermitian\n", `line 1: symmetry "hermitian"`},
		{"a.mtx", head + "real general\n% no more\n", "ends after line 2, before the line of sizes"},
		{"a.mtx", head + "real general\n3 3\n", "line 2: 2 numbers where"},
		{"a.mtx", head + "real general\n3 4 1\n", "line 2: the matrix has 3 rows and 4 columns"},
		{"a.mtx", head + "real general\n3 3 1\n0 1 5\n", `line 3: index "0" is not in [1, 3]`},
		{"a.mtx", head + "real general\n3 3 1\n1 4 5\n", `line 3: index "4" is not in [1, 3]`},
		{"a.mtx", head + "real general\n3 3 1\n1 2\n", "line 3: the line has 2 columns; an entry has 3"},
		{"a.mtx", head + "pattern general\n3 3 1\n1 2 3\n", "line 3: the line has 3 columns; an entry has 2"},
		{"a.mtx", head + "real general\n3 3 1\n1 2 inf\n", "line 3: value: "},
		{"a.mtx", head + "pattern general\n3 3 1\n1 2\n2 3\n", "line 4: there are more entries than the 1"},
		{"a.mtx", head + "pattern general\n3 3 2\n1 2\n", "it has 1 entries, but its header says 2"},
		{"a.mtx.gz", gz(smallMTX)[:40], "truncated or damaged"},
		{"a.mtx.gz", "", "truncated or damaged"},
		{"a.mtx.zst", "", "truncated or damaged"},
		{"a.npz", replaceLast(npz(t, smallCSR), "data.npy", "dqta.npy"), `the array "dqta.npy" is called "data.npy" where it begins`},
	} {
		dst := filepath.Join(t.TempDir(), "store")
		err := Import(t.Context(), files{c.file: c.content}.write(t), dst, Options{})
		if !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.file, err, c.want)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dst), "*")); len(left) > 0 {
			t.Errorf("%s: %q was left behind", c.file, left)
		}
	}
}

func FuzzMatrixMarket(f *testing.F) {
	f.Add([]byte("%%MatrixMarket matrix coordinate real general"), []byte("4 4 5"), []byte("4 1 5e-3"))
	f.Add([]byte("%%MatrixMarket matrix coordinate pattern symmetric"), []byte("4294967294 4294967294 9"), []byte(" 4294967295\t1"))
	f.Add([]byte("%%MatrixMarket matrix array real general"), []byte("% 1"), []byte("99999999999999999999 1 1"))
	f.Fuzz(func(t *testing.T, banner, size, line []byte) {
		var p mtxParser
		if p.header(banner) != nil || p.size != nil || p.header(size) != nil || p.size == nil {
			return
		}
		if p.size[0] != p.size[1] || p.size[0] < 0 || p.size[0] > graph.MaxNodes || p.size[2] < 0 {
			t.Fatalf("sizes %v are accepted", p.size)
		}
		i, j, w, ok, err := p.entry(line)
		if err == nil && ok && (int64(i) >= p.size[0] || int64(j) >= p.size[1] || w-w != 0) {
			t.Fatalf("entry (%d, %d) of %v is accepted, with value %v", i, j, p.size, w)
		}
		if err != nil && ok {
			t.Fatal("an entry that is in error is there")
		}
	})
}

func FuzzNPZ(f *testing.F) {
	f.Add([]byte(npz(f, smallCSR)))
	f.Add([]byte(npz(f, smallCOO)))
	f.Add([]byte(npz(f, files{"x": npy("<f4", "(9,)", []float32{1}), "format": npyText(strings.Repeat("x", 400))})))
	f.Add([]byte("PK\x05\x06" + strings.Repeat("\x00", 18)))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeNPZ(bytes.NewReader(b), int64(len(b)), "a.npz")
		if err != nil {
			if !errors.Is(err, graph.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		for name := range a.members {
			if s, err := a.text(name); err == nil && len(s) > maxNPZText {
				t.Fatalf("a text of %d bytes", len(s))
			}
			h, err := a.header(name)
			if err != nil || h.count()*int64(h.size) > 1<<20 {
				continue
			}
			var values bytes.Buffer
			if err := a.copyTo(&values, name); err == nil && int64(values.Len()) != h.offset+h.count()*int64(h.size) {
				t.Fatalf("%d bytes of %s", values.Len(), &h)
			}
		}
	})
}
