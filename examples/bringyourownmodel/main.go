// Bringyourownmodel trains a model of its own on batches that gnnactor samples.
//
// The model is a softmax regression over a node's features and the mean of its
// sampled neighbours' features, written with gonum in some thirty lines. Gnnactor
// does the rest: it samples batches ahead of the loop, gathers the features of
// their nodes, and hands over a block that says who aggregates whom.
//
//	go run ./examples/bringyourownmodel
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/gnnactor/gnnactor/runtime"
)

func main() {
	if _, err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run trains and returns the accuracy on the test set.
func run(ctx context.Context, out io.Writer) (accuracy float64, err error) {
	cfg := runtime.DefaultConfig() // with no Data: the built-in graph
	cfg.Model.Layers, cfg.Sampling.Fanouts = 1, []int{10}
	cfg.Sampling.BatchSize = 64
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	ds := rt.Dataset()
	m := &softmax{w: mat.NewDense(2*ds.NodeFeatures.Cols, ds.Labels.NumClasses, nil)}

	const epochs = 10
	var loss float64
	var seen int
	for b, err := range rt.Batches(ctx, runtime.BatchesOptions{Epochs: epochs, Phase: "train"}) {
		if err != nil {
			return 0, err
		}
		if b.ID.Batch == 0 && seen > 0 {
			fmt.Fprintf(out, "epoch %2d  loss %.3f\n", b.ID.Epoch, loss/float64(seen))
			loss, seen = 0, 0
		}
		loss += m.step(aggregate(b), b.Labels, 0.5)
		seen += len(b.Labels)
	}
	fmt.Fprintf(out, "epoch %2d  loss %.3f\n", epochs, loss/float64(seen))

	right, total := 0, 0
	for b, err := range rt.Batches(ctx, runtime.BatchesOptions{Nodes: ds.Test, Phase: "test"}) {
		if err != nil {
			return 0, err
		}
		p := m.predict(aggregate(b))
		for i, class := range b.Labels {
			if floats.MaxIdx(p.RawRowView(i)) == int(class) {
				right++
			}
		}
		total += len(b.Labels)
	}
	accuracy = float64(right) / float64(total)
	fmt.Fprintf(out, "test accuracy %.3f on %d nodes\n", accuracy, total)
	return accuracy, nil
}

// aggregate returns one row per seed: its features, and then the mean of its
// sampled neighbours'. Rows of b.X are the block's sources, of which the seeds
// come first.
func aggregate(b *runtime.Batch) *mat.Dense {
	block, f := b.Blocks[0], b.NumFeatures
	h := mat.NewDense(block.NumDst, 2*f, nil)
	for i := range block.NumDst {
		row := h.RawRowView(i)
		for j := range f {
			row[j] = float64(b.X[i*f+j])
		}
		neighbours := block.Indices[block.Indptr[i]:block.Indptr[i+1]]
		for _, u := range neighbours {
			for j, x := range b.X[int(u)*f : (int(u)+1)*f] {
				row[f+j] += float64(x) / float64(len(neighbours))
			}
		}
	}
	return h
}

// softmax is a softmax regression: row i of its output is softmax(hᵢ·W).
type softmax struct{ w *mat.Dense }

// predict returns the classes' probabilities, one row per row of h.
func (m *softmax) predict(h *mat.Dense) *mat.Dense {
	var p mat.Dense
	p.Mul(h, m.w)
	for i := range h.RawMatrix().Rows {
		row := p.RawRowView(i)
		floats.AddConst(-floats.LogSumExp(row), row)
	}
	p.Apply(func(_, _ int, z float64) float64 { return math.Exp(z) }, &p)
	return &p
}

// step takes one step of gradient descent on the mean cross-entropy, whose
// gradient is hᵀ(P − Y)/n, and returns the sum of the losses.
func (m *softmax) step(h *mat.Dense, class []int32, rate float64) (loss float64) {
	p := m.predict(h)
	for i, c := range class {
		loss -= math.Log(p.At(i, int(c)))
		p.Set(i, int(c), p.At(i, int(c))-1)
	}
	var grad mat.Dense
	grad.Mul(h.T(), p)
	grad.Scale(rate/float64(len(class)), &grad)
	m.w.Sub(m.w, &grad)
	return loss
}
