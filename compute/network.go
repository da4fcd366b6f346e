package compute

import (
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// placedLayer is a layer in a model, with what follows it.
type placedLayer[T cpu.Float] struct {
	Layer[T]
	prefix   string  // of its parameters' names
	inner    bool    // another layer of the same convolution follows, and declares its parameters
	output   bool    // its result is the model's
	norm     []Param // of the norm after it, or none
	residual bool    // its input is added to its result
}

// allParams returns the parameters of the layer and of what follows it, by
// their full names.
func (l *placedLayer[T]) allParams() []Param {
	var params []Param
	for _, p := range l.Params() {
		p.Name = l.prefix + p.Name
		params = append(params, p)
	}
	return append(params, l.norm...)
}

// attentionDomain separates the keys of dropout on attention weights from those
// of dropout on values.
const attentionDomain = 1 << 32

// newLayers returns the layers of m: one per block.
func newLayers[T cpu.Float](m *Model) []placedLayer[T] {
	spec := m.spec
	var layers []placedLayer[T]
	add := func(l placedLayer[T]) { layers = append(layers, l) }
	for i := range spec.Layers {
		in, out := spec.Hidden*spec.widening(), spec.Hidden
		if i == 0 {
			in = spec.InDim
		}
		l := placedLayer[T]{prefix: fmt.Sprintf("convs.%d.", i), output: i == spec.Layers-1 && !spec.head()}
		if l.output {
			out = spec.OutDim
		}
		width := out * spec.widening()
		if !l.output {
			l.norm = normParams(spec.Norm, fmt.Sprintf("norms.%d.", i), width)
		}
		l.residual = spec.Residual && in == width && !l.output
		if m.custom != nil {
			l.Layer = any(m.custom(i, in, out)).(Layer[T])
			add(l)
			continue
		}
		switch spec.Model {
		case "gcn":
			l.Layer = &gcnConv[T]{in: in, out: out}
		case "sage":
			l.Layer = &sageConv[T]{in: in, out: out, reduce: spec.reduce(), concat: spec.concatenates()}
		case "gin":
			l.Layer = &ginConv[T]{in: in, out: out, trainEps: spec.TrainEps, norm: spec.Norm, act: spec.activation()}
		case "gat":
			l.Layer = &gatConv[T]{gatShape{in: in, out: out, heads: spec.headsOf(l.output), mean: l.output && !spec.concat, loops: !spec.NoLoops}, spec.EdgeDim}
		case "gatv2":
			l.Layer = &gat2Conv[T]{gatShape{in: in, out: out, heads: spec.headsOf(l.output), mean: l.output && !spec.concat, loops: !spec.NoLoops}}
		case "mixhop":
			first := new(bool)
			for hop := 1; hop < spec.hops(); hop++ {
				add(placedLayer[T]{Layer: &mixHop[T]{in: in, out: out, hop: hop, hops: spec.hops(), first: first}, prefix: l.prefix, inner: true})
			}
			l.Layer = &mixHop[T]{in: in, out: out, hop: spec.hops(), hops: spec.hops(), first: first}
		default:
			panic("compute: newLayers: spec was not validated")
		}
		add(l)
	}
	return layers
}

// headParams returns the parameters of the linear layers after the convolutions,
// if there are any: bias and weight of each.
func headParams(spec Spec) []Param {
	if !spec.head() {
		return nil
	}
	in := spec.Hidden * spec.widening()
	if spec.JumpingKnowledge == "cat" {
		in *= spec.Layers
	}
	var params []Param
	for i := range max(spec.Decoder, 1) {
		name, out := fmt.Sprintf("decoder.lins.%d", i), spec.Hidden
		if spec.Decoder <= 1 {
			name = "lin" // PyG's, with jumping knowledge
		}
		if i == max(spec.Decoder, 1)-1 {
			out = spec.OutDim
		}
		params = append(params,
			Param{Name: name + ".bias", Shape: []int{out}, Init: Kaiming, Fan: in},
			Param{Name: name + ".weight", Shape: []int{out, in}, Init: Kaiming, Fan: in})
		in = out
	}
	return params
}

// forward records the model on x, the values of the first block's sources, and
// returns the outputs of the last block's destinations.
func (c *core[T]) forward(blocks []graph.Block, x *Value[T], key rng.Key) *Value[T] {
	x = c.dropInput(x, &blocks[0], key)
	out := blocks[len(blocks)-1].NumDst
	c.jumps = c.jumps[:0]
	for i := range c.layers {
		x = c.layer(i, &blocks[i], x, key)
		if l := &c.layers[i]; c.model.spec.JumpingKnowledge != "" && !l.inner && !l.output {
			c.jumps = append(c.jumps, c.tape.Head(x, out))
		}
	}
	return c.head(x, c.jumps)
}

// dropInput records dropout of x, the input.
func (c *core[T]) dropInput(x *Value[T], b *graph.Block, key rng.Key) *Value[T] {
	if p := c.model.spec.InputDropout; p > 0 {
		d := cpu.Dropped{Key: dropKey(key, 0), P: p, IDs: c.names(b)}
		if h := c.tape.halo; h != nil && h.knows {
			return c.tape.dropInputs(x, d)
		}
		x = c.tape.Dropout(x, d)
	}
	return x
}

// layer records layer i over b, with dropout after it, on x, the values of b's sources, and returns those of its destinations.
func (c *core[T]) layer(i int, b *graph.Block, x *Value[T], key rng.Key) *Value[T] {
	spec, t, l, ctx := &c.model.spec, c.tape, &c.layers[i], &c.ctx[i]
	ctx.Block = b
	ctx.drop, ctx.moments = nil, ctx.moments[:0]
	if spec.AttentionDropout > 0 {
		ctx.drop = &cpu.Dropped{Key: key.With(attentionDomain).With(uint64(i)), P: spec.AttentionDropout, IDs: c.names(b)}
	}
	ctx.wantsInput = x.needs
	h := l.Transform(ctx, x)
	if t.halo != nil {
		h = received(t, i, x, h)
	}
	x = t.Head(x, b.NumDst)
	x = c.apply(i, x, ctx.sum(l.Gather(ctx, x, h)))
	if l.inner || l.output || spec.Dropout == 0 {
		return x
	}
	d := cpu.Dropped{Key: dropKey(key, i+1), P: spec.Dropout, IDs: c.names(b)}
	if spec.activation() == cpu.ELU && !l.residual { // its slope is read off its result
		return t.Dropout(x, d)
	}
	return t.dropoutInPlace(x, d)
}

// names returns the ids by which dropout knows b's sources; nil: their numbers.
func (c *core[T]) names(b *graph.Block) []uint32 {
	if c.tape.halo != nil {
		return c.tape.halo.ids
	}
	return b.SrcIDs
}

// apply is layer i's Apply stage and what follows per node, short of dropout,
// given the destinations' old values x and reduced messages a.
func (c *core[T]) apply(i int, x, a *Value[T]) *Value[T] {
	l, ctx := &c.layers[i], &c.ctx[i]
	if l.inner || l.output {
		return l.Apply(ctx, x, a, cpu.Linear)
	}
	var y *Value[T]
	act := c.model.spec.activation()
	if l.norm == nil {
		y = l.Apply(ctx, x, a, act)
	} else {
		y = l.Apply(ctx, x, a, cpu.Linear)
		y = ctx.BiasAct(ctx.normalize(c.model.spec.Norm, y, len(ctx.params)-len(l.norm)), nil, act)
	}
	if l.residual {
		y = ctx.Add(y, x)
	}
	return y
}

// head returns the outputs, given the last convolution's result x and, with
// jumping knowledge, the results of all (Xu et al., 2018).
func (c *core[T]) head(x *Value[T], jumps []*Value[T]) *Value[T] {
	switch c.model.spec.JumpingKnowledge {
	case "cat":
		x = c.tape.Concat(jumps...)
	case "max":
		x = c.tape.Max(jumps...)
	}
	for i := 0; i < len(c.headParams); i += 2 {
		act := c.model.spec.activation()
		if i+2 == len(c.headParams) {
			act = cpu.Linear
		}
		x = c.tape.Linear(x, c.headParams[i+1], c.headParams[i], act)
	}
	return x
}
