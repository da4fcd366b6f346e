package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/training"
)

func hybrid(path, model string) Config {
	c := DefaultConfig()
	c.Data.Path, c.Model.Name, c.Model.Hidden, c.Training.Epochs = path, model, 16, 2
	c.Sampling.Sampler, c.Sampling.Fanouts, c.Sampling.BatchSize, c.Sampling.Hybrid = "khop", nil, 400, true
	return c
}

// Batches of whole neighbourhoods that all pieces compute together are one process's, with the same values dropped: losses of each epoch in float32's error,
// which steps make larger.
func TestHybrid(t *testing.T) {
	t.Parallel()
	path := narrowBlocks(t)
	for model, cuts := range map[string][]pieces.Options{
		"gcn":  {{Method: "contiguous", Pieces: 1}, {Method: "contiguous", Pieces: 3}, {Method: "contiguous", Pieces: 4, Edges: pieces.EdgesOnGrid}},
		"sage": {{Method: "contiguous", Pieces: 2}, {Method: "contiguous", Pieces: 3, Edges: pieces.EdgesAtSource}},
		"gat":  {{Method: "contiguous", Pieces: 8}},
	} {
		cfg := hybrid(path, model)
		whole := cfg
		whole.Sampling.Hybrid = false
		var want []Event
		for e, err := range started(t, whole).Train(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == EventEpoch {
				want = append(want, e)
			}
		}
		for _, cut := range cuts {
			epochs := 0
			err := divided(t, cfg, cut).Train(t.Context(), func(epoch int, loss, accuracy float64) error {
				if e := want[epochs]; epoch != e.Epoch || math.Abs(loss-e.Loss) > 1e-4*e.Loss || math.Abs(accuracy-e.TrainAccuracy) > 0.002 {
					t.Errorf("%s over %+v: loss %v and accuracy %v of epoch %d, want %v and %v of %d", model, cut, loss, accuracy, epoch, e.Loss, e.TrainAccuracy, e.Epoch)
				}
				epochs++
				return nil
			})
			if err != nil || epochs != 2 || len(want) != 2 {
				t.Errorf("%s over %+v: %d epochs, %v", model, cut, epochs, err)
			}
		}
	}
}

// Activations that are computed again, in memory or in files, give the parameters that those give that are kept, of global batches and hybrid ones; where no pieces
// compute together that is refused by name.
func TestRecompute(t *testing.T) {
	t.Parallel()
	path := narrowBlocks(t)
	for model, cut := range map[string]pieces.Options{
		"gat": {Method: "contiguous", Pieces: 3}, "gin": {Method: "hash", Pieces: 2, Edges: pieces.EdgesOnGrid}, "gcn": {Method: "hash", Pieces: 2, Edges: pieces.EdgesAtSource}, "sage": {Method: "hash", Pieces: 4},
	} {
		cfg := hybrid(path, model)
		cfg.Model.Layers = 3
		if model == "gat" || model == "gin" {
			cfg.Sampling.Sampler, cfg.Sampling.Hybrid = "full", false
		}
		set := divided(t, cfg, cut).Set()
		cfg.Data.Path = set.Dir()
		var want string
		var once int64
		for i, scratch := range []string{"", "", t.TempDir()} {
			counted := compute.NewCounted(compute.NewMemoryExchange())
			cfg.Training.Recompute, cfg.Cluster.Spread = i > 0, openedHere(t, set, counted)
			d, err := OpenDivided(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			d.SpillTo(scratch)
			if err := d.Train(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				want, once = d.ParametersSHA256(), counted.Total()
			} else if d.ParametersSHA256() != want || counted.Total() < once+once/10 {
				t.Errorf("%s, scratch %q: the parameters are other ones where activations are computed again, or are not: %d bytes are sent, and %d where they are kept", model, scratch, counted.Total(), once)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	cfg := DefaultConfig()
	cfg.Data.Path, cfg.Training.Recompute = path, true
	if err := cfg.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "recompute: activations are computed again where") {
		t.Errorf("sampled batches: %v", err)
	}
	cfg.Sampling.Sampler, cfg.Sampling.Fanouts = "full", nil
	if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "recompute: activations are computed by the pieces") {
		t.Errorf("no partition set: %v", err)
	}
	cfg.Sampling.Sampler, cfg.Sampling.Hybrid = "khop", true
	if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "hybrid: batches, recompute: activations are") {
		t.Errorf("two settings of pieces without any: %v", err)
	}
}

// here is a Spread whose pieces are all computed here, and are to move after so many steps.
type here struct {
	compute.Exchange
	pieces []*store.Piece
	kept   []byte
	steps  int
}

// openedHere returns one that opened the pieces of set, until the test ends.
func openedHere(t *testing.T, set *pieces.Set, ex compute.Exchange) *here {
	t.Helper()
	s := &here{Exchange: ex}
	for i := range set.Pieces() {
		p, err := set.OpenPiece(i)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		s.pieces = append(s.pieces, p)
	}
	return s
}

func (h *here) Mine() (all []int) {
	for i := range h.pieces {
		all = append(all, i)
	}
	return all
}
func (h *here) Piece(i int) *store.Piece { return h.pieces[i] }
func (h *here) Better() bool             { h.steps--; return h.steps == 0 }
func (h *here) Keep(state []byte)        { h.kept = state }
func (h *here) Kept() []byte             { return h.kept }

// Offer is Send of what take writes.
func (h *here) Offer(ctx context.Context, round string, from, to, size int, take func(rows []float32) error) error {
	rows := make([]float32, size)
	return errors.Join(take(rows), h.Exchange.Send(ctx, round, from, to, rows))
}

// Pieces may move in the middle of an epoch, with checkpoints and without, and a run may be stopped after one: parameters and epochs' losses stay the same.
func TestHybridGoesOn(t *testing.T) {
	t.Parallel()
	cfg := hybrid(narrowBlocks(t), "gcn")
	cut := pieces.Options{Method: "hash", Pieces: 2}
	d := divided(t, cfg, cut)
	var want, losses []float64
	if err := d.Train(t.Context(), func(_ int, loss, _ float64) error { want = append(want, loss); return nil }); err != nil {
		t.Fatal(err)
	}
	set, parameters := d.Set(), d.ParametersSHA256()
	cfg.Data.Path = set.Dir()
	keep := func(_ int, loss, _ float64) error { losses = append(losses, loss); return nil }
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "kept")} {
		losses = nil
		cfg.Checkpoint.Dir = dir
		s := openedHere(t, set, nil)
		cfg.Cluster.Spread = s
		done := 0
		for _, s.steps = range []int{3, 4, 0} { // of five an epoch
			done += s.steps
			s.Exchange = compute.NewMemoryExchange()
			moves := s.steps > 0
			d, err := OpenDivided(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = d.Train(t.Context(), keep)
			if errors.Is(err, training.ErrMoves) != moves || !moves && (err != nil || !slices.Equal(losses, want) || d.ParametersSHA256() != parameters) {
				t.Errorf("checkpoints in %q: %v, losses %v, want %v", dir, err, losses, want)
			}
			if left := 10 - done; !moves && -s.steps != left {
				t.Errorf("checkpoints in %q: it went on by %d steps, where %d of 10 were left", dir, -s.steps, left)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if kept, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("step-*%d.*", done))); dir != "" && moves && (err != nil || len(kept) != 1) {
				t.Errorf("what was done when pieces moved is not kept: %v", err)
			}
			cfg.Checkpoint.Resume = dir != ""
		}
	}
}

