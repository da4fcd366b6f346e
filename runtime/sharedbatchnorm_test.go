package runtime

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/compute"
)

// meetingPoint is where the trainers of one process add up a step: who comes last
// does it.
type meetingPoint struct {
	size  int
	mu    sync.Mutex
	came  int
	parts [][]float32
	metas [][]byte
	made  chan struct{} // closed when parts[0] is the sum
}

// seat is one trainer's actors.Reducer.
type seat struct {
	*meetingPoint
	self int
}

func (s seat) mine(micro, _ int) bool { return micro%s.size == s.self }

func (s seat) AllReduce(ctx context.Context, _ int64, dst []float32, parts [][]float32, meta [][]byte) ([][]byte, error) {
	s.mu.Lock()
	if s.came == 0 {
		s.parts, s.metas, s.made = make([][]float32, len(parts)), make([][]byte, len(parts)), make(chan struct{})
	}
	for m := range parts {
		if parts[m] != nil {
			s.parts[m], s.metas[m] = slices.Clone(parts[m]), meta[m]
		}
	}
	sum, metas, made := s.parts, s.metas, s.made
	if s.came++; s.came == s.size {
		compute.SumTree(sum)
		s.came = 0
		close(made)
	}
	s.mu.Unlock()
	select {
	case <-made:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	copy(dst, sum[0])
	return metas, nil
}

func (seat) Gather(context.Context, int64, []byte) ([][]byte, error) {
	panic("nothing is reordered")
}

// Metamorphic: a step's micro-batches may be shared among processes, and batch
// norm's running statistics have the same bits on all of them, and in one alone.
func TestSharedBatchNorm(t *testing.T) {
	c := config()
	c.Model.Name, c.Model.Norm, c.Sampling.MicroBatches, c.Training.Epochs = "gin", "batch", 5, 2
	alone := started(t, c)
	trained(t, alone)
	for _, n := range []int{2, 4} {
		p := &meetingPoint{size: n}
		var wg sync.WaitGroup
		for i := range n {
			r := started(t, c)
			wg.Go(func() {
				params, err := trainShared(t.Context(), r, seat{p, i})
				if err != nil {
					t.Errorf("trainer %d of %d: %v", i, n, err)
				} else if !slices.Equal(params, alone.params) {
					t.Errorf("trainer %d of %d: other bits", i, n)
				}
			})
		}
		wg.Wait()
	}
}

func trainShared(ctx context.Context, r *Runtime, s seat) ([]float32, error) {
	work := actors.Work{
		Phase: "train", Seed: r.cfg.Training.Seed, Nodes: r.data.ds.Train, Micro: r.cfg.Sampling.MicroBatches, Epochs: r.cfg.Training.Epochs,
		BatchSize: r.cfg.Sampling.BatchSize, Mine: s.mine,
	}
	u := newUpdater(r, r.params)
	u.share = s
	p, mem, err := r.trainingPipeline(ctx, work, u, new(clock.Recorder))
	if err != nil {
		return nil, err
	}
	for step := int64(0); err == nil && step < int64(work.Epochs)*work.Steps(); step++ {
		if step%work.Steps() == 0 {
			u.SetRate(int(step/work.Steps()), 1)
			p.Proceed(step)
		}
		_, err = p.Next(ctx)
	}
	p.Stop()
	if err == nil {
		err = mem.close()
	}
	return u.Params(), err
}
