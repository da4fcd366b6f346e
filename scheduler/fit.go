package scheduler

import (
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/internal/memlimit"
)

// ErrMemory is wrapped when a run would take more memory than it may.
var ErrMemory = errors.New("scheduler: more memory than the limit")

// tightness is how far a plan goes to take less memory. What the user fixed
// stays.
type tightness int

const (
	ample   tightness = iota // measuring may add samplers, batches, reads, a cache and copies
	settled                  // it may not
	narrow                   // one read at once, small chunks of inference
	least                    // one sampler, one batch
)

var tightnesses = [...]string{settled: "nothing is added by measuring", narrow: "there is one read at once, and inference in the smallest chunks", least: "there is one sampler, with one batch under way"}

// remedy is what takes less memory, as far as it is the user's to say.
const remedy = "a smaller --batch-size or more --micro-batches, smaller --fanouts or --hidden, --features mmap or disk, fewer --samplers and --credits where they were given, or a higher limit; --memory-limit none ignores it"

// Fit is Build within the first of limits, which is the smallest: what the user
// did not fix is made smaller until the peak is no more, or Check says that it
// is all the same.
func Fit(s Sizes, r Request, limits []memlimit.Limit) *Plan {
	if len(limits) == 0 {
		return Build(s, r)
	}
	limit := limits[0]
	for ; ; r.tight++ {
		p := Build(s, r)
		p.Limit, p.LimitFrom = limit.Bytes, limit.From
		if r.tight > ample {
			p.Fitted = fmt.Sprintf("to fit %s (%s) %s", mebibytes(limit.Bytes), limit.From, tightnesses[r.tight])
		}
		if p.PeakBytes <= limit.Bytes || r.tight == least {
			return p
		}
	}
}

// Check reports, wrapping ErrMemory, that training may take more than the limit.
func (p *Plan) Check() error {
	if p.Limit == 0 {
		return nil
	}
	return Within([]memlimit.Limit{{Bytes: p.Limit, From: p.LimitFrom}}, "the plan's peak, with all as small as it may be,", p.PeakBytes)
}

// Within reports that so many bytes, of what, are over the first of limits.
func Within(limits []memlimit.Limit, what string, bytes int64) error {
	if len(limits) == 0 || bytes <= limits[0].Bytes {
		return nil
	}
	return fmt.Errorf("%w: %s is %s, and %s allows %s; what helps is %s", ErrMemory, what, mebibytes(bytes), limits[0].From, mebibytes(limits[0].Bytes), remedy)
}
