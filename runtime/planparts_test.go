package runtime

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/sampling"
)

// What is planned for one node with one piece each, and for one with all, is what training over the pieces does: the same bytes of
// rows, and as much memory within a twentieth.
func TestPlanPartsAsTrained(t *testing.T) {
	t.Parallel()
	stores := map[string]func(*testing.T) string{"blocks": narrowBlocks, "cora": cora}
	for _, c := range []struct {
		data, model, method string
		again               bool
	}{
		{"blocks", "gcn", "contiguous", false}, {"blocks", "gat", "hash", false}, {"blocks", "gin", "fennel", false}, {"cora", "sage", "contiguous", false},
		{"blocks", "gat", "contiguous", true}, {"blocks", "gin", "hash", true}, {"cora", "gcn", "contiguous", true},
	} {
		cfg := DefaultConfig()
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			cfg.Data.Path, cfg.Model.Name, cfg.Model.Hidden = stores[c.data](t), c.model, 16
			cfg.Sampling.Sampler, cfg.Sampling.Fanouts, cfg.Training.Recompute = "full", nil, c.again
			d := divided(t, cfg, pieces.Options{Method: c.method, Pieces: 3, Seed: 1})
			sum, err := d.Set().Summary(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			parts, err := TryParts(t.Context(), cfg, sum)
			if err != nil {
				t.Fatal(err)
			}
			counted := compute.NewCounted(compute.NewMemoryExchange())
			trainer, err := d.model.NewPieceTrainer(t.Context(), func() *cpu.Exec { return cpu.NewExec(d.pool, d.kernels) }, d.pieces, counted, "")
			if err != nil {
				t.Fatal(err)
			}
			defer trainer.Close()
			if c.again {
				trainer.Recompute()
			}
			nodes, err := d.trained()
			if err != nil {
				t.Fatal(err)
			}
			batch, err := d.batch(nodes)
			if err != nil {
				t.Fatal(err)
			}
			if err := trainer.Use(t.Context(), func(p int) compute.PieceBatch { return batch[p] }); err != nil {
				t.Fatal(err)
			}
			before := int64(0)
			for range 2 { // the first may send features that stay
				before = counted.Total()
				if _, _, err := trainer.Gradient(t.Context(), d.params, actors.Key(1, sampling.ID{Phase: "train"})); err != nil {
					t.Fatal(err)
				}
			}
			parts.Nodes, parts.Cores = len(sum.Pieces), 1
			p, err := parts.Plan()
			if err != nil {
				t.Fatal(err)
			}
			sent := int64(0)
			for _, phase := range p.Phases {
				if strings.Contains(phase.Name, "layer") {
					sent += phase.Bytes
				}
			}
			for i := range sum.Pieces { // batch norms' sums, to each other piece with nodes
				for q := range sum.Pieces {
					if i != q && sum.Pieces[i].Masters > 0 && sum.Pieces[q].Masters > 0 {
						sent += 4 * parts.Told
					}
				}
			}
			if got := counted.Total() - before; got != sent {
				t.Errorf("a step sent %d bytes; planned are %d: %+v", got, sent, parts.Rounds)
			}
			parts.Nodes = 1
			if p, err = parts.Plan(); err != nil {
				t.Fatal(err)
			}
			if got, want := float64(p.Nodes[0].Activations), float64(trainer.Bytes()); got < 0.95*want || got > 1.05*want {
				t.Errorf("%.0f bytes are planned, %.0f held", got, want)
			}
			if p.Sent != 0 || p.Step <= 0 {
				t.Errorf("one node: %+v", p)
			}
		})
	}
}

func TestTryPartsRefuses(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Data.Path, cfg.Model.Name = narrowBlocks(t), "gcn"
	full := cfg
	full.Sampling.Sampler, full.Sampling.Fanouts = "full", nil
	sum, err := divided(t, full, pieces.Options{Method: "hash", Pieces: 2}).Set().Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryParts(t.Context(), cfg, sum); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "sampler: full") {
		t.Errorf("sampled: %v", err)
	}
	late := full
	late.Training.Sync = SSP(1)
	if _, err := TryParts(t.Context(), late, sum); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "sync ssp with the sampler full") {
		t.Errorf("what training refuses: %v", err)
	}
	for want, change := range map[string]func(s *pieces.Summary){
		"edges lie at": func(s *pieces.Summary) { s.EdgesLie = pieces.EdgesAtSource },
		"no features":  func(s *pieces.Summary) { s.Values = nil },
		"reads":        func(s *pieces.Summary) { s.Reads = [][]int64{{0, 1}, {2, 0}} },
		"of 9001":      func(s *pieces.Summary) { s.Nodes++ },
		"report of 2":  func(s *pieces.Summary) { s.Reads = s.Reads[:1] },
		"7 edges in, each a number of 4 binary digits": func(s *pieces.Summary) { s.InDegrees = []graph.DegreeClass{4: {Nodes: 1, Edges: 7}} },
		"-1 nodes have 0 edges out":                    func(s *pieces.Summary) { s.OutDegrees = []graph.DegreeClass{{Nodes: -1}} },
	} {
		other := *sum
		change(&other)
		if _, err := TryParts(t.Context(), full, &other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// What is tried stands for the set's own pieces, however much larger they are: layer 0's rows cross in each step between large ones alone, and
// smaller ones hold what they are made of.
func TestPlanPartsOfLargePieces(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Data.Path, cfg.Model.Name, cfg.Model.Hidden = narrowBlocks(t), "gcn", 64
	cfg.Sampling.Sampler, cfg.Sampling.Fanouts = "full", nil
	for masters, want := range map[int64]int{1 << 20: 4, 20 << 10: 0} {
		sum := &pieces.Summary{Nodes: 16 * masters, EdgesLie: pieces.EdgesAtTarget, Values: &pieces.NodeSummary{Features: 64, FeatureBytes: 256, NonZero: 1, Classes: 3, EdgeBytes: 4}}
		for i := range 16 { // each has a sixteenth of the values, which are not few for that
			reads := make([]int64, 16)
			reads[(i+1)%16] = masters / 4
			sum.Reads = append(sum.Reads, reads)
			sum.Pieces = append(sum.Pieces, pieces.PieceInfo{Masters: masters, Edges: 8 * masters, Sources: masters / 4, Train: masters / 8})
		}
		sum.Active = [][][]int64{sum.Reads, sum.Reads}
		parts, err := TryParts(t.Context(), cfg, sum)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, r := range parts.Rounds {
			if r.Layer == 0 {
				got++
			}
		}
		if got != want || (parts.Inputs == 64) != (want == 0) {
			t.Errorf("rows of layer 0 of %d masters cross in %d rounds, want %d, and %d features once: %+v", masters, got, want, parts.Inputs, parts.Rounds)
		}
	}
}
