// Customlayer trains a message-passing layer of its own.
//
// The layer is written in the four stages of NN-TGAR: Transform (per source
// node), Gather (per edge), Sum (per destination; here a mean) and Apply (per
// destination). The derivative follows from the ops that they call. It trains
// on sampled blocks and infers on the whole graph as the built-in layers do,
// with everything else that a run has: checkpoints, any number of trainers,
// saved parameters.
//
//	go run ./examples/customlayer
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/runtime"
)

type (
	ctx     = compute.Context[float32]
	value   = compute.Value[float32]
	message = compute.Message[float32]
)

// gated sends along every edge its source's transformed row, gated column by
// column by a neural function of both ends:
//
//	h_u = W x_u    m_uv = h_u ∘ ReLU(S h_u + D x_v + g)    y_v = mean_u(m_uv) + R x_v + b
type gated struct{ in, out int }

// The parameters, in the order of Params.
const (
	bias = iota
	gateBias
	gateDst
	gateSrc
	weight
	self
)

func (l gated) Params() []compute.Param {
	matrix := func(name string, cols int) compute.Param {
		return compute.Param{Name: name, Shape: []int{l.out, cols}, Init: compute.Glorot}
	}
	return []compute.Param{
		bias:     {Name: "bias", Shape: []int{l.out}},
		gateBias: {Name: "gate.bias", Shape: []int{l.out}, Init: compute.Ones},
		gateDst:  matrix("gate.dst", l.in),
		gateSrc:  matrix("gate.src", l.out),
		weight:   matrix("message.weight", l.in),
		self:     matrix("self.weight", l.in),
	}
}

// Transform returns what edges read of their sources: h, and its part of the
// gate.
func (l gated) Transform(c *ctx, x *value) []*value {
	h := c.Linear(x, c.Param(weight), nil, cpu.Linear)
	return []*value{h, c.Linear(h, c.Param(gateSrc), nil, cpu.Linear)}
}

// Gather returns the messages of the block's entries, one row each.
func (l gated) Gather(c *ctx, x *value, h []*value) message {
	dst := c.Linear(x, c.Param(gateDst), c.Param(gateBias), cpu.Linear)
	gate := c.ReLU(c.Add(c.FromSources(h[1]), c.FromDestinations(dst)))
	return message{Entries: c.Multiply(gate, c.FromSources(h[0])), Reduce: cpu.Mean}
}

// Apply returns the destinations' new values from their old ones, x, and the
// reduced messages a.
func (l gated) Apply(c *ctx, x, a *value, act cpu.Activation) *value {
	return c.LinearAdd(a, x, c.Param(self), c.Param(bias), act)
}

func main() {
	if _, _, err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run trains the layer and GraphSAGE, and returns their test accuracies.
func run(ctx context.Context, out io.Writer) (own, builtin float64, err error) {
	cfg := runtime.DefaultConfig() // with no Data: the built-in graph
	if builtin, err = train(ctx, cfg); err != nil {
		return 0, 0, err
	}
	cfg.Model.Name = "gated" // its name, in checkpoints and saved parameters
	cfg.Model.Layer = func(_, in, out int) compute.Layer[float32] { return gated{in, out} }
	if own, err = train(ctx, cfg); err != nil {
		return 0, 0, err
	}
	fmt.Fprintf(out, "test accuracy: %.3f with the gated layer, %.3f with GraphSAGE's\n", own, builtin)
	return own, builtin, nil
}

func train(ctx context.Context, cfg runtime.Config) (accuracy float64, err error) {
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	for e, err := range rt.Train(ctx) {
		if err != nil {
			return 0, err
		}
		accuracy = e.TestAccuracy // the last event's is the final one
	}
	return accuracy, nil
}
