package compute

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// ONNX returns the model at params as an ONNX graph (opset 18), for runtimes that compute a batch of blocks elsewhere. Its inputs are
//
//	x               nodes×InDim, the features of the first block's sources
//	edge_index_i    2×edges, for each layer i: source and target of an edge, as rows of the layer's input
//	num_targets     Layers numbers: how many of the first rows of a layer's input are its output's
//	degree          nodes, with gcn: 1 + the number of a node's in-neighbours in the whole graph, not counting itself
//
// and its output, y, has a row of OutDim for each target of the last layer. For a whole graph all edge_index_i
// are its edges and all num_targets its nodes. Edges of a node to itself are left out, and put in where a model has them. Over complete neighbourhoods y is
// what Infer computes, of a graph without edge weights, but for rounding. Mixhop, own layers and edge features are an error.
func (m *Model) ONNX(params []float32) ([]byte, error) {
	s := &m.spec
	switch {
	case m.custom != nil || s.Model == "mixhop":
		return nil, fmt.Errorf("compute: ONNX: models %s are written, and not %q", "gat, gatv2, gcn, gin, sage", s.Model)
	case s.EdgeDim > 0:
		return nil, errors.New("compute: ONNX: models that read edge features are not written")
	case len(params) != m.layout.Len():
		return nil, fmt.Errorf("compute: ONNX: %d parameters given, the model has %d", len(params), m.layout.Len())
	case 4*len(params) > 1<<31-1<<20:
		return nil, errors.New("compute: ONNX: a file cannot have parameters of 2 GiB and more")
	}
	g := onnxGraph{model: m, params: params}
	g.input("x", onnxFloat, "nodes", s.InDim)
	for i := range s.Layers {
		g.input(fmt.Sprintf("edge_index_%d", i), onnxInt64, 2, fmt.Sprintf("edges_%d", i))
	}
	g.input("num_targets", onnxInt64, s.Layers)
	if s.Model == "gcn" {
		g.input("degree", onnxFloat, "nodes")
	}
	x := "x"
	var jumps []string
	for i := range s.Layers {
		l := g.layer(i, x)
		if x = g.layerOutput(i, l); s.JumpingKnowledge != "" {
			jumps = append(jumps, x)
		}
	}
	if s.head() {
		for i := range jumps {
			jumps[i] = g.head(jumps[i], g.op("Gather", ints(0), "num_targets", g.ints(int64(s.Layers-1))))
		}
		switch s.JumpingKnowledge {
		case "cat":
			x = g.op("Concat", ints(1), jumps...)
		case "max":
			x = g.op("Max", nil, jumps...)
		}
		last := max(s.Decoder, 1)
		for i := range last {
			name := fmt.Sprintf("decoder.lins.%d.", i)
			if s.Decoder <= 1 {
				name = "lin."
			}
			if x = g.linear(x, name+"weight", name+"bias"); i < last-1 {
				x = g.activate(x)
			}
		}
	}
	g.node("Identity", nil, []string{x}, "y")
	g.message(12, onnxValue("y", onnxFloat, "targets", s.OutDim))
	var model []byte
	model = onnxVarint(model, 1, 8) // ir_version
	model = onnxBytes(model, 2, []byte("gnnactor"))
	model = onnxBytes(model, 7, onnxBytes(g.out, 2, []byte(s.Model)))
	return onnxBytes(model, 8, onnxVarint(nil, 2, 18)), nil // opset_import
}

// onnxLayer is what a convolution is computed from.
type onnxLayer struct {
	prefix     string
	x, targets string // values of sources, and of targets once they were asked for
	src, dst   string // of edges, without those of a node to itself
	n          string // number of targets, of shape [1]
	output     bool
}

func (g *onnxGraph) layer(i int, x string) *onnxLayer {
	l := &onnxLayer{prefix: fmt.Sprintf("convs.%d.", i), x: x, output: i == g.model.spec.Layers-1 && !g.model.spec.head()}
	l.n = g.op("Gather", ints(0), "num_targets", g.ints(int64(i)))
	edges := fmt.Sprintf("edge_index_%d", i)
	row := func(k int64) string { return g.op("Gather", ints(0), edges, g.scalar(k)) }
	src, dst := row(0), row(1)
	proper := g.op("Not", nil, g.op("Equal", nil, src, dst))
	l.src, l.dst = g.op("Compress", ints(0), src, proper), g.op("Compress", ints(0), dst, proper)
	return l
}

