package runtime

import (
	"math"
	"strings"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/scheduler"
)

const (
	refineSkip  = 4  // batches that warm up, and fill the pipeline after a change
	refineEvery = 12 // batches that are measured
)

// refiner measures the first batches of a run and changes what no result
// depends on.
type refiner struct {
	tuner *scheduler.Tuner
	over  bool // there is nothing left to gain
	steps int  // since the last change
	began time.Time
	busy  [clock.Stages]time.Duration
	rows  RowStats
}

func (r *Runtime) newRefiner() *refiner {
	return &refiner{tuner: r.plan.NewTuner(r.request())}
}

// applied counts a step, and returns what is to be changed now, with the reasons.
// counted returns the rows of the run so far.
func (f *refiner) applied(rec *clock.Recorder, counted func() RowStats) (change *messages.Tune, why string) {
	if f.over {
		return nil, ""
	}
	f.steps++
	busy := rec.Busy()
	busy[clock.Load] = rec.Occupied()[clock.Load]
	switch f.steps {
	case refineSkip:
		f.began, f.busy, f.rows = rec.Now(), busy, counted()
		return nil, ""
	case refineSkip + refineEvery:
	default:
		return nil, ""
	}
	for s := range busy {
		busy[s] -= f.busy[s]
	}
	rows := counted()
	next, reasons := f.tuner.Next(scheduler.Measured{
		Batches: refineEvery, Wall: rec.Now().Sub(f.began), Sample: busy[clock.Sample], Load: busy[clock.Load], Compute: busy[clock.Compute],
		Rows: rows.Asked - f.rows.Asked, Hits: rows.Cached - f.rows.Cached,
	})
	f.steps = 0
	if f.over = reasons == nil; f.over {
		return nil, ""
	}
	return tune(next), strings.Join(reasons, "; ")
}

func tune(t scheduler.Tuning) *messages.Tune {
	return &messages.Tune{
		Samplers: t.Samplers, Credits: t.Credits, Ahead: t.Ahead, Loaders: t.Loaders,
		Cache: int(t.Cache), Threads: t.Threads, Copied: t.Copied,
	}
}

// refine changes p if that pays, and reports it.
func (t *trainCall) refine(f *refiner, p *actors.Pipeline, epoch int) error {
	change, why := f.applied(&t.clock, t.counted)
	if change == nil {
		return nil
	}
	p.Tune(*change)
	t.samplers = max(t.samplers, change.Samplers)
	t.r.log.Info("plan changed", "why", why)
	return t.emit(Event{
		Kind: EventTune, Epoch: epoch, Message: why, Loss: math.NaN(), TrainAccuracy: math.NaN(), ValidAccuracy: math.NaN(), TestAccuracy: math.NaN(),
	})
}
