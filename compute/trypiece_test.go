package compute

import (
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// What is tried of a random piece is what a piece of a real graph of these sizes takes: as many bytes, and the same rows of the
// same widths, that a Counted counts.
func TestTryPieces(t *testing.T) {
	ds := testDataset(1500, 5, 37, false)
	targets, labels := []uint32{1, 100, 199, 1100}, []int32{1, 2, 3, 0}
	for name, spec := range variants {
		if spec.EdgeDim > 0 || spec.GCNNorm == "block" {
			continue
		}
		again := len(name)%2 == 0 || strings.HasPrefix(name, "gat") // half of them compute activations again
		t.Run(name, func(t *testing.T) {
			m := mustModel(t, sized(spec, 2, 37, 12, 5), ds.Graph)
			pieces := cut(ds, 0, 1024, 1500)
			counted := NewCounted(NewMemoryExchange())
			trainer := pieceTrainer(t, m, pieces, counted)
			if again {
				trainer.Recompute()
			}
			mean := pieces[0].mean()
			if len(name)%4 < 2 { // others are tried as pieces of a large graph
				mean = large
				stripes(trainer)
			}
			use(t, trainer, dividedBatch(pieces, targets, labels))
			for i := range 3 { // held memory does not grow
				if _, _, err := trainer.Gradient(t.Context(), randomParams(m, 5), rng.New(uint64(i))); err != nil {
					t.Fatal(err)
				}
			}
			var sizes []PieceSizes
			for i, p := range pieces {
				sizes = append(sizes, PieceSizes{Masters: p.Masters, Others: len(p.Sources.IDs), Entries: len(p.In.Indices), Sent: len(p.Sources.Sends[1-i]), Targets: 3 - 2*i, Mean: mean})
			}
			trials, err := elsewhere(t, m).TryPieces(t.Context(), func() *cpu.Exec { return testExec(t, 2, detected(t)) }, 1, again, 1, sizes...)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := trials[0].Bytes+trials[1].Bytes, trainer.Bytes(); float64(got) < 0.98*float64(want) || float64(got) > 1.02*float64(want) {
				t.Errorf("%d bytes are held, and %d where it was tried", want, got)
			}
			if !slices.Equal(trials[0].Rows, trials[1].Rows) || trials[0].Told != trials[1].Told || trials[0].Forward <= 0 || trials[0].Backward <= 0 {
				t.Errorf("%+v", trials)
			}
			total := int64(2 * 4 * trials[0].Told)
			active, _ := activePairs(pieces, targets, m.Blocks())
			if all, _ := pairsOf(pieces); spec.Norm == "batch" {
				for l := range active {
					active[l] = all
				}
			}
			for _, r := range trials[0].Rows {
				total += 4 * int64(r.Width) * int64(active[r.Layer])
			}
			sent := int64(0)
			for round, bytes := range counted.bytes {
				if len(round) > 7 && (round[:7] == "step-3-" || len(round) > 12 && round[:12] == "back-step-3-") {
					sent += bytes
				}
			}
			if sent != total {
				t.Errorf("a step sent %d bytes, tried it was %d: %+v", sent, total, trials[0])
			}
		})
	}
}

// A random piece's edges lie where the graph's do: of 64 pieces' nodes half have no edges, and one in a thousand, all of which each piece reads,
// has nine tenths of them.
func TestRandomPieceHasDegrees(t *testing.T) {
	const pieces = 64
	classes := make([]graph.DegreeClass, 14)
	classes[0].Nodes, classes[1] = 500_000, graph.DegreeClass{Nodes: 499_000, Edges: 499_000}
	classes[13] = graph.DegreeClass{Nodes: 1000, Edges: 4_500_000}
	size := PieceSizes{Masters: 15_000, Others: 8_000, Entries: 80_000, In: classes, Out: classes}
	p := randomPiece(size, pieces, 3, 1)
	reads := make([]int, size.Masters+size.Others)
	for _, u := range p.In.Indices {
		reads[u]++
	}
	const often = 20 // a node of few edges has two at most
	few, many, rows, entries, own := 0, 0, 0, 0, 0
	for u, n := range reads {
		if n > often {
			if many += n; u < size.Masters {
				own++
			}
		} else if n > 0 && u >= size.Masters {
			few++
		}
	}
	for v := range size.Masters {
		if n := int(p.In.Indptr[v+1] - p.In.Indptr[v]); n > often {
			entries += n
		} else if n == 0 {
			rows++
		}
	}
	// Of the other pieces' nodes that are read 1000 in 1000 + 499,000 / 64 have many edges; counts are within four deviations.
	if share := float64(many) / float64(size.Entries); share < 0.8 || share > 0.95 {
		t.Errorf("%.3f of the edges come from nodes with many", share)
	}
	if own < 1 || own > 15+16 {
		t.Errorf("%d of the piece's own nodes are read often", own)
	}
	if few < 4000 {
		t.Errorf("of %d nodes of other pieces %d are read, and not often", size.Others, few)
	}
	if share := float64(entries) / float64(size.Entries); share < 0.8 || share > 0.95 {
		t.Errorf("%.3f of the edges lead to nodes with many", share)
	}
	if rows < 7000 || rows > 8000+60 {
		t.Errorf("%d of %d nodes have no edges", rows, size.Masters)
	}
	if p := randomPiece(PieceSizes{Masters: 2, Entries: 7, In: classes[:1], Out: classes[:1]}, 1, 1, 1); p.In.Indptr[2] != 7 || slices.Max(p.In.Indices) > 1 {
		t.Errorf("edges of nodes without any: %v, %v", p.In.Indptr, p.In.Indices)
	}
}

// What a piece holds is foreseen from smaller ones of its proportions.
func TestPieceBytes(t *testing.T) {
	ds := testDataset(1500, 5, 200, false)
	size := PieceSizes{Masters: 20000, Others: 7000, Entries: 120000, Sent: 9000, Targets: 4000, Mean: 120000}
	for _, model := range []string{"gcn", "sage", "gin", "gat"} {
		for _, again := range []bool{false, true} {
			m := elsewhere(t, mustModel(t, sized(Spec{Model: model, InputDropout: 0.5}, 3, 200, 96, 5), ds.Graph))
			exec := func() *cpu.Exec { return testExec(t, 2, detected(t)) }
			trials, err := m.TryPieces(t.Context(), exec, 1, again, 0, size)
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.PieceBytes(t.Context(), exec, 1, again, size)
			if err != nil {
				t.Fatal(err)
			}
			for what, x := range map[string][2]int64{"bytes": {got.Bytes, trials[0].Bytes}, "in files": {got.Spills, trials[0].Spills}, "shared": {got.Shared, trials[0].Shared}} {
				if share := float64(x[0]) / float64(x[1]); x[1] > 0 && (share < 0.95 || share > 1.02) || x[1] == 0 && x[0] != 0 {
					t.Errorf("%s, again %v: %s foreseen as %d, and there are %d", model, again, what, x[0], x[1])
				}
			}
		}
	}
}
