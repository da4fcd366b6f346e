package compute

import "github.com/gnnactor/gnnactor/compute/cpu"

// gcnConv is PyG's GCNConv: y = ÂXWᵀ + b with Â = D̂^-½(A+I)D̂^-½ (Kipf and
// Welling, 2017), Â taken from the whole graph (see gcnCoefs).
type gcnConv[T cpu.Float] struct{ in, out int }

const (
	gcnBias = iota
	gcnWeight
)

func (l *gcnConv[T]) Params() []Param {
	return []Param{
		gcnBias:   {Name: "bias", Shape: []int{l.out}, Init: Zeros},
		gcnWeight: {Name: "lin.weight", Shape: []int{l.out, l.in}, Init: Glorot},
	}
}

func (l *gcnConv[T]) Transform(c *Context[T], x *Value[T]) []*Value[T] {
	if c.TransformFirst(l.in, l.out) {
		x = c.Linear(x, c.Param(gcnWeight), nil, cpu.Linear)
	}
	return []*Value[T]{x}
}

func (l *gcnConv[T]) Gather(c *Context[T], _ *Value[T], h []*Value[T]) Message[T] {
	w, self := c.norm.of(c)
	return Message[T]{Value: h[0], Reduce: cpu.Sum, Weights: w, Self: self}
}

func (l *gcnConv[T]) Apply(c *Context[T], _, a *Value[T], act cpu.Activation) *Value[T] {
	if c.TransformFirst(l.in, l.out) {
		return c.BiasAct(a, c.Param(gcnBias), act)
	}
	return c.Linear(a, c.Param(gcnWeight), c.Param(gcnBias), act)
}
