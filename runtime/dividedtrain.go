package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/sampling"
)

// Train trains on global batches, as a Runtime with the sampler full does: each epoch is one step, on all training nodes, from the
// parameters that d has. told, which may be nil, hears of each step, by its mean loss and its accuracy on the seeds as they were
// trained; an error of its ends training. All pieces are computed in this process, each by a goroutine of its own, which keeps its
// activations in memory; they exchange rows and the rows' gradients directly.
//
// The same values are dropped as in one process on the graph of the set's ids, and losses and gradients are its in float32's error. Their
// bits are a function of the partition: sums over nodes are the pieces', joined in one tree. Checkpoints, patience, the plateau
// schedule, micro-batches and ssp, which a Runtime has, are refused.
func (d *Divided) Train(ctx context.Context, told func(epoch int, loss, accuracy float64) error) (err error) {
	defer func() { err = damaged(err) }()
	c := &d.cfg
	for what, asked := range map[string]bool{
		"a sampler other than full":          c.Sampling.Sampler != "full",
		"micro-batches":                      c.Sampling.MicroBatches > 1,
		"sync ssp":                           c.Training.Sync.Asynchronous(),
		"inductive":                          c.Sampling.Inductive,
		"checkpoint":                         c.Checkpoint.Dir != "",
		"patience, and the plateau schedule": c.Training.Patience > 0 || c.Training.Schedule == "plateau",
		"stages of the program's own after sampling": len(c.Stages) > 0,
	} {
		if asked {
			return fmt.Errorf("%w: global batches over a partition set do not have: %s", ErrConfig, what)
		}
	}
	batch, err := d.batch()
	if err != nil {
		return err
	}
	exec := func() *cpu.Exec {
		x := cpu.NewExec(d.pool, d.kernels)
		x.SetPrecision(c.precision)
		return x
	}
	ex := d.exchange(compute.NewMemory())
	if c.Cluster.Spread != nil {
		if _, _, err := d.alike(ctx, ex); err != nil {
			return err
		}
	}
	trainer, err := d.model.NewPieceTrainer(ctx, exec, d.pieces, ex)
	if err != nil {
		return err
	}
	defer trainer.Close()
	u := updaterOf(d.model, c.recipe())
	u.x = cpu.NewExec(d.pool, d.kernels)
	u.begin(d.params)
	defer func() { d.params = u.params }()
	for epoch := range c.Training.Epochs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		u.setRate(epoch, 1)
		key := actors.Key(c.Training.Seed, sampling.ID{Phase: "train", Epoch: epoch})
		grads, stats, err := trainer.Gradient(ctx, u.params, key, func(piece int) compute.PieceBatch { return batch[piece] })
		if err != nil {
			return fmt.Errorf("%s: %w", sampling.ID{Phase: "train", Epoch: epoch}, err)
		}
		u.Observe(grads[0])
		grad, sum, err := trainer.Sum(ctx, grads, stats)
		if err != nil {
			return fmt.Errorf("%s: %w", sampling.ID{Phase: "train", Epoch: epoch}, err)
		}
		u.Apply([][]float32{grad}, sum.Weight)
		if told != nil {
			if err := told(epoch, sum.Loss/sum.Weight, ratio(sum.Correct, sum.Count)); err != nil {
				return err
			}
		}
	}
	if c.Data.Verify {
		return d.verify(ctx)
	}
	return nil
}

// batch returns what of the training nodes lies in each piece.
func (d *Divided) batch() ([]compute.PieceBatch, error) {
	nodes, err := d.set.Split(0)
	if err == nil && len(nodes) == 0 {
		err = errors.New("runtime: the training set is empty; add a train split to the data, and divide it again")
	}
	if err != nil {
		return nil, err
	}
	batch := make([]compute.PieceBatch, len(d.opened))
	err = graph.Guard(func() error {
		table := d.set.Borders().Table()
		for _, v := range nodes {
			k := table[v/pieces.Border]
			p, b := d.opened[k], &batch[k]
			if p == nil {
				continue
			}
			at, l := v-uint32(p.Of.First), p.Dataset().Labels
			b.Targets = append(b.Targets, at)
			if l.IsMulti() {
				b.Multi = append(b.Multi, l.Multi[int(at)*l.NumClasses:(int(at)+1)*l.NumClasses]...)
				continue
			}
			if l.Class[at] == graph.Unlabeled {
				return fmt.Errorf("runtime: node %d of piece %d is in the training set but has no label; label it or take it out, and divide the data again", at, k)
			}
			b.Labels = append(b.Labels, l.Class[at])
		}
		return nil
	})
	return batch, err
}

// Save writes the parameters with a description of the model, as Runtime.Save does.
func (d *Divided) Save(path string) error {
	return saveModel(path, d.model, d.params, &d.cfg.Config, nil, d.log)
}

// ParametersSHA256 is a hash of the parameters.
func (d *Divided) ParametersSHA256() string { return d.model.Layout().SHA256(d.params) }
