package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/sampling"
)

// Inductive training makes the bits of training on a graph that lacks all other nodes'
// edges, degrees of the normalisation included, and is evaluated on the whole graph.
func TestInductiveTraining(t *testing.T) {
	whole := small()
	train := make([]bool, whole.Graph.NumNodes())
	for _, u := range whole.Train {
		train[u] = true
	}
	alone := *whole
	alone.Graph = &graph.Graph{Indptr: make([]int64, 1, len(train)+1)}
	for v := range train {
		for _, u := range whole.Graph.InNeighbors(uint32(v)) {
			if train[u] && train[v] {
				alone.Graph.Indices = append(alone.Graph.Indices, u)
			}
		}
		alone.Graph.Indptr = append(alone.Graph.Indptr, int64(len(alone.Graph.Indices)))
	}
	nodes := []uint32{1, 5, 400, 599}
	for _, model := range []string{"gcn", "sage"} {
		for _, sampler := range []string{"neighbor", "khop"} {
			run := func(ds *graph.Dataset, inductive bool) (r *Runtime, sum, predicted string) {
				c := config()
				c.Model.Name, c.Sampling.Sampler, c.Data.Dataset, c.Sampling.Inductive = model, sampler, ds, inductive
				r = started(t, c)
				trained(t, r)
				p, err := r.Predict(context.Background(), nodes)
				if err != nil {
					t.Fatal(err)
				}
				return r, sumOf(t, r), fmt.Sprint(p)
			}
			r, sum, predicted := run(whole, true)
			lacking, want, without := run(&alone, false)
			if _, transductive, _ := run(whole, false); sum != want || sum == transductive {
				t.Errorf("%s, %s: inductive training has the bits %.8s, training without the other edges %.8s, with them %.8s", model, sampler, sum, want, transductive)
			}
			if predicted == without {
				t.Errorf("%s, %s: inference does not see the edges that training does not", model, sampler)
			}
			if r.identity.Same(lacking.identity, false) == nil || !r.identity.Sampler.Inductive {
				t.Errorf("%s, %s: the identity does not tell inductive training", model, sampler)
			}
			if plan := r.Plan().String(); !strings.Contains(plan, "inductive: training sees") {
				t.Errorf("the plan does not tell inductive training:\n%s", plan)
			}
			for b, err := range r.Batches(context.Background(), BatchesOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				for _, u := range b.Inputs() {
					if !train[u] {
						t.Fatalf("%v has node %d, which is not a training node", b.ID, u)
					}
				}
			}
		}
	}
	c := config()
	c.Model.Task, c.Sampling.Inductive = "link", true
	if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "inductive") {
		t.Errorf("inductive link prediction: %v", err)
	}
}

// A run of a subgraph sampler has as many steps as its epochs have batches.
func TestEpochSubgraphs(t *testing.T) {
	c := config()
	c.Sampling.Sampler, c.Sampling.Options, c.Sampling.MicroBatches, c.Training.Epochs = "node", samplerOptions["node"], 2, 2
	r := started(t, c)
	p, err := sampling.Prepare(t.Context(), r.identity.Sampler, small(), c.Training.Seed)
	if err != nil {
		t.Fatal(err)
	}
	want := int64(2 * p.BatchesPerEpoch(0, 0, 2))
	if e := trained(t, r); e.Applied != want || r.identity.Sampler.EpochSubgraphs < 2 {
		t.Errorf("%d steps, want %d of epochs of %d subgraphs", e.Applied, want, r.identity.Sampler.EpochSubgraphs)
	}
	c.Sampling.EpochSubgraphs = 7
	if e := trained(t, started(t, c)); e.Applied != 2*4 {
		t.Errorf("%d steps of two epochs of 7 subgraphs, two a step; want 8", e.Applied)
	}
	c.Sampling.Sampler, c.Sampling.Options = "neighbor", nil
	if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "epoch-subgraphs") {
		t.Errorf("epoch-subgraphs of a sampler without subgraphs: %v", err)
	}
}
