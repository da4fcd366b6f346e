package compute

import (
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// Input is one micro-batch for Engine.Gradient. Nothing of it is kept.
type Input struct {
	Key      rng.Key         // of dropout: folded from (seed, epoch, batch)
	Blocks   []graph.Block   // one per layer, the input layer first
	Features *graph.Features // the feature table
	Edges    *graph.Features // features of the graph's edges, in its order; nil unless the model reads them
	Rows     []uint32        // its rows that are the sources of Blocks[0]; nil: row i is source i
	Targets  []uint32        // rows of the output that carry loss, distinct; nil: the first ones
	Labels   []int32         // class of each target
	Multi    []uint8         // instead of Labels, several labels per target: OutDim values of 0 or 1 each
	Values   []float32       // instead of Labels, the number that each target's output is to be; OutDim is 1
	Weights  []float32       // weight of each target's loss; nil: all 1
	Loss     *Loss           // what a class costs; nil: the cross-entropy

	Regression RegressionLoss // of Values
	There      any            // the Blocks as a devices.Sampler left them in its device's memory, unchanged; nil: they are not there
}

// Loss says what a class costs, where that is not the cross-entropy alone.
type Loss = cpu.LossOptions

// RegressionLoss says what the distance to a value costs.
type RegressionLoss = cpu.RegressionLoss

// The losses of regression.
const (
	SquaredError  = cpu.SquaredError
	AbsoluteError = cpu.AbsoluteError
	HuberError    = cpu.HuberError
)

// Stats sums up a micro-batch.
type Stats struct {
	Loss    float64 // Σ weight·loss over the targets
	Weight  float64 // Σ weight, with the weight of the target's class, where it has one class and classes have weights
	Correct int     // targets whose largest output is their class, or with every label right
	Count   int     // targets

	// With several labels per target, which are predicted where an output is
	// positive:
	TruePositive, FalsePositive, FalseNegative int
}

// Engine computes gradients of one model. It owns the memory between input and
// gradient and reuses it. One goroutine may use an engine at a time.
type Engine struct{ core *core[float32] }

// SetThreads lets the engine's kernels use n threads of their pool, or all if n is
// below 1. No result depends on it.
func (e *Engine) SetThreads(n int) { e.core.tape.x.SetThreads(n) }

// For is the pool's For, on as many threads as the engine's kernels use.
func (e *Engine) For(chunks int, f func(worker, chunk int)) { e.core.tape.x.For(chunks, f) }

// NewEngine returns an engine that runs its kernels on x, which nobody else may
// use at the same time.
func (m *Model) NewEngine(x *cpu.Exec) *Engine { return &Engine{newCore[float32](m, x, true)} }

// Reserve has room made for so many values at once (GradientBytes), for an engine on the processor that has computed nothing yet.
func (e *Engine) Reserve(values int) { e.core.tape.mem.Reserve(values) }

// Close gives back the memory of a device that e runs on. e must not be used any more.
func (e *Engine) Close() { e.core.close() }

// Gradient overwrites grad with the sum over in's targets of weight times the
// gradient of the loss at params, both vectors of the model's
// Layout. The loss is the softmax cross-entropy of the class, or, with several
// labels, the mean over labels of the sigmoid's. A loss that is not finite is an error, as is an input that does not
// fit the model; grad is then unspecified. Where e runs on a device, both may be memory that it
// holds: nothing of them goes over the bus then. With batch norm grad also carries what
// Model.Observe must take out of it before it is used.
func (e *Engine) Gradient(grad, params []float32, in *Input) (Stats, error) {
	if err := e.check(grad, params, in); err != nil {
		return Stats{}, err
	}
	var s Stats
	err := graph.Guard(func() (err error) {
		in := e.core.trimmed(in)
		s, err = e.gradient(grad, params, in, func(y *Value[float32]) (func() Stats, error) { return e.core.loss(y, in) })
		return err
	})
	return s, err
}

// Rows returns how many destinations of each block the last gradient computed:
// those of the batch, or fewer where no target's output depends on the others.
func (e *Engine) Rows() []int {
	rows := make([]int, len(e.core.ctx))
	for i := range rows {
		if b := e.core.ctx[i].Block; b != nil {
			rows[i] = b.NumDst
		}
	}
	return rows
}

// check reports arguments that do not fit the model.
func (e *Engine) check(grad, params []float32, in *Input) error {
	if n := e.core.model.layout.Len(); len(grad) != n || len(params) != n {
		return fmt.Errorf("compute: gradient of %d and parameters of %d values given, the model has %d", len(grad), len(params), n)
	}
	if err := e.core.check(in); err != nil {
		return fmt.Errorf("compute: %w", err)
	}
	return nil
}

// gradient runs the model forward, loss, which writes the gradient of what it
// records last, and everything backward. The arguments have been checked.
func (e *Engine) gradient(grad, params []float32, in *Input, loss func(y *Value[float32]) (later func() Stats, err error)) (Stats, error) {
	c := e.core
	c.tape.Reset()
	c.bind(params, grad)
	if d := cpu.DeviceOf[float32](c.tape.x); d != nil && in.There != nil {
		d.Find(in.There)
	}
	x := c.input(in.Features, in.Blocks[0].NumSrc, in.Rows)
	x.fixed = in.Features == c.model.sparseOf && (in.Rows == nil || in == &c.trimmer.in && c.trimmer.plain)
	for i := range c.ctx {
		c.ctx[i].edges = in.Edges
	}
	later, err := loss(c.forward(in.Blocks, x, in.Key))
	if err != nil {
		return Stats{}, fmt.Errorf("compute: %w", err)
	}
	c.tape.Backward()
	stats := later()
	if err := finite(stats.Loss); err != nil {
		return stats, fmt.Errorf("compute: %w", err)
	}
	c.collect(grad)
	c.report(grad)
	if d := cpu.DeviceOf[float32](c.tape.x); d != nil {
		return stats, d.Wait() // others add the gradient up
	}
	return stats, nil
}

// core is an engine for one element type. Training is float32; gradient checks
// run the same code in float64.
type core[T cpu.Float] struct {
	model      *Model
	tape       *Tape[T]
	layers     []placedLayer[T]
	ctx        []Context[T] // one per layer
	places     []Tensor     // of params
	params     []*Value[T]  // of all layers and the head, backs ctx[i].params
	headParams []*Value[T]
	linkParams []*Value[T] // of the link decoder; nil: the dot product
	jumps      []*Value[T] // results of the convolutions, for jumping knowledge
	values     []T         // on a device: the parameters
	gradient   []T         // on a device: their gradient
	labels     Arena[int32]
	bits       Arena[uint8]
	trimmer    trimmer
}

func newCore[T cpu.Float](m *Model, x *cpu.Exec, record bool) *core[T] {
	return newCoreOf(m, newLayers[T](m), x, record)
}

// newCoreOf is newCore with the layers given: own ones in float64, too.
func newCoreOf[T cpu.Float](m *Model, layers []placedLayer[T], x *cpu.Exec, record bool) *core[T] {
	c := &core[T]{tape: NewTape[T](x, record), layers: layers}
	c.params = make([]*Value[T], len(m.layout.Tensors()))
	c.ctx = make([]Context[T], len(c.layers))
	used := 0
	place := func(params []Param) ([]*Value[T], []Tensor) {
		var places []Tensor
		for _, p := range params {
			t, _ := m.layout.Lookup(p.Name)
			places = append(places, t)
		}
		c.places = append(c.places, places...)
		used += len(places)
		return c.params[used-len(places) : used], places
	}
	for i := range c.layers {
		c.ctx[i].Tape = c.tape
		c.ctx[i].params, c.ctx[i].places = place(c.layers[i].allParams())
	}
	for i := len(c.layers) - 1; i >= 0; i-- {
		if c.layers[i].inner {
			c.ctx[i].params, c.ctx[i].places = c.ctx[i+1].params, c.ctx[i+1].places
		}
	}
	c.headParams, _ = place(headParams(m.spec))
	if p := linkParams(m.spec); p != nil {
		c.linkParams, _ = place(p)
	}
	c.on(m)
	return c
}

// on has c compute m from now on, which differs from the model that c was made for in
// what it is bound to alone.
func (c *core[T]) on(m *Model) {
	c.model, c.tape.whole = m, m.graph
	var norm *gcnCoefs[T]
	if m.norm != nil {
		norm = &gcnCoefs[T]{model: m, graph: m.graph, norm: m.norm}
	}
	for i := range c.ctx {
		c.ctx[i].model, c.ctx[i].norm = m, norm
	}
}

// bind puts the parameters on the tape, with their gradients in grad; nil when
// none are wanted.
func (c *core[T]) bind(params, grad []T) {
	host := params
	if d := cpu.DeviceOf[T](c.tape.x); d != nil {
		if d.Holds(params) {
			host = nil
		} else {
			if c.values == nil {
				c.values = d.Alloc(len(params))
			}
			d.Upload(c.values, params)
			params = c.values
		}
		if grad != nil && !d.Holds(grad) {
			if c.gradient == nil {
				c.gradient = d.Alloc(len(grad))
			}
			grad = c.gradient
		}
	}
	for i, p := range c.places {
		cols := 1
		if len(p.Shape) > 0 {
			cols = p.Shape[len(p.Shape)-1]
		}
		var g cpu.Matrix[T]
		if grad != nil {
			g = cpu.Dense(p.Len/cols, cols, grad[p.Offset:p.Offset+p.Len])
		}
		c.params[i] = c.tape.Leaf(cpu.Dense(p.Len/cols, cols, params[p.Offset:p.Offset+p.Len]), grad != nil && !p.Fixed, g)
		if c.params[i].host = nil; host != nil {
			c.params[i].host = host[p.Offset : p.Offset+p.Len]
		}
	}
}

// collect writes the gradient of parameters to grad, where bind did not say that it is to
// be made there, and zeros for parameters that the loss does not reach.
func (c *core[T]) collect(grad []T) {
	if d := cpu.DeviceOf[T](c.tape.x); d != nil && !d.Holds(grad) {
		d.Download(grad, c.gradient)
	}
	for i, p := range c.places {
		if !c.params[i].hasGrad {
			c.fill(grad[p.Offset:p.Offset+p.Len], 0)
		}
	}
}

// fill sets s, of a gradient, to v.
func (c *core[T]) fill(s []T, v T) {
	if d := cpu.DeviceOf[T](c.tape.x); d != nil && d.Holds(s) {
		cpu.Fill(c.tape.x, cpu.Dense(1, len(s), s), v)
		return
	}
	for i := range s {
		s[i] = v
	}
}

// release gives a device's memory back, of a core that is not used any more.
func (c *core[T]) release() {
	c.tape.release()
	if d := cpu.DeviceOf[T](c.tape.x); d != nil {
		for _, s := range [][]T{c.values, c.gradient} {
			if s != nil {
				d.Free(s)
			}
		}
	}
	c.values, c.gradient = nil, nil
}

// close is release; a device that fails at it has failed at something before.
func (c *core[T]) close() {
	_ = graph.Guard(func() error {
		c.release()
		return nil
	})
}

// trimmed returns in without what its targets do not depend on. Sparse features are multiplied before they are aggregated only
// where the order of products, which counts dense ones, has as many destinations
// as sources: Cora's GCN would take twice as long.
func (c *core[T]) trimmed(in *Input) *Input {
	m := c.model
	if m.AllRows() || m.sparse != nil {
		return in
	}
	in = c.trimmer.trim(in, c.targets(in), m.graph, in.Edges != nil || m.graph.Weights != nil)
	switch c.trimmer.repeated {
	case 0:
		c.tape.last(nil)
	case 1:
		c.tape.last(in.Blocks)
	}
	return in
}

// input is Tape.Table for input features.
func (c *core[T]) input(f *graph.Features, rows int, ids []uint32) *Value[T] {
	x := c.tape.Table(f, rows, ids)
	x.csr = c.model.sparseTable(f)
	if d := cpu.DeviceOf[T](c.tape.x); d != nil && x.csr == nil && f == c.model.sparseOf {
		d.Keep(f)
	}
	return x
}

// check reports a block, table or target that does not fit the model.
func (c *core[T]) check(in *Input) error {
	spec := &c.model.spec
	if len(in.Blocks) != len(c.layers) {
		return fmt.Errorf("the batch has %d blocks, the model needs %d: one per layer, and per hop of a mixhop layer", len(in.Blocks), len(c.layers))
	}
	for i := range in.Blocks {
		b := &in.Blocks[i]
		if i > 0 && in.Blocks[i-1].NumDst != b.NumSrc {
			return fmt.Errorf("block %d has %d destinations but block %d has %d sources; they must be the same nodes", i-1, in.Blocks[i-1].NumDst, i, b.NumSrc)
		}
		if b.Weights != nil && len(b.Weights) != len(b.Indices) {
			return fmt.Errorf("block %d has %d weights for %d entries", i, len(b.Weights), len(b.Indices))
		}
		if norm := c.ctx[i].norm; norm != nil {
			if err := norm.check(b); err != nil {
				return fmt.Errorf("block %d: %w", i, err)
			}
		}
		if spec.EdgeDim > 0 && b.EdgeIDs == nil && len(b.Indices) > 0 && !isComplete(b, c.model.graph) {
			return fmt.Errorf("block %d has no EdgeIDs to look edge features up by; ask the sampler for them", i)
		}
	}
	f, n := in.Features, in.Blocks[0].NumSrc
	switch {
	case f == nil:
		return fmt.Errorf("there are no features; the model needs %d per node", spec.InDim)
	case f.Cols != spec.InDim:
		return fmt.Errorf("the features have %d columns, the model needs %d", f.Cols, spec.InDim)
	case in.Rows == nil && f.Rows < n:
		return fmt.Errorf("the feature table has %d rows for %d source nodes", f.Rows, n)
	case in.Rows != nil && len(in.Rows) != n:
		return fmt.Errorf("%d feature rows are named for %d source nodes", len(in.Rows), n)
	}
	if err := c.model.checkEdges(in.Edges); err != nil {
		return err
	}
	return c.checkTargets(in, in.Blocks[len(in.Blocks)-1].NumDst)
}

// targets returns the number of targets.
func (c *core[T]) targets(in *Input) int {
	if in.Multi != nil {
		return len(in.Multi) / c.model.spec.OutDim
	}
	return len(in.Labels) + len(in.Values)
}

// checkTargets reports targets, labels and weights that do not fit each other
// or the out rows of the output.
func (c *core[T]) checkTargets(in *Input, out int) error {
	spec, n := &c.model.spec, c.targets(in)
	switch {
	case in.Values != nil && (in.Labels != nil || in.Multi != nil || spec.OutDim != 1 || in.Loss != nil):
		return fmt.Errorf("the targets are numbers, of which a model with one output learns, and %d outputs or classes are given, too", spec.OutDim)
	case in.Multi != nil && in.Labels != nil:
		return fmt.Errorf("the targets have both one class and several labels")
	case in.Multi != nil && len(in.Multi)%spec.OutDim != 0:
		return fmt.Errorf("%d labels are not a multiple of the model's %d outputs", len(in.Multi), spec.OutDim)
	case in.Targets != nil && len(in.Targets) != n:
		return fmt.Errorf("%d targets have labels for %d", len(in.Targets), n)
	case n > out:
		return fmt.Errorf("%d targets but only %d output rows", n, out)
	case in.Loss != nil && in.Loss.ClassWeights != nil && len(in.Loss.ClassWeights) != spec.OutDim:
		return fmt.Errorf("%d weights of classes, and the model has %d outputs", len(in.Loss.ClassWeights), spec.OutDim)
	case in.Loss != nil && in.Loss.Smoothing > 0 && in.Loss.Gamma > 0:
		return fmt.Errorf("label smoothing does not go with the focal loss")
	case in.Weights != nil && len(in.Weights) != n:
		return fmt.Errorf("%d targets have %d loss weights", n, len(in.Weights))
	}
	for i, y := range in.Labels {
		if y < 0 || int(y) >= spec.OutDim {
			return fmt.Errorf("target %d has class %d, outside [0, %d); only labelled nodes can carry loss", i, y, spec.OutDim)
		}
	}
	for i, x := range in.Values {
		if x-x != 0 {
			return fmt.Errorf("target %d is %v; only nodes with a number can carry loss", i, x)
		}
	}
	for i, r := range in.Targets {
		if int(r) >= out {
			return fmt.Errorf("target %d is output row %d, but there are %d", i, r, out)
		}
	}
	return nil
}
