package graph_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/rng"
)

// FromEdges against the definition: the edges into v in input order, stably
// sorted by source.
func TestFromEdgesAgainstDefinition(t *testing.T) {
	for trial := range uint64(20) {
		k := rng.New(1, trial)
		n, e := int(1+k.Uintn(0, 40)), int(k.Uintn(1, 300))
		src, dst, w := make([]uint32, e), make([]uint32, e), make([]float32, e)
		for i := range e {
			src[i], dst[i] = uint32(k.Uintn(uint64(3*i+2), uint64(n))), uint32(k.Uintn(uint64(3*i+3), uint64(n)))
			w[i] = float32(i)
		}
		order := make([]int, e)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			if dst[a] != dst[b] {
				return int(dst[a]) - int(dst[b])
			}
			return int(src[a]) - int(src[b])
		})
		want := &graph.Graph{Indptr: make([]int64, n+1), Indices: make([]uint32, e), Weights: make([]float32, e)}
		for p, i := range order {
			want.Indices[p], want.Weights[p] = src[i], w[i]
			for v := int(dst[i]); v < n; v++ {
				want.Indptr[v+1]++
			}
		}
		got, err := graph.FromEdges(n, src, dst, w)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("trial %d: %+v, %v, want %+v", trial, got, err, want)
		}
		if got, err = graph.FromEdges(n, src, dst, nil); err != nil || got.Weights != nil || !slices.Equal(got.Indices, want.Indices) {
			t.Fatalf("trial %d without weights: %+v, %v", trial, got, err)
		}
	}
}

