package membership

import (
	"fmt"
	"math"
	"time"
)

// Phase is how a node stands with the cluster. Fenced is for good.
type Phase int

const (
	Attached Phase = iota
	Detached
	Fenced
)

// Outcome is how a call to the store ended.
type Outcome int

const (
	Done Outcome = iota
	Failed
	Refused // the lease has ended, or the place is not this node's any more
)

// What a Standing hears of.
type (
	// Renewed: a renewal that was sent then ended.
	Renewed struct {
		Sent    Time
		Outcome Outcome
	}
	// Returned: the way back that was begun then ended.
	Returned struct {
		Sent    Time
		Outcome Outcome
	}
	// Read: the store's entries, as they were at some time after Sent; a watch does not
	// say when (Unsent).
	Read struct {
		Sent  Time
		Place bool // this node has its place
		Lives bool // its key says that it lives
		Leads bool
		// Absent are the members that have a place and do not live, by node.
		Absent map[string]Absent
	}
)

// Unsent is the time of a Read that only says what changed.
const Unsent Time = math.MinInt64

// Absent is a place whose node does not live. Modified is the revision at which the
// place was written last; coming back writes it.
type Absent struct {
	Epoch, Modified int64
	Terms           Terms
}

func (Renewed) event()  {}
func (Returned) event() {}
func (Read) event()     {}

// What a Standing wants done. At most one of Renew and Return is under way.
type (
	// Renew the lease, and say how it ended (Renewed) within a time.
	Renew struct{ Within time.Duration }
	// Return by a new lease, and say how it ended (Returned) within a time.
	Return struct{ Within time.Duration }
	// Fence this node: it makes no step from now on.
	Fence struct{ Why string }
	// Changed: other absent nodes are held than before.
	Changed struct{}
	// Remove the place of a node that is over, if it is still as it was.
	Remove struct {
		Node            string
		Epoch, Modified int64
		After           time.Duration
	}
)

func (Renew) action()   {}
func (Return) action()  {}
func (Fence) action()   {}
func (Changed) action() {}
func (Remove) action()  {}

// Standing is whether a node is a member.
type Standing struct {
	terms Terms
	phase Phase

	renewed Time // when the newest renewal that succeeded was sent
	read    Time // when the newest read was sent that showed that it is a member and lives
	now     Time // of the newest step
	ended   bool // the store said that the lease has ended
	calling bool // a call is under way
	call    Time // when the next one is due
	held    Time // until when absent nodes are held
	knows   bool // who lived when it came; of those that did not it cannot tell why
	came    Time
	absent  map[string]*absence
}

type absence struct {
	Absent
	since  Time
	let    bool // it is not held any more
	remove Time // when its place is to be removed
}

// NewStanding returns that of a node that was registered under a lease, both by calls
// that were sent not before began.
func NewStanding(t Terms, began, now Time) *Standing {
	return &Standing{terms: t, renewed: began, read: began, call: now + t.TTL/8, came: now, absent: map[string]*absence{}}
}

// Phase returns how the node stood at the last step.
func (s *Standing) Phase() Phase { return s.phase }

// deadline is when the node is fenced if it hears nothing.
func (s *Standing) deadline() Time {
	if s.terms.persists() {
		return s.read + s.terms.Outage
	}
	return s.renewed + s.terms.lease()
}

// MayStep reports whether the node may take part in a step that all of its group make.
func (s *Standing) MayStep(now Time) bool { return s.phase != Fenced && now < s.deadline() }

// MayDecide reports whether the node may do what takes a lease: make a step of its
// own, or publish.
func (s *Standing) MayDecide(now Time) bool {
	return s.phase == Attached && now < s.renewed+s.terms.lease() && s.MayStep(now)
}

// holds reports whether those that the store does not know to live may be on
// their way back: this node was without it, too.
func (s *Standing) holds(now Time) bool {
	return now < s.held || s.phase == Detached || now > s.renewed+s.terms.TTL/2
}

