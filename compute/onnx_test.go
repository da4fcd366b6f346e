package compute

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// fields returns the fields of a message by number, each as its bytes.
func fields(t *testing.T, b []byte) map[protowire.Number][][]byte {
	t.Helper()
	all := map[protowire.Number][][]byte{}
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(num, kind, b[n:])
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		v := b[n : n+size]
		if kind == protowire.BytesType {
			v, _ = protowire.ConsumeBytes(v)
		}
		all[num] = append(all[num], v)
		b = b[n+size:]
	}
	return all
}

// Of every model the file is a graph in order: a node reads inputs, parameters and results of nodes before it, every input and
// parameter is read, and parameters have their values. What it computes is onnxruntime's to say (runtime: TestONNXRuntime).
func TestONNX(t *testing.T) {
	g := randomGraph(12, 4, false, 1)
	for name, spec := range map[string]Spec{
		"gcn": {Model: "gcn", Residual: true}, "sage": {Model: "sage", Norm: "batch", Aggregation: "max"}, "concat": {Model: "sage", Combine: "concat"},
		"gin": {Model: "gin", Norm: "batch"}, "gat": {Model: "gat", Heads: 4, OutHeads: 2, Norm: "layer", Activation: "elu"}, "gatv2": {Model: "gatv2", Heads: 2, NoLoops: true},
		"cat": {Model: "gcn", JumpingKnowledge: "cat", Activation: "leaky-relu"}, "max": {Model: "sage", JumpingKnowledge: "max", Decoder: 2, Aggregation: "sum"},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Layers, spec.Hidden, spec.InDim, spec.OutDim = 2, 8, 5, 4
			m, err := NewModel(spec, g)
			if err != nil {
				t.Fatal(err)
			}
			params := m.Init(1)
			b, err := m.ONNX(params)
			if err != nil {
				t.Fatal(err)
			}
			graph := fields(t, fields(t, b)[7][0])
			known, read := map[string]bool{}, map[string]bool{}
			for _, v := range graph[11] {
				known[string(fields(t, v)[1][0])] = true
			}
			stored := 0
			for _, v := range graph[5] {
				f := fields(t, v)
				name := string(f[8][0])
				known[name] = true
				if p, ok := m.Layout().Lookup(name); ok {
					stored++
					if x := Float32Tensor(name, p.Shape, params[p.Offset:p.Offset+p.Len]); !bytes.Equal(f[9][0], x.Data) || len(f[1]) != len(p.Shape) {
						t.Errorf("%s has other values, or another shape", name)
					}
				}
			}
			if want := len(m.Layout().Tensors()) - len(m.statistics); stored != want { // counts of batches are not read
				t.Errorf("%d parameters are stored of %d", stored, want)
			}
			for _, v := range graph[1] {
				f := fields(t, v)
				for _, in := range f[1] {
					if read[string(in)] = true; !known[string(in)] {
						t.Errorf("%s reads %q, which is not there yet", f[3][0], in)
					}
				}
				out := string(f[2][0])
				if known[out] {
					t.Errorf("%q is made twice", out)
				}
				known[out] = true
			}
			for name := range known {
				if !read[name] && name != "y" {
					t.Errorf("nothing reads %q", name)
				}
			}
			if !known["y"] || string(fields(t, graph[12][0])[1][0]) != "y" {
				t.Error("there is no output y")
			}
			again, _ := m.ONNX(params)
			if !bytes.Equal(again, b) {
				t.Error("the same model gives other bytes")
			}
		})
	}
	for want, spec := range map[string]Spec{"mixhop": {Model: "mixhop"}, "edge features": {Model: "gat", EdgeDim: 2}} {
		spec.Layers, spec.Hidden, spec.InDim, spec.OutDim = 2, 8, 5, 4
		m, err := NewModel(spec, g)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.ONNX(slices.Clone(m.Init(1))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
