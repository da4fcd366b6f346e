// Package clock records when each stage of the dataflow was busy, so that
// overlap can be measured and not guessed.
//
// A Recorder always adds up busy time per stage, at the cost of two readings of
// the clock a span. Asked to keep spans (Keep), it also remembers each with its
// batch, its lane and its CPU time: WriteTrace writes them for Perfetto and
// chrome://tracing, and Spans gives them to whoever draws.
package clock

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Stage is a kind of work.
type Stage uint8

// The stages of a batch, in the order in which it passes through them, and after them
// those of a program's own, whose names a Recorder knows: Own, Own+1, …
const (
	Sample Stage = iota
	Reorder
	Match
	Load
	Cache
	Copy // of rows to a device's memory, by its clock
	Compute
	Update
	Own
	Stages = Own + MaxOwn // how many there are
)

// MaxOwn is how many stages of its own a program may have.
const MaxOwn = 8

var names = [Own]string{"sample", "reorder", "match", "load", "cache", "copy", "compute", "update"}

// String returns the name in tables and traces of a stage that every program has.
func (s Stage) String() string {
	if s < Own {
		return names[s]
	}
	return fmt.Sprintf("own %d", s-Own+1)
}

// Recorder adds up busy time per stage. Its zero value is ready, and its methods
// may be called from any goroutine.
type Recorder struct {
	keeping atomic.Bool      // spans are kept
	now     func() time.Time // nil: time.Now
	own     []string         // names of the stages from Own on

	mu      sync.Mutex
	busy    [Stages]time.Duration
	cpu     [Stages]time.Duration
	active  [Stages]int // spans under way
	since   [Stages]time.Time
	union   [Stages]time.Duration
	began   time.Time // of the first span that was kept
	spans   []Interval
	limit   int
	dropped int
	lanes   [Stages][]bool // taken ones
}

// At returns a recorder that reads the time from now, for tests.
func At(now func() time.Time) *Recorder { return &Recorder{now: now} }

// SetNames names the stages of the program's own, from Own on, before anything is recorded.
func (r *Recorder) SetNames(own ...string) { r.own = own }

// Name returns a stage's name.
func (r *Recorder) Name(s Stage) string {
	if i := int(s) - int(Own); i >= 0 && i < len(r.own) {
		return r.own[i]
	}
	return s.String()
}

// Interval is one span of work.
type Interval struct {
	Stage Stage
	Lane  int           // spans of a stage that overlap lie in different lanes
	Name  string        // the batch: "train/e3/b17"
	Begin time.Duration // since the first span
	Wall  time.Duration
	CPU   time.Duration // of the thread that worked; 0 where nobody measures it
}

// Keep has the recorder keep its next limit spans; it is to be called before
// the first one. Further spans are only counted.
func (r *Recorder) Keep(limit int) {
	r.mu.Lock()
	r.limit = limit
	r.mu.Unlock()
	r.keeping.Store(true)
}

// Keeping reports whether spans are kept, so that they are worth a name.
func (r *Recorder) Keeping() bool { return r.keeping.Load() }

// Now returns the time by the recorder's clock.
func (r *Recorder) Now() time.Time {
	if r.now != nil {
		return r.now()
	}
	return time.Now()
}

// Span is work in progress. End must be called once.
type Span struct {
	r      *Recorder
	stage  Stage
	lane   int
	thread bool // CPU time is measured: the goroutine is locked to its thread
	cpu    time.Duration
	begin  time.Time
}

// Begin starts a span that may end on another goroutine.
func (r *Recorder) Begin(s Stage) Span {
	span := Span{r: r, stage: s, lane: -1}
	keeping := r.keeping.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	if keeping {
		span.lane = r.takeLane(s)
	}
	span.begin = r.Now()
	if r.active[s]++; r.active[s] == 1 {
		r.since[s] = span.begin
	}
	return span
}

// BeginThread starts a span that ends on the same goroutine; where spans are
// kept, the CPU time of its thread is measured too.
func (r *Recorder) BeginThread(s Stage) Span {
	span := r.Begin(s)
	if span.lane >= 0 {
		runtime.LockOSThread()
		span.thread, span.cpu = true, ThreadCPU()
	}
	return span
}

// End books the span; name is that of the batch.
func (s Span) End(name string) {
	end := s.r.Now()
	wall := end.Sub(s.begin)
	var cpu time.Duration
	if s.thread {
		cpu = ThreadCPU() - s.cpu
		runtime.UnlockOSThread()
	}
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy[s.stage] += wall
	r.cpu[s.stage] += cpu
	if r.active[s.stage]--; r.active[s.stage] == 0 {
		r.union[s.stage] += max(end.Sub(r.since[s.stage]), 0)
	}
	if s.lane < 0 {
		return
	}
	r.lanes[s.stage][s.lane] = false
	r.keep(Interval{Stage: s.stage, Lane: s.lane, Name: name, Wall: wall, CPU: cpu}, s.begin)
}

// Record books a span of work that others have timed; spans of its stage do not overlap.
func (r *Recorder) Record(s Stage, name string, begin, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wall := end.Sub(begin)
	r.busy[s] += wall
	r.union[s] += wall
	if r.keeping.Load() {
		r.keep(Interval{Stage: s, Name: name, Wall: wall}, begin)
	}
}

// keep remembers a span, if there is room.
func (r *Recorder) keep(i Interval, begin time.Time) {
	if len(r.spans) >= r.limit {
		r.dropped++
		return
	}
	if r.began.IsZero() || begin.Before(r.began) {
		shift := r.began.Sub(begin)
		if r.began.IsZero() {
			shift = 0
		}
		for i := range r.spans {
			r.spans[i].Begin += shift
		}
		r.began = begin
	}
	i.Begin = begin.Sub(r.began)
	r.spans = append(r.spans, i)
}

// takeLane takes the lowest free lane of a stage.
func (r *Recorder) takeLane(s Stage) int {
	for i, taken := range r.lanes[s] {
		if !taken {
			r.lanes[s][i] = true
			return i
		}
	}
	r.lanes[s] = append(r.lanes[s], true)
	return len(r.lanes[s]) - 1
}

// Add records that an actor of stage was busy for d.
func (r *Recorder) Add(s Stage, d time.Duration) {
	r.mu.Lock()
	r.busy[s] += d
	r.mu.Unlock()
}

// AddCPU records CPU time that other threads spent on stage.
func (r *Recorder) AddCPU(s Stage, d time.Duration) {
	r.mu.Lock()
	r.cpu[s] += d
	r.mu.Unlock()
}

// Busy returns the busy time of every stage so far, summed over its actors.
func (r *Recorder) Busy() [Stages]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy
}

// Occupied returns for how long at least one span of every stage was under way
// so far: of a stage that always has one, all the time since its first.
func (r *Recorder) Occupied() [Stages]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	occupied := r.union
	for s, n := range r.active {
		if n > 0 {
			occupied[s] += max(r.Now().Sub(r.since[s]), 0)
		}
	}
	return occupied
}

// CPU returns the CPU time of every stage so far, of the spans that were kept.
func (r *Recorder) CPU() [Stages]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cpu
}

// Spans returns the spans that were kept, in the order in which they ended, and
// how many more there were.
func (r *Recorder) Spans() (spans []Interval, dropped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Interval(nil), r.spans...), r.dropped
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
