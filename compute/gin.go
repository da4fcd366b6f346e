package compute

import "github.com/gnnactor/gnnactor/compute/cpu"

// ginConv is PyG's GINConv with the MLP of its GIN model: y_v = W₂·ReLU(W₁·((1+ε)·x_v
// + Σ_u x_u) + b₁) + b₂ (Xu et al., 2019). ε is stored also when it is not
// learnt, as PyG does. A norm is applied before the MLP's activation, too, as in
// the paper and in PyG.
type ginConv[T cpu.Float] struct {
	in, out  int
	trainEps bool
	norm     string
	act      cpu.Activation
}

const (
	ginEps = iota
	ginBias1
	ginWeight1
	ginBias2
	ginWeight2
	ginNorm // the first of the norm's
)

func (l *ginConv[T]) Params() []Param {
	params := []Param{
		ginEps:     {Name: "eps", Shape: []int{1}, Init: Zeros, Fixed: !l.trainEps},
		ginBias1:   {Name: "nn.lins.0.bias", Shape: []int{l.out}, Init: Kaiming, Fan: l.in},
		ginWeight1: {Name: "nn.lins.0.weight", Shape: []int{l.out, l.in}, Init: Kaiming, Fan: l.in},
		ginBias2:   {Name: "nn.lins.1.bias", Shape: []int{l.out}, Init: Kaiming, Fan: l.out},
		ginWeight2: {Name: "nn.lins.1.weight", Shape: []int{l.out, l.out}, Init: Kaiming, Fan: l.out},
	}
	return append(params, normParams(l.norm, "nn.norms.0.", l.out)...)
}

// transformFirst also needs ε as a constant: it is then a coefficient of the
// sum.
func (l *ginConv[T]) transformFirst(c *Context[T]) bool {
	return !l.trainEps && c.TransformFirst(l.in, l.out)
}

func (l *ginConv[T]) Transform(c *Context[T], x *Value[T]) []*Value[T] {
	if l.transformFirst(c) {
		x = c.Linear(x, c.Param(ginWeight1), nil, cpu.Linear)
	}
	return []*Value[T]{x}
}

func (l *ginConv[T]) Gather(c *Context[T], _ *Value[T], h []*Value[T]) Message[T] {
	m := Message[T]{Value: h[0], Reduce: cpu.Sum, Weights: c.SumWeights()}
	if l.transformFirst(c) {
		m.Self = c.host.Alloc(c.Block.NumDst)
		for i := range m.Self {
			m.Self[i] = 1 + c.Param(ginEps).scalar()
		}
	}
	return m
}

func (l *ginConv[T]) Apply(c *Context[T], x, a *Value[T], act cpu.Activation) *Value[T] {
	inner := l.act
	if l.norm != "" {
		inner = cpu.Linear
	}
	var h *Value[T]
	if l.transformFirst(c) {
		h = c.BiasAct(a, c.Param(ginBias1), inner)
	} else {
		h = c.Linear(c.AddScaled(a, x, c.Param(ginEps)), c.Param(ginWeight1), c.Param(ginBias1), inner)
	}
	if l.norm != "" {
		h = c.BiasAct(c.normalize(l.norm, h, ginNorm), nil, l.act)
	}
	return c.Linear(h, c.Param(ginWeight2), c.Param(ginBias2), act)
}