// Held reports whether an absent node counts as a member.
func (s *Standing) Held(node string) bool {
	a := s.absent[node]
	return a != nil && !a.let
}

// Next returns when a Tick is due.
func (s *Standing) Next() Time {
	next := s.deadline()
	if !s.calling {
		next = min(next, s.call)
	}
	if s.phase == Attached {
		next = min(next, s.renewed+s.terms.lease())
	}
	for _, a := range s.absent {
		if until := max(s.held, s.came+s.terms.Grace()); !a.let && until > s.now {
			next = min(next, until)
		}
		if s.phase == Attached {
			next = min(next, a.remove)
		}
	}
	return next
}

// Step takes an event in and returns what is to be done; calls to the store only
// after Tick, Renewed and Returned. Time does not run backwards.
func (s *Standing) Step(now Time, e Event) (do []Action) {
	if s.phase == Fenced {
		return nil
	}
	s.now = now
	switch e := e.(type) {
	case Renewed:
		s.calling = false
		switch e.Outcome {
		case Done:
			s.attach(now, e.Sent)
		case Refused:
			if s.ended, s.phase, s.call = true, Detached, now; !s.terms.persists() {
				return s.fence("its lease has ended in the store: the others have gone on without it")
			}
		default:
			s.call = now + s.terms.TTL/32
		}
	case Returned:
		s.calling = false
		switch e.Outcome {
		case Done:
			s.ended = false
			s.attach(now, e.Sent)
		case Refused:
			return s.fence("its place is another's, or gone")
		default:
			s.call = now + s.terms.TTL/32
		}
	case Read:
		if !e.Place {
			return s.fence("its place is another's, or gone")
		}
		if e.Lives {
			s.read = max(s.read, e.Sent)
		}
		s.miss(now, e.Absent)
	}
	if now >= s.deadline() {
		if s.terms.persists() {
			return s.fence(fmt.Sprintf("it heard nothing of the store for %v", s.terms.Outage))
		}
		return s.fence(fmt.Sprintf("it could not renew its lease for %v", s.terms.TTL))
	}
	if s.phase == Attached && now >= s.renewed+s.terms.lease() {
		s.phase = Detached
	}
	if _, read := e.(Read); !read && !s.calling && now >= s.call {
		s.calling = true
		within := min(s.terms.TTL/4, s.deadline()-now)
		if s.ended {
			do = append(do, Return{within})
		} else {
			do = append(do, Renew{within})
		}
	}
	return append(do, s.look(now)...)
}

func (s *Standing) fence(why string) []Action {
	s.phase = Fenced
	return []Action{Fence{why}}
}

// attach books a renewal, or a new lease. After a time without one others are
// given the time to come back.
func (s *Standing) attach(now, sent Time) {
	if s.phase == Detached || sent-s.renewed > s.terms.TTL/2 {
		s.held = now + s.terms.Grace()
	}
	s.renewed, s.phase, s.call = sent, Attached, sent+s.terms.TTL/8
}

// miss takes in who is absent.
func (s *Standing) miss(now Time, absent map[string]Absent) {
	for node := range s.absent {
		if _, is := absent[node]; !is {
			delete(s.absent, node)
		}
	}
	for node, is := range absent {
		if a := s.absent[node]; a == nil || a.Absent != is {
			s.absent[node] = &absence{Absent: is, since: now, let: s.knows && !s.holds(now), remove: now + is.Terms.Over()}
		}
	}
	s.knows = true
}

// look lets go of those that did not come back, and removes those that are over.
func (s *Standing) look(now Time) (do []Action) {
	holds, changed := s.holds(now) || now < s.came+s.terms.Grace(), false
	for node, a := range s.absent {
		if !a.let && !holds {
			a.let, changed = true, true
		}
		if s.phase == Attached && now >= a.remove {
			do = append(do, Remove{node, a.Epoch, a.Modified, now - a.since})
			a.remove = now + s.terms.TTL
		}
	}
	if changed {
		do = append(do, Changed{})
	}
	return do
}
