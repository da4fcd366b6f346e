package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/training"
	"github.com/gnnactor/gnnactor/training/checkpoint"
	"github.com/gnnactor/gnnactor/training/update"
)

// Train trains on global batches, as a Runtime with the sampler full does, each epoch being one step, on all training nodes; or, with Config.Sampling.Hybrid, on
// those of the sampler khop. It begins with the parameters that d has. told, which may be nil, hears of each epoch, by its mean loss and its accuracy on the seeds as they were
// trained; an error of its ends training. Config.Observe hears of each step, and of the end. All pieces are computed in this process, each by a goroutine of its own, which keeps its
// activations in memory; they exchange rows and the rows' gradients directly. Of a batch rows that its seeds depend on alone are exchanged, and summed where
// that is worth it; what is computed of a node by itself is of all.
//
// The same values are dropped as in one process on the graph of the set's ids, and losses and gradients are its in float32's error. Their
// bits are a function of the partition: sums over nodes are the pieces', joined in one tree. With Config.Checkpoint each step is
// kept that ends an epoch, as a Runtime's are; a run that goes on from there makes the bits of one that was not interrupted. With Config.Training.Sync ssp:N, on those
// of khop alone, up to N+1 batches are computed at once, to bits that N decides and not how many are. Patience, keep best, the plateau schedule, micro-batches and
// others, which a Runtime has, are refused.
func (d *Divided) Train(ctx context.Context, told func(epoch int, loss, accuracy float64) error) (err error) {
	defer func() { err = damaged(err) }()
	c := &d.cfg
	if bad := c.NotInPieces(); bad != nil {
		return fmt.Errorf("%w: batches that the pieces of a partition set compute together do not have: %s", ErrConfig, strings.Join(bad, "; "))
	}
	if err := d.fits(d.spill != "", 0); err != nil { // training keeps the values of all layers: what inference does not fit into, it does not
		return err
	}
	nodes, err := d.trained()
	if err != nil {
		return err
	}
	loss, err := c.classLoss(d.Recipe(), d.model.Spec().OutDim, nil)
	if err != nil {
		return err
	}
	d.steps = sampling.NumBatches(len(nodes), sampling.Spec{Name: c.Sampling.Sampler}.BatchSize(c.Sampling.BatchSize, len(nodes)))
	exec := func() *cpu.Exec {
		x := cpu.NewExec(d.pool, d.kernels)
		x.SetPrecision(c.precision)
		return x
	}
	bound := min(c.Training.Sync.Bound(), d.steps-1) // epochs' last steps are late for nobody
	most := bound + 1
	if n := c.Execution.Trainers; n > 0 {
		most = min(most, n)
	}
	if err := d.foresee(ctx, exec, nodes, most); err != nil {
		return err
	}
	ex := d.exchange(compute.NewMemoryExchange())
	var places compute.Places
	here := 0
	if c.Cluster.Spread != nil {
		if places, here, err = d.alike(ctx, ex); err != nil {
			return err
		}
	}
	if d.spill != "" {
		if err := compute.MakeScratch(d.spill); err != nil {
			return err
		}
	}
	trainer, err := d.model.NewPieceTrainer(ctx, exec, d.pieces, ex, d.spill)
	if err != nil {
		return err
	}
	defer trainer.Close()
	if c.Training.Recompute {
		trainer.Recompute()
	}
	trainers := []*compute.PieceTrainer{trainer}
	for len(trainers) < most {
		beside := trainer.Beside(exec, d.spill)
		defer beside.Close()
		trainers = append(trainers, beside)
	}
	u := update.New(d.model, c.recipe(), cpu.NewExec(d.pool, d.kernels), d.params, nil)
	state, err := d.resume(u)
	if err == nil && places != nil {
		state, err = d.catchUp(ctx, ex, places, here, state, u)
	}
	if err != nil {
		return err
	}
	verified := sync.OnceValue(func() error {
		if c.Data.Verify {
			return d.verify(ctx)
		}
		return nil
	})
	defer func() { d.params = u.Params() }()
	began := time.Now()
	var lateness []int64
	if c.Training.Sync.Asynchronous() {
		lateness = make([]int64, c.Training.Sync.Bound()+1)
	}
	f := &inFlight{d: d, u: u, nodes: nodes, loss: loss, bound: int64(bound), next: state.Step, end: int64(c.Training.Epochs * d.steps), trainers: trainers}
	f.begin(ctx)
	defer f.over()
	for state.Step < f.end {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		id := f.id(state.Step)
		r, err := f.result(state.Step)
		if err != nil {
			return err
		}
		u.SetRate(id.Epoch, 1)
		u.Apply([][]float32{r.grad}, r.of.Weight)
		ends := id.Batch == d.steps-1
		state.Book(id, r.of, ends)
		f.applied(state.Step)
		late := f.late(state.Step - 1)
		if lateness != nil {
			lateness[late]++
		}
		d.observe(Event{
			Kind: EventStep, Epoch: id.Epoch, Batch: id.Batch, Batches: d.steps, Applied: state.Step, Loss: r.of.Loss / r.of.Weight, Staleness: late,
			TrainAccuracy: math.NaN(), ValidAccuracy: math.NaN(), TestAccuracy: math.NaN(), Wall: time.Since(began),
		})
		moves := r.moves && state.Step < f.end
		if c.Checkpoint.Dir != "" && (ends || moves) {
			if err := verified(); err != nil {
				return err
			}
			if err := u.Save(state); err != nil {
				return err
			}
			if state.About, err = describeModel(d.model, &d.cfg, nil); err != nil {
				return err
			}
			if err := state.Save(c.Checkpoint.Dir, c.Checkpoint.Keep, d.model.Layout()); err != nil {
				return err
			}
		}
		if told != nil && ends {
			if err := told(id.Epoch, state.LastLoss, ratio(state.Last.Correct, state.Last.Count)); err != nil {
				return err
			}
		}
		if moves {
			if c.Checkpoint.Dir == "" {
				b, err := d.encode(state, u)
				if err != nil {
					return err
				}
				c.Cluster.Spread.Keep(b)
			}
			return fmt.Errorf("%w after %s", training.ErrMoves, id)
		}
	}
	if err := verified(); err != nil {
		return err
	}
	d.observe(Event{
		Kind: EventDone, Epoch: int(state.Step)/d.steps - 1, Batches: d.steps, Applied: state.Step, Loss: state.LastLoss, Late: lateness,
		TrainAccuracy: math.NaN(), ValidAccuracy: math.NaN(), TestAccuracy: math.NaN(), Wall: time.Since(began), Lineage: state.Chain.String(),
	})
	return nil
}

