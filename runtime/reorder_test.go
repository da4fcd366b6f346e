package runtime

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/overlap"
)

// blockBatches returns the input nodes of an epoch's batches, each of whose seeds
// lie in one block, block by block.
func blockBatches(b *testing.B, ds *graph.Dataset, perBlock int) [][]uint32 {
	blocks := make([][]uint32, ds.Labels.NumClasses)
	for v, c := range ds.Labels.Class {
		blocks[c] = append(blocks[c], uint32(v))
	}
	s, err := sampling.New(b.Context(), sampling.Spec{Name: "neighbor", Layers: 2, Fanouts: []int{10, 10}}, ds.Graph)
	if err != nil {
		b.Fatal(err)
	}
	var all [][]uint32
	batch := new(sampling.Batch)
	for _, nodes := range blocks {
		size := (len(nodes) + perBlock - 1) / perBlock
		for seeds := range slices.Chunk(nodes, size) {
			batch.Reset()
			batch.ID = sampling.ID{Phase: "train", Batch: len(all), Of: 1}
			if err := s.Sample(batch, batch.ID.Key(1), seeds); err != nil {
				b.Fatal(err)
			}
			all = append(all, slices.Clone(batch.Inputs()))
		}
	}
	return all
}

// shuffled returns batches in which every run of the given length is shuffled.
func shuffled(batches [][]uint32, length int) [][]uint32 {
	var mixed [][]uint32
	k := rng.New(3)
	for part := range slices.Chunk(batches, length) {
		order := make([]uint32, len(part))
		k.With(uint64(len(mixed))).Perm(order)
		for _, i := range order {
			mixed = append(mixed, part[i])
		}
	}
	return mixed
}

// rowsLoaded counts the rows that a slab reads that keeps those of the given
// number of batches.
func rowsLoaded(b *testing.B, nodes, keep int, batches [][]uint32) int64 {
	slab, err := features.NewSlab(features.Layout{Rows: nodes, DType: graph.Uint8, Cols: 1}, features.SlabOptions{Slots: nodes, Keep: keep})
	if err != nil {
		b.Fatal(err)
	}
	defer slab.Close()
	for _, inputs := range batches {
		lease, err := slab.Match(inputs)
		if err != nil {
			b.Fatal(err)
		}
		slab.Release(lease)
	}
	return slab.Stats().Loaded
}

// BenchmarkReorder counts the rows that are read with windows of 32 batches
// reordered, as a share of those read in index order, on a graph of 1 M nodes in
// 1,000 blocks. The epoch's batches are drawn block by block, eight of a block,
// and then shuffled in runs of some length, or all together: of 1,000 blocks, 31
// other batches in a window come from that of a given one so seldom that there is
// nothing to gain.
func BenchmarkReorder(b *testing.B) {
	const window, perBlock = 32, 8
	ds, err := generate.SBM(b.Context(), generate.SBMOptions{Nodes: 1_000_000, Classes: 1000, AvgDegree: 20, Homophily: 0.9, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	n := ds.Graph.NumNodes()
	batches := blockBatches(b, ds, perBlock)
	for _, length := range []int{window, 4 * window, 16 * window, len(batches)} {
		mixed := shuffled(batches, length)
		o, err := overlap.NewOrderer(n, overlap.Exact)
		if err != nil {
			b.Fatal(err)
		}
		var ordered [][]uint32
		for part := range slices.Chunk(mixed, window) {
			var sets [][]overlap.Part
			for _, in := range part {
				sets = append(sets, []overlap.Part{{Size: len(in), Nodes: in}})
			}
			order, err := o.Order(nil, sets)
			if err != nil {
				b.Fatal(err)
			}
			for _, i := range order {
				ordered = append(ordered, part[i])
			}
		}
		for _, keep := range []int{1, 4} {
			b.Run(fmt.Sprintf("shuffled=%d/keep=%d", length, keep), func(b *testing.B) {
				asked := 0
				for _, inputs := range mixed {
					asked += len(inputs)
				}
				var before, after int64
				for b.Loop() {
					before, after = rowsLoaded(b, n, keep, mixed), rowsLoaded(b, n, keep, ordered)
				}
				b.ReportMetric(float64(before)/float64(asked), "match/nothing")
				b.ReportMetric(float64(after)/float64(before), "reorder/match")
			})
		}
	}
}
