package compute

import (
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// Output is NewEvaluator and its Output, for a single batch.
func (m *Model) Output(x *cpu.Exec, params []float32, in *Input) (cpu.Matrix[float32], error) {
	e := m.NewEvaluator(x)
	defer e.Close()
	return e.Output(params, in)
}

// Evaluator computes outputs of batches. It owns the memory for it and reuses
// it. One goroutine may use an evaluator at a time.
type Evaluator struct{ core *core[float32] }

// NewEvaluator returns an evaluator that runs its kernels on x, which nobody else
// may use at the same time.
func (m *Model) NewEvaluator(x *cpu.Exec) *Evaluator {
	certain := *m
	certain.spec.Dropout, certain.spec.InputDropout, certain.spec.AttentionDropout = 0, 0, 0
	certain.spec.GCNNorm = ""
	return &Evaluator{newCore[float32](&certain, x, false)}
}

// Close gives back the memory of a device that e runs on. e must not be used any more.
func (e *Evaluator) Close() { e.core.close() }

// Output returns the model's output for the destinations of in's last block,
// without dropout, with batch norm's running statistics and, for gcn and mixhop,
// the graph's degrees, whatever Spec.GCNNorm says of training: inference on a
// batch, where what a node sees depends on the batch. in.Key, the targets, labels
// and weights are not used. The caller owns the result, NumDst×OutDim.
func (e *Evaluator) Output(params []float32, in *Input) (cpu.Matrix[float32], error) {
	c, none := e.core, cpu.Matrix[float32]{}
	if n := c.model.layout.Len(); len(params) != n {
		return none, fmt.Errorf("compute: output: %d parameters given, the model has %d", len(params), n)
	}
	plain := Input{Blocks: in.Blocks, Features: in.Features, Edges: in.Edges, Rows: in.Rows}
	if err := c.check(&plain); err != nil {
		return none, fmt.Errorf("compute: output: %w", err)
	}
	defer c.tape.Reset()
	c.bind(params, nil)
	for i := range c.ctx {
		c.ctx[i].edges = in.Edges
	}
	y := c.forward(in.Blocks, c.input(in.Features, in.Blocks[0].NumSrc, in.Rows), 0)
	out := cpu.NewMatrix[float32](in.Blocks[len(in.Blocks)-1].NumDst, c.model.spec.OutDim)
	c.tape.fetch(out, y.Matrix())
	return out, nil
}
