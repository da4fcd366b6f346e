// Package clock records when each stage of the dataflow was busy with which
// batch, so that overlap can be measured and not guessed.
package clock

import (
	"sync"
	"time"
)

// Stage is a kind of work.
type Stage uint8

// The stages of a batch, in the order in which it passes through them.
const (
	Sample Stage = iota
	Load
	Compute
	Update
	Stages // how many there are
)

var names = [Stages]string{"sample", "load", "compute", "update"}

// String returns the stage's name in tables and traces.
func (s Stage) String() string { return names[s] }

// Recorder adds up busy time per stage. Its methods may be called from any
// goroutine.
type Recorder struct {
	mu   sync.Mutex
	busy [Stages]time.Duration
	n    [Stages]int64
}

// Add records that stage was busy with one batch for d.
func (r *Recorder) Add(s Stage, d time.Duration) {
	r.mu.Lock()
	r.busy[s] += d
	r.n[s]++
	r.mu.Unlock()
}

// Busy returns the busy time of every stage so far.
func (r *Recorder) Busy() [Stages]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy
}

// Overlap returns the longest stage's busy time divided by wall: 1 means that
// every other stage was hidden behind the longest one.
func Overlap(busy [Stages]time.Duration, wall time.Duration) float64 {
	if wall <= 0 {
		return 0
	}
	var most time.Duration
	for _, d := range busy {
		most = max(most, d)
	}
	return float64(most) / float64(wall)
}
