package compute

import "github.com/gnnactor/gnnactor/compute/cpu"

// normEps is what PyTorch's norms add to the variance.
const normEps = 1e-5

// normParams declares the parameters of a norm of the given kind, with PyG's
// names: none for the empty kind.
func normParams(kind, prefix string, width int) []Param {
	switch kind {
	case "layer":
		return []Param{
			{Name: prefix + "weight", Shape: []int{width}, Init: Ones},
			{Name: prefix + "bias", Shape: []int{width}, Init: Zeros},
		}
	case "batch":
		return BatchNormParams(prefix+"module.", width)
	}
	return nil
}

// normalize returns the norm of the given kind of x, whose parameters begin at
// first.
func (c *Context[T]) normalize(kind string, x *Value[T], first int) *Value[T] {
	switch kind {
	case "layer":
		return c.LayerNorm(x, c.Param(first), c.Param(first+1), normEps)
	case "batch":
		return c.BatchNorm(x, first)
	}
	return x
}

// LayerNorm returns γ∘(x-μ)/√(σ²+eps) + β, μ and σ² the mean and the variance
// of each row; gamma and beta are 1×cols. It is PyTorch's LayerNorm, and PyG's
// with mode="node".
func (t *Tape[T]) LayerNorm(x, gamma, beta *Value[T], eps float64) *Value[T] {
	y := t.New(x.rows, x.cols)
	a := x.Matrix()
	x.read = true
	mean, rstd := t.mem.Alloc(x.rows), t.mem.Alloc(x.rows)
	cpu.LayerNorm(t.x, y.dense, a, bias(gamma), bias(beta), eps, mean, rstd)
	t.Record(y, func() {
		t.biasBackward(beta, y.grad)
		terms := cpu.Matrix[T]{}
		if gamma.needs {
			terms = t.matrix(x.rows, x.cols)
		}
		cpu.LayerNormBackward(t.x, y.grad, y.grad, a, bias(gamma), mean, rstd, terms)
		if gamma.needs {
			t.biasBackward(gamma, terms)
		}
		t.addGrad(x, y.grad)
	}, x, gamma, beta)
	return y
}

// Max returns the largest element of vs at each place; all have one shape. Of
// equals the first one gets the gradient.
func (t *Tape[T]) Max(vs ...*Value[T]) *Value[T] {
	if len(vs) == 1 {
		return vs[0]
	}
	y := t.New(vs[0].rows, vs[0].cols)
	which := t.marks.Alloc(y.rows * y.cols)
	cpu.Copy(t.x, y.dense, vs[0].Matrix())
	for k, v := range vs[1:] {
		cpu.Larger(t.x, y.dense, v.Matrix(), which, uint32(k+1))
	}
	t.Record(y, func() {
		part := t.matrix(y.rows, y.cols)
		for k, v := range vs {
			if v.needs {
				cpu.Where(t.x, part, y.grad, which, uint32(k))
				t.addGrad(v, part)
			}
		}
	}, vs...)
	return y
}
