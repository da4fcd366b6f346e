package importer

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

func TestNPYHeaders(t *testing.T) {
	v2 := "\x93NUMPY\x02\x00\x3b\x00\x00\x00{\"shape\": (3, 4), 'fortran_order': True, 'descr': '>i4'}   \n"
	h, err := decodeNPYHeader([]byte(v2))
	if want := (npyHeader{kind: 'i', size: 4, big: true, fortran: true, shape: []int64{3, 4}, offset: 71}); err != nil || !reflect.DeepEqual(h, want) {
		t.Errorf("%+v, %v", h, err)
	}
	v3 := strings.Replace(v2, "\x02", "\x03", 1)
	if _, err := decodeNPYHeader([]byte(v3)); err != nil {
		t.Error(err)
	}
	if h, err := decodeNPYHeader([]byte(npy("|b1", "()", []bool{true}))); err != nil || h.count() != 1 || len(h.shape) != 0 {
		t.Errorf("%+v, %v", h, err)
	}
	for _, bad := range []string{
		"", "\x93NUMPY", "\x93NUMPY\x04\x00\x00\x00", "\x93NUMPY\x02\x00\xff\xff\xff\xff{}",
		npy("<c8", "(1,)", []int64{0}), npy("<f16", "(1,)", []int64{0}), npy("f4", "(1,)", []int64{0}), npy("<U4", "(1,)", []int64{0}),
		npy("<f4", "(-1,)", []int64{0}), npy("<f4", "(1", []int64{0}), npy("<f4", "(9999999999, 9999999999)", []int64{0}),
		npy("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", []int64{0}), npy("<f4", "(x,)", []int64{0}), npy("<f4", "[1]", []int64{0}),
		strings.Replace(npy("<f4", "(1,)", []int64{0}), "False", "Maybe", 1), strings.Replace(npy("<f4", "(1,)", []int64{0}), "descr", "desrc", 1),
		strings.Replace(npy("<f4", "(1,)", []int64{0}), "'<f4'", "[('a','<f4')]", 1), strings.Replace(npy("<f4", "(1,)", []int64{0}), "shape", "descr", 1),
	} {
		if h, err := decodeNPYHeader([]byte(bad)); err == nil {
			t.Errorf("%q is accepted: %+v", bad, h)
		}
	}
}

func TestBigEndianAndFortranOrderAreRead(t *testing.T) {
	// The transpose of [[0, 1], [1, 2], [2, 0]], column by column and big-endian.
	big := strings.Replace(npy(">i2", "(3, 2)", []byte{0, 0, 0, 1, 0, 2, 0, 1, 0, 2, 0, 0}), "False", "True ", 1)
	ds := imported(t, files{"edges.npy": big, "features.npy": npy(">f4", "(3, 1)", []byte{0x3f, 0x80, 0, 0, 0x40, 0, 0, 0, 0x3f, 0, 0, 0})}.write(t), Options{})
	if !slices.Equal(ds.Graph.Indices, []uint32{2, 0, 1}) {
		t.Errorf("edges %v", ds.Graph.Indices)
	}
	if x, _, ok := ds.NodeFeatures.Float32s(); !ok || !slices.Equal(x, []float32{1, 2, .5}) {
		t.Errorf("features %v", x)
	}
}

func FuzzNPY(f *testing.F) {
	f.Add([]byte(npy("<f4", "(2, 3)", make([]float32, 6))))
	f.Add([]byte(npy(">i8", "(4,)", make([]int64, 4))))
	f.Add([]byte(npy("|b1", "(0, 4611686018427387904)", []byte{})))
	f.Add([]byte("\x93NUMPY\x03\x00\xff\xff\xff\xff{'descr': '<f8'"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(dir, "x.npy")
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		src, err := openSource(path, false)
		if err != nil {
			t.Fatal(err)
		}
		im := &importer{ctx: t.Context(), src: src}
		a, err := im.openNPY(path)
		if err != nil {
			return
		}
		defer a.close()
		if n := a.count(); n < 0 || n*int64(a.size) > int64(len(b)) {
			t.Fatalf("%d values of %d bytes in a file of %d bytes", n, a.size, len(b))
		}
		table, rows, cols, err := im.tableNPY(path)
		if err != nil {
			return
		}
		defer table.close()
		_ = im.eachRow(table, rows, cols, true, func(_ int64, x []float32) error {
			for _, v := range x {
				if math.IsInf(float64(v), 0) {
					t.Fatal("an infinity was let through")
				}
			}
			return nil
		})
	})
}

func FuzzBoltMetadata(f *testing.F) {
	f.Add([]byte(smallBolt["metadata.yaml"]))
	f.Add([]byte("graph: {nodes: [{num: 3}], edges: [{format: csv, path: /etc/passwd}]}"))
	f.Add([]byte("a: &a [*a, *a]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeBoltMetadata(b)
		if err != nil {
			return
		}
		if n := m.Graph.Nodes[0].Num; n < 0 || n > graph.MaxNodes {
			t.Errorf("%d nodes", n)
		}
		if p := m.Graph.Edges[0].Path; !filepath.IsLocal(p) {
			t.Errorf("path %q", p)
		}
		_, _ = m.feature("node")
		_ = m.task()
	})
}

func FuzzNPYDictionary(f *testing.F) {
	f.Add("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }")
	f.Add(`{"shape": (), "fortran_order": True, "descr": "|b1"}`)
	f.Add("{'descr': [('a', '<f4')], 'shape': (18446744073709551615L,)}")
	f.Fuzz(func(t *testing.T, s string) {
		var h npyHeader
		if h.parse(s) != nil {
			return
		}
		if n := h.count(); n < 0 || n*int64(h.size) < 0 || len(h.shape) > 8 {
			t.Errorf("%+v has %d values", h, n)
		}
	})
}
