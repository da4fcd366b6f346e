package compute

import (
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
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
