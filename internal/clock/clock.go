// Package clock adds up how long each stage of the dataflow was busy, so that
// overlap can be measured and not guessed.
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
}

// Add records that an actor of stage was busy for d.
func (r *Recorder) Add(s Stage, d time.Duration) {
	r.mu.Lock()
	r.busy[s] += d
	r.mu.Unlock()
}

// Busy returns the busy time of every stage so far, summed over its actors.
func (r *Recorder) Busy() [Stages]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy
}

// Overlap returns the longest stage's busy time divided by wall: 1 means that
// every other stage was hidden behind the longest one. A stage of n actors is
// busy for an n-th of their sum; fewer than 1 are taken as 1.
func Overlap(busy [Stages]time.Duration, actors [Stages]int, wall time.Duration) float64 {
	if wall <= 0 {
		return 0
	}
	var most time.Duration
	for s, d := range busy {
		most = max(most, d/time.Duration(max(actors[s], 1)))
	}
	return float64(most) / float64(wall)
}
