package compute

import (
	"errors"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// Layer is a message-passing layer in the stages of NN-TGAR (GraphTheta). The
// stages say what is computed from what; how the rows are stored, cut into
// chunks or spread over machines is the caller's business, so a layer must not
// assume that it sees all nodes at once:
//
//	h = Transform(x)    per source node: what edges may read
//	m = Gather(x, h)    per edge: which rows are sent along it, with what coefficient
//	a = Sum(m)          per destination: the reduction, without parameters
//	y = Apply(x, a)     per destination
//
// Each stage calls ops of c, which is also the tape: the derivative follows.
type Layer[T cpu.Float] interface {
	// Params declares the parameters, by names within the layer. Context.Param
	// takes their index in this slice.
	Params() []Param
	// Transform returns one or more values with a row per row of x. Row i may
	// depend on row i of x alone. Returning x itself costs nothing.
	Transform(c *Context[T], x *Value[T]) []*Value[T]
	// Gather says what is sent along the edges of c.Block, given the old values
	// x of its destinations and Transform's results h for its sources.
	Gather(c *Context[T], x *Value[T], h []*Value[T]) Message[T]
	// Apply returns act of the new values of the destinations, from their old
	// values x and the reduced messages a, both with a row per destination. It
	// may overwrite a.
	Apply(c *Context[T], x, a *Value[T], act cpu.Activation) *Value[T]
}

// Message is what Gather sends and how Sum reduces it: destination i receives
// the reduction over its entries e of Weights[e]·Value[source of e], plus
// Self[i]·Value[i]. Fused with the reduction, it is never stored per edge.
type Message[T cpu.Float] struct {
	Value   *Value[T]
	Reduce  cpu.Reduce
	Weights []T // constants, one per entry; nil: all 1
	Self    []T // constants, one per destination; nil: all 0

	// Entries, when set, are sent instead of Value: one row per entry of the
	// block. Reduce is then cpu.Sum or cpu.Mean, and nothing else counts.
	Entries *Value[T]

	// Attention, when set, weighs the sum instead of Reduce, Weights and Self.
	Attention *Attention[T]
}

// Context is what a layer sees of the block it runs on. It is the tape, too.
type Context[T cpu.Float] struct {
	*Tape[T]
	Block *graph.Block

	model  *Model
	params []*Value[T] // of the layer
	places []Tensor    // of params
	whole  bool        // exact inference: choose the order of products from the whole graph's sizes
	norm   *gcnCoefs[T]
	edges  *graph.Features // of the whole graph's edges, or nil
	drop   *cpu.Dropped    // of attention weights; nil outside training

	wantsInput bool // a gradient of the layer's input is wanted

	moments []moments[T] // that the layer's batch norms saw
}

// Param returns the layer's parameter i, as a matrix with the last dimension as
// columns; a vector is one row.
func (c *Context[T]) Param(i int) *Value[T] { return c.params[i] }

// SamplerWeights returns the sampler's weights, one per entry, or nil.
func (c *Context[T]) SamplerWeights() []T {
	if c.Block.Weights == nil {
		return nil
	}
	if w, same := any(c.Block.Weights).([]T); same {
		return w
	}
	w := c.host.Alloc(len(c.Block.Weights))
	for e, v := range c.Block.Weights {
		w[e] = T(v)
	}
	return w
}

// SumWeights returns SamplerWeights for a sum over neighbours: with
// Spec.ScaleSums they are multiplied by d(v)/|S(v)|.
func (c *Context[T]) SumWeights() []T {
	w := c.SamplerWeights()
	if !c.model.spec.ScaleSums || c.whole || isWhole(c.Block, c.model.graph) {
		return w
	}
	scaled := c.host.Alloc(len(c.Block.Indices))
	c.chunks(c.Block.NumDst, func(i int) {
		begin, end := c.Block.Indptr[i], c.Block.Indptr[i+1]
		f := T(1)
		if end > begin {
			f = T(c.model.degree(global(c.Block, uint32(i)))) / T(end-begin)
		}
		for e := begin; e < end; e++ {
			scaled[e] = f
			if w != nil {
				scaled[e] *= w[e]
			}
		}
	})
	return scaled
}

// attentionWeights returns SamplerWeights if attention is to have them.
func (c *Context[T]) attentionWeights() []T {
	if !c.model.spec.WeightAttention {
		return nil
	}
	return c.SamplerWeights()
}

// aggregateCost is how many multiply-adds of a dense product take as long as
// one of an aggregation, which waits for memory. It is a constant, so that the
// order of products is a function of sizes.
const aggregateCost = 8

// TransformFirst reports whether multiplying by an in×out matrix before the
// aggregation costs less than after it (docs/algorithms.md §8), in the forward and the
// backward pass together. Where the gradient of the layer's input is wanted, the
// backward pass makes two products, for the gradients of weights and input, and
// one aggregation. Where it is not, as in the first layer, it makes only the
// product for the weights' gradient, and the aggregation if that came after the
// product. TransformFirst depends on the sizes of the block alone; in exact inference on those of the
// whole graph, so that a row's bits depend on nothing else.
func (c *Context[T]) TransformFirst(in, out int) bool { return c.transformFirst(in, out, out) }

// transformFirst is TransformFirst where sent columns are aggregated after the
// product.
func (c *Context[T]) transformFirst(in, out, sent int) bool {
	nDst, nSrc, entries := float64(c.Block.NumDst), float64(c.Block.NumSrc), float64(len(c.Block.Indices))
	if c.whole || c.halo != nil {
		nDst = float64(c.model.nodes)
		nSrc, entries = nDst, float64(c.model.edges)
	}
	entries *= aggregateCost
	// How often products are made, and the aggregation where it comes after them
	// or before.
	products, after, before := 1.0, 1.0, 1.0
	switch {
	case c.record && c.wantsInput:
		products, after, before = 3, 2, 2
	case c.record:
		products, after = 2, 2
	}
	area := float64(in) * float64(out)
	return products*nSrc*area+after*entries*float64(sent) < before*entries*float64(in)+products*nDst*area
}

// sum is the Sum stage.
func (c *Context[T]) sum(m Message[T]) *Value[T] {
	partial := c.halo != nil && c.halo.piece.Partial != nil
	if partial && (m.Entries != nil || m.Value.masters == nil || m.Attention == nil && m.Value.dense.Data != nil) && c.halo.err == nil {
		c.halo.err = errors.New("a layer sends another value along edges than Transform's, where they lie in several pieces: the sum would lack the other pieces' entries; divide the graph with --edges target")
	}
	if m.Entries != nil {
		return c.SumEntries(c.Block, m.Entries, m.Reduce)
	}
	if m.Attention != nil && partial {
		return c.attendPartial(c.Block, m.Value, *m.Attention)
	}
	if m.Attention != nil {
		return c.Attend(c.Block, m.Value, *m.Attention)
	}
	if m.Value.masters != nil && m.Value.dense.Data == nil {
		var rest *partialSums[T]
		if partial {
			rest = c.partialSums(m)
		}
		return c.aggregateStripes(c.Block, m.Value, m.Reduce, m.Weights, m.Self, rest)
	}
	return c.Aggregate(c.Block, m.Value, m.Reduce, m.Weights, m.Self)
}

// dropKey is the key of the dropout after layer l (0: of the input features).
func dropKey(k rng.Key, l int) rng.Key { return k.With(uint64(l)) }
