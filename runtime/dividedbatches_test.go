package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/scheduler"
	"github.com/gnnactor/gnnactor/training"
	"github.com/gnnactor/gnnactor/training/update"
)

// replayed computes a hybrid run's batches one after another, each on the parameters that as many steps were applied to as its place in the epoch has it, if gradients
// may be bound steps late. It returns the parameters' hash, what a trainer holds, and what is found of the first batch before it.
func replayed(t *testing.T, cfg Config, bound int) (hash string, bytes, ahead int64) {
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
	exec := func() *cpu.Exec { return cpu.NewExec(d.pool, d.kernels) }
	trainer, err := d.model.NewPieceTrainer(t.Context(), exec, d.pieces, compute.NewMemoryExchange(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	u := update.New(d.model, d.cfg.recipe(), exec(), d.params, nil)
	steps := sampling.NumBatches(len(nodes), cfg.Sampling.BatchSize)
	for epoch := range cfg.Training.Epochs {
		versions := [][]float32{slices.Clone(u.Params())}
		u.SetRate(epoch, 1)
		order := sampling.Order(nodes, cfg.Training.Seed, epoch)
		for i := range steps {
			batch, err := d.batch(slices.Sorted(slices.Values(sampling.Cut(order, cfg.Sampling.BatchSize, 1, i, 0))))
			var set *compute.ActiveSet
			if err == nil {
				set, err = trainer.Search(t.Context(), func(piece int) compute.PieceBatch { return batch[piece] })
			}
			if err != nil {
				t.Fatal(err)
			}
			if ahead == 0 {
				ahead = set.Bytes()
			}
			trainer.Take(set)
			grads, stats, err := trainer.Gradient(t.Context(), versions[max(i-bound, 0)], actors.Key(cfg.Training.Seed, sampling.ID{Phase: "train", Epoch: epoch, Batch: i}))
			if err != nil {
				t.Fatal(err)
			}
			sum, of, _, err := trainer.Sum(t.Context(), grads, stats, false)
			if err != nil {
				t.Fatal(err)
			}
			u.Apply([][]float32{sum}, of.Weight)
			versions = append(versions, slices.Clone(u.Params()))
		}
	}
	return d.model.Layout().SHA256(u.Params()), trainer.Bytes(), ahead
}

// trainedTo trains to the end, and returns the parameters' hash.
func trainedTo(t *testing.T, cfg Config) (string, error) {
	t.Helper()
	d, err := OpenDivided(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	err = d.Train(t.Context(), nil)
	return d.ParametersSHA256(), err
}

// Batches that are searched for while others are computed, and computed several at once, have the bits of one after another, however many of them
// are in flight.
func TestBatchesInFlight(t *testing.T) {
	t.Parallel()
	path := narrowBlocks(t)
	for model, cut := range map[string]pieces.Options{
		"gcn": {Method: "hash", Pieces: 3, Edges: pieces.EdgesAtSource}, "sage": {Method: "contiguous", Pieces: 2}, "gat": {Method: "contiguous", Pieces: 1},
	} {
		cfg := hybrid(path, model)
		cfg.Data.Path = divided(t, cfg, cut).Set().Dir()
		wants := map[int]string{} // by how late gradients may be
		for _, c := range []struct {
			sync     Sync
			trainers int
		}{{Sync{}, 0}, {SSP(0), 0}, {SSP(1), 0}, {SSP(1), 1}, {SSP(2), 2}, {SSP(100), 0}} { // of five batches an epoch
			cfg.Training.Sync, cfg.Execution.Trainers = c.sync, c.trainers
			bound := c.sync.Bound()
			if wants[bound] == "" {
				wants[bound], _, _ = replayed(t, cfg, bound)
			}
			got, err := trainedTo(t, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if got != wants[bound] || (got == wants[0]) != (bound == 0) {
				t.Errorf("%s, %s, %d trainers: parameters %.8s, want %.8s; where none is late %.8s", model, c.sync, c.trainers, got, wants[bound], wants[0])
			}
		}
	}
}

// gate is a Spread whose pieces are all computed here. What is sent in rounds that holds begins waits until something was sent in one that until begins; what is sent
// in one that fails begins is an error, or calls stop.
type gate struct {
	*here
	holds, until, fails string

	once sync.Once
	open chan struct{}
	stop func()
}

var errGate = errors.New("the wire is cut")

func (g *gate) Send(ctx context.Context, round string, from, to int, rows []float32) error {
	_, name, _ := strings.Cut(round, "-") // which has the number of what is computed before it
	if g.until != "" && strings.HasPrefix(name, g.until) {
		g.once.Do(func() { close(g.open) })
	}
	if g.holds != "" && strings.HasPrefix(name, g.holds) {
		select {
		case <-g.open:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if g.fails != "" && strings.HasPrefix(name, g.fails) {
		if g.stop == nil {
			return errGate
		}
		g.stop()
	}
	return g.here.Send(ctx, round, from, to, rows)
}

func throughGate(t *testing.T, cfg *Config, set *pieces.Set) *gate {
	g := &gate{here: openedHere(t, set, compute.NewMemoryExchange()), open: make(chan struct{})}
	cfg.Data.Path, cfg.Cluster.Spread = set.Dir(), g
	return g
}

// The next batch is searched for before the one that is computed ends, and, where gradients may be late, begun.
func TestBatchesOverlap(t *testing.T) {
	cfg := hybrid(narrowBlocks(t), "gcn")
	cfg.Training.Epochs = 1
	set := divided(t, cfg, pieces.Options{Method: "hash", Pieces: 2}).Set()
	for _, c := range []struct {
		sync         Sync
		holds, until string
	}{{Sync{}, "step-1-", "active-2-"}, {Sync{}, "step-4-", "active-5-"}, {SSP(1), "back-step-2-", "step-3-"}, {SSP(2), "back-step-3-", "step-5-"}} {
		cfg := cfg
		g := throughGate(t, &cfg, set)
		g.holds, g.until, cfg.Training.Sync = c.holds, c.until, c.sync
		if _, err := trainedTo(t, cfg); err != nil {
			t.Errorf("%s: %v", c.sync, err)
		}
	}
}

// What fails in a search or a gradient is said with its batch, and ends what is in flight; so does the end of a context, which says why.
func TestBatchesInFlightFail(t *testing.T) {
	cfg := hybrid(narrowBlocks(t), "sage")
	set := divided(t, cfg, pieces.Options{Method: "hash", Pieces: 3}).Set()
	why := errors.New("it was told to")
	for _, sync := range []Sync{{}, SSP(2)} {
		for fails, batch := range map[string]string{"active-1-": "train/e0/b0: ", "active-4-": "train/e0/b3: ", "step-2-": "train/e0/b1: ", "back-step-8-": "train/e1/b2: "} {
			cfg := cfg
			cfg.Training.Sync = sync
			throughGate(t, &cfg, set).fails = fails
			if _, err := trainedTo(t, cfg); !errors.Is(err, errGate) || !strings.HasPrefix(err.Error(), batch) {
				t.Errorf("%s, %s: %v", sync, fails, err)
			}
			g := throughGate(t, &cfg, set)
			d, err := OpenDivided(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancelCause(t.Context())
			g.fails, g.stop = fails, func() { stop(why) }
			if err := d.Train(ctx, nil); !errors.Is(err, why) {
				t.Errorf("%s, its end in %s: %v", sync, fails, err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A run whose batches are late goes on from an epoch's checkpoint when it was stopped in the next, and pieces move between two epochs: it has the bits of one that
// was not interrupted, each batch once; with another bound it is another run.
func TestLateBatchesGoOn(t *testing.T) {
	t.Parallel()
	cfg := hybrid(narrowBlocks(t), "gcn")
	cfg.Training.Epochs, cfg.Training.Sync = 3, SSP(2)
	set := divided(t, cfg, pieces.Options{Method: "hash", Pieces: 2}).Set()
	cfg.Data.Path = set.Dir()
	want, _, _ := replayed(t, cfg, 2)
	train := func(cfg Config, ctx context.Context, epochs ...int) error {
		t.Helper()
		d, err := OpenDivided(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var told []int
		err = d.Train(ctx, func(epoch int, _, _ float64) error { told = append(told, epoch); return nil })
		if !slices.Equal(told, epochs) {
			t.Errorf("it tells of the epochs %v, not of %v: %v", told, epochs, err)
		}
		if err == nil && d.ParametersSHA256() != want {
			t.Errorf("parameters %.8s, want %.8s", d.ParametersSHA256(), want)
		}
		return err
	}

	stopped := cfg
	stopped.Checkpoint.Dir = t.TempDir() + "/kept"
	ctx, stop := context.WithCancel(t.Context())
	g := throughGate(t, &stopped, set)
	g.fails, g.stop = "back-step-8-", stop // the third batch of the second epoch
	if err := train(stopped, ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("it was stopped: %v", err)
	}
	stopped.Cluster.Spread, stopped.Checkpoint.Resume = nil, true
	other := stopped
	other.Training.Sync = SSP(1)
	if err := train(other, t.Context()); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), "sync") {
		t.Errorf("another bound: %v", err)
	}
	if err := train(stopped, t.Context(), 1, 2); err != nil {
		t.Error(err)
	}

	moves := openedHere(t, set, nil)
	cfg.Cluster.Spread = moves
	for epoch := range 3 { // each time that it is asked they are to move
		moves.Exchange, moves.steps = compute.NewMemoryExchange(), 1
		if err := train(cfg, t.Context(), epoch); errors.Is(err, training.ErrMoves) != (epoch < 2) || epoch == 2 && err != nil || moves.steps != 0 {
			t.Errorf("epoch %d: %v; it is asked %d times whether pieces move", epoch, err, 1-moves.steps)
		}
	}
}

// More batches in flight than fit the memory limit are refused by their number, once the first tells what each takes; what lies in files takes none.
func TestBatchesInFlightFit(t *testing.T) {
	cfg := hybrid(narrowBlocks(t), "gat")
	cfg.Model.Layers, cfg.Training.Epochs, cfg.Training.Sync = 3, 1, SSP(3)
	cfg.Data.Path = divided(t, cfg, pieces.Options{Method: "hash", Pieces: 2}).Set().Dir()
	want, bytes, _ := replayed(t, cfg, 3)
	cfg.Memory.Limit = fmt.Sprintf("%dKiB", 3*bytes>>10)
	if _, err := trainedTo(t, cfg); !errors.Is(err, scheduler.ErrMemory) || !strings.Contains(err.Error(), "4 batches in flight") || strings.Contains(err.Error(), "--fanouts") {
		t.Errorf("four at once: %v", err)
	}
	cfg.Execution.Trainers = 2
	if got, err := trainedTo(t, cfg); err != nil || got != want {
		t.Errorf("two at once: parameters %.8s, want %.8s, %v", got, want, err)
	}
	cfg.Execution.Trainers = 0
	d, err := OpenDivided(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.SpillTo(t.TempDir())
	if err := d.Train(t.Context(), nil); err != nil || d.ParametersSHA256() != want {
		t.Errorf("four at once in files: parameters %.8s, want %.8s, %v", d.ParametersSHA256(), want, err)
	}
}

// Features that cross once are counted once, however many batches are in flight.
func TestBatchesInFlightShare(t *testing.T) {
	cfg := hybrid(narrowBlocks(t), "gcn")
	cfg.Model.Hidden, cfg.Training.Epochs, cfg.Training.Sync = 64, 1, SSP(3)
	set := divided(t, cfg, pieces.Options{Method: "hash", Pieces: 2}).Set()
	cfg.Data.Path = set.Dir()
	want, bytes, ahead := replayed(t, cfg, 3)
	features := int64(0)
	for _, p := range set.Pieces() {
		features += 4 * 12 * p.Sources
	}
	cfg.Memory.Limit = fmt.Sprintf("%dKiB", (4*bytes-2*features+ahead)>>10) // they hold 4·bytes less thrice the features
	if got, err := trainedTo(t, cfg); err != nil || got != want {
		t.Errorf("parameters %.8s, want %.8s, %v", got, want, err)
	}
	cfg.Memory.Limit = fmt.Sprintf("%dKiB", (4*bytes-4*features+ahead)>>10)
	if _, err := trainedTo(t, cfg); !errors.Is(err, scheduler.ErrMemory) || !strings.Contains(err.Error(), "4 batches in flight") {
		t.Errorf("less than they hold: %v", err)
	}
}

// What is found of the next batch while one is computed counts, too, also where one batch is computed at a time.
func TestBatchAheadFits(t *testing.T) {
	cfg := hybrid(narrowBlocks(t), "sage")
	cfg.Sampling.BatchSize, cfg.Training.Epochs = 20, 1
	cfg.Data.Path = divided(t, cfg, pieces.Options{Method: "hash", Pieces: 2}).Set().Dir()
	want, bytes, ahead := replayed(t, cfg, 0)
	cfg.Memory.Limit = fmt.Sprintf("%dKiB", (bytes+2*ahead)>>10)
	if got, err := trainedTo(t, cfg); err != nil || got != want {
		t.Errorf("parameters %.8s, want %.8s, %v", got, want, err)
	}
	cfg.Memory.Limit = fmt.Sprintf("%dKiB", (bytes+ahead/2)>>10)
	if _, err := trainedTo(t, cfg); !errors.Is(err, scheduler.ErrMemory) || !strings.Contains(err.Error(), "the search for the next") {
		t.Errorf("a batch takes %d bytes, what is found of the next %d: %v", bytes, ahead, err)
	}
}
