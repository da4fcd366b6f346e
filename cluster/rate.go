package cluster

import (
	"sync"
	"time"
)

// rate is how fast a count grows, over the last seconds in which it was told.
// The zero value is ready; its methods may be called by several goroutines.
type rate struct {
	mu      sync.Mutex
	samples []sample // the oldest first
}

type sample struct {
	at    time.Time
	count int64
}

// window is what rate looks back on.
const window = 5 * time.Second

// At tells the count at a time.
func (r *rate) At(now time.Time, count int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.samples); n > 0 && now.Sub(r.samples[n-1].at) < window/50 {
		return // often enough
	}
	old := 0
	for old+1 < len(r.samples) && now.Sub(r.samples[old+1].at) >= window {
		old++
	}
	r.samples = append(r.samples[:0], r.samples[old:]...)
	r.samples = append(r.samples, sample{now, count})
}

// PerSecond returns the growth until now, at which it is count.
func (r *rate) PerSecond(now time.Time, count int64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.samples {
		if d := now.Sub(s.at); d < 2*window && d > 0 {
			return float64(count-s.count) / d.Seconds()
		}
	}
	return 0
}
