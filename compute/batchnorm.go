package compute

import "github.com/gnnactor/gnnactor/compute/cpu"

// batchMomentum is the weight of a new batch in the running statistics,
// PyTorch's default.
const batchMomentum = 0.1

// The parameters of a batch norm, in the order of BatchNormParams.
const (
	batchBias = iota
	batchTracked
	batchMean
	batchVar
	batchWeight
	batchParams
)

// BatchNormParams declares the parameters of a batch norm over width columns,
// with PyTorch's names after prefix. The running statistics among them are
// Fixed: gradients do not move them, Model.Observe does.
func BatchNormParams(prefix string, width int) []Param {
	shape := []int{width}
	return []Param{
		batchBias:    {Name: prefix + "bias", Shape: shape, Init: Zeros},
		batchTracked: {Name: prefix + trackedName, Shape: []int{}, Init: Zeros, Fixed: true, Statistic: true},
		batchMean:    {Name: prefix + meanName, Shape: shape, Init: Zeros, Fixed: true, Statistic: true},
		batchVar:     {Name: prefix + varName, Shape: shape, Init: Ones, Fixed: true, Statistic: true},
		batchWeight:  {Name: prefix + "weight", Shape: shape, Init: Ones},
	}
}

const (
	trackedName = "num_batches_tracked"
	meanName    = "running_mean"
	varName     = "running_var"
)

// moments are a batch norm's statistics of one micro-batch.
type moments[T cpu.Float] struct {
	first          int // the batch norm's first parameter in the layer
	rows           int
	mean, variance []T // the variance is the biased one
}

// BatchNorm returns γ∘(x-μ)/√(σ²+1e-5) + β (Ioffe and Szegedy, 2015), PyTorch's
// BatchNorm1d. first is the index in the layer's Params of the first one that
// BatchNormParams declared. In training μ and σ² are the mean and the biased
// variance of x's columns, and Engine.Gradient reports them for Model.Observe;
// in exact inference they are the running ones. A single row, which PyTorch
// refuses, becomes β and leaves the running statistics alone.
func (c *Context[T]) BatchNorm(x *Value[T], first int) *Value[T] {
	p := c.params[first : first+batchParams]
	gamma, beta := p[batchWeight], p[batchBias]
	y := c.New(x.rows, x.cols)
	a := x.Matrix()
	if !c.record { // inference
		cpu.BatchNorm(c.x, y.dense, a, bias(gamma), bias(beta), normEps, bias(p[batchMean]), bias(p[batchVar]))
		return y
	}
	x.read = true
	m := moments[T]{first: first, rows: x.rows, mean: c.mem.Alloc(x.cols), variance: c.mem.Alloc(x.cols)}
	cpu.Moments(c.x, a, m.mean, m.variance)
	if c.halo != nil {
		joinMoments(c.halo, &m)
	}
	c.moments = append(c.moments, m)
	cpu.BatchNorm(c.x, y.dense, a, bias(gamma), bias(beta), normEps, m.mean, m.variance)
	c.Record(y, func() {
		dgamma, dbeta := c.mem.Alloc(x.cols), c.mem.Alloc(x.cols)
		da := cpu.Matrix[T]{}
		if x.needs {
			da = y.grad
		}
		if c.halo == nil {
			cpu.BatchNormBackward(c.x, da, y.grad, a, bias(gamma), normEps, m.mean, m.variance, dgamma, dbeta)
		} else {
			cpu.BatchNormBackwardOf(c.x, da, y.grad, a, bias(gamma), normEps, m.mean, m.variance, dgamma, dbeta, m.rows, c.halo.add)
		}
		c.addGrad(gamma, cpu.Dense(1, x.cols, dgamma))
		c.addGrad(beta, cpu.Dense(1, x.cols, dbeta))
		c.addGrad(x, y.grad)
	}, x, gamma, beta)
	return y
}

// report writes what the batch norms saw to their running statistics' places in
// grad: 1, the means and the unbiased variances; nothing where there are not
// two rows.
func (c *core[T]) report(grad []T) {
	for i := range c.ctx {
		ctx := &c.ctx[i]
		for _, m := range ctx.moments {
			if m.rows < 2 {
				continue
			}
			unbias := T(float64(m.rows) / float64(m.rows-1))
			place := func(k int) []T {
				t := ctx.places[m.first+k]
				return grad[t.Offset : t.Offset+t.Len]
			}
			c.fill(place(batchTracked), 1)
			row := func(s []T) cpu.Matrix[T] { return cpu.Dense(1, len(s), s) }
			if d := cpu.DeviceOf[T](c.tape.x); d != nil && d.Holds(grad) {
				cpu.Copy(c.tape.x, row(place(batchMean)), row(m.mean))
				cpu.Scale(c.tape.x, row(place(batchVar)), unbias, row(m.variance))
				continue
			}
			c.tape.fetch(row(place(batchMean)), row(m.mean))
			c.tape.fetch(row(place(batchVar)), row(m.variance))
			for j := range place(batchVar) {
				place(batchVar)[j] *= unbias
			}
		}
	}
}
