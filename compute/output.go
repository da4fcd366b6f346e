package compute

import (
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// Output returns the model's output for the destinations of in's last block,
// without dropout and with batch norm's running statistics: inference on a
// batch, where what a node sees depends on the batch. in.Key, the targets, labels
// and weights are not used. The caller owns the result, NumDst×OutDim.
func (m *Model) Output(x *cpu.Exec, params []float32, in *Input) (cpu.Matrix[float32], error) {
	none := cpu.Matrix[float32]{}
	if len(params) != m.layout.Len() {
		return none, fmt.Errorf("compute: output: %d parameters given, the model has %d", len(params), m.layout.Len())
	}
	certain := *m
	certain.spec.Dropout, certain.spec.InputDropout, certain.spec.AttentionDropout = 0, 0, 0
	c := newCore[float32](&certain, x, false)
	defer c.tape.Reset()
	plain := Input{Blocks: in.Blocks, Features: in.Features, Edges: in.Edges, Rows: in.Rows}
	if err := c.check(&plain); err != nil {
		return none, fmt.Errorf("compute: output: %w", err)
	}
	c.bind(params, nil)
	for i := range c.ctx {
		c.ctx[i].edges = in.Edges
	}
	y := c.forward(in.Blocks, c.input(in.Features, in.Blocks[0].NumSrc, in.Rows), 0)
	out := cpu.NewMatrix[float32](in.Blocks[len(in.Blocks)-1].NumDst, m.spec.OutDim)
	for i := range out.Rows {
		copy(out.Row(i), y.Matrix().Row(i))
	}
	return out, nil
}