func (d *Divided) observe(e Event) {
	if d.cfg.Observe != nil {
		d.cfg.Observe(e)
	}
}

// NotInPieces says what of c batches that all pieces of a partition set compute together do not have; nil: all that is asked, they have.
func (c *Config) NotInPieces() (bad []string) {
	spec, e, m := c.spec(), &c.Execution, &c.Memory
	sampler, err := c.samplerSpec()
	for _, s := range []struct {
		what  string
		asked bool
	}{
		{"a sampler other than full, or khop with hybrid", !c.InPieces()},
		{"sampler-options temporal", err == nil && sampler.Temporal},
		{"hybrid batches with batch norm, gin's unless another is given, whose statistics would be of all nodes: --norm layer has those of each", c.Sampling.Hybrid && spec.Norm == "batch"},
		{"hybrid batches with gcn-norm block", c.Sampling.Hybrid && spec.GCNNorm == "block"},
		{"micro-batches", c.Sampling.MicroBatches > 1},
		{"samplers, credits and sample-on, as nothing is sampled", e.Samplers > 0 || e.Credits > 0 || e.SampleOn != ""},
		{"sync ssp with the sampler full, whose epochs are one step each", c.Training.Sync.Asynchronous() && !c.Sampling.Hybrid},
		{"inductive", c.Sampling.Inductive},
		{"reorder", c.Sampling.Reorder > 0},
		{"features, match, cache, gather and loaders, as rows stay where they lie", m.Features != "" || m.Match != "" || m.Cache != "" || m.Gather != "" || m.Loaders > 0},
		{"pinned-memory, as no device computes", m.Pinned != ""},
		{"patience, keep best, and the plateau schedule", c.Training.followsValidation()},
		{"trace", e.Trace != ""},
		{"shared-checkpoint, as each node writes its own", c.Checkpoint.Shared},
		{"stages of the program's own after sampling", len(c.Stages) > 0},
	} {
		if s.asked {
			bad = append(bad, s.what)
		}
	}
	return bad
}

// SpillTo has Train keep activations in files of the directory dir, which is made if there is none, and refused where Infer refuses it: the system writes out what there is no
// memory for. The files have no names and are gone with Train. The bits are the same.
func (d *Divided) SpillTo(dir string) { d.spill = dir }

// Steps returns how many steps the last Train made of an epoch.
func (d *Divided) Steps() int { return d.steps }

// Resumed returns how many epochs the last Train found done in a checkpoint.
func (d *Divided) Resumed() int { return d.resumed }

// identify says what batches that the set computes together depend on: where its pieces are computed is no part of that.
func (d *Divided) identify() Identity {
	c := &d.cfg
	if d.start == "" || c.Checkpoint.Dir == "" || !c.Checkpoint.Resume {
		d.start = d.model.Layout().SHA256(d.params)
	}
	size := 0
	if c.Sampling.Hybrid {
		size = c.Sampling.BatchSize
	}
	id := Identity{
		Data: d.set.Fingerprint(), NormalizeFeatures: c.Data.NormalizeFeatures, Model: d.model.Spec(), Sampler: sampling.Spec{Name: c.Sampling.Sampler}, Seed: c.Training.Seed,
		BatchSize: size, Hybrid: c.Sampling.Hybrid,
		MicroBatches: 1, Recipe: c.recipe(), Start: d.start, Precision: c.precision.String(), Kernels: d.kernels.String(),
	}
	if c.Training.Sync.Asynchronous() {
		id.Sync = c.Training.Sync.String()
	}
	return id
}

