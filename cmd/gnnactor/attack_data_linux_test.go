package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/gnnactor/gnnactor/graph"
)

// npy returns a NumPy array of format version 1, little-endian.
func npy(descr, shape string, values any) []byte {
	h := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
	h += strings.Repeat(" ", 63-(10+len(h))%64) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(h)), byte(len(h)>>8))
	b, err := binary.Append(append(b, h...), binary.LittleEndian, values)
	if err != nil {
		panic(err)
	}
	return b
}

func vector[T any](descr string, values []T) []byte {
	return npy(descr, fmt.Sprintf("(%d,)", len(values)), values)
}

func gz(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

func zst(b []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// archive is what NumPy's savez_compressed writes.
func archive(arrays map[string][]byte) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(arrays)) {
		w, err := z.Create(name + ".npy")
		if err == nil {
			_, err = w.Write(arrays[name])
		}
		if err != nil {
			panic(err)
		}
	}
	z.Close()
	return b.Bytes()
}

// datasets writes ds below dir in every format that import reads: a directory
// each, named after it.
func datasets(t *testing.T, dir string, ds *graph.Dataset) {
	t.Helper()
	n, e := ds.Graph.NumNodes(), int(ds.Graph.NumEdges())
	var src, dst, indptr []int64 // indptr and dst are the matrix's rows
	var text, mtx bytes.Buffer
	fmt.Fprintf(&mtx, "%%%%MatrixMarket matrix coordinate pattern general\n%d %d %d\n", n, n, e)
	for v := range n {
		indptr = append(indptr, int64(len(src)))
		for _, u := range ds.Graph.Indices[ds.Graph.Indptr[v]:ds.Graph.Indptr[v+1]] {
			src, dst = append(src, int64(v)), append(dst, int64(u)) // the graph is symmetric
			fmt.Fprintf(&text, "%d\t%d\n", v, u)
			fmt.Fprintf(&mtx, "%d %d\n", v+1, u+1)
		}
	}
	indptr = append(indptr, int64(e))
	x, _, _ := ds.NodeFeatures.Float32s()
	cols := ds.NodeFeatures.Cols
	features := npy("<f4", fmt.Sprintf("(%d, %d)", n, cols), x)
	labels := vector("<i4", ds.Labels.Class)
	tables := map[string][]byte{
		"features.npy": features, "labels.npy": labels,
		"train.npy": vector("<u4", ds.Train), "valid.npy": vector("<u4", ds.Valid), "test.npy": vector("<u4", ds.Test),
	}
	put := func(format string, files map[string][]byte) {
		for name, content := range files {
			path := filepath.Join(dir, format, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for format, edges := range map[string]map[string][]byte{
		"list": {"g.tsv": text.Bytes()}, "list-gz": {"g.tsv.gz": gz(text.Bytes())}, "list-zst": {"g.tsv.zst": zst(text.Bytes())},
		"mtx": {"g.mtx": mtx.Bytes()}, "mtx-gz": {"g.mtx.gz": gz(mtx.Bytes())},
		"numpy":     {"edges.npy": npy("<i8", fmt.Sprintf("(2, %d)", e), slices.Concat(src, dst))},
		"numpy-csc": {"indptr.npy": vector("<i8", indptr), "indices.npy": vector("<i8", dst)},
	} {
		put(format, edges)
		put(format, tables)
	}
	shape := vector("<i8", []int64{int64(n), int64(n)})
	ones := vector("<f4", slices.Repeat([]float32{1}, e))
	all := map[string][]byte{"labels": labels, "features": features, "train": tables["train.npy"], "test": tables["test.npy"]}
	csr := map[string][]byte{"indptr": vector("<i8", indptr), "indices": vector("<i8", dst), "data": ones, "shape": shape, "format": npy("|S3", "()", []byte("csr"))}
	for name, b := range csr {
		if name != "format" {
			all["adj_"+name] = b
		}
	}
	put("npz", map[string][]byte{"g.npz": archive(all)})
	put("scipy", map[string][]byte{"g.npz": archive(csr)})
	put("scipy", tables)
	put("scipy-coo", map[string][]byte{"g.npz": archive(map[string][]byte{
		"row": vector("<i8", src), "col": vector("<i8", dst), "data": ones, "shape": shape, "format": npy("|S3", "()", []byte("coo")),
	})})

	column := func(values any) []byte {
		return gz([]byte(strings.ReplaceAll(strings.Trim(fmt.Sprint(values), "[]"), " ", "\n") + "\n"))
	}
	var rows bytes.Buffer
	for v := range n {
		rows.WriteString(strings.ReplaceAll(strings.Trim(fmt.Sprint(x[v*cols:(v+1)*cols]), "[]"), " ", ",") + "\n")
	}
	put("ogb", map[string][]byte{
		"raw/edge.csv.gz": gz(bytes.ReplaceAll(text.Bytes(), []byte("\t"), []byte(","))), "raw/node-feat.csv.gz": gz(rows.Bytes()),
		"raw/num-node-list.csv.gz": gz(fmt.Appendln(nil, n)), "raw/num-edge-list.csv.gz": gz(fmt.Appendln(nil, e)),
		"raw/node-label.csv.gz":  column(ds.Labels.Class),
		"split/any/train.csv.gz": column(ds.Train), "split/any/valid.csv.gz": column(ds.Valid), "split/any/test.csv.gz": column(ds.Test),
	})
	of := func(ids []uint32) []byte {
		var class []int64
		for _, v := range ids {
			class = append(class, int64(ds.Labels.Class[v]))
		}
		return vector("<i8", class)
	}
	put("graphbolt", map[string][]byte{
		"metadata.yaml": fmt.Appendf(nil, `dataset_name: small
graph:
  nodes: [{num: %d}]
  edges: [{format: csv, path: edges.csv}]
feature_data:
  - {domain: node, name: feat, format: numpy, path: feat.npy}
tasks:
  - name: node_classification
    num_classes: %d
    train_set: [{data: [{name: seeds, format: numpy, path: train.npy}, {name: labels, format: numpy, path: train-labels.npy}]}]
    test_set: [{data: [{name: seeds, format: numpy, path: test.npy}, {name: labels, format: numpy, path: test-labels.npy}]}]
`, n, ds.Labels.NumClasses),
		"edges.csv": bytes.ReplaceAll(text.Bytes(), []byte("\t"), []byte(",")), "feat.npy": features,
		"train.npy": tables["train.npy"], "train-labels.npy": of(ds.Train), "test.npy": tables["test.npy"], "test-labels.npy": of(ds.Test),
	})
}

// typed adds to ds what a store may hold besides: weights, features of edges,
// times, and features as numbers of one byte with their scales.
func typed(ds *graph.Dataset) *graph.Dataset {
	d := *ds
	g := *ds.Graph
	e := int(g.NumEdges())
	g.Weights = make([]float32, e)
	x := make([]float32, 2*e)
	d.EdgeTimes, d.NodeTimes = make([]int64, e), make([]int64, g.NumNodes())
	for i := range e {
		g.Weights[i], x[2*i], x[2*i+1], d.EdgeTimes[i] = 1+float32(i%7), float32(i%5), float32(i%3), int64(i%50)
	}
	for v := range d.NodeTimes {
		d.NodeTimes[v] = int64(v % 50)
	}
	d.Graph, d.EdgeFeatures = &g, graph.NewFeatures(e, 2, x)
	return &d
}
