package compute

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// goldenParams returns the parameters of a golden file, called in a module of the given prefix.
func (f *golden) goldenParams(prefix string) (params []RawTensor) {
	for _, name := range sortedKeys(f.tensors) {
		if t := f.tensors[name]; strings.HasPrefix(name, "param.") {
			t.Name = prefix + strings.TrimPrefix(name, "param.")
			params = append(params, t)
		}
	}
	return params
}

// renamed returns copies of tensors with parts of their names replaced.
func renamed(tensors []RawTensor, oldnew ...string) []RawTensor {
	r := strings.NewReplacer(oldnew...)
	out := slices.Clone(tensors)
	for i := range out {
		out[i].Name = r.Replace(out[i].Name)
	}
	return out
}

// PyG's parameters are read under names as people write them, and give PyG's outputs.
func TestGoldenNames(t *testing.T) {
	dgl := map[string][]string{ // what DGL's layers call PyG's parameters
		"sage": {"lin_l.weight", "fc_neigh.weight", "lin_l.bias", "bias", "lin_r.weight", "fc_self.weight"},
		"gat":  {"lin.weight", "fc.weight", "att_src", "attn_l", "att_dst", "attn_r"},
		"gcn":  {"lin.weight", "weight"},
		"gin":  {"nn.lins.0", "apply_func.0", "nn.lins.1", "apply_func.3"},
	}
	files, _ := filepath.Glob(filepath.Join("testdata", "golden", "*.safetensors"))
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".safetensors")
		f := readGolden(t, path)
		spec, single, ok := f.spec(name)
		if !ok {
			continue
		}
		m, err := NewModel(spec, f.graph)
		if err != nil {
			t.Fatal(err)
		}
		written := f.goldenParams("")
		if single {
			written = f.goldenParams("conv1.")
		}
		ways := map[string][]RawTensor{
			"as it is":      written,
			"numbered":      renamed(written, "convs.0.", "conv1.", "convs.1.", "conv2.", "convs.2.", "conv_out."),
			"data parallel": renamed(written, "conv", "module.gnn.conv"),
			"compiled":      renamed(written, "conv", "_orig_mod.encoder.conv"),
		}
		if names := dgl[spec.Model]; names != nil && name != "gat_conv_edge" && !spec.concat {
			d := renamed(renamed(written, names...), "convs.", "layers.")
			for i, x := range d {
				if strings.HasSuffix(x.Name, ".weight") && spec.Model == "gcn" {
					d[i] = transposed(x)
				}
			}
			ways["dgl"] = d
		}
		for way, tensors := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				read, err := ReadNames(tensors)
				if err != nil {
					t.Fatal(err)
				}
				params, err := m.Parameters(read)
				if err != nil {
					t.Fatal(err)
				}
				c := newCore[float32](m, testExec(t, 1, cpu.Go), false)
				c.bind(params, nil)
				for i := range c.ctx {
					c.ctx[i].edges = f.edgeFeatures(t)
				}
				y := c.forward(wholeBlocks(f.graph, m.Blocks()), c.tape.Leaf(f.matrix(t, "x"), false, cpu.Matrix[float32]{}), 0)
				closeTo(t, "y", y.Matrix().Data, f.values(t, "y"), 1e-4)

				guess, err := GuessSpec(read)
				if want := spec; err != nil || guess.Model != want.Model || guess.Layers != want.Layers || guess.InDim != want.InDim || guess.EdgeDim != want.EdgeDim ||
					!want.concat && !want.bare && guess.OutDim != want.OutDim || want.Layers > 1 && guess.Hidden != want.Hidden || want.Heads > 0 && guess.Heads != want.Heads {
					t.Errorf("the tensors are taken for those of %+v, %v; want %+v", guess, err, want)
				}
			})
		}
	}
}

