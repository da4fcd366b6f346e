package compute

import "github.com/gnnactor/gnnactor/compute/cpu"

// gatSlope is LeakyReLU's below 0, PyG's default.
const gatSlope = 0.2

// gatShape is what GAT and GATv2 share.
type gatShape struct {
	in, out, heads int
	mean           bool // of the heads, each of width out; else side by side, together out
	loops          bool
}

func (s *gatShape) width() int { // of one head
	if s.mean {
		return s.out
	}
	return s.out / s.heads
}

// finishHeads returns act(heads combined + b).
func finishHeads[T cpu.Float](c *Context[T], s *gatShape, a, b *Value[T], act cpu.Activation) *Value[T] {
	if s.mean {
		a = c.MeanHeads(a, s.heads)
	}
	return c.BiasAct(a, b, act)
}

// gatConv is PyG's GATConv (Veličković et al., 2018): per head, y_v = Σ_u α_uv W
// x_u with α = softmax_u LeakyReLU(a_srcᵀW x_u + a_dstᵀW x_v + a_edgeᵀW_e e_uv),
// the last term only with edge features. With loops every node attends to itself
// once, with the mean of its edges' features.
type gatConv[T cpu.Float] struct {
	gatShape
	edgeDim int
}

const (
	gatDst = iota
	gatSrc
	gatBias
	gatWeight
	gatEdge
	gatEdgeWeight
)

func (l *gatConv[T]) Params() []Param {
	att := []int{1, l.heads, l.width()}
	params := []Param{
		gatDst:    {Name: "att_dst", Shape: att, Init: Glorot},
		gatSrc:    {Name: "att_src", Shape: att, Init: Glorot},
		gatBias:   {Name: "bias", Shape: []int{l.out}, Init: Zeros},
		gatWeight: {Name: "lin.weight", Shape: []int{l.heads * l.width(), l.in}, Init: Glorot},
	}
	if l.edgeDim > 0 {
		params = append(params,
			Param{Name: "att_edge", Shape: att, Init: Glorot},
			Param{Name: "lin_edge.weight", Shape: []int{l.heads * l.width(), l.edgeDim}, Init: Glorot})
	}
	return params
}

// Transform returns W x and, per head, a_srcᵀW x, computed as (a_srcᵀW)x.
func (l *gatConv[T]) Transform(c *Context[T], x *Value[T]) []*Value[T] {
	w := c.Param(gatWeight)
	return []*Value[T]{
		c.Linear(x, w, nil, cpu.Linear),
		c.Linear(x, c.FoldHeads(c.Param(gatSrc), w), nil, cpu.Linear),
	}
}

func (l *gatConv[T]) Gather(c *Context[T], x *Value[T], h []*Value[T]) Message[T] {
	m := &Attention[T]{
		Heads: l.heads, Slope: gatSlope, Loops: l.loops, Drop: c.drop, Src: h[1],
		Weights: c.attentionWeights(), Dst: c.Linear(x, c.FoldHeads(c.Param(gatDst), c.Param(gatWeight)), nil, cpu.Linear),
	}
	if l.edgeDim > 0 {
		m.Edge = c.Linear(c.EdgeFeatures(), c.FoldHeads(c.Param(gatEdge), c.Param(gatEdgeWeight)), nil, cpu.Linear)
	}
	return Message[T]{Value: h[0], Attention: m}
}

func (l *gatConv[T]) Apply(c *Context[T], _, a *Value[T], act cpu.Activation) *Value[T] {
	return finishHeads(c, &l.gatShape, a, c.Param(gatBias), act)
}

// gat2Conv is PyG's GATv2Conv (Brody, Alon and Yahav, 2022): per head, y_v = Σ_u
// α_uv W_l x_u with α = softmax_u aᵀLeakyReLU(W_l x_u + b_l + W_r x_v + b_r). With
// loops every node attends to itself once.
type gat2Conv[T cpu.Float] struct{ gatShape }

const (
	gat2Att = iota
	gat2Bias
	gat2LeftBias
	gat2Left
	gat2RightBias
	gat2Right
)

func (l *gat2Conv[T]) Params() []Param {
	n := l.heads * l.width()
	return []Param{
		gat2Att:       {Name: "att", Shape: []int{1, l.heads, l.width()}, Init: Glorot},
		gat2Bias:      {Name: "bias", Shape: []int{l.out}, Init: Zeros},
		gat2LeftBias:  {Name: "lin_l.bias", Shape: []int{n}, Init: Kaiming, Fan: l.in},
		gat2Left:      {Name: "lin_l.weight", Shape: []int{n, l.in}, Init: Glorot},
		gat2RightBias: {Name: "lin_r.bias", Shape: []int{n}, Init: Kaiming, Fan: l.in},
		gat2Right:     {Name: "lin_r.weight", Shape: []int{n, l.in}, Init: Glorot},
	}
}

func (l *gat2Conv[T]) Transform(c *Context[T], x *Value[T]) []*Value[T] {
	return []*Value[T]{c.Linear(x, c.Param(gat2Left), c.Param(gat2LeftBias), cpu.Linear)}
}

func (l *gat2Conv[T]) Gather(c *Context[T], x *Value[T], h []*Value[T]) Message[T] {
	right := c.Linear(x, c.Param(gat2Right), c.Param(gat2RightBias), cpu.Linear)
	return Message[T]{Value: h[0], Attention: &Attention[T]{
		Heads: l.heads, Slope: gatSlope, Loops: l.loops, Drop: c.drop, Weights: c.attentionWeights(), Right: right, Att: c.Param(gat2Att),
	}}
}

func (l *gat2Conv[T]) Apply(c *Context[T], _, a *Value[T], act cpu.Activation) *Value[T] {
	return finishHeads(c, &l.gatShape, a, c.Param(gat2Bias), act)
}
