package scheduler

import (
	"fmt"
	"time"
)

// Tuning is what a running pipeline can change without changing a result. The
// plan alone decides whether compute reads rows where they lie or from a slab:
// where it can do the former, bringing them to a slab took longer in every
// measurement, and elsewhere there is no choice.
type Tuning struct {
	Samplers, Credits int
	Ahead, Loaders    int   // 0: nothing is loaded
	Cache             int64 // rows of a dynamic cache
	Threads           int   // of a trainer's kernels
	Copied            bool  // a batch's rows are copied together before the first layer reads them
}

// Tuning returns the plan's.
func (p *Plan) Tuning() Tuning {
	return Tuning{p.Samplers, p.Credits, p.Ahead, p.Loaders, p.CacheRows, p.Threads, p.Copied}
}

// Measured is what the stages did while Batches micro-batches were computed.
type Measured struct {
	Batches int
	Wall    time.Duration
	Sample  time.Duration // summed over samplers
	Load    time.Duration // in which anything was read
	Compute time.Duration // summed over trainers
	Rows    int64         // that batches asked the slab for
	Hits    int64         // of them: those that the dynamic cache held
}

// shares returns for which share of the time an actor of a stage was busy, and for
// which anything was read.
func (m *Measured) shares(p *Plan, now Tuning) (sample, load, compute float64) {
	of := func(d time.Duration, actors int) float64 {
		return float64(d) / float64(m.Wall) / float64(max(actors, 1))
	}
	return of(m.Sample, now.Samplers), of(m.Load, 1), of(m.Compute, p.Trainers)
}

const (
	// A stage that is busy for less than busyShare of the time waits for others.
	busyShare = 0.9
	// maxLoaders bounds the reads under way, and with them the slots.
	maxLoaders = 8
)

// Refine compares what was measured with the plan, at tuning now, and returns a
// better tuning with a reason for each change; none if there is nothing to gain.
// Numbers that the user fixed in r stay.
func (p *Plan) Refine(now Tuning, m Measured, r Request) (next Tuning, why []string) {
	next = now
	if m.Batches < 1 || m.Wall <= 0 {
		return now, nil
	}
	sample, load, compute := m.shares(p, now)
	say := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	credits := func() {
		// The batches under way stay as many, those that a window needs among them.
		next.Credits = share(now.Samplers*now.Credits, next.Samplers)
		if next.Samplers > now.Samplers {
			next.Credits = max(next.Credits, 2)
		}
		if next.Credits != now.Credits {
			say("%d credits each in place of %d", next.Credits, now.Credits)
		}
	}
	switch {
	case compute >= busyShare:
		// Nothing makes it faster but cores that others take.
		if need := int(sample*float64(now.Samplers)/busyShare) + 1; r.Samplers == 0 && need < now.Samplers {
			next.Samplers = need
			say("%d samplers in place of %d: compute is busy %.0f %% of the time, and they are for %.0f %%", need, now.Samplers, 100*compute, 100*sample)
			if r.Credits == 0 {
				credits()
			} else {
				next.Samplers = now.Samplers
				why = nil
			}
		}
	case p.Load && load >= busyShare && load >= sample:
		if r.Loaders == 0 && now.Loaders < p.MaxLoaders {
			next.Loaders = min(2*now.Loaders, p.MaxLoaders)
			next.Ahead = now.Ahead + next.Loaders - now.Loaders
			say("%d reads under way in place of %d: load is busy %.0f %% of the time and compute %.0f %%", next.Loaders, now.Loaders, 100*load, 100*compute)
			if total := now.Samplers * now.Credits; r.Credits == 0 && total <= next.Ahead {
				next.Credits = share(next.Ahead+1, now.Samplers)
				say("%d credits each in place of %d, for the batches ahead", next.Credits, now.Credits)
			}
		}
	case sample >= busyShare && r.Samplers == 0 && now.Samplers < p.MaxSamplers:
		next.Samplers = now.Samplers + 1
		say("%d samplers in place of %d: they are busy %.0f %% of the time, and compute for %.0f %%", next.Samplers, now.Samplers, 100*sample, 100*compute)
		if r.Credits == 0 {
			credits()
		}
	case r.Credits == 0 && sample < busyShare && load < busyShare && now.Samplers*now.Credits < p.MaxSamplers*maxCredits:
		// Nobody is busy all the time: batches come unevenly, and more of them even
		// that out.
		next.Credits = now.Credits + 1
		say("%d credits each in place of %d: no stage is busy for %.0f %% of the time", next.Credits, now.Credits, 100*busyShare)
	}
	if next.Samplers*next.Credits > p.MaxBatches {
		return now, nil // it would take more than the plan's peak
	}
	return next, why
}

// maxCredits is up to how many credits per sampler refining goes.
const maxCredits = 4
