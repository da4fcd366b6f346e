package compute

import (
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// mixHop is one hop of PyG's MixHopConv with the powers 0 to hops:
// y = ‖_j Â^j X W_jᵀ + b, Â as GCN's (Abu-El-Haija et al., 2019). It has two
// orders. Either a hop reads x ‖ Âx ‖ … ‖ Â^(hop-1)x and appends the next power,
// and the last one multiplies; or the first one multiplies, and a hop reads
// xW_0 ‖ … ‖ Â^(hop-1)xW_(hop-1) ‖ Â^(hop-1)xW_hop ‖ … ‖ Â^(hop-1)xW_hops and
// takes the last of these one power further.
type mixHop[T cpu.Float] struct {
	in, out, hop, hops int
	first              *bool // multiply first: chosen by hop 1, for all
}

// Params are the last hop's, which all hops see.
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

// power returns x·W_jᵀ.
func (l *mixHop[T]) power(c *Context[T], x *Value[T], j int) *Value[T] {
	return c.Linear(x, c.Param(1+j), nil, cpu.Linear)
}

func (l *mixHop[T]) Transform(c *Context[T], x *Value[T]) []*Value[T] {
	if l.hop == 1 || c.whole {
		// Multiplied, hop k sends hops-k+1 powers: (hops+1)/2 in the mean. The
		// first block stands for all, and so does the whole graph.
		*l.first = c.transformFirst(l.in, l.out, l.out*(l.hops+1)/2)
	}
	switch {
	case !*l.first:
		x = c.Columns(x, (l.hop-1)*l.in, l.hop*l.in)
	case l.hop > 1:
		x = c.Columns(x, l.hop*l.out, (l.hops+1)*l.out)
	default:
		var parts []*Value[T]
		for j := 1; j <= l.hops; j++ {
			parts = append(parts, l.power(c, x, j))
		}
		x = c.Concat(parts...)
	}
	return []*Value[T]{x}
}

func (l *mixHop[T]) Gather(c *Context[T], _ *Value[T], h []*Value[T]) Message[T] {
	w, self := c.norm.of(c)
	return Message[T]{Value: h[0], Reduce: cpu.Sum, Weights: w, Self: self}
}

func (l *mixHop[T]) Apply(c *Context[T], x, a *Value[T], act cpu.Activation) *Value[T] {
	var parts []*Value[T]
	switch {
	case *l.first && l.hop == 1:
		parts = append(parts, l.power(c, x, 0), a)
	case *l.first:
		parts = append(parts, c.Columns(x, 0, l.hop*l.out), a)
	case l.hop < l.hops:
		return c.Concat(x, a)
	default:
		for j := range l.hops {
			parts = append(parts, l.power(c, c.Columns(x, j*l.in, (j+1)*l.in), j))
		}
		parts = append(parts, l.power(c, a, l.hops))
	}
	y := c.Concat(parts...)
	if l.hop < l.hops {
		return y
	}
	return c.BiasAct(y, c.Param(0), act)
}