// Pieces that could move after the last step stay, as nothing is left to do.
func TestHybridEnds(t *testing.T) {
	cfg := hybrid(narrowBlocks(t), "gcn")
	set := divided(t, cfg, pieces.Options{Method: "hash", Pieces: 2}).Set()
	s := openedHere(t, set, compute.NewMemoryExchange())
	s.steps, cfg.Data.Path, cfg.Cluster.Spread = 10, set.Dir(), s // of ten
	d, err := OpenDivided(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Train(t.Context(), nil); err != nil || s.steps != 0 {
		t.Errorf("%v, %d steps before pieces were to move", err, s.steps)
	}
}

// A run of hybrid batches goes on from its checkpoints alone: batches of another size are another run, and so are those that one trainer computes for itself.
func TestHybridIdentity(t *testing.T) {
	cfg := hybrid(narrowBlocks(t), "sage")
	cfg.Checkpoint.Dir = filepath.Join(t.TempDir(), "kept")
	set := divided(t, cfg, pieces.Options{Method: "hash", Pieces: 2}).Set()
	cfg.Data.Path = set.Dir()
	trained := func(c Config) (*Divided, error) {
		d, err := OpenDivided(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d, d.Train(t.Context(), nil)
	}
	if _, err := trained(cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Checkpoint.Resume = true
	if d, err := trained(cfg); err != nil || d.Resumed() != cfg.Training.Epochs {
		t.Errorf("%d epochs are found done of %d: %v", d.Resumed(), cfg.Training.Epochs, err)
	}
	other := cfg
	other.Sampling.BatchSize = 450
	if _, err := trained(other); !errors.Is(err, ErrIdentity) {
		t.Errorf("batches of another size: %v", err)
	}
	other = cfg
	other.Sampling.Hybrid = false
	var err error
	for _, failed := range started(t, other).Train(t.Context()) {
		err = failed
	}
	if !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), "hybrid") {
		t.Errorf("batches that one trainer computes: %v", err)
	}
}

// What hybrid batches do not have is refused by name, and so are they without a partition set, and for samplers that draw.
func TestHybridRefuses(t *testing.T) {
	cfg := hybrid(narrowBlocks(t), "gcn")
	if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "hybrid") {
		t.Errorf("no partition set: %v", err)
	}
	other := cfg
	other.Sampling.Sampler, other.Sampling.Fanouts = "neighbor", []int{5, 5}
	if err := other.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "hybrid") {
		t.Errorf("neighbor: %v", err)
	}
	several := cfg
	several.Execution.Trainers = 3
	if err := several.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "set sync to ssp:2") || strings.Contains(err.Error(), "micro-batches") {
		t.Errorf("several batches at once that wait for each other: %v", err)
	}
	if several.Training.Sync = SSP(2); several.Validate() != nil {
		t.Errorf("several batches at once: %v", several.Validate())
	}
	for want, change := range map[string]func(c *Config){
		"batch norm": func(c *Config) { c.Model.Norm = "batch" },
		"temporal":   func(c *Config) { c.Sampling.Options = map[string]string{"temporal": "true"} },
	} {
		other := cfg
		change(&other)
		if err := divided(t, other, pieces.Options{Method: "hash", Pieces: 2}).Train(t.Context(), nil); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