// targets is the first rows of l.x, those of targets.
func (g *onnxGraph) targets(l *onnxLayer) string {
	if l.targets == "" {
		l.targets = g.head(l.x, l.n)
	}
	return l.targets
}

// layerOutput adds the convolution with what follows it.
func (g *onnxGraph) layerOutput(i int, l *onnxLayer) string {
	s := &g.model.spec
	var y string
	switch s.Model {
	case "gcn":
		y = g.gcn(l)
	case "sage":
		y = g.sage(l)
	case "gin":
		y = g.gin(l)
	default:
		y = g.attention(l)
	}
	if l.output {
		return y
	}
	y = g.activate(g.norm(y, fmt.Sprintf("norms.%d.", i)))
	in, width := s.Hidden, s.Hidden
	if i == 0 {
		in = s.InDim
	}
	if s.Residual && in == width {
		y = g.op("Add", nil, y, g.targets(l))
	}
	return y
}

func (g *onnxGraph) gcn(l *onnxLayer) string {
	x := g.linear(l.x, l.prefix+"lin.weight", "")
	root := g.op("Sqrt", nil, "degree")
	coef := g.op("Reciprocal", nil, g.op("Mul", nil, g.rows(root, l.src), g.rows(root, l.dst)))
	sent := g.op("Mul", nil, g.rows(x, l.src), g.op("Unsqueeze", nil, coef, g.ints(1)))
	self := g.op("Div", nil, g.head(x, l.n), g.op("Unsqueeze", nil, g.head("degree", l.n), g.ints(1)))
	y := g.op("Add", nil, self, g.scatter(l, sent, "add", self))
	return g.op("Add", nil, y, g.param(l.prefix+"bias"))
}

func (g *onnxGraph) sage(l *onnxLayer) string {
	s := &g.model.spec
	sent := g.rows(l.x, l.src)
	count := func() string { // of a target's neighbours
		ones := g.op("Expand", nil, g.float(1), g.op("Shape", nil, l.dst))
		return g.op("Unsqueeze", nil, g.scatterTo(g.op("Expand", nil, g.float(0), l.n), l.dst, ones, "add"), g.ints(1))
	}
	var a string
	switch s.Aggregation {
	case "max":
		a = g.scatterTo(g.op("Expand", nil, g.float(-math.MaxFloat32), g.op("Shape", nil, g.targets(l))), l.dst, sent, "max")
		a = g.op("Where", nil, g.op("Equal", nil, count(), g.float(0)), g.float(0), a)
	case "sum":
		a = g.scatter(l, sent, "add", g.targets(l))
	default:
		a = g.op("Div", nil, g.scatter(l, sent, "add", g.targets(l)), g.op("Max", nil, count(), g.float(1)))
	}
	neighbors := g.linear(a, l.prefix+"lin_l.weight", l.prefix+"lin_l.bias")
	if s.concatenates() {
		return g.op("Concat", ints(1), g.linear(g.targets(l), l.prefix+"lin_r.weight", l.prefix+"lin_r.bias"), neighbors)
	}
	return g.op("Add", nil, neighbors, g.linear(g.targets(l), l.prefix+"lin_r.weight", ""))
}

func (g *onnxGraph) gin(l *onnxLayer) string {
	a := g.scatter(l, g.rows(l.x, l.src), "add", g.targets(l))
	self := g.op("Mul", nil, g.targets(l), g.op("Add", nil, g.param(l.prefix+"eps"), g.float(1)))
	h := g.linear(g.op("Add", nil, self, a), l.prefix+"nn.lins.0.weight", l.prefix+"nn.lins.0.bias")
	h = g.activate(g.norm(h, l.prefix+"nn.norms.0."))
	return g.linear(h, l.prefix+"nn.lins.1.weight", l.prefix+"nn.lins.1.bias")
}

