package runtime

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// onnxInput is an input of a graph as compute/testdata/onnx.js reads it.
type onnxInput struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Dims []int  `json:"dims"`
	File string `json:"file"`
}

// onnxInputs writes the inputs for the whole graph of r to dir.
func onnxInputs(t *testing.T, r *Runtime, dir string) {
	t.Helper()
	ds := r.Dataset()
	g, n, layers := ds.Graph, ds.Graph.NumNodes(), r.model.Spec().Layers
	var src, dst, targets, degree, x []byte
	row := make([]float32, ds.NodeFeatures.Cols)
	for v := range n {
		d := float32(1)
		for _, u := range g.Indices[g.Indptr[v]:g.Indptr[v+1]] {
			src, dst = binary.LittleEndian.AppendUint64(src, uint64(u)), binary.LittleEndian.AppendUint64(dst, uint64(v))
			if int(u) != v {
				d++
			}
		}
		degree = binary.LittleEndian.AppendUint32(degree, math.Float32bits(d))
		ds.NodeFeatures.Row(row, v)
		for _, f := range row {
			x = binary.LittleEndian.AppendUint32(x, math.Float32bits(f))
		}
	}
	for range layers {
		targets = binary.LittleEndian.AppendUint64(targets, uint64(n))
	}
	inputs := []onnxInput{{"x", "float32", []int{n, ds.NodeFeatures.Cols}, "x.bin"}, {"num_targets", "int64", []int{layers}, "targets.bin"}}
	for i := range layers {
		inputs = append(inputs, onnxInput{fmt.Sprintf("edge_index_%d", i), "int64", []int{2, len(src) / 8}, "edges.bin"})
	}
	if r.model.Spec().Model == "gcn" {
		inputs = append(inputs, onnxInput{"degree", "float32", []int{n}, "degree.bin"})
	}
	list, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"inputs.json": list, "x.bin": x, "targets.bin": targets, "edges.bin": append(src, dst...), "degree.bin": degree} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// onnxruntime computes on Cora what we compute: 1e-5 of the largest output, for every kind of layer, norm, activation and head.
func TestONNXRuntime(t *testing.T) {
	if os.Getenv("GNNACTOR_ONNXRUNTIME") == "" {
		t.Skip("GNNACTOR_ONNXRUNTIME names no directory where 'npm install onnxruntime-node' ran; .ci/long does")
	}
	store := cora(t)
	for name, change := range map[string]func(*ModelConfig){
		"gcn": func(m *ModelConfig) { m.Name = "gcn" }, "sage": func(m *ModelConfig) {}, "gin": func(m *ModelConfig) { m.Name, m.TrainEps = "gin", true },
		"gat": func(m *ModelConfig) {
			m.Name, m.Heads, m.OutputHeads, m.Activation = "gat", 8, 1, "elu"
		},
		"gatv2": func(m *ModelConfig) { m.Name, m.Heads, m.Norm, m.Layers, m.Residual = "gatv2", 2, "layer", 3, true },
		"max":   func(m *ModelConfig) { m.Aggregation, m.JumpingKnowledge, m.Norm = "max", "max", "batch" },
		"sum":   func(m *ModelConfig) { m.Aggregation, m.Combine, m.DecoderLayers = "sum", "concat", 2 },
		"cat":   func(m *ModelConfig) { m.Name, m.JumpingKnowledge, m.Activation = "gcn", "cat", "leaky-relu" },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := DefaultConfig()
			c.Data.Path, c.Data.NormalizeFeatures = store, true
			change(&c.Model)
			c.Model.Hidden, c.Training.Epochs, c.Sampling.Fanouts = 32, 3, slices.Repeat([]int{5}, c.Model.Layers)
			r := started(t, c)
			trained(t, r)
			file := filepath.Join(dir, "model.safetensors")
			if err := r.Save(t.Context(), file); err != nil {
				t.Fatal(err)
			}
			m, err := OpenModel(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.ExportONNX(filepath.Join(dir, "model.onnx")); err != nil {
				t.Fatal(err)
			}
			want, err := r.Embed(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			onnxInputs(t, r, dir)
			if out, err := exec.CommandContext(t.Context(), "node", "../compute/testdata/onnx.js", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got, err := os.ReadFile(filepath.Join(dir, "y.bin"))
			if err != nil || len(got) != 4*len(want.Data) {
				t.Fatalf("%d bytes of %d values: %v", len(got), len(want.Data), err)
			}
			var worst, largest float64
			for i, w := range want.Data {
				y := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:]))
				worst, largest = max(worst, math.Abs(float64(y-w))), max(largest, math.Abs(float64(w)))
			}
			t.Logf("largest difference %.2g of %.3g", worst, largest)
			if !(worst <= 1e-5*largest) {
				t.Errorf("outputs differ by %g; the largest is %g", worst, largest)
			}
		})
	}
}