func TestFromEdgesRefusesBadInput(t *testing.T) {
	nan := float32(math.NaN())
	for want, f := range map[string]func() (*graph.Graph, error){
		"-1 nodes":                         func() (*graph.Graph, error) { return graph.FromEdges(-1, nil, nil, nil) },
		"1 sources for 2 destinations":     func() (*graph.Graph, error) { return graph.FromEdges(2, []uint32{0}, []uint32{0, 1}, nil) },
		"edge 1: node 2 is out of range":   func() (*graph.Graph, error) { return graph.FromEdges(2, []uint32{0, 2}, []uint32{0, 1}, nil) },
		"0 weights for 1 edges":            func() (*graph.Graph, error) { return graph.FromEdges(2, []uint32{0}, []uint32{1}, []float32{}) },
		"weights[0] = NaN":                 func() (*graph.Graph, error) { return graph.FromEdges(2, []uint32{0}, []uint32{1}, []float32{nan}) },
		"node 0 is out of range [0, 0)":    func() (*graph.Graph, error) { return graph.FromEdges(0, []uint32{0}, []uint32{0}, nil) },
		"edge 0: node 7 is out of range [": func() (*graph.Graph, error) { return graph.FromEdges(2, []uint32{0}, []uint32{7}, nil) },
	} {
		if _, err := f(); !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestValidateFindsEveryMistake(t *testing.T) {
	if err := graphtest.Everything(t).Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for want, change := range map[string]func(*graph.Dataset){
		"has no graph":                    func(d *graph.Dataset) { d.Graph = nil },
		"indices[0] = 5 is out of range":  func(d *graph.Dataset) { d.Graph.Indices[0] = 5 },
		"must not decrease":               func(d *graph.Dataset) { d.Graph.Indptr[1] = 9 },
		"weights[2] = NaN":                func(d *graph.Dataset) { d.Graph.Weights[2] = nan },
		"node features have 4 rows for 5": func(d *graph.Dataset) { d.NodeFeatures.Rows = 4 },
		"edge features have 6 rows for 5": func(d *graph.Dataset) { d.EdgeFeatures.Rows = 6 },
		"unknown type dtype(77)":          func(d *graph.Dataset) { d.NodeFeatures.DType = 77 },
		"in a stride of 2 bytes":          func(d *graph.Dataset) { d.NodeFeatures.Stride = 2 },
		"node features have 14 bytes":     func(d *graph.Dataset) { d.NodeFeatures.Data = d.NodeFeatures.Data[:14] },
		"4 times for 5 nodes":             func(d *graph.Dataset) { d.NodeTimes = d.NodeTimes[:4] },
		"3 times for 5 edges":             func(d *graph.Dataset) { d.EdgeTimes = d.EdgeTimes[:3] },
		"a partition of 1 nodes": func(d *graph.Dataset) {
			d.Partitions = []graph.Partition{{Method: "x", Parts: 1, Cluster: []uint32{0}}}
		},
		"4 row scales":                 func(d *graph.Dataset) { d.NodeFeatures.RowScale = d.NodeFeatures.RowScale[:4] },
		"have scales, which only int8": func(d *graph.Dataset) { d.NodeFeatures.DType = graph.Uint8 },
		"row scale 1 is -Inf":          func(d *graph.Dataset) { d.NodeFeatures.RowScale[1] = inf },
		"column scale 2 is NaN":        func(d *graph.Dataset) { d.NodeFeatures.ColScale[2] = nan },
		"row 1, column 2 is NaN": func(d *graph.Dataset) {
			x := make([]float32, 15)
			x[5] = nan
			d.NodeFeatures = graph.NewFeatures(5, 3, x)
		},
		"label of node 4 is 3, out of range [0, 3)": func(d *graph.Dataset) { d.Labels.Class[4] = 3 },
		"label of node 0 is -2":                     func(d *graph.Dataset) { d.Labels.Class[0] = -2 },
		"there are 4 labels for 5 nodes":            func(d *graph.Dataset) { d.Labels.Class = d.Labels.Class[:4] },
		"both single (Class) and multi":             func(d *graph.Dataset) { d.Labels.Multi = []uint8{} },
		"3 label values for 5 nodes of 3":           func(d *graph.Dataset) { d.Labels.Class, d.Labels.Multi = nil, make([]uint8, 3) },
		"label of node 1, class 2 is 2": func(d *graph.Dataset) {
			d.Labels.Class, d.Labels.Multi = nil, []uint8{0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0}
		},
		"test[0]: node 5 is out of range": func(d *graph.Dataset) { d.Test[0] = 5 },
		"train[1]: node 0 is in the":      func(d *graph.Dataset) { d.Train[1] = 0 },
		"split train too":                 func(d *graph.Dataset) { d.Test[0] = 2 },
		"node 3 has no label":             func(d *graph.Dataset) { d.Test[0] = 3 },
	} {
		d := graphtest.Everything(t)
		change(d)
		err := d.Validate(t.Context())
		if !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "graph: ") != 1 {
			t.Errorf("%v, want %q", err, want)
		}
		dir := t.TempDir()
		if d.Graph != nil && store.Create(t.Context(), dir+"/store", d) == nil {
			t.Errorf("%q was written", want)
		}
		graphtest.OnlyContains(t, dir)
	}
}

func TestSummary(t *testing.T) {
	got := graphtest.Everything(t).Summary()
	want := graph.Summary{
		Name: "everything", Nodes: 5, Edges: 5, Weighted: true,
		DegreeMin: 0, DegreeMean: 1, DegreeMedian: 1, DegreeMax: 3, Isolated: 0, SelfLoops: 0, ParallelEdges: 1,
		NodeFeatures: &graph.TableSummary{Rows: 5, Cols: 3, DType: "int8", Bytes: 47}, EdgeFeatures: &graph.TableSummary{Rows: 5, Cols: 1, DType: "int8", Bytes: 29},
		Classes: 3, Labeled: 4, Splits: map[string]int{"train": 2, "valid": 1, "test": 1},
		NodeTimes: true, EdgeTimes: true, Bytes: 6*8 + 5*4 + 5*4 + 47 + 29 + 5*4 + 4*4 + 10*8,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	g, err := graph.FromEdges(4, []uint32{0, 1}, []uint32{1, 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := (&graph.Dataset{Graph: g}).Summary(); s.Isolated != 2 || s.SelfLoops != 1 || s.DegreeMax != 2 || s.DegreeMedian != 0 {
		t.Errorf("%+v", s)
	}
	if s := (&graph.Dataset{Graph: &graph.Graph{Indptr: []int64{0}}}).Summary(); s.Nodes != 0 || s.DegreeMean != 0 {
		t.Errorf("%+v", s)
	}
}

func TestFingerprintIsOfTheContent(t *testing.T) {
	base := graphtest.Hash(t, graphtest.Everything(t))
	same := graphtest.Everything(t)
	same.Name = "another name"
	same.Labels.Class[3] = 0 // in no split
	if graphtest.Hash(t, same) != base {
		t.Error("the name or a label in no split changes the fingerprint")
	}
	for what, change := range map[string]func(*graph.Dataset){
		"an edge":        func(d *graph.Dataset) { d.Graph.Indices[0]++ },
		"a weight":       func(d *graph.Dataset) { d.Graph.Weights[0]++ },
		"no weights":     func(d *graph.Dataset) { d.Graph.Weights = nil },
		"a feature":      func(d *graph.Dataset) { d.NodeFeatures.Data[0]++ },
		"a type":         func(d *graph.Dataset) { d.NodeFeatures.DType = graph.Uint8 },
		"a scale":        func(d *graph.Dataset) { d.NodeFeatures.ColScale[0]++ },
		"an edge's":      func(d *graph.Dataset) { d.EdgeFeatures.Data[2]++ },
		"a label":        func(d *graph.Dataset) { d.Labels.Class[0]-- },
		"the classes":    func(d *graph.Dataset) { d.Labels.NumClasses++ },
		"a split":        func(d *graph.Dataset) { d.Train = d.Train[:1] },
		"a split's role": func(d *graph.Dataset) { d.Valid, d.Test = d.Test, d.Valid },
	} {
		d := graphtest.Everything(t)
		change(d)
		if graphtest.Hash(t, d) == base {
			t.Errorf("%s does not change the fingerprint", what)
		}
	}
}

func TestFloat16RoundTrip(t *testing.T) {
	for h := range 1 << 16 {
		v := graph.Float16ToFloat32(uint16(h))
		if v != v {
			if got := graph.Float16ToFloat32(graph.Float32ToFloat16(v)); got == got {
				t.Errorf("NaN %#x becomes %v", h, got)
			}
			continue
		}
		if got := graph.Float32ToFloat16(v); got != uint16(h) {
			t.Fatalf("%#x becomes %v becomes %#x", h, v, got)
		}
	}
	for v, want := range map[float32]uint16{1 + 0x1p-11: 0x3c00, 1 + 3*0x1p-11: 0x3c02, 65520: 0x7c00, 65519: 0x7bff, 0x1p-25: 0, 0x1.8p-25: 1, -1e-9: 0x8000, 1e9: 0x7c00} {
		if got := graph.Float32ToFloat16(v); got != want {
			t.Errorf("%v becomes %#x, want %#x", v, got, want)
		}
	}
}
