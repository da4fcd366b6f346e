package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/scheduler"
)

// held returns the bytes that a trainer holds for the first batch, and those of what is found of it, if there is a next one.
func held(t *testing.T, cfg Config, scratch string) (bytes int64) {
	t.Helper()
	d, err := OpenDivided(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	nodes, err := d.trained()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Sampling.Hybrid {
		nodes = sampling.Cut(sampling.Order(nodes, cfg.Training.Seed, 0), cfg.Sampling.BatchSize, 1, 0, 0)
	}
	trainer, err := d.model.NewPieceTrainer(t.Context(), func() *cpu.Exec { return cpu.NewExec(d.pool, d.kernels) }, d.pieces, compute.NewMemoryExchange(), scratch)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	if cfg.Training.Recompute {
		trainer.Recompute()
	}
	batch, err := d.batch(nodes)
	var set *compute.ActiveSet
	if err == nil {
		set, err = trainer.Search(t.Context(), func(piece int) compute.PieceBatch { return batch[piece] })
	}
	if err == nil {
		if cfg.Sampling.Hybrid {
			bytes = set.Bytes()
		}
		trainer.Take(set)
		_, _, err = trainer.Gradient(t.Context(), d.params, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return bytes + trainer.Bytes()
}

// half is a Spread of which some pieces are computed here.
type half struct {
	*here
	mine   []int
	offers *bool // rows of layers are not sent, but offered to others
}

func (h half) Mine() []int { return h.mine }

func (h half) Send(ctx context.Context, round string, from, to int, rows []float32) error {
	if *h.offers && strings.Contains(round, "layer-") {
		return fmt.Errorf("%d values are sent in round %s", len(rows), round)
	}
	return h.here.Send(ctx, round, from, to, rows)
}

// What inference sends other nodes, and what they bring, has to have room, too; with a directory it lies there until it is taken, and so does what pieces here
// send each other.
func TestInferenceBetweenNodesFits(t *testing.T) {
	t.Parallel()
	cfg := hybrid(narrowBlocks(t), "gcn")
	set, ex := divided(t, cfg, pieces.Options{Method: "hash", Pieces: 3}).Set(), compute.NewMemoryExchange()
	cfg.Data.Path = set.Dir()
	var offers [2]bool // of each place
	place := func(mine ...int) *Divided {
		cfg.Cluster.Spread = half{openedHere(t, set, ex), mine, &offers[mine[0]]}
		d, err := OpenDivided(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	a, b := place(0, 2), place(1)
	m := a.model.PieceMemory(a.pieces)
	if m.Sent <= m.Message || m.Received == 0 {
		t.Fatalf("%d bytes are sent, %d at once, and %d received", m.Sent, m.Message, m.Received)
	}
	for _, try := range []struct {
		scratch string
		bytes   int64
	}{{t.TempDir(), m.Peak + 3*m.Message + m.Received}, {"", m.Peak + m.Kept + m.Sent + m.Message + m.Received}} {
		for _, lacks := range []int64{1, 0} {
			ctx, cancel := context.WithCancel(t.Context())
			offers[0] = try.scratch != ""
			a.cfg.limit = scheduler.Limit{Bytes: try.bytes - lacks, From: "the test"}
			other := make(chan error, 1)
			go func() {
				_, err := b.Infer(ctx, "", nil)
				other <- err
			}()
			_, err := a.Infer(ctx, try.scratch, nil)
			if err != nil {
				cancel()
			}
			theirs := <-other
			cancel()
			switch {
			case lacks == 0 && (err != nil || theirs != nil):
				t.Errorf("with room for %d bytes: %v, and %v elsewhere", try.bytes, err, theirs)
			case lacks > 0 && (!errors.Is(err, scheduler.ErrMemory) || !strings.Contains(err.Error(), "rows to and from other nodes")):
				t.Errorf("with room for %d bytes, 1 less than are needed: %v", try.bytes-1, err)
			}
		}
	}
}

// A batch that the memory limit has no room for is refused before the pieces begin it, wherever edges lie; one that is a little too large once it was computed.
func TestFirstBatchFits(t *testing.T) {
	t.Parallel()
	path := narrowBlocks(t)
	for _, c := range []struct {
		model, sampler string
		again, inFiles bool
		cut            pieces.Options
	}{
		{"gcn", "full", false, false, pieces.Options{Method: "contiguous", Pieces: 2}},
		{"gat", "full", true, false, pieces.Options{Method: "hash", Pieces: 3}},
		{"gin", "full", false, true, pieces.Options{Method: "hash", Pieces: 2}},
		{"gat", "khop", false, false, pieces.Options{Method: "hash", Pieces: 2}},
		{"sage", "khop", false, false, pieces.Options{Method: "contiguous", Pieces: 4, Edges: pieces.EdgesOnGrid}},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			cfg := hybrid(path, c.model)
			cfg.Model.Hidden, cfg.Model.Layers, cfg.Training.Epochs, cfg.Training.Recompute = 32, 3, 1, c.again
			if c.sampler == "full" {
				cfg.Sampling.Sampler, cfg.Sampling.Hybrid = "full", false
			}
			set, scratch := divided(t, cfg, c.cut).Set(), ""
			if c.inFiles {
				scratch = t.TempDir()
			}
			cfg.Data.Path = set.Dir()
			bytes := held(t, cfg, scratch)
			for _, try := range []struct {
				limit int64
				fits  bool
				fails string // rounds that are not to begin
			}{{bytes, true, ""}, {bytes * 99 / 100, false, ""}, {bytes * 3 / 4, false, "step-1-"}} {
				cfg := cfg
				throughGate(t, &cfg, set).fails = try.fails
				cfg.Memory.Limit = fmt.Sprint(try.limit)
				d, err := OpenDivided(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				d.SpillTo(scratch)
				err = d.Train(t.Context(), func(int, float64, float64) error {
					if !try.fits {
						t.Errorf("inside %d bytes a step was made that holds %d", try.limit, bytes)
					}
					return nil
				})
				if try.fits && err != nil {
					t.Errorf("inside the %d bytes that it holds: %v", bytes, err)
				}
				if !try.fits && (!errors.Is(err, scheduler.ErrMemory) || !strings.Contains(err.Error(), "what a batch ") || !strings.Contains(err.Error(), "memory-limit allows") || !strings.Contains(err.Error(), "more pieces")) {
					t.Errorf("inside %d bytes, and it holds %d: %v", try.limit, bytes, err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
