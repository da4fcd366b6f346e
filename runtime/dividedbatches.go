package runtime

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/training/update"
)

// inFlight are the batches of a run that all pieces compute together, in their order. While one is computed, the next one's active nodes are searched for,
// which depend on no parameters. With bounded staleness several are computed at once: a batch reads the parameters that bound steps fewer
// were applied to than there are batches before it in its epoch, if there are as many, whoever is how fast; so no bit depends on how many are in flight, and at the end of
// an epoch all are applied.
type inFlight struct {
	d        *Divided
	u        *update.Updater
	nodes    []uint32
	loss     *compute.Loss
	bound    int64
	first    int64                   // step
	next     int64                   // to be begun
	end      int64                   // of the run
	trainers []*compute.PieceTrainer // batches in flight at most
	results  []chan pieceResult      // of each of them
	versions [][]float32             // parameters, by how many steps were applied mod their number
	ahead    int64                   // bytes of what is found of a batch before it is begun

	ctx   context.Context
	stop  context.CancelFunc
	found chan foundSet
	tasks sync.WaitGroup
}

type foundSet struct {
	set *compute.ActiveSet
	err error
}

// pieceResult is a batch's gradient.
type pieceResult struct {
	grad  []float32
	of    compute.Stats
	moves bool // between this step and the next pieces are to move
	err   error
}

// begin has f search for the first batch. The caller must end it.
func (f *inFlight) begin(ctx context.Context) {
	f.ctx, f.stop = context.WithCancel(ctx)
	f.first, f.found = f.next, make(chan foundSet)
	for range f.trainers {
		f.results = append(f.results, make(chan pieceResult, 1))
	}
	for range f.bound + 1 {
		f.versions = append(f.versions, make([]float32, len(f.d.params)))
	}
	f.applied(f.first)
	f.tasks.Go(func() {
		var order []uint32 // of the epoch's seeds
		for k := f.first; k < f.end && (k == f.first || f.d.steps > 1); k++ {
			var found foundSet
			found.err = pool.Recovered(func() (err error) {
				seeds := f.nodes
				if id := f.id(k); f.d.steps > 1 {
					if order == nil || id.Batch == 0 {
						order = sampling.Order(f.nodes, f.d.cfg.Training.Seed, id.Epoch)
					}
					seeds = slices.Sorted(slices.Values(sampling.Cut(order, f.d.cfg.Sampling.BatchSize, 1, id.Batch, 0)))
				}
				found.set, err = f.search(seeds)
				return err
			})
			select {
			case f.found <- found:
			case <-f.ctx.Done():
				return
			}
			if found.err != nil {
				return
			}
		}
	})
}

// over ends what is in flight.
func (f *inFlight) over() {
	f.stop()
	f.tasks.Wait()
}

// id names the batch of a step.
func (f *inFlight) id(k int64) sampling.ID {
	return sampling.ID{Phase: "train", Epoch: int(k) / f.d.steps, Batch: int(k) % f.d.steps}
}

// epoch returns the first step of the epoch of step k.
func (f *inFlight) epoch(k int64) int64 { return k - k%int64(f.d.steps) }

// late returns how many steps before that of k were not applied to the parameters that its batch reads.
func (f *inFlight) late(k int64) int { return int(min(f.bound, k-f.epoch(k))) }

func (f *inFlight) search(seeds []uint32) (*compute.ActiveSet, error) {
	batch, err := f.d.batch(seeds)
	if err != nil {
		return nil, err
	}
	return f.trainers[0].Search(f.ctx, func(piece int) compute.PieceBatch {
		batch[piece].Loss = f.loss
		return batch[piece]
	})
}

// applied keeps the parameters that so many steps were applied to.
func (f *inFlight) applied(steps int64) {
	copy(f.versions[steps%int64(len(f.versions))], f.u.Params())
}

// result begins all batches that may be in flight with that of step k, the next to be applied, and waits for its gradient, which is the caller's until it calls result again.
func (f *inFlight) result(k int64) (pieceResult, error) {
	for f.next < min(k+int64(len(f.trainers)), f.epoch(k)+int64(f.d.steps)) {
		if err := f.launch(f.next); err != nil {
			return pieceResult{}, fmt.Errorf("%s: %w", f.id(f.next), err)
		}
		if f.next++; f.next == f.first+1 {
			if err := f.fit(); err != nil {
				return pieceResult{}, err
			}
		}
	}
	r := <-f.results[f.trainer(k)]
	if r.err != nil {
		return r, fmt.Errorf("%s: %w", f.id(k), r.err)
	}
	return r, nil
}

// fit waits until the first batch has been computed, before others are begun, and reports that as many as are to be in flight, and what is found of the next, hold more
// than the memory limit allows.
func (f *inFlight) fit() error {
	first := f.trainers[0]
	f.results[0] <- <-f.results[0]
	ahead := f.ahead
	if f.d.steps == 1 { // of the only batch
		ahead = 0
	}
	return f.d.fitsBatches(len(f.trainers), first.Bytes(), first.Shared(), ahead)
}

// trainer says which one computes the batch of step k.
func (f *inFlight) trainer(k int64) int { return int(k-f.first) % len(f.trainers) }

// launch has the batch of step k computed.
func (f *inFlight) launch(k int64) error {
	i := f.trainer(k)
	trainer := f.trainers[i]
	if f.d.steps > 1 || k == f.first {
		select {
		case found := <-f.found:
			if found.err != nil {
				return found.err
			}
			f.ahead = max(f.ahead, found.set.Bytes())
			trainer.Take(found.set)
		case <-f.ctx.Done():
			return context.Cause(f.ctx)
		}
	}
	params := f.versions[(k-int64(f.late(k)))%int64(len(f.versions))]
	f.tasks.Go(func() {
		var r pieceResult
		r.err = pool.Recovered(func() error {
			grads, stats, err := trainer.Gradient(f.ctx, params, actors.Key(f.d.cfg.Training.Seed, f.id(k)))
			if err != nil {
				return err
			}
			f.u.Observe(grads[0]) // of batch norms, which batches have that are computed one at a time
			spread := f.d.cfg.Cluster.Spread
			// Where gradients are late only an epoch's end is a state to go on from.
			better := spread != nil && (f.bound == 0 || k+1 == f.epoch(k)+int64(f.d.steps)) && spread.Better()
			r.grad, r.of, r.moves, err = trainer.Sum(f.ctx, grads, stats, better)
			return err
		})
		f.results[i] <- r
	})
	return nil
}