// attention is gat and gatv2.
func (g *onnxGraph) attention(l *onnxLayer) string {
	s := &g.model.spec
	heads := int64(s.headsOf(l.output))
	width := int64(s.Hidden) / heads
	if l.output {
		width = int64(s.OutDim)
	}
	if !s.NoLoops { // each target with itself
		each := g.op("Range", nil, g.scalar(0), g.op("Squeeze", nil, l.n), g.scalar(1))
		l.src, l.dst = g.op("Concat", ints(0), l.src, each), g.op("Concat", ints(0), l.dst, each)
	}
	byHead := func(x string) string { return g.op("Reshape", nil, x, g.ints(-1, heads, width)) }
	score := func(x, att string) string { // a sum for each head
		return g.op("ReduceSum", map[string]any{"keepdims": int64(0)}, g.op("Mul", nil, x, g.param(l.prefix+att)), g.ints(2))
	}
	slope := map[string]any{"alpha": float32(gatSlope)}
	var h, e string
	if s.Model == "gat" {
		h = byHead(g.linear(l.x, l.prefix+"lin.weight", ""))
		to := score(g.head(h, l.n), "att_dst")
		e = g.op("LeakyRelu", slope, g.op("Add", nil, g.rows(score(h, "att_src"), l.src), g.rows(to, l.dst)))
	} else {
		h = byHead(g.linear(l.x, l.prefix+"lin_l.weight", l.prefix+"lin_l.bias"))
		to := byHead(g.linear(g.targets(l), l.prefix+"lin_r.weight", l.prefix+"lin_r.bias"))
		e = score(g.op("LeakyRelu", slope, g.op("Add", nil, g.rows(h, l.src), g.rows(to, l.dst))), "att")
	}
	each := g.op("Concat", ints(0), l.n, g.ints(heads))
	largest := g.scatterTo(g.op("Expand", nil, g.float(-math.MaxFloat32), each), l.dst, e, "max")
	p := g.op("Exp", nil, g.op("Sub", nil, e, g.rows(largest, l.dst)))
	sum := g.scatterTo(g.op("Expand", nil, g.float(0), each), l.dst, p, "add")
	alpha := g.op("Div", nil, p, g.rows(sum, l.dst))
	sent := g.op("Mul", nil, g.rows(h, l.src), g.op("Unsqueeze", nil, alpha, g.ints(2)))
	y := g.scatter(l, sent, "add", g.head(h, l.n))
	if l.output {
		y = g.op("ReduceMean", map[string]any{"keepdims": int64(0)}, y, g.ints(1))
	} else {
		y = g.op("Reshape", nil, y, g.ints(-1, heads*width))
	}
	return g.op("Add", nil, y, g.param(l.prefix+"bias"))
}

// norm is the norm whose parameters begin with prefix.
func (g *onnxGraph) norm(x, prefix string) string {
	eps := map[string]any{"epsilon": float32(normEps)}
	switch g.model.spec.Norm {
	case "layer":
		return g.op("LayerNormalization", eps, x, g.param(prefix+"weight"), g.param(prefix+"bias"))
	case "batch":
		prefix += "module."
		return g.op("BatchNormalization", eps, x, g.param(prefix+"weight"), g.param(prefix+"bias"), g.param(prefix+meanName), g.param(prefix+varName))
	}
	return x
}

func (g *onnxGraph) activate(x string) string {
	switch g.model.spec.Activation {
	case "leaky-relu":
		return g.op("LeakyRelu", map[string]any{"alpha": float32(0.01)}, x)
	case "elu":
		return g.op("Elu", nil, x)
	}
	return g.op("Relu", nil, x)
}

// linear is x·Wᵀ + b; b may be "".
func (g *onnxGraph) linear(x, w, b string) string {
	inputs := []string{x, g.param(w)}
	if b != "" {
		inputs = append(inputs, g.param(b))
	}
	return g.op("Gemm", map[string]any{"transB": int64(1)}, inputs...)
}

func (g *onnxGraph) rows(x, at string) string { return g.op("Gather", ints(0), x, at) }

// head is the first n rows of x.
func (g *onnxGraph) head(x, n string) string {
	return g.op("Slice", nil, x, g.ints(0), n, g.ints(0))
}

// scatter reduces what edges send into rows of zeros, in the shape of like.
func (g *onnxGraph) scatter(l *onnxLayer, sent, how, like string) string {
	return g.scatterTo(g.op("Expand", nil, g.float(0), g.op("Shape", nil, like)), l.dst, sent, how)
}

func (g *onnxGraph) scatterTo(data, dst, sent, how string) string {
	return g.op("ScatterND", map[string]any{"reduction": how}, data, g.op("Unsqueeze", nil, dst, g.ints(1)), sent)
}

