package compute

import (
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// linkLayers is the number of linear layers of the link decoder mlp, with the
// activation between them.
const linkLayers = 2

// linkParams returns the parameters of the link decoder: none for dot.
func linkParams(spec Spec) []Param {
	if spec.LinkDecoder != "mlp" {
		return nil
	}
	var params []Param
	for i := range linkLayers {
		out := spec.OutDim
		if i == linkLayers-1 {
			out = 1
		}
		name := fmt.Sprintf("predictor.lins.%d", i)
		params = append(params,
			Param{Name: name + ".bias", Shape: []int{out}, Init: Kaiming, Fan: spec.OutDim},
			Param{Name: name + ".weight", Shape: []int{out, spec.OutDim}, Init: Kaiming, Fan: spec.OutDim})
	}
	return params
}

// score records the scores of pairs of rows of the embeddings y: the sum of
// y_src∘y_dst, or what the decoder's layers make of it.
func (c *core[T]) score(y *Value[T], src, dst []uint32) *Value[T] {
	t := c.tape
	x := t.Multiply(t.Rows(y, src), t.Rows(y, dst))
	if c.linkParams == nil {
		return t.RowSums(x)
	}
	for i := 0; i < len(c.linkParams); i += 2 {
		act := c.model.spec.activation()
		if i+2 == len(c.linkParams) {
			act = cpu.Linear
		}
		x = t.Linear(x, c.linkParams[i+1], c.linkParams[i], act)
	}
	return x
}

// LinkScorer computes scores of links. It owns the memory for it and reuses it.
// One goroutine may use a scorer at a time.
type LinkScorer struct{ core *core[float32] }

// NewLinkScorer returns a scorer that runs its kernels on x, which nobody else may
// use at the same time.
func (m *Model) NewLinkScorer(x *cpu.Exec) *LinkScorer {
	return &LinkScorer{newCore[float32](m, x, false)}
}

// Scores appends to dst the score of every link, given the embeddings of its
// nodes: Src and Dst are rows of embeddings, which are OutDim wide. A score depends
// on the two rows and on params alone. AUC takes scores.
func (s *LinkScorer) Scores(dst, params []float32, embeddings cpu.Matrix[float32], links []Link) []float32 {
	c := s.core
	if c.linkParams == nil {
		return append(dst, LinkScores(embeddings, links)...)
	}
	t := c.tape
	defer t.Reset()
	c.bind(params, nil)
	from, to := t.ints.Alloc(len(links)), t.ints.Alloc(len(links))
	for i, l := range links {
		from[i], to[i] = l.Src, l.Dst
	}
	y := c.score(t.Leaf(embeddings, false, cpu.Matrix[float32]{}), from, to).Matrix()
	out := slices.Grow(dst, len(links))[:len(dst)+len(links)]
	t.fetch(cpu.Dense(len(links), 1, out[len(dst):]), y)
	return out
}
