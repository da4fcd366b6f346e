package compute

import (
	"errors"
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Link is a pair of nodes that an edge joins, or does not. Its score is the dot
// product of their embeddings, the model's outputs, or what Spec.LinkDecoder says.
type Link struct {
	Src, Dst uint32
	Positive bool
}

// LinkGradient is Gradient for link prediction: the loss is the sum over links
// of the binary cross-entropy of their scores. Src and Dst are rows of the last
// block's destinations; in's Targets, Labels, Multi and Weights must be nil.
// Stats counts links.
func (e *Engine) LinkGradient(grad, params []float32, in *Input, links []Link) (Stats, error) {
	c := e.core
	if in.Targets != nil || in.Labels != nil || in.Multi != nil || in.Values != nil || in.Weights != nil {
		return Stats{}, fmt.Errorf("compute: link prediction takes no targets, labels or weights of nodes")
	}
	if len(in.Blocks) > 0 {
		for i, l := range links {
			if n := in.Blocks[len(in.Blocks)-1].NumDst; int(l.Src) >= n || int(l.Dst) >= n {
				return Stats{}, fmt.Errorf("compute: link %d joins output rows %d and %d, but there are %d", i, l.Src, l.Dst, n)
			}
		}
	}
	if err := e.check(grad, params, in); err != nil {
		return Stats{}, err
	}
	var s Stats
	err := graph.Guard(func() (err error) {
		s, err = e.gradient(grad, params, in, func(y *Value[float32]) (func() Stats, error) { return c.linkLoss(y, links), nil })
		return err
	})
	return s, err
}

// linkLoss records the scores of links and computes their loss, as loss does.
func (c *core[T]) linkLoss(y *Value[T], links []Link) (later func() Stats) {
	t := c.tape
	src, dst := t.ints.Alloc(len(links)), t.ints.Alloc(len(links))
	c.labels.Reset()
	which := c.labels.Alloc(len(links))
	c.bits.Reset()
	labels := c.bits.Alloc(len(links))
	for i, l := range links {
		src[i], dst[i], which[i], labels[i] = l.Src, l.Dst, int32(i), 0
		if l.Positive {
			labels[i] = 1
		}
	}
	score := c.score(y, src, dst)
	var g cpu.Matrix[T]
	if score.needs {
		g, _ = score.gradient()
	}
	s := Stats{Weight: float64(len(links)), Count: len(links)}
	return s.decided(cpu.SigmoidLossLater(t.x, score.dense, which, labels, nil, g, cpu.LossOptions{}))
}

// LinkScores returns the dot product of every link, given the embeddings of its nodes:
// Src and Dst are rows of embeddings. AUC takes them.
func LinkScores(embeddings cpu.Matrix[float32], links []Link) []float32 {
	scores := make([]float32, len(links))
	for i, l := range links {
		sum := float32(0)
		b := embeddings.Row(int(l.Dst))
		for j, v := range embeddings.Row(int(l.Src)) {
			sum += float32(v * b[j])
		}
		scores[i] = sum
	}
	return scores
}

// ErrDiverged is wrapped where a training's loss is no number any more, or infinite.
var ErrDiverged = errors.New("the training has diverged")

// finite reports a loss that is not.
func finite(loss float64) error {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return fmt.Errorf("the loss is %v: %w; lower the learning rate, and check the features for NaN and huge values", loss, ErrDiverged)
	}
	return nil
}
