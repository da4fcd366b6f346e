package runtime

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/sampling"
)

// BatchesOptions says which batches to make.
type BatchesOptions struct {
	Nodes  []uint32 // seeds of an epoch; nil: the training set
	Epochs int      // 0: 1
	Phase  string   // names the batches; empty: "batches"
	NoCopy bool     // leave Batch.X nil: rows are brought to memory, and counted, but not copied, and no stages after load see them
}

// Batch is a sampled mini-batch with the data of its nodes.
type Batch struct {
	*sampling.Batch
	X           []float32 // NumInputs×NumFeatures, row-major, in the order of Inputs; nil: no features
	NumFeatures int
	Labels      []int32 // class of each seed, or graph.Unlabeled; nil: no single-label classes
	// Rows counts the feature rows of this call so far, of batches ahead of this one, too.
	Rows RowStats
}

// Batches samples mini-batches, with their features, for a model of the
// caller's own. Sampling and loading run ahead of the loop, within the plan's
// credits. A batch is valid until the next iteration. The order and the
// content of the batches are a function of the settings alone. The last pair
// carries the error, if there is one; after a loop that was left it is logged.
func (r *Runtime) Batches(ctx context.Context, o BatchesOptions) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		outside, left := false, false
		err := r.call(ctx, &outside, func(ctx context.Context) (err error) {
			if err := r.nodesOnly("batches"); err != nil {
				return err
			}
			if r.cfg.Cluster.Away {
				return fmt.Errorf("%w: Cluster.Away: this process trains where others sample, and makes no batches", ErrConfig)
			}
			left, err = r.batches(ctx, o, func(b *Batch, err error) bool {
				outside = true
				more := yield(b, err)
				outside = false
				return more
			})
			if err == nil && !left {
				err = r.Verified(ctx)
			}
			if cause := context.Cause(ctx); err != nil && cause != nil {
				err = cause
			}
			return err
		})
		if err = explained(err); err != nil && left {
			r.log.Error("batches, of which no more are wanted", "error", err)
		} else if err != nil {
			yield(nil, err)
		}
	}
}

func (r *Runtime) batches(ctx context.Context, o BatchesOptions, yield func(*Batch, error) bool) (left bool, err error) {
	ds := r.data.ds
	nodes := o.Nodes
	if nodes == nil {
		if nodes = ds.Train; len(nodes) == 0 {
			return false, fmt.Errorf("runtime: the training set of %s is empty; name the seed nodes", ds.Name)
		}
	}
	for _, v := range nodes {
		if int(v) >= ds.Graph.NumNodes() {
			return false, fmt.Errorf("%w: seed node %d is out of range [0, %d)", ErrNode, v, ds.Graph.NumNodes())
		}
	}
	if o.Phase == "" {
		o.Phase = "batches"
	}
	work := actors.Work{
		Phase: o.Phase, Seed: r.cfg.Training.Seed, Nodes: nodes, Micro: r.cfg.Sampling.MicroBatches, Epochs: max(o.Epochs, 1),
		BatchSize: r.sampler.Spec().BatchSize(r.cfg.Sampling.BatchSize, len(nodes)),
		Batches:   r.ownBatches(),
	}
	c, mem, err := r.pipelineConfig(ctx, work, false, new(clock.Recorder))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, mem.close()) }()
	if c.Name = "batches"; o.NoCopy {
		c.AfterLoad = nil
	} else if ds.NodeFeatures != nil {
		c.Load = func(d *actors.Delivery) error {
			d.X = r.gather(d.X, d.Batch, d.Slots, mem.table())
			return nil
		}
	}
	p, err := actors.Start(c)
	if err != nil {
		return false, err
	}
	defer p.Stop()
	b := new(Batch)
	if ds.NodeFeatures != nil && !o.NoCopy {
		b.NumFeatures = ds.NodeFeatures.Cols
	}
	for step := int64(0); step < work.Steps()*int64(work.Epochs); {
		x, err := p.Next(ctx)
		if err != nil {
			return false, err
		}
		d := x.(*actors.Delivery)
		b.Batch, b.X, b.Rows = d.Batch, d.X, mem.stats()
		r.mu.Lock()
		r.counted.Batches++
		r.mu.Unlock()
		if ds.Labels != nil && ds.Labels.Class != nil {
			b.Labels = ds.Labels.AppendClasses(b.Labels[:0], b.Seeds)
		}
		if b.ID.Micro+1 >= b.ID.Of {
			step++
		}
		if !yield(b, nil) {
			return true, nil
		}
		p.Release(d)
	}
	return false, nil
}

// ownBatches returns how many batches the sampler makes an epoch when it chooses
// their seeds itself, 0 when the seed nodes decide.
func (r *Runtime) ownBatches() int {
	if !r.sampler.ChoosesSeeds() {
		return 0
	}
	return r.sampler.BatchesPerEpoch(0, r.cfg.Sampling.BatchSize, r.cfg.Sampling.MicroBatches)
}

// gather copies the features of a batch's input nodes, out of the slab, if it has slots
// there, to x, or to new memory where that is too small.
func (r *Runtime) gather(x []float32, b *sampling.Batch, slots []uint32, slab *graph.Features) []float32 {
	f, ids := r.data.ds.NodeFeatures, b.Inputs()
	if slots != nil {
		f, ids = slab, slots
	}
	n := b.NumInputs() * f.Cols
	if cap(x) < n {
		x = make([]float32, n, n+n/4)
	}
	x = x[:n]
	e := r.exec()
	defer r.releaseExec(e)
	cpu.Gather(e, cpu.Dense(b.NumInputs(), f.Cols, x), cpu.Source[float32]{Table: f, IDs: ids})
	return x
}

// exec returns an Exec for what the caller does in the host's memory, until releaseExec.
func (r *Runtime) exec() *cpu.Exec {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.execs); n > 0 {
		x := r.execs[n-1]
		r.execs = r.execs[:n-1]
		return x
	}
	return r.newExec()
}

func (r *Runtime) releaseExec(x *cpu.Exec) {
	r.mu.Lock()
	r.execs = append(r.execs, x)
	r.mu.Unlock()
}
