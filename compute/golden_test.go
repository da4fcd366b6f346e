package compute

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// golden is one file: a PyG module's input, output and gradients.
type golden struct {
	tensors map[string]RawTensor
	meta    map[string]string
	nodes   int
	graph   *graph.Graph
	csc     []int // position in edge_index of each CSC entry
	// sequential are the file's names of parameters where they differ: GINConv
	// with a torch Sequential, not with PyG's MLP.
	sequential map[string]string
}

func readGolden(t *testing.T, path string) *golden {
	tensors, meta, err := OpenSafetensors(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	f := &golden{tensors: map[string]RawTensor{}, meta: meta}
	for _, x := range tensors {
		f.tensors[x.Name] = x
	}
	f.nodes = f.tensors["x"].Shape[0]
	edges := f.tensors["edge_index"]
	m := edges.Shape[1]
	at := func(i int) int { return int(edges.Data[8*i]) | int(edges.Data[8*i+1])<<8 }
	f.graph = &graph.Graph{Indptr: make([]int64, f.nodes+1)}
	for v := range f.nodes {
		for e := range m {
			if at(m+e) == v {
				f.graph.Indices = append(f.graph.Indices, uint32(at(e)))
				f.csc = append(f.csc, e)
			}
		}
		f.graph.Indptr[v+1] = int64(len(f.graph.Indices))
	}
	if _, weighted := f.tensors["in.edge_weight"]; weighted {
		w := f.values(t, "in.edge_weight")
		for _, e := range f.csc {
			f.graph.Weights = append(f.graph.Weights, w[e])
		}
	}
	if err := f.graph.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *golden) values(t *testing.T, name string) []float32 {
	x, ok := f.tensors[name]
	if !ok {
		t.Fatalf("golden file has no %q", name)
	}
	v, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// edgeFeatures returns the features of the edges in CSC order, or nil.
func (f *golden) edgeFeatures(t *testing.T) *graph.Features {
	if _, ok := f.tensors["in.edge_attr"]; !ok {
		return nil
	}
	attr := f.matrix(t, "in.edge_attr")
	m := cpu.NewMatrix[float32](attr.Rows, attr.Cols)
	for i, e := range f.csc {
		copy(m.Row(i), attr.Row(e))
	}
	return graph.NewFeatures(m.Rows, m.Cols, m.Data)
}

func (f *golden) matrix(t *testing.T, name string) cpu.Matrix[float32] {
	s := f.tensors[name].Shape
	return cpu.Dense(s[0], s[1], f.values(t, name))
}

// spec returns the model that the file is of; ok is false if it does not exist
// (yet).
func (f *golden) spec(name string) (spec Spec, single, ok bool) {
	x, y := f.tensors["x"].Shape, f.tensors["y"].Shape
	spec = Spec{Layers: 1, Hidden: 1, InDim: x[1], OutDim: y[1]}
	switch name {
	case "gcn_conv", "gcn_conv_weighted":
		spec.Model = "gcn"
		return spec, true, true
	case "sage_conv_mean":
		spec.Model = "sage"
		return spec, true, true
	case "sage_conv_max":
		spec.Model, spec.Aggregation = "sage", "max"
		return spec, true, true
	case "gin_conv":
		spec.Model, spec.TrainEps = "gin", true
		f.sequential = map[string]string{"nn.lins.0.bias": "nn.0.bias", "nn.lins.0.weight": "nn.0.weight", "nn.lins.1.bias": "nn.2.bias", "nn.lins.1.weight": "nn.2.weight"}
		return spec, true, true
	case "mixhop_conv":
		spec.Model, spec.Hops, spec.bare = "mixhop", 2, true
		spec.OutDim /= 3
		return spec, true, true
	case "gat_conv", "gatv2_conv":
		spec.Model, spec.Heads, spec.concat = strings.TrimSuffix(name, "_conv"), 4, true
		return spec, true, true
	case "gat_conv_mean_heads":
		spec.Model, spec.Heads = "gat", 3
		return spec, true, true
	case "gat_conv_edge":
		spec.Model, spec.Heads, spec.concat, spec.EdgeDim = "gat", 2, true, f.tensors["in.edge_attr"].Shape[1]
		spec.NoLoops = true
		return spec, true, true
	case "model_gcn3", "model_sage3", "model_gin3", "model_gat3":
		if name == "model_gat3" {
			spec.Heads = 4
		}
		spec.Model = strings.TrimSuffix(strings.TrimPrefix(name, "model_"), "3")
		spec.Layers, spec.Hidden = 3, 24
		return spec, false, true
	}
	return spec, false, false
}

// TestGolden compares outputs and all gradients with PyG's, on the whole graph:
// max|a-b| <= 1e-4·max|b| per tensor.
func TestGolden(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join("testdata", "golden", "*.safetensors"))
	if len(files) == 0 {
		t.Fatal("there are no golden files in testdata/golden")
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".safetensors")
		t.Run(name, func(t *testing.T) {
			f := readGolden(t, path)
			spec, single, ok := f.spec(name)
			if !ok {
				t.Skipf("%s (%s) is of a layer that does not exist yet", name, f.meta["module"])
			}
			m, err := NewModel(spec, f.graph)
			if err != nil {
				t.Fatal(err)
			}
			prefix := ""
			if single {
				prefix = "convs.0."
			}
			for _, set := range []cpu.Set{cpu.Go, cpu.AVX2, cpu.AVX512} {
				if set.Supported() {
					compareGolden(t, f, m, prefix, testExec(t, 2, set))
				}
			}
			if x := deviceExec(t); x != nil {
				compareGolden(t, f, m, prefix, x)
			}
		})
	}
}

