package runtime

import (
	"fmt"

	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/internal/memlimit"
	"github.com/gnnactor/gnnactor/scheduler"
)

// ErrMemory is wrapped when a run would take more memory than it may; see
// Config.Memory.Limit.
var ErrMemory = scheduler.ErrMemory

// limit returns the smallest limit on the run's memory.
func (c *MemoryConfig) limit() (l scheduler.Limit, err error) {
	switch c.Limit {
	case "":
		if here := memlimit.Here(); len(here) > 0 {
			l = scheduler.Limit(here[0])
		}
		return l, nil
	case "none":
		return l, nil
	}
	n, err := features.ParseBytes(c.Limit)
	if err != nil || n < 1 {
		return l, fmt.Errorf("memory-limit: %q is neither a size such as 8GiB nor none", c.Limit)
	}
	return scheduler.Limit{Bytes: int64(n), From: "memory-limit"}, nil
}

// checkFeatureCopies reports that the copies of features that are about to be made do
// not fit.
func (d *openData) checkFeatureCopies(cfg *settings) error {
	f := d.ds.NodeFeatures
	if f == nil || cfg.Data.Rows != nil {
		return nil
	}
	var bytes int64
	if cfg.Data.NormalizeFeatures {
		bytes = 4 * int64(f.Rows) * int64(f.Cols)
	}
	if cfg.where.Kind == features.RAM && d.store != nil {
		bytes += int64(len(f.Data))
	}
	return scheduler.Within(d.limit, "the copy of the features", bytes)
}

// checkParameters reports that so many parameters do not fit, before there are any.
func (r *Runtime) checkParameters() error {
	n := int64(r.model.Layout().Len())
	return scheduler.Within(r.data.limit, fmt.Sprintf("what %d parameters take with their gradients and moments", n), 4*n*int64(3+r.cfg.Sampling.MicroBatches))
}
