package compute

import (
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// gcnNorm holds what GCN's coefficients are made of, computed once per graph as
// PyG's gcn_norm does after add_remaining_self_loops: node v's self-loop weighs
// s(v), the weight of its own self-loop (the last, if there are several) or 1;
// d̂(v) = s(v) + the weights of its other incoming edges; the coefficient of
// edge (u, v) is d̂(v)^-½·w_uv·d̂(u)^-½, and 0 where d̂ is not positive.
type gcnNorm struct {
	invSqrt []float32 // d̂^-½
	loop    []float32 // s; nil: all 1
	targets []float32 // d̂^-½ of a piece's mirrors of targets
}

func newGCNNorm(g *graph.Graph) *gcnNorm { return gcnNormOf(g, nil) }

// gcnNormOf is newGCNNorm where each node has weights of edges elsewhere, too: elsewhere, if not nil, has their sums.
func gcnNormOf(g *graph.Graph, elsewhere []float64) *gcnNorm {
	n := g.NumNodes()
	norm := &gcnNorm{invSqrt: make([]float32, n)}
	if g.Weights != nil {
		norm.loop = make([]float32, n)
	}
	for v := range n {
		loop, sum := 1.0, 0.0
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			w := 1.0
			if g.Weights != nil {
				w = float64(g.Weights[e])
			}
			if int(g.Indices[e]) == v {
				loop = w
			} else {
				sum += w
			}
		}
		if elsewhere != nil {
			sum += elsewhere[v]
		}
		if d := sum + loop; d > 0 {
			norm.invSqrt[v] = float32(1 / math.Sqrt(d))
		}
		if norm.loop != nil {
			norm.loop[v] = float32(loop)
		}
	}
	return norm
}

// gcnCoefs turns a gcnNorm into per-entry coefficients of blocks. It belongs to
// one engine.
type gcnCoefs[T cpu.Float] struct {
	model *Model
	graph *graph.Graph
	norm  *gcnNorm
}

// blockOf is of with degrees counted in the block alone, Spec.GCNNorm's "block":
// what PyG's gcn_norm gives on the edges of the block. A source that is no
// destination has degree 1, of the self-loop that it is given.
func (k *gcnCoefs[T]) blockOf(c *Context[T]) (weights, self []T) {
	b := c.Block
	weights, self = c.host.Alloc(len(b.Indices)), c.host.Alloc(b.NumDst)
	inv := c.host.Alloc(b.NumSrc) // d̂^-½
	loops := c.host.Alloc(b.NumDst)
	entry := func(e int64) T {
		switch {
		case k.graph.Weights == nil:
			return 1
		case b.EdgeIDs != nil:
			return T(k.graph.Weights[b.EdgeIDs[e]])
		}
		return T(k.graph.Weights[e])
	}
	c.chunks(b.NumSrc, func(i int) {
		loop, sum := T(1), T(0)
		if i < b.NumDst {
			for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
				if int(b.Indices[e]) == i {
					loop = entry(e)
				} else {
					sum += entry(e)
				}
			}
			loops[i] = loop
		}
		inv[i] = 0
		if d := sum + loop; d > 0 {
			inv[i] = T(1 / math.Sqrt(float64(d)))
		}
	})
	c.chunks(b.NumDst, func(i int) {
		self[i] = T(inv[i]*loops[i]) * inv[i]
		for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
			u := b.Indices[e]
			if int(u) == i {
				weights[e] = 0
				continue
			}
			weights[e] = T(inv[u]*entry(e)) * inv[i]
			if b.Weights != nil {
				weights[e] *= T(b.Weights[e])
			}
		}
	})
	return weights, self
}

// of returns the coefficient of every entry of c's block and of every
// destination's own row. On a sampled row S(v) the whole graph's coefficients
// are multiplied by d(v)/|S(v)|, so that the sum over neighbours is unbiased,
// and by the sampler's weights; the self-loop is not. Entries u = v count in
// d(v) and |S(v)| but get coefficient 0: the self-loop has them.
func (k *gcnCoefs[T]) of(c *Context[T]) (weights, self []T) {
	b := c.Block
	if c.model.spec.GCNNorm == "block" && !c.whole && !isWhole(b, k.graph) {
		return k.blockOf(c)
	}
	if d := c.derivedOf(b); d != nil && b.Weights == nil {
		if d.self == nil {
			d.weights, d.self = make([]T, len(b.Indices)), make([]T, b.NumDst)
			k.fill(c.x, b, d.weights, d.self)
		}
		return d.weights, d.self
	}
	weights, self = c.host.Alloc(len(b.Indices)), c.host.Alloc(b.NumDst)
	k.fill(c.x, b, weights, self)
	return weights, self
}

// coefRows is the number of rows whose coefficients one chunk computes.
const coefRows = 256

func (k *gcnCoefs[T]) fill(x *cpu.Exec, b *graph.Block, weights, self []T) {
	x.For((b.NumDst+coefRows-1)/coefRows, func(_, chunk int) {
		for i := chunk * coefRows; i < min(b.NumDst, (chunk+1)*coefRows); i++ {
			v := global(b, uint32(i))
			dv := T(k.norm.invSqrt[v])
			loop := T(1)
			if k.norm.loop != nil {
				loop = T(k.norm.loop[v])
			}
			self[i] = T(dv*loop) * dv
			begin, end := b.Indptr[i], b.Indptr[i+1]
			scale := dv
			if s, d := int(end-begin), k.model.degree(v); s != d && s > 0 {
				scale *= T(d) / T(s)
			}
			for e := begin; e < end; e++ {
				u := global(b, b.Indices[e])
				if u == v {
					weights[e] = 0
					continue
				}
				w := T(k.norm.invSqrt[u]) * scale
				switch {
				case k.graph.Weights == nil:
				case b.EdgeIDs != nil:
					w *= T(k.graph.Weights[b.EdgeIDs[e]])
				default: // the whole graph: entry e is edge e
					w *= T(k.graph.Weights[e])
				}
				if b.Weights != nil {
					w *= T(b.Weights[e])
				}
				weights[e] = w
			}
		}
	})
}

// check reports a block that of cannot serve.
func (k *gcnCoefs[T]) check(b *graph.Block) error {
	if k.graph.Weights != nil && b.EdgeIDs == nil && len(b.Indices) > 0 && !isComplete(b, k.graph) {
		return fmt.Errorf("the graph has edge weights, but the block has no EdgeIDs to look them up by; ask the sampler for them")
	}
	return nil
}

// global returns the global id of local source i.
func global(b *graph.Block, i uint32) uint32 {
	if b.SrcIDs == nil {
		return i
	}
	return b.SrcIDs[i]
}
