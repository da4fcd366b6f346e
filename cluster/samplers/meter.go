package samplers

import (
	"runtime"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
)

// Load is what sampling takes on a node, as it was measured lately.
type Load struct {
	Work  time.Duration `msgpack:"w"` // processor time of a micro-batch
	Cores float64       `msgpack:"c"` // processors that its samplers get; as many as there are, if they need not wait
}

// meter measures what a node's samplers take. A limit on processor time works in
// periods of a tenth of a second, so that nothing shorter than some of them tells
// anything.
type meter struct {
	only    bool           // the process does nothing else
	quota   func() float64 // of processors, by its control groups
	mu      sync.Mutex
	work    time.Duration // Load.Work, over some windows
	running int
	now     window
	last    window
	since   time.Time // that any has been running
	newest  time.Time // when the last window ended
}

// window is some time in which batches were drawn.
type window struct {
	batches   int
	cpu, wall time.Duration // of all draws
	busy      time.Duration // that any was running
}

// span is how long a window is, at least, while batches are drawn.
const span = 400 * time.Millisecond

// begin measures a draw; what it returns is called at its end, by the same goroutine.
func (m *meter) begin() (end func()) {
	runtime.LockOSThread()
	began, cpu := time.Now(), clock.ThreadCPU()
	m.mu.Lock()
	if m.running++; m.running == 1 {
		m.since = began
	}
	m.mu.Unlock()
	return func() {
		cpu = clock.ThreadCPU() - cpu
		runtime.UnlockOSThread()
		m.mu.Lock()
		defer m.mu.Unlock()
		now := time.Now()
		w := &m.now
		w.batches++
		w.cpu += cpu
		w.wall += now.Sub(began)
		w.busy += now.Sub(m.since)
		m.since = now
		m.running--
		if w.busy >= span {
			work := w.cpu
			if work <= 0 { // it is not measured here
				work = w.wall
			}
			if work /= time.Duration(w.batches); m.work > 0 {
				work = (3*m.work + work) / 4
			}
			m.work, m.last, m.now, m.newest = work, *w, window{}, now
		}
	}
}

// quiet reports whether no window ended since some time before at.
func (m *meter) quiet(at time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return at.Sub(m.newest) > resting/2
}

// full is the part of the time for which a sampler has a processor that waits for none. Where a quota bounds a node that only
// samples, what waits tells of others only if less than half of it is had: it bounds what sends batches, too, and
// who waits for it would seem to have less than who need not.
const full = 0.85

func (m *meter) load() (Load, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.last
	if w.batches == 0 {
		return Load{}, false
	}
	quota := m.quota()
	cores := min(float64(runtime.GOMAXPROCS(0)), quota)
	if got := w.cpu.Seconds() / w.busy.Seconds(); w.cpu > 0 && w.cpu.Seconds() < full*w.wall.Seconds() && !(m.only && got > quota/2) {
		cores = min(cores, got)
	}
	return Load{m.work, cores}, true
}

// resting is how long a node that only samples is idle before it is measured.
const resting = 4 * time.Second

// measure draws, for nobody, while the node is idle, so that it is known how fast it would
// be.
func (h *Host) measure() {
	tick := time.NewTicker(resting)
	defer tick.Stop()
	s := new(hosted)
	for {
		drawn := h.drawn.Load() // who is asked is not idle
		for began := time.Now(); h.drawn.Load() == drawn && h.meter.quiet(began) && time.Since(began) < 2*span; {
			if _, err := h.sample(s, &messages.Seeds{ID: h.run.First}); err != nil {
				return // whoever asks for it is told why
			}
			select {
			case <-h.stop:
				return
			default:
			}
		}
		select {
		case <-tick.C:
		case <-h.stop:
			return
		}
	}
}
