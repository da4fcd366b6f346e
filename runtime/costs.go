package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Costs are what a micro-batch takes, as measured on this machine: Sample and Compute in
// processor time (0: it is not measured on this system), BlockBytes packed as it goes from one node to another, RowBytes of the rows that it reads.
type Costs struct {
	Sample     time.Duration `json:"sample_ns"`
	Compute    time.Duration `json:"compute_ns"`
	BlockBytes int64         `json:"block_bytes"`
	RowBytes   int64         `json:"row_bytes"`
}

// costTrials is how many micro-batches are measured, after one that is not.
const costTrials = 4

// Costs samples and computes some micro-batches for nothing, and returns what one takes. Whole graphs and data that lies in
// pieces it does not measure: ErrConfig.
func (r *Runtime) Costs(ctx context.Context) (c Costs, err error) {
	if r.data.set != nil || r.model == nil || r.cfg.Sampling.Sampler == "full" {
		return c, fmt.Errorf("%w: what a micro-batch takes is measured of sampled batches, on a store with features", ErrConfig)
	}
	err = r.call(ctx, nil, func(ctx context.Context) error {
		r.mu.Lock()
		params := r.params
		r.mu.Unlock()
		u := newUpdater(r, params)
		defer u.close(r)
		r.engine(u, 0).SetThreads(1)
		l, n := features.LayoutOf(r.data.ds.NodeFeatures), 0
		if err := r.tryBatches(ctx, u, 1+costTrials, func(b *sampling.Batch, took Costs) {
			if n++; n > 1 {
				took.BlockBytes, took.RowBytes = int64(len(messages.AppendBatch(nil, b))), int64(b.NumInputs())*int64(l.RowBytes())
				c.Sample, c.Compute = c.Sample+took.Sample, c.Compute+took.Compute
				c.BlockBytes, c.RowBytes = c.BlockBytes+took.BlockBytes, c.RowBytes+took.RowBytes
			}
		}); err != nil {
			return err
		}
		n = max(n-1, 1)
		c = Costs{c.Sample / time.Duration(n), c.Compute / time.Duration(n), c.BlockBytes / int64(n), c.RowBytes / int64(n)}
		return nil
	})
	return c, err
}