func compareGolden(t *testing.T, f *golden, m *Model, prefix string, exec *cpu.Exec) {
	c := newCore[float32](m, exec, true)
	values := func(m cpu.Matrix[float32]) []float32 {
		h := cpu.NewMatrix[float32](m.Rows, m.Cols)
		c.tape.fetch(h, m)
		return h.Data
	}
	params := make([]float32, m.layout.Len())
	grad := make([]float32, m.layout.Len())
	named := map[string]Tensor{}
	for _, p := range m.layout.Tensors() {
		name := strings.TrimPrefix(p.Name, prefix)
		if renamed, ok := f.sequential[name]; ok {
			name = renamed
		}
		copy(params[p.Offset:p.Offset+p.Len], f.values(t, "param."+name))
		named[name] = p
	}
	for name := range f.tensors {
		if strings.HasPrefix(name, "param.") {
			if _, ok := named[strings.TrimPrefix(name, "param.")]; !ok {
				t.Errorf("the model has no parameter for the file's %s", name)
			}
		}
	}
	c.bind(params, grad)
	x := c.tape.Leaf(f.matrix(t, "x"), true, cpu.Matrix[float32]{})
	for i := range c.ctx {
		c.ctx[i].edges = f.edgeFeatures(t)
	}
	y := c.forward(wholeBlocks(f.graph, m.Blocks()), x, 0)
	closeTo(t, "y", values(y.Matrix()), f.values(t, "y"), 1e-4)
	c.tape.SetGrad(y, f.matrix(t, "dy"))
	c.tape.Backward()
	c.collect(grad)
	closeTo(t, "dx", values(x.Grad()), f.values(t, "dx"), 1e-4)
	for name, p := range named {
		g := grad[p.Offset : p.Offset+p.Len]
		if _, ok := f.tensors["grad."+name]; !ok {
			for _, v := range g {
				if v != 0 {
					t.Errorf("PyG has no gradient for %s, here it is %v", name, v)
					break
				}
			}
			continue
		}
		closeTo(t, "grad."+name, g, f.values(t, "grad."+name), 1e-4)
	}
}

// closeTo checks max|a-b| <= tolerance·max|b|.
func closeTo[T cpu.Float](t *testing.T, name string, a, b []T, tolerance float64) {
	t.Helper()
	if len(a) != len(b) {
		t.Errorf("%s has %d values, want %d", name, len(a), len(b))
		return
	}
	var worst, scale float64
	for i := range a {
		d := float64(a[i] - b[i])
		if !(max(d, -d) <= worst) {
			worst = max(d, -d)
		}
		scale = max(scale, float64(b[i]), -float64(b[i]))
	}
	if !(worst <= tolerance*scale) {
		t.Errorf("%s: max|a-b| = %g, max|b| = %g: off by %.3g, allowed %g", name, worst, scale, worst/scale, tolerance)
	}
}
