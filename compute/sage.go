package compute

import "github.com/gnnactor/gnnactor/compute/cpu"

// sageConv is PyG's SAGEConv: y_v = W_l·reduce_u(x_u) + b_l + W_r·x_v (Hamilton,
// Ying and Leskovec, 2017). As in PyG, edge weights of the graph do not enter.
// With concat it is Zeng et al.'s: W_r·x_v + b_r and W_l·reduce_u(x_u) + b_l side by
// side, each half of the result wide.
type sageConv[T cpu.Float] struct {
	in, out int
	reduce  cpu.Reduce
	concat  bool
}

const (
	sageBias = iota
	sageNeighbor
	sageSelf
	sageSelfBias // with concat
)

func (l *sageConv[T]) Params() []Param {
	if half := l.width(); l.concat {
		return []Param{
			sageBias:     {Name: "lin_l.bias", Shape: []int{half}, Init: Kaiming, Fan: l.in},
			sageNeighbor: {Name: "lin_l.weight", Shape: []int{half, l.in}, Init: Kaiming, Fan: l.in},
			sageSelf:     {Name: "lin_r.weight", Shape: []int{half, l.in}, Init: Kaiming, Fan: l.in},
			sageSelfBias: {Name: "lin_r.bias", Shape: []int{half}, Init: Kaiming, Fan: l.in},
		}
	}
	return []Param{
		sageBias:     {Name: "lin_l.bias", Shape: []int{l.out}, Init: Kaiming, Fan: l.in},
		sageNeighbor: {Name: "lin_l.weight", Shape: []int{l.out, l.in}, Init: Kaiming, Fan: l.in},
		sageSelf:     {Name: "lin_r.weight", Shape: []int{l.out, l.in}, Init: Kaiming, Fan: l.in},
	}
}

// width is how wide the products are.
func (l *sageConv[T]) width() int {
	if l.concat {
		return l.out / 2
	}
	return l.out
}

// transformFirst also needs a reduction that commutes with the product.
func (l *sageConv[T]) transformFirst(c *Context[T]) bool {
	return l.reduce != cpu.Max && c.TransformFirst(l.in, l.width())
}

func (l *sageConv[T]) Transform(c *Context[T], x *Value[T]) []*Value[T] {
	if l.transformFirst(c) {
		x = c.Linear(x, c.Param(sageNeighbor), nil, cpu.Linear)
	}
	return []*Value[T]{x}
}

func (l *sageConv[T]) Gather(c *Context[T], _ *Value[T], h []*Value[T]) Message[T] {
	m := Message[T]{Value: h[0], Reduce: l.reduce}
	switch l.reduce {
	case cpu.Mean:
		m.Weights = c.SamplerWeights()
	case cpu.Sum:
		m.Weights = c.SumWeights()
	}
	return m
}

func (l *sageConv[T]) Apply(c *Context[T], x, a *Value[T], act cpu.Activation) *Value[T] {
	if l.concat {
		y := c.New(x.rows, l.out)
		self, neighbors := c.part(y, 0, l.width()), c.part(y, l.width(), l.out)
		c.product(self, x, c.Param(sageSelf), c.Param(sageSelfBias), act, false)
		if l.transformFirst(c) {
			c.copyTo(neighbors, c.BiasAct(a, c.Param(sageBias), act))
		} else {
			c.product(neighbors, a, c.Param(sageNeighbor), c.Param(sageBias), act, false)
		}
		return c.join(y, self, neighbors)
	}
	if l.transformFirst(c) {
		return c.LinearAdd(a, x, c.Param(sageSelf), c.Param(sageBias), act)
	}
	return c.LinearSum(a, c.Param(sageNeighbor), c.Param(sageBias), x, c.Param(sageSelf), act)
}
