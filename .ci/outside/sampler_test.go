// Package outside uses gnnactor as another module does: it compiles against what
// is exported, and nothing else. .ci/run copies it out of the tree first.
package outside

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// paths is a sampler of this module: every node takes one neighbour in each layer,
// uniformly drawn, so that a batch is a path backwards from each seed.
type paths struct {
	g      *graph.Graph
	layers int
	nodes  []uint32
	local  map[uint32]uint32
}

var _ sampling.Sampler = (*paths)(nil)

func (s *paths) Sample(b *sampling.Batch, key rng.Key, seeds []uint32) error {
	s.nodes, s.local = append(s.nodes[:0], seeds...), map[uint32]uint32{}
	for i, v := range seeds {
		if _, twice := s.local[v]; twice || int(v) >= s.g.NumNodes() {
			return fmt.Errorf("paths: seed %d is there twice, or out of range [0, %d)", v, s.g.NumNodes())
		}
		s.local[v] = uint32(i)
	}
	for hop := range s.layers {
		k, rows := key.With(uint64(hop)), len(s.nodes)
		var picked []uint32
		ends := []int64{0}
		for _, v := range s.nodes[:rows] {
			if row := s.g.InNeighbors(v); len(row) > 0 {
				u := row[k.With(uint64(v)).Uintn(0, uint64(len(row)))]
				if _, known := s.local[u]; !known {
					s.local[u] = uint32(len(s.nodes))
					s.nodes = append(s.nodes, u)
				}
				picked = append(picked, s.local[u])
			}
			ends = append(ends, int64(len(picked)))
		}
		block := b.Block(s.layers-1-hop, rows, len(s.nodes), len(picked), false, false)
		copy(block.Indptr, ends)
		copy(block.Indices, picked)
	}
	nodes := b.Nodes(len(s.nodes))
	copy(nodes, s.nodes)
	b.Seeds = nodes[:len(seeds)]
	for i := range b.Blocks {
		b.Blocks[i].SrcIDs = nodes[:b.Blocks[i].NumSrc]
	}
	return nil
}

// twoRings has 40 nodes in two rings of 20, both ways round; a node's class is its
// ring, and its features say nothing alone: every fourth node has its ring's sign.
func twoRings() *graph.Dataset {
	const n, half = 40, 20
	var src, dst []uint32
	x := make([]float32, 2*n)
	labels := make([]int32, n)
	for v := range uint32(n) {
		ring := v / half
		next := ring*half + (v+1)%half
		src, dst = append(src, v, next), append(dst, next, v)
		labels[v] = int32(ring)
		x[2*v] = 1
		if v%4 < 2 {
			x[2*v+1] = 2*float32(ring) - 1
		}
	}
	g, err := graph.FromEdges(n, src, dst, nil)
	if err != nil {
		panic(err)
	}
	ds := &graph.Dataset{
		Name: "two rings", Graph: g, NodeFeatures: graph.NewFeatures(n, 2, x),
		Labels: &graph.Labels{Class: labels, NumClasses: 2},
	}
	for v := range uint32(n) {
		ds.Train = append(ds.Train, v)
	}
	return ds
}

// Training by hand: a sampler of this module's, the model's gradient, an optimiser's
// step. A second run with the same seed ends with the same bits, on another number
// of threads.
func TestTrainingStepByHand(t *testing.T) {
	ds := twoRings()
	train := func(threads int) ([]float32, compute.Stats, compute.Stats) {
		model, err := compute.NewModel(compute.Spec{Model: "sage", Layers: 2, InDim: 2, Hidden: 16, OutDim: 2}, ds.Graph)
		if err != nil {
			t.Fatal(err)
		}
		workers := pool.New(threads)
		defer workers.Close()
		set, err := cpu.Detect()
		if err != nil {
			t.Fatal(err)
		}
		exec := cpu.NewExec(workers, set)
		engine, params := model.NewEngine(exec), model.Init(1)
		grad, adam := make([]float32, len(params)), compute.NewAdamState(len(params))
		var sampler sampling.Sampler = &paths{g: ds.Graph, layers: 2}
		var batch sampling.Batch
		var first, last compute.Stats
		for step := range 200 {
			batch.ID = sampling.ID{Phase: "train", Batch: step}
			if err := sampler.Sample(&batch, batch.ID.Key(1), ds.Train); err != nil {
				t.Fatal(err)
			}
			last, err = engine.Gradient(grad, params, &compute.Input{
				Blocks: batch.Blocks, Features: ds.NodeFeatures, Rows: batch.Inputs(), Labels: ds.Labels.Class,
			})
			if err != nil {
				t.Fatal(err)
			}
			if step == 0 {
				first = last
			}
			compute.DefaultAdam(0.01).Step(params, grad, adam, exec)
		}
		return params, first, last
	}
	params, first, last := train(1)
	if !(last.Loss < first.Loss/2) || last.Correct < 35 {
		t.Errorf("the loss went from %v to %v, with %d of %d right", first.Loss, last.Loss, last.Correct, last.Count)
	}
	if again, _, _ := train(3); !slices.Equal(params, again) {
		t.Error("other parameters on three threads than on one")
	}
}
