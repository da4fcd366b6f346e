package compute

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// TestBatchNormStatistics follows the running statistics of a model's first
// batch norm, which normalises what a linear layer of the isolated nodes' own
// features gives, through three batches, by PyTorch's formulas in float64.
func TestBatchNormStatistics(t *testing.T) {
	const n, in, hidden = 37, 3, 4
	ds := testDataset(n, 0, in, false)
	ds.Graph = &graph.Graph{Indptr: make([]int64, n+1)}
	m := mustModel(t, Spec{Model: "gcn", Layers: 2, InDim: in, Hidden: hidden, OutDim: 2, Norm: "batch"}, ds.Graph)
	e := m.NewEngine(testExec(t, 2, cpu.Go))
	params, grad := m.Init(3), make([]float32, m.layout.Len())
	place := func(v []float32, name string) []float32 {
		p, ok := m.layout.Lookup(name)
		if !ok {
			t.Fatalf("there is no %s", name)
		}
		return v[p.Offset : p.Offset+p.Len]
	}
	w := place(params, "convs.0.lin.weight")
	mean, variance := make([]float64, hidden), slices.Repeat([]float64{1}, hidden)
	tracked, row := 0, make([]float32, in)
	for batch, rows := range []int{20, 1, 2, 7} {
		blocks := make([]graph.Block, 2)
		for l := range blocks {
			blocks[l] = graph.Block{NumDst: rows, NumSrc: rows, Indptr: make([]int64, rows+1), SrcIDs: make([]uint32, rows)}
			for i := range rows {
				blocks[l].SrcIDs[i] = uint32(batch*3 + i)
			}
		}
		if _, err := e.Gradient(grad, params, &Input{Blocks: blocks, Features: ds.NodeFeatures, Rows: blocks[0].SrcIDs, Labels: []int32{1}}); err != nil {
			t.Fatal(err)
		}
		learnt := slices.Clone(grad)
		m.Observe(params, grad, e.core.tape.x)
		if rows > 1 {
			tracked++
			for j := range hidden {
				var y []float64
				sum, squares := 0.0, 0.0
				for i := range rows {
					v := 0.0
					ds.NodeFeatures.Row(row, batch*3+i)
					for k, x := range row {
						v += float64(w[j*in+k]) * float64(x)
					}
					y = append(y, v)
					sum += v
				}
				for _, v := range y {
					squares += (v - sum/float64(rows)) * (v - sum/float64(rows))
				}
				mean[j] = 0.9*mean[j] + 0.1*sum/float64(rows)
				variance[j] = 0.9*variance[j] + 0.1*squares/float64(rows-1)
			}
		}
		if got := place(params, "norms.0.module.num_batches_tracked"); len(got) != 1 || got[0] != float32(tracked) {
			t.Errorf("%v batches tracked after batch %d, want %d", got, batch, tracked)
		}
		for name, want := range map[string][]float64{"running_mean": mean, "running_var": variance} {
			for j, got := range place(params, "norms.0.module."+name) {
				if math.Abs(float64(got)-want[j]) > 1e-6*max(1, math.Abs(want[j])) {
					t.Errorf("%s %d after batch %d is %v, want %v", name, j, batch, got, want[j])
				}
			}
		}
		for _, p := range m.layout.Tensors() {
			for i := range p.Len {
				switch got := grad[p.Offset+i]; {
				case p.Fixed && got != 0:
					t.Errorf("%s keeps gradient %v", p.Name, got)
				case !p.Fixed && got != learnt[p.Offset+i]:
					t.Errorf("Observe changed the gradient of %s", p.Name)
				}
			}
		}
	}
}

// TestBatchNormFile saves and loads the statistics under PyTorch's names and
// types.
func TestBatchNormFile(t *testing.T) {
	m := mustModel(t, Spec{Model: "gin", Layers: 2, InDim: 3, Hidden: 4, OutDim: 2, Norm: "batch"}, randomGraph(5, 1, false, 1))
	params := randomParams(m, 2)
	for _, s := range m.statistics {
		params[s.tracked.Offset] = 70000
	}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := m.Save(path, params, nil); err != nil {
		t.Fatal(err)
	}
	got, _, err := m.Load(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, params) {
		t.Errorf("loaded %v, saved %v", got, params)
	}
	tensors, _, err := OpenSafetensors(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	counts := 0
	for _, x := range tensors {
		if x.DType == "I64" {
			counts++
			if len(x.Shape) != 0 {
				t.Errorf("%s has shape %v", x.Name, x.Shape)
			}
		}
	}
	for _, name := range []string{"norms.0.module.running_mean", "convs.0.nn.norms.0.module.running_var", "convs.1.nn.norms.0.module.num_batches_tracked"} {
		if _, ok := m.layout.Lookup(name); !ok {
			t.Errorf("there is no %s", name)
		}
	}
	if counts != 3 || m.layout.NumLearnt() != m.layout.Len()-(9+9+5)-2 {
		t.Errorf("%d counts in the file, %d of %d learnt", counts, m.layout.NumLearnt(), m.layout.Len())
	}
}

// A count may be of any type that converts; parameters of whole numbers are refused.
func TestTypesOfCounts(t *testing.T) {
	m := mustModel(t, Spec{Model: "gin", Layers: 1, InDim: 3, OutDim: 2, Norm: "batch"}, randomGraph(5, 1, false, 1))
	params := randomParams(m, 2)
	params[m.statistics[0].tracked.Offset] = 7
	tensors := m.layout.Pack("", params)
	for i, x := range tensors {
		if x.DType == "I64" {
			tensors[i] = Float32Tensor(x.Name, []int{}, []float32{7})
		}
	}
	if got, err := m.layout.Unpack("", tensors); err != nil || !slices.Equal(got, params) {
		t.Errorf("counts of float32: %v, error %v", got, err)
	}
	for i, x := range tensors {
		if len(x.Shape) == 1 {
			tensors[i] = RawTensor{Name: x.Name, DType: "I64", Shape: x.Shape, Data: make([]byte, 8*x.Shape[0])}
			if _, err := m.layout.Unpack("", tensors); err == nil || !strings.Contains(err.Error(), "is of type I64") {
				t.Errorf("%s of I64: %v", x.Name, err)
			}
			break
		}
	}
}