// Every model is written in every style of names, and read from it with the same parameters, but for rounding where DGL's
// layer has them elsewhere. What its tensors say is what it is.
func TestNamesRoundTrip(t *testing.T) {
	g := randomGraph(12, 4, false, 1)
	for name, spec := range map[string]Spec{
		"gcn": {Model: "gcn"}, "sage": {Model: "sage", Norm: "batch"}, "concat": {Model: "sage", Combine: "concat"}, "gin": {Model: "gin", Norm: "batch"},
		"gat": {Model: "gat", Heads: 4, OutHeads: 2, Norm: "layer"}, "edges": {Model: "gat", Heads: 2, EdgeDim: 3}, "gatv2": {Model: "gatv2", Heads: 2},
		"mixhop": {Model: "mixhop", Hops: 3}, "cat": {Model: "gcn", JumpingKnowledge: "cat"}, "decoder": {Model: "gat", Heads: 2, Decoder: 2}, "mlp": {Model: "sage", Decoder: 1, LinkDecoder: "mlp"},
	} {
		spec.Layers, spec.Hidden, spec.InDim, spec.OutDim = 3, 8, 5, 4
		m, err := NewModel(spec, g)
		if err != nil {
			t.Fatal(err)
		}
		params := m.Init(1)
		for _, x := range m.Layout().Tensors() { // biases, too
			for i := range x.Len {
				if !x.integer() {
					params[x.Offset+i] += 0.1 * float32(i%5)
				}
			}
		}
		tensors := m.Layout().Pack("", params)
		for _, style := range NameStyles() {
			t.Run(name+"/"+style, func(t *testing.T) {
				out, err := WriteNames(style, spec, tensors)
				if style == "dgl" && (name == "mixhop" || name == "edges" || name == "concat") {
					if err == nil {
						t.Error("DGL has no such layer, and names are written")
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if style != "pyg" && slices.ContainsFunc(out, func(x RawTensor) bool { return strings.HasPrefix(x.Name, "convs.") }) {
					t.Error("there are names of gnnactor's among them")
				}
				back, err := ReadNames(out)
				if err != nil {
					t.Fatal(err)
				}
				got, err := m.Parameters(back)
				if err != nil {
					t.Fatal(err)
				}
				if style == "dgl" && name == "gatv2" { // the outputs are the same, not the parameters
					sameOutputs(t, m, params, got)
				} else {
					closeTo(t, "parameters", got, params, 1e-6)
				}
				if s, err := GuessSpec(back); err != nil || s != spec {
					t.Errorf("it is taken for %+v, %v; want %+v", s, err, spec)
				}
			})
		}
	}
}

// sameOutputs compares what two vectors of parameters make of random features.
func sameOutputs(t *testing.T, m *Model, a, b []float32) {
	t.Helper()
	var out [2][]float32
	for k, params := range [][]float32{a, b} {
		c := newCore[float32](m, testExec(t, 1, cpu.Go), false)
		c.bind(params, nil)
		x := randomMatrix[float32](m.nodes, m.spec.InDim, 7)
		out[k] = slices.Clone(c.forward(wholeBlocks(m.graph, m.Blocks()), c.tape.Leaf(x, false, cpu.Matrix[float32]{}), 0).Matrix().Data)
	}
	closeTo(t, "outputs", out[1], out[0], 1e-5)
}

// A map says what names do not, and writes what it reads; what it says wrongly is refused.
func TestNameMap(t *testing.T) {
	spec := Spec{Model: "gcn", Layers: 2, Hidden: 8, InDim: 5, OutDim: 4}
	m, err := NewModel(spec, randomGraph(12, 4, false, 1))
	if err != nil {
		t.Fatal(err)
	}
	params := m.Init(1)
	text := "# ours = theirs\nconvs.0.lin.weight = first.w transposed\nconvs.0.bias = first.b\n\nconvs.1.lin.weight = second.w\nconvs.1.bias = second.b # the last\n- = steps\n"
	names, err := ParseNameMap(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := names.Write(m.Layout().Pack("", params)); err != nil {
		t.Fatal(err)
	}
	out, _ := names.Write(m.Layout().Pack("", params))
	if i := slices.IndexFunc(out, func(x RawTensor) bool { return x.Name == "first.w" }); i < 0 || !slices.Equal(out[i].Shape, []int{5, 8}) {
		t.Errorf("it writes %v", out)
	}
	out = append(out, RawTensor{Name: "steps", DType: "I64", Shape: []int{}, Data: make([]byte, 8)})
	back, err := names.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.Parameters(back); err != nil || !slices.Equal(got, params) {
		t.Errorf("it reads other parameters: %v", err)
	}
	zero, _ := ParseNameMap(strings.Replace(text, "first.b", "0", 1))
	if back, err = zero.Read(slices.DeleteFunc(out, func(x RawTensor) bool { return x.Name == "first.b" })); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Parameters(back); err != nil || slices.ContainsFunc(got[:8], func(v float32) bool { return v != 0 }) {
		t.Errorf("of zeros it reads %v, %v", got[:8], err)
	}
	some, _ := ParseNameMap("convs.0.lin.weight = first.w transposed\nconvs.0.bias = first.b")
	if out, err = some.Write(m.Layout().Pack("", params)); err != nil {
		t.Fatal(err)
	}
	if back, err = some.Read(renamed(out, "convs.1", "conv2")); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Parameters(back); err != nil || !slices.Equal(got, params) {
		t.Errorf("a map of the first layer alone reads other parameters: %v", err)
	}
	if _, err := names.Read(nil); !errors.Is(err, ErrNames) || !strings.Contains(err.Error(), `"first.w"`) {
		t.Errorf("of no tensors: %v", err)
	}
	for _, bad := range []string{"convs.0.bias", "a = b c", "a = b\na = c", "- = 0", " = b"} {
		if _, err := ParseNameMap("\n" + bad); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	unknown, _ := ParseNameMap("convs.9.bias = b")
	if _, err := unknown.Write(m.Layout().Pack("", params)); !errors.Is(err, ErrNames) {
		t.Errorf("an unknown parameter: %v", err)
	}
}

// What is not understood is refused with the tensor, its shape and the reason.
func TestNamesRefused(t *testing.T) {
	if of, err := ReadNames(nil); len(of) > 0 || err != nil && !errors.Is(err, ErrNames) {
		t.Errorf("no tensors: %v, %v", of, err)
	}
	f := func(name string, shape ...int) RawTensor {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return Float32Tensor(name, shape, make([]float32, n))
	}
	for name, c := range map[string]struct {
		tensors []RawTensor
		want    string
	}{
		"unknown":  {[]RawTensor{f("conv1.lin.weight", 4, 3), f("conv1.bias", 4), f("conv1.gate.w_0", 4, 4)}, `"conv1.gate.w_0" of shape [4 4]`},
		"pool":     {[]RawTensor{f("layers.0.fc_neigh.weight", 4, 3), f("layers.0.fc_self.weight", 4, 3), f("layers.0.fc_pool.weight", 3, 3)}, `"layers.0.fc_pool.weight" of shape [3 3]`},
		"kinds":    {[]RawTensor{f("conv1.lin.weight", 4, 3), f("conv2.lin_l.weight", 2, 4), f("conv2.lin_r.weight", 2, 4)}, "one kind"},
		"order":    {[]RawTensor{f("first_gcn.lin.weight", 4, 3), f("second.lin.weight", 4, 4), f("third.lin.weight", 2, 4)}, "comes first"},
		"square":   {[]RawTensor{f("conv1.weight", 4, 4), f("conv1.bias", 4)}, "its shape does not tell"},
		"no layer": {[]RawTensor{f("lin1.weight", 4, 3), f("lin1.bias", 4), f("bn1.weight", 4), f("bn1.bias", 4)}, "no graph convolution"},
		"twice":    {[]RawTensor{f("conv1.fc_neigh.weight", 4, 3), f("conv1.lin_l.weight", 4, 3)}, "the same parameter"},
	} {
		if _, err := ReadNames(c.tensors); !errors.Is(err, ErrNames) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	m, err := NewModel(Spec{Model: "sage", Layers: 1, Hidden: 1, InDim: 3, OutDim: 4}, randomGraph(12, 4, false, 1))
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := ReadNames([]RawTensor{f("conv1.lin_l.weight", 3, 4), f("conv1.lin_l.bias", 4), f("conv1.lin_r.weight", 4, 3)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Parameters(wrong); err == nil || !strings.Contains(err.Error(), `"conv1.lin_l.weight" (convs.0.lin_l.weight) has shape [3 4]; this model needs [4 3]: it is transposed`) {
		t.Errorf("a shape that does not fit: %v", err)
	}
}

// Weights that older versions have twice, and layers without biases, are read.
func TestOlderNames(t *testing.T) {
	m, err := NewModel(Spec{Model: "gat", Layers: 2, Hidden: 4, Heads: 2, InDim: 3, OutDim: 3}, randomGraph(12, 4, false, 1))
	if err != nil {
		t.Fatal(err)
	}
	params := m.Init(3)
	var out []RawTensor
	for _, x := range m.Layout().Pack("", params) {
		if strings.HasSuffix(x.Name, "bias") {
			continue
		}
		name := strings.Replace(x.Name, "convs.", "gat", 1)
		if base, ok := strings.CutSuffix(name, "lin.weight"); ok {
			x.Name = base + "lin_dst.weight"
			out = append(out, x)
			name = base + "lin_src.weight"
		}
		x.Name = name
		out = append(out, x)
	}
	read, err := ReadNames(out)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.Parameters(read); err != nil || !slices.Equal(got, params) { // biases begin as zeros
		t.Errorf("they are read otherwise: %v", err)
	}
	i := slices.IndexFunc(out, func(x RawTensor) bool { return x.Name == "gat1.lin_dst.weight" })
	out[i].Data = bytes.Repeat([]byte{1}, len(out[i].Data))
	if _, err := ReadNames(out); err == nil {
		t.Error("two weights that differ are taken for one")
	}
}

// Whatever names and shapes a file has, they are understood or refused.
func FuzzNames(f *testing.F) {
	f.Add("conv1.lin.weight 4 3\nconv1.bias 4\nconv2.lin.weight 2 4", "convs.0.bias = conv1.bias")
	f.Add("layers.0.fc.weight 8 3\nlayers.0.attn_l 1 2 4\nlayers.0.attn_r 1 2 4\nlayers.0.bias 8\nlin.weight 2 8\nlin.bias 2", "- = lin.bias")
	f.Add("layers.0.weight 8 3\nlayers.0.attn_l 1 2 4\nlayers.0.attn_r 1 2 4\nlayers.0.bias 8\nlin.weight 2 8\nlin.bias", "- = lin lin..bias") // attention alone
	f.Add("a.eps 1\na.bias 3\na.nn.0.weight 4 3\na.nn.1.running_mean 4\na.nn.1.weight 4\na.nn.3.weight 2 4", "a = 0")
	f.Fuzz(func(t *testing.T, text, names string) {
		var tensors []RawTensor
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			if len(words) == 0 || len(words) > 5 {
				continue
			}
			x := RawTensor{Name: words[0], DType: "F32"}
			n := 1
			for _, w := range words[1:] {
				d := len(w) // or what it says
				if v, err := strconv.Atoi(w); err == nil && v >= 0 && v < 20 {
					d = v
				}
				x.Shape, n = append(x.Shape, d), n*d
			}
			if n > 1<<16 {
				continue
			}
			x.Data = make([]byte, 4*n)
			tensors = append(tensors, x)
		}
		m, err := ParseNameMap(names)
		if err != nil {
			m = nil
		}
		for _, read := range []func([]RawTensor) ([]RawTensor, error){ReadNames, m.Read} {
			read, err := read(tensors)
			if err != nil && !errors.Is(err, ErrNames) {
				t.Fatal(err)
			}
			s, err := GuessSpec(read)
			if err == nil && (s.Layers < 1 || s.InDim < 1 || s.Hidden < 1) {
				t.Fatalf("of %v it guesses %+v", read, s)
			}
		}
	})
}
