package sampling

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// lazyRows is what a batch took of every node's neighbours, by hop: their positions in
// the graph, in order.
func lazyRows(b *Batch) map[[2]uint32][]int64 {
	rows := make(map[[2]uint32][]int64)
	for i := range b.Blocks {
		blk := &b.Blocks[i]
		for r, v := range blk.SrcIDs[:blk.NumDst] {
			rows[[2]uint32{uint32(len(b.Blocks) - 1 - i), v}] = blk.EdgeIDs[blk.Indptr[r]:blk.Indptr[r+1]]
		}
	}
	return rows
}

// The contract of a mega-batch: it serves ⌊R₀·ρ^k⌋ steps, whose seeds are subsets of its
// own, gone through once a pass and each time in another order; its graph is one, of
// which each step has its part; other mega-batches have other seeds and graphs.
func TestLazyMegaBatches(t *testing.T) {
	g := skewed(2000, 200, 1)
	var train []uint32
	for u := uint32(0); u < 2000; u += 4 {
		train = append(train, u)
	}
	const mini, mega, growth = 20, 50, 1.5 // passes of 20, 20 and 10 seeds
	spec := Spec{Name: "lazy", Fanouts: []int{4, 3}, MiniBatch: mini, MegaBatch: mega, Recycle: 2, RecycleGrowth: growth, EdgeIDs: true}
	p, err := Prepare(t.Context(), spec, &graph.Dataset{Graph: g, Train: train}, 1)
	if err != nil {
		t.Fatal(err)
	}
	steps := p.BatchesPerEpoch(len(train), mini, 1)
	if want := len(train) / mini; steps != want || !p.ChoosesSeeds() {
		t.Fatalf("an epoch has %d steps, want %d; the sampler chooses the seeds: %v", steps, want, p.ChoosesSeeds())
	}
	s := p.NewSampler()
	sample := func(step, micro, of int) *Batch {
		b := &Batch{ID: ID{Phase: "train", Epoch: step / steps, Batch: step % steps, Micro: micro, Of: of}}
		if err := s.Sample(b, b.ID.Key(1), nil); err != nil {
			t.Fatal(err)
		}
		checkBatch(t, g, b, b.Seeds)
		return b
	}
	var firstRows map[[2]uint32][]int64
	var firstSeeds []uint32
	step, r, orders := 0, 2.0, make(map[string]bool)
	for k := range 6 { // 2, 3, 4, 6, 10, 15: over the end of an epoch
		rows := make(map[[2]uint32][]int64)
		var pass, seeds []uint32
		for i := range int(r) {
			b := sample(step, 0, 1)
			if want := []int{mini, mini, mega - 2*mini}[i%3]; len(b.Seeds) != want {
				t.Fatalf("mega-batch %d, step %d: %d seeds, want %d", k, i, len(b.Seeds), want)
			}
			var parts []uint32
			for micro := range 3 {
				parts = append(parts, sample(step, micro, 3).Seeds...)
			}
			if !slices.Equal(parts, b.Seeds) {
				t.Fatalf("mega-batch %d, step %d: its micro-batches have other seeds", k, i)
			}
			for at, row := range lazyRows(b) {
				if had, ok := rows[at]; ok && !slices.Equal(had, row) {
					t.Fatalf("mega-batch %d: node %d has other neighbours at step %d than before", k, at[1], i)
				}
				rows[at] = slices.Clone(row)
			}
			if pass = append(pass, b.Seeds...); len(pass) == mega {
				if order := fmt.Sprint(k, pass); orders[order] {
					t.Errorf("mega-batch %d: two passes have one order", k)
				} else {
					orders[order] = true
				}
				slices.Sort(pass)
				if seeds == nil {
					seeds = pass
				} else if !slices.Equal(seeds, pass) {
					t.Fatalf("mega-batch %d: a pass has other seeds than the first", k)
				}
				if len(slices.Compact(slices.Clone(pass))) != mega || slices.ContainsFunc(pass, func(u uint32) bool { return u%4 != 0 }) {
					t.Fatalf("mega-batch %d: the seeds %v are not %d training nodes", k, pass, mega)
				}
				pass = nil
			}
			step++
		}
		if k == 2 {
			firstRows, firstSeeds = rows, seeds
		}
		if k == 3 {
			if slices.Equal(seeds, firstSeeds) {
				t.Error("two mega-batches have the same seeds")
			}
			same, both := 0, 0
			for at, row := range rows {
				if had := firstRows[at]; len(row) >= 3 && len(had) >= 3 {
					if both++; slices.Equal(had, row) {
						same++
					}
				}
			}
			if both < 20 || 5*same > both {
				t.Errorf("two mega-batches have the same neighbours of %d of %d nodes", same, both)
			}
		}
		r *= growth
	}
	if step <= steps {
		t.Fatalf("%d steps do not go over the end of an epoch of %d", step, steps)
	}
	// A mega-batch is drawn once, whoever asks, and an earlier step's is found again.
	one, err := p.mega.at(5)
	if err != nil {
		t.Fatal(err)
	}
	drawn := &one.nodes[0]
	if two, _ := p.mega.at(5); one != two || &two.nodes[0] != drawn {
		t.Error("a mega-batch is drawn twice")
	}
	if a, b := sample(3, 0, 1), sample(3, 0, 1); !slices.Equal(a.Seeds, b.Seeds) || len(p.mega.made) > keepMegaBatches {
		t.Errorf("%d mega-batches are kept, and the same step has seeds %v and %v", len(p.mega.made), a.Seeds, b.Seeds)
	}
}
