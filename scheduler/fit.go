package scheduler

import (
	"errors"
	"fmt"
)

// ErrMemory is wrapped when a run would take more memory than it may.
var ErrMemory = errors.New("scheduler: more memory than the limit")

// Limit is a bound on the memory of this process; the zero value is none.
type Limit struct {
	Bytes int64
	From  string // what says so: a control group's file, or a setting
}

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

// remedyOfPieces is remedy where pieces are computed in place, which reads nothing of sampling.
const remedyOfPieces = "more pieces (gnnactor partition --parts) on more nodes, --scratch DIR, in training --recompute and a smaller --hidden, or a higher limit; --memory-limit none ignores it"

// Fit is Build within limit, and the device's memory: what the user did not fix is made smaller until the
// peak is no more, or Check says that it is all the same.
func Fit(s Sizes, r Request, limit Limit) *Plan {
	for ; ; r.tight++ {
		p := Build(s, r)
		to, fits := "the device", p.DevicePeak <= p.DeviceBytes
		if limit != (Limit{}) {
			p.Limit, p.LimitFrom = limit.Bytes, limit.From
			to, fits = fmt.Sprintf("%s (%s)", mebibytes(limit.Bytes), limit.From), fits && p.PeakBytes <= limit.Bytes
			more := max(limit.Bytes-p.PeakBytes, 0) / max(p.InferenceBytes, 1)
			p.Inferences = int(min(int64(p.Inferences), 1+more))
		}
		if r.tight > ample {
			p.Fitted = fmt.Sprintf("to fit %s %s", to, tightnesses[r.tight])
		}
		if fits || r.tight == least {
			return p
		}
	}
}

// Check reports, wrapping ErrMemory, that training may take more than the limit, or than
// the device has.
func (p *Plan) Check() error {
	return errors.Join(Within(Limit{p.Limit, p.LimitFrom}, "the plan's peak, with all as small as it may be,", p.PeakBytes), p.checkDevice())
}

// Within reports that so many bytes, of what, are over the limit.
func Within(limit Limit, what string, bytes int64) error { return within(limit, what, bytes, remedy) }

// WithinOfPieces is Within for what is computed over the pieces of a partition set, all in place.
func WithinOfPieces(limit Limit, what string, bytes int64) error {
	return within(limit, what, bytes, remedyOfPieces)
}

func within(limit Limit, what string, bytes int64, remedy string) error {
	if limit == (Limit{}) || bytes <= limit.Bytes {
		return nil
	}
	need, allowed := mebibytes(bytes), mebibytes(limit.Bytes)
	if need == allowed {
		need, allowed = fmt.Sprintf("%d bytes", bytes), fmt.Sprintf("%d", limit.Bytes)
	}
	return fmt.Errorf("%w: %s is %s, and %s allows %s; what helps is %s", ErrMemory, what, need, limit.From, allowed, remedy)
}