// expected returns what training can go on from.
func (d *Divided) expected(id Identity) *checkpoint.Expected {
	return &checkpoint.Expected{Layout: d.model.Layout(), Identity: id, Steps: int64(d.steps), OtherKernels: d.cfg.Checkpoint.AllowOtherKernels}
}

// encode returns what state makes of a state that u is at.
func (d *Divided) encode(state *checkpoint.State, u *update.Updater) ([]byte, error) {
	var b bytes.Buffer
	err := u.Save(state)
	if err == nil {
		err = state.Write(&b, d.model.Layout())
	}
	return b.Bytes(), err
}

// decode returns the state that encode wrote, of id, and sets u to it.
func (d *Divided) decode(b []byte, id Identity, u *update.Updater) (*checkpoint.State, error) {
	state, err := d.expected(id).FromPeer(b)
	if err != nil {
		return nil, err
	}
	state.Identity = id
	u.Restore(state)
	d.resumed = int(state.Step) / d.steps
	return state, nil
}

// resume returns the state that training goes on from, to which it sets u: that of the newest checkpoint, what was kept when pieces moved, or of
// a run that begins.
func (d *Divided) resume(u *update.Updater) (*checkpoint.State, error) {
	id, c := d.identify(), &d.cfg.Checkpoint
	d.resumed = 0
	fresh := &checkpoint.State{Identity: id}
	if c.Dir == "" {
		if spread := d.cfg.Cluster.Spread; spread != nil && spread.Kept() != nil {
			return d.decode(spread.Kept(), id, u)
		}
		return fresh, nil
	}
	if !c.Resume {
		if old, err := checkpoint.List(c.Dir); err != nil || len(old) > 0 {
			return nil, errors.Join(err, fmt.Errorf("%w: checkpoint: %s holds another run's checkpoints; resume it, or choose an empty directory", ErrConfig, c.Dir))
		}
	}
	if err := checkpoint.Writable(c.Dir, false); err != nil || !c.Resume {
		return fresh, err
	}
	saved, skipped, err := d.expected(id).Load(c.Dir)
	for _, why := range skipped {
		d.log.Warn("passed over a damaged checkpoint", "why", why)
	}
	if err != nil || saved == nil {
		return fresh, err
	}
	saved.Identity = id
	u.Restore(saved)
	d.resumed = int(saved.Step) / d.steps
	return saved, nil
}

// catchUp has all nodes go on from the newest state that one of them has, which sends it to the others: nodes that are new, or were
// killed before they had kept a step that others had.
func (d *Divided) catchUp(ctx context.Context, ex compute.Exchange, places compute.Places, here int, state *checkpoint.State, u *update.Updater) (*checkpoint.State, error) {
	mine, err := d.encode(state, u)
	if err != nil {
		return nil, err
	}
	const part = 1 << 16 // of numbers, which float32 has exactly
	said, err := places.Share(ctx, ex, "steps", here, func(int) ([]float32, error) {
		return []float32{float32(state.Step / part), float32(state.Step % part), float32(len(mine) / part), float32(len(mine) % part)}, nil
	}, func(int) int { return 4 })
	if err != nil {
		return nil, err
	}
	newest, from, size, behind := int64(-1), 0, 0, false
	for q, words := range said {
		if words == nil {
			continue
		}
		step := int64(words[0])*part + int64(words[1])
		behind = behind || newest >= 0 && step != newest
		if step > newest {
			newest, from, size = step, q, int(words[2])*part+int(words[3])
		}
	}
	if !behind {
		return state, nil
	}
	words := make([]float32, size/4+1)
	said, err = places.Share(ctx, ex, "state", here, func(piece int) ([]float32, error) {
		if piece != from {
			return nil, nil
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 4*len(words)), mine)
		return words, nil
	}, func(piece int) int {
		if piece != from {
			return 0
		}
		return len(words)
	})
	if err != nil || state.Step == newest {
		return state, err
	}
	return d.decode(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(said[from]))), size), state.Identity, u)
}

// trained returns the training nodes.
func (d *Divided) trained() ([]uint32, error) {
	nodes, err := d.set.Split(0)
	if err == nil && len(nodes) == 0 {
		err = errors.New("runtime: the training set is empty; add a train split to the data, say by 'gnnactor import --split random:60/20/20', and divide it again")
	}
	if first := d.first(); err == nil && first.Labels == nil {
		err = fmt.Errorf("%w: %s has no labels to learn; add them to the data, and divide it again", ErrNoModel, d.set.Name())
	}
	return nodes, err
}

// batch returns what of some nodes lies in each piece.
func (d *Divided) batch(nodes []uint32) ([]compute.PieceBatch, error) {
	batch := make([]compute.PieceBatch, len(d.opened))
	err := graph.Guard(func() error {
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
				b.Multi = append(b.Multi, l.Of(at)...)
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
	return saveModel(path, d.model, d.params, &d.cfg, d.Recipe(), d.log)
}

// ParametersSHA256 is a hash of the parameters.
func (d *Divided) ParametersSHA256() string { return d.model.Layout().SHA256(d.params) }
