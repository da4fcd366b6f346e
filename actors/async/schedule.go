package async

import (
	"fmt"
	"slices"
)

// schedule decides who computes which step, on which version of the parameters,
// and which gradient is applied next. It is not safe for concurrent use.
//
// Invariant: of the steps that are begun and not applied, the one with the k-th
// oldest version (k = 0, 1, …) has staleness at most bound − k. So they can all
// be applied, oldest first, and none gets staler than the bound.
type schedule struct {
	bound   int64
	version int64   // of the parameters: steps applied
	next    int64   // the first step that was never dealt
	end     int64   // steps before it are made
	again   []int64 // steps that were dealt to trainers that are gone, in order
	tasks   map[int64]*task
	begun   int     // of tasks
	arrived []*task // begun, with their gradient, in order of arrival
	high    int64   // every step that was begun lies before it
}

// task is a step that is dealt and not applied.
type task struct {
	step    int64
	trainer string
	version int64        // that it is computed on; −1: it is not begun
	push    *pendingPush // its gradient, when that is there
}

func newSchedule(first, end int64, bound int) *schedule {
	return &schedule{bound: int64(bound), version: first, next: first, end: end, high: first, tasks: map[int64]*task{}}
}

// deal gives a trainer the next step; false: there is none now.
func (s *schedule) deal(trainer string) (int64, bool) {
	var step int64
	switch {
	case len(s.again) > 0:
		step, s.again = s.again[0], s.again[1:]
	case s.next < s.end:
		step = s.next
		s.next++
	default:
		return 0, false
	}
	s.tasks[step] = &task{step: step, trainer: trainer, version: -1}
	return step, true
}

// over reports that every step is applied.
func (s *schedule) over() bool { return s.version == s.end }

// begin lets a trainer compute a step on the present version; false: not yet,
// for its gradient could get too stale.
func (s *schedule) begin(trainer string, step int64) (bool, error) {
	t := s.tasks[step]
	if t == nil || t.trainer != trainer || t.version >= 0 {
		return false, fmt.Errorf("async: step %d is not one that %s may begin", step, trainer)
	}
	if int64(s.begun) > s.bound {
		return false, nil
	}
	t.version = s.version
	s.begun++
	s.high = max(s.high, step+1)
	return true, nil
}

// arrive takes a gradient.
func (s *schedule) arrive(p *pendingPush) error {
	t := s.tasks[p.Step]
	if t == nil || t.trainer != p.trainer || t.version != p.Version || t.version < 0 || t.push != nil {
		return fmt.Errorf("async: no gradient of step %d on version %d is expected of %s", p.Step, p.Version, p.trainer)
	}
	t.push = p
	s.arrived = append(s.arrived, t)
	return nil
}

// due returns the gradient to apply next: the one that came first, of those after
// which the others can still be applied in time. nil: there is none now.
func (s *schedule) due() *task {
	for _, t := range s.arrived {
		if s.fits(t) {
			return t
		}
	}
	return nil
}

// fits reports whether the invariant holds when t was applied.
func (s *schedule) fits(t *task) bool {
	var versions []int64
	for _, o := range s.tasks {
		if o != t && o.version >= 0 {
			versions = append(versions, o.version)
		}
	}
	slices.Sort(versions)
	for k, v := range versions {
		if s.version+1+int64(k)-v > s.bound {
			return false
		}
	}
	return true
}

// apply books that t was applied, and returns how stale it was.
func (s *schedule) apply(t *task) int64 {
	stale := s.version - t.version
	s.arrived = slices.DeleteFunc(s.arrived, func(o *task) bool { return o == t })
	delete(s.tasks, t.step)
	s.begun--
	s.version++
	return stale
}

// gone takes back the steps of a trainer whose gradients will not come.
func (s *schedule) gone(of func(trainer string) bool) {
	for step, t := range s.tasks {
		if t.push != nil || !of(t.trainer) {
			continue
		}
		delete(s.tasks, step)
		if t.version >= 0 {
			s.begun--
		}
		if step < s.end {
			s.again = append(s.again, step)
		}
	}
	slices.Sort(s.again)
}

// stop ends the run as soon as the steps that are applied are a prefix of it: no
// step is begun any more but those before one that was.
func (s *schedule) stop() {
	s.end = max(s.high, s.version)
	s.next = min(s.next, s.end)
	s.again = slices.DeleteFunc(s.again, func(step int64) bool { return step >= s.end })
	for step := range s.tasks {
		if step >= s.end {
			delete(s.tasks, step)
		}
	}
}