// onnxGraph writes a GraphProto: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto has the numbers of fields.
type onnxGraph struct {
	model  *Model
	params []float32
	out    []byte
	made   map[string]bool // initializers
	nodes  int
}

const (
	onnxFloat = 1
	onnxInt64 = 7
)

func onnxVarint(b []byte, field protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

func onnxBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func (g *onnxGraph) message(field protowire.Number, v []byte) { g.out = onnxBytes(g.out, field, v) }

// onnxValue is a ValueInfoProto; dims are numbers or names.
func onnxValue(name string, kind int64, dims ...any) []byte {
	var shape []byte
	for _, d := range dims {
		var dim []byte
		if n, ok := d.(int); ok {
			dim = onnxVarint(nil, 1, int64(n))
		} else {
			dim = onnxBytes(nil, 2, []byte(d.(string)))
		}
		shape = onnxBytes(shape, 1, dim)
	}
	tensor := onnxBytes(onnxVarint(nil, 1, kind), 2, shape)
	return onnxBytes(onnxBytes(nil, 1, []byte(name)), 2, onnxBytes(nil, 1, tensor))
}

func (g *onnxGraph) input(name string, kind int64, dims ...any) {
	g.message(11, onnxValue(name, kind, dims...))
}

// ints is the attribute axis.
func ints(axis int64) map[string]any { return map[string]any{"axis": axis} }

// op adds a node and returns the name of its result.
func (g *onnxGraph) op(kind string, attributes map[string]any, inputs ...string) string {
	name := "v" + strconv.Itoa(g.nodes)
	g.node(kind, attributes, inputs, name)
	return name
}

func (g *onnxGraph) node(kind string, attributes map[string]any, inputs []string, output string) {
	var b []byte
	for _, in := range inputs {
		b = onnxBytes(b, 1, []byte(in))
	}
	b = onnxBytes(b, 2, []byte(output))
	b = onnxBytes(b, 3, []byte(kind+strconv.Itoa(g.nodes)))
	b = onnxBytes(b, 4, []byte(kind))
	for name, v := range attributes { // one at most
		a := onnxBytes(nil, 1, []byte(name))
		switch v := v.(type) {
		case int64:
			a = onnxVarint(onnxVarint(a, 3, v), 20, 2)
		case float32:
			a = protowire.AppendFixed32(protowire.AppendTag(a, 2, protowire.Fixed32Type), math.Float32bits(v))
			a = onnxVarint(a, 20, 1)
		case string:
			a = onnxVarint(onnxBytes(a, 4, []byte(v)), 20, 3)
		}
		b = onnxBytes(b, 5, a)
	}
	g.nodes++
	g.message(1, b)
}

// constant adds a tensor, once.
func (g *onnxGraph) constant(name string, kind int64, shape []int, data []byte) string {
	if g.made[name] {
		return name
	}
	if g.made == nil {
		g.made = map[string]bool{}
	}
	g.made[name] = true
	var b []byte
	for _, d := range shape {
		b = onnxVarint(b, 1, int64(d))
	}
	b = onnxVarint(b, 2, kind)
	b = onnxBytes(b, 8, []byte(name))
	g.message(5, onnxBytes(b, 9, data))
	return name
}

func (g *onnxGraph) param(name string) string {
	t, ok := g.model.layout.Lookup(name)
	if !ok {
		panic("compute: ONNX: no parameter " + name)
	}
	x := Float32Tensor(name, t.Shape, g.params[t.Offset:t.Offset+t.Len])
	return g.constant(name, onnxFloat, t.Shape, x.Data)
}

// float is a number, of shape [1].
func (g *onnxGraph) float(v float32) string {
	return g.constant(fmt.Sprintf("float %v", v), onnxFloat, []int{1}, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
}

func (g *onnxGraph) scalar(v int64) string {
	return g.constant(fmt.Sprintf("int %d", v), onnxInt64, nil, binary.LittleEndian.AppendUint64(nil, uint64(v)))
}

func (g *onnxGraph) ints(v ...int64) string {
	var data []byte
	for _, n := range v {
		data = binary.LittleEndian.AppendUint64(data, uint64(n))
	}
	return g.constant(fmt.Sprintf("ints %d", v), onnxInt64, []int{len(v)}, data)
}
