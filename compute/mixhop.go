package compute

import (
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// mixHop is one hop of PyG's MixHopConv with the powers 0 to hops:
// y = ‖_j Â^j X W_jᵀ + b, Â as GCN's (Abu-El-Haija et al., 2019). A hop reads
// x ‖ Âx ‖ … ‖ Â^(hop-1)x and appends the next power; the last one multiplies.
type mixHop[T cpu.Float] struct {
	in, out, hop, hops int
}

func (l *mixHop[T]) Params() []Param {
	if l.hop < l.hops {
		return nil
	}
	params := []Param{{Name: "bias", Shape: []int{l.out * (l.hops + 1)}, Init: Zeros}}
	for j := range l.hops + 1 {
		params = append(params, Param{Name: fmt.Sprintf("lins.%d.weight", j), Shape: []int{l.out, l.in}, Init: Glorot})
	}
	return params
}

func (l *mixHop[T]) Transform(c *Context[T], x *Value[T]) []*Value[T] {
	return []*Value[T]{c.Columns(x, (l.hop-1)*l.in, l.hop*l.in)}
}

func (l *mixHop[T]) Gather(c *Context[T], _ *Value[T], h []*Value[T]) Message[T] {
	w, self := c.norm.of(c)
	return Message[T]{Value: h[0], Reduce: cpu.Sum, Weights: w, Self: self}
}

func (l *mixHop[T]) Apply(c *Context[T], x, a *Value[T], act cpu.Activation) *Value[T] {
	if l.hop < l.hops {
		return c.Concat(x, a)
	}
	var parts []*Value[T]
	for j := range l.hops {
		parts = append(parts, c.Linear(c.Columns(x, j*l.in, (j+1)*l.in), c.Param(1+j), nil, cpu.Linear))
	}
	parts = append(parts, c.Linear(a, c.Param(1+l.hops), nil, cpu.Linear))
	return c.BiasAct(c.Concat(parts...), c.Param(0), act)
}
