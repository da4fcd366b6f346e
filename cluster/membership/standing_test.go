package membership_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

const ms = time.Millisecond

// stands is a standing whose clock a test sets.
type stands struct {
	*membership.Standing
	t *testing.T
}

// step fails unless what was wanted is to be done, and the next tick is due at next.
func (s *stands) step(now membership.Time, e membership.Event, next membership.Time, want ...membership.Action) {
	s.t.Helper()
	if got := s.Step(now, e); len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		s.t.Errorf("at %v, %T: %+v, want %+v", now, e, got, want)
	}
	if got := s.Next(); got != next {
		s.t.Errorf("at %v, %T: the next tick is due at %v, want %v", now, e, got, next)
	}
}

// fenced fails unless the standing ends with a reason, for good.
func (s *stands) fenced(now membership.Time, e membership.Event, why string) {
	s.t.Helper()
	before := s.Phase()
	if before == membership.Fenced {
		s.t.Errorf("at %v it was fenced before", now)
	}
	do := s.Step(now, e)
	if len(do) == 0 {
		s.t.Fatalf("at %v, %T: nothing is to be done", now, e)
	}
	if f, is := do[0].(membership.Fence); !is || len(do) != 1 || !strings.Contains(f.Why, why) {
		s.t.Errorf("at %v, %T: %+v", now, e, do)
	}
	if s.Phase() != membership.Fenced || s.MayStep(now) || s.MayDecide(now) {
		s.t.Errorf("at %v, after its end, it is %v", now, s.Phase())
	}
	for _, e := range []membership.Event{membership.Tick{}, membership.Renewed{Sent: now}, membership.Returned{Sent: now}, membership.Read{Sent: now, Place: true, Lives: true}} {
		if do := s.Step(now, e); do != nil || s.Phase() != membership.Fenced {
			s.t.Errorf("fenced, at %T: %+v", e, do)
		}
	}
}

// may fails unless the node may make steps, and decide, just before a time and not at it;
// 0: at no time that the test looks at, from now.
func (s *stands) may(now, step, decide membership.Time) {
	s.t.Helper()
	for what, c := range map[string]struct {
		may   func(membership.Time) bool
		until membership.Time
	}{"step": {s.MayStep, step}, "decide": {s.MayDecide, decide}} {
		if c.until == 0 {
			if c.may(now) {
				s.t.Errorf("at %v it may %s", now, what)
			}
			continue
		}
		if !c.may(now) || !c.may(c.until-1) || c.may(c.until) {
			s.t.Errorf("at %v it may %s: %t, just before %v %t, at it %t", now, what, c.may(now), c.until, c.may(c.until-1), c.may(c.until))
		}
	}
}

func seesItself(sent membership.Time) membership.Read {
	return membership.Read{Sent: sent, Place: true, Lives: true}
}

// Times of nodes, of which others know that they are over whatever their clocks.
func TestTerms(t *testing.T) {
	for _, c := range []struct{ ttl, outage, grace, over time.Duration }{
		{8 * time.Second, 0, 16 * time.Second, 16500 * ms},
		{8 * time.Second, 8 * time.Second, 16 * time.Second, 16500 * ms},
		{8 * time.Second, 24 * time.Second, 16 * time.Second, 33 * time.Second},
	} {
		terms := membership.Terms{TTL: c.ttl, Outage: c.outage}
		if terms.Grace() != c.grace || terms.Over() != c.over {
			t.Errorf("%+v: grace %v, over after %v", c, terms.Grace(), terms.Over())
		}
	}
}

// A node enters groups in rising order, each once.
func TestGate(t *testing.T) {
	var g membership.Gate
	for _, c := range []struct {
		id       uint64
		entered  bool
		now      uint64
		newer    uint64
		passedIt bool
	}{{3, true, 3, 4, false}, {3, false, 3, 4, false}, {2, false, 3, 4, false}, {4, true, 4, 3, true}} {
		if in := g.Enter(c.id); in != c.entered || g.Entered() != c.now || !g.Passed(c.id) || g.Passed(c.newer) != c.passedIt {
			t.Errorf("%+v: entered %t, is in %d, passed %d: %t", c, in, g.Entered(), c.newer, g.Passed(c.newer))
		}
	}
}

// A node renews its lease every eighth of it, or again soon where that fails; without a lease
// it decides nothing, and goes on for as long as an outage may last.
func TestStandingThroughOutage(t *testing.T) {
	terms := membership.Terms{TTL: 8 * time.Second, Outage: time.Minute}
	renew, comeBack := membership.Renew{Within: 2 * time.Second}, membership.Return{Within: 2 * time.Second}
	s := &stands{membership.NewStanding(terms, 100*ms, 500*ms), t}
	if s.Phase() != membership.Attached {
		t.Errorf("it begins as %v", s.Phase())
	}
	s.may(500*ms, 60100*ms, 7100*ms)
	s.step(1499*ms, membership.Tick{}, 1500*ms)
	s.step(1500*ms, membership.Tick{}, 7100*ms, renew)
	s.step(1600*ms, membership.Tick{}, 7100*ms) // one call is under way
	s.step(1700*ms, membership.Renewed{Sent: 1500 * ms, Outcome: membership.Failed}, 1950*ms)
	s.step(1950*ms, seesItself(membership.Unsent), 1950*ms) // a read makes no call
	s.step(1950*ms, membership.Tick{}, 7100*ms, renew)
	s.step(2*time.Second, membership.Renewed{Sent: 1950 * ms}, 2950*ms)
	s.may(2*time.Second, 60100*ms, 8950*ms)
	// What the store answers counts from when it was asked; a watch does not say when.
	s.step(2*time.Second, seesItself(1800*ms), 2950*ms)
	s.may(2*time.Second, 61800*ms, 8950*ms)
	for _, r := range []membership.Read{seesItself(1700 * ms), seesItself(membership.Unsent), {Sent: 2 * time.Second, Place: true}} {
		s.step(2*time.Second, r, 2950*ms)
		s.may(2*time.Second, 61800*ms, 8950*ms)
	}
	s.step(2950*ms, membership.Tick{}, 8950*ms, renew)
	s.step(8949*ms, membership.Tick{}, 8950*ms)
	if s.Phase() != membership.Attached {
		t.Error("its lease lives, and it does not count on it")
	}
	s.step(8950*ms, membership.Tick{}, 61800*ms)
	if s.Phase() != membership.Detached {
		t.Error("its lease may have ended, and it counts on it")
	}
	s.may(8950*ms, 61800*ms, 0)
	s.step(9*time.Second, membership.Renewed{Sent: 2950 * ms, Outcome: membership.Failed}, 9250*ms)
	s.step(9250*ms, membership.Tick{}, 61800*ms, renew)
	// The lease has ended: it comes back at once, or tries again soon.
	s.step(9500*ms, membership.Renewed{Sent: 9250 * ms, Outcome: membership.Refused}, 61800*ms, comeBack)
	s.may(9500*ms, 61800*ms, 0)
	s.step(10*time.Second, membership.Returned{Sent: 9500 * ms, Outcome: membership.Failed}, 10250*ms)
	s.step(10250*ms, membership.Tick{}, 61800*ms, comeBack)
	s.step(11*time.Second, membership.Returned{Sent: 10250 * ms}, 11250*ms)
	if s.Phase() != membership.Attached {
		t.Error("it is back by a new lease, and does not count on it")
	}
	s.may(11*time.Second, 61800*ms, 17250*ms)
	s.step(11250*ms, membership.Tick{}, 17250*ms, renew)
	// That lease has ended before its time: what the store says counts.
	s.step(12*time.Second, membership.Renewed{Sent: 11250 * ms, Outcome: membership.Refused}, 61800*ms, comeBack)
	if s.Phase() != membership.Detached {
		t.Error("its lease has ended, and it counts on it")
	}
	s.may(12*time.Second, 61800*ms, 0)
	s.step(60800*ms, membership.Returned{Sent: 12 * time.Second, Outcome: membership.Failed}, 61050*ms)
	s.step(61050*ms, membership.Tick{}, 61800*ms, membership.Return{Within: 750 * ms}) // no longer than it has
	s.step(61799*ms, membership.Tick{}, 61800*ms)
	s.fenced(61800*ms, membership.Tick{}, "it heard nothing of the store for 1m0s")
}

// A node is fenced when its place is another's, when its lease has ended, or may have, and it
// is not to go on without; and an answer that comes too late does not help.
func TestStandingEnds(t *testing.T) {
	short, long := membership.Terms{TTL: 8 * time.Second, Outage: 8 * time.Second}, membership.Terms{TTL: 8 * time.Second, Outage: 8*time.Second + 1}
	begin := func(terms membership.Terms) *stands { return &stands{membership.NewStanding(terms, 0, 0), t} }
	refused := membership.Renewed{Sent: time.Second, Outcome: membership.Refused}
	late := 7 * time.Second

	s := begin(short)
	s.may(0, late, late)
	s.step(late-1, seesItself(late-1), time.Second) // reads are no lease
	s.fenced(late, seesItself(late), "it could not renew its lease for 8s")
	begin(short).fenced(late, membership.Tick{}, "it could not renew its lease for 8s")
	begin(short).fenced(time.Second, refused, "its lease has ended in the store")
	begin(short).fenced(time.Second, membership.Read{Sent: 0, Lives: true}, "its place is another's, or gone")

	s = begin(long)
	s.may(0, 8*time.Second+1, late)
	s.step(2*time.Second, refused, 8*time.Second+1, membership.Return{Within: 2 * time.Second})
	s.fenced(3*time.Second, membership.Returned{Sent: 2 * time.Second, Outcome: membership.Refused}, "its place is another's, or gone")
	begin(long).fenced(time.Second, membership.Read{Sent: membership.Unsent}, "its place is another's, or gone")
}

// Who does not live any more is held where this node cannot tell why, or was away itself, and
// let go when all had the time to come back; its place goes when it is over.
func TestStandingOfOthers(t *testing.T) {
	terms := membership.Terms{TTL: 8 * time.Second, Outage: time.Hour}
	absent := func(sent membership.Time, all map[string]membership.Absent) membership.Read {
		r := seesItself(sent)
		r.Absent = all
		return r
	}
	short := membership.Terms{TTL: 8 * time.Second} // over after 16.5 s
	x := membership.Absent{Epoch: 5, Modified: 6, Terms: short}
	only := map[string]membership.Absent{"x": x}
	holds := func(s *stands, node string, want bool) {
		t.Helper()
		if s.Held(node) != want {
			t.Errorf("%s is held: %t", node, s.Held(node))
		}
	}
	// renew keeps the lease until a time, and returns when it was renewed last.
	renew := func(s *stands, from, to membership.Time) membership.Time {
		t.Helper()
		for ; from+time.Second <= to; from += time.Second {
			s.Step(from+time.Second, membership.Tick{})
			s.Step(from+time.Second, membership.Renewed{Sent: from + time.Second})
		}
		return from
	}

	// It comes, and x does not live: nobody knows why.
	s := &stands{membership.NewStanding(terms, 0, 0), t}
	s.step(0, absent(0, only), time.Second)
	holds(s, "x", true)
	holds(s, "y", false)
	renew(s, 0, 15*time.Second)
	holds(s, "x", true)
	s.step(16*time.Second-1, membership.Renewed{Sent: 16*time.Second - 1}, 16*time.Second) // when x is let go
	s.step(16*time.Second, membership.Tick{}, 16500*ms, membership.Changed{})
	holds(s, "x", false)
	s.step(16499*ms, membership.Tick{}, 16500*ms)
	s.step(16500*ms, membership.Tick{}, 17*time.Second-1, membership.Remove{Node: "x", Epoch: 5, Modified: 6, After: 16500 * ms})
	// It is to go once in a lease, until it is gone.
	renew(s, 16*time.Second-1, 24*time.Second-1)
	s.step(24500*ms-1, absent(membership.Unsent, only), 24500*ms)
	s.step(24500*ms, membership.Tick{}, 25*time.Second-1, membership.Remove{Node: "x", Epoch: 5, Modified: 6, After: 24500 * ms})
	// It was back, and is absent again: who is with the store knows that it is not on its way.
	s.step(24600*ms, absent(membership.Unsent, nil), 25*time.Second-1)
	y := x
	y.Modified = 9
	s.step(24700*ms, absent(membership.Unsent, map[string]membership.Absent{"x": y}), 25*time.Second-1)
	holds(s, "x", false)
	renew(s, 24*time.Second-1, 41*time.Second-1)
	s.step(41200*ms, membership.Tick{}, 42*time.Second-1, membership.Remove{Node: "x", Epoch: 5, Modified: 9, After: 16500 * ms})
	// Its place was written meanwhile: its time begins anew.
	y.Modified = 10
	s.step(41300*ms, absent(membership.Unsent, map[string]membership.Absent{"x": y}), 42*time.Second-1)
	renew(s, 41*time.Second-1, 57*time.Second-1)
	s.step(57799*ms, membership.Tick{}, 57800*ms)
	s.step(57800*ms, membership.Tick{}, 58*time.Second-1, membership.Remove{Node: "x", Epoch: 5, Modified: 10, After: 16500 * ms})

	// This node had no lease for more than half of one: others may be on their way back, too.
	for _, c := range []struct {
		away membership.Time
		held bool
	}{{4 * time.Second, false}, {4*time.Second + 1, true}} {
		s := &stands{membership.NewStanding(terms, 0, 0), t}
		s.Step(0, absent(0, nil))
		from := renew(s, 0, 20*time.Second)
		s.Step(from+c.away, absent(membership.Unsent, only))
		holds(s, "x", c.held)
		s.Step(from+c.away, membership.Tick{})
		s.Step(from+c.away, membership.Renewed{Sent: from + c.away})
		again := renew(s, from+c.away, from+c.away+15*time.Second)
		holds(s, "x", c.held)
		if c.held {
			until := from + c.away + 16*time.Second
			s.step(until-1, membership.Renewed{Sent: again}, until)
			s.step(until, membership.Tick{}, until+500*ms, membership.Renew{Within: 2 * time.Second}, membership.Changed{})
			holds(s, "x", false)
		}
	}

	// A lease that ended before its time, and one that is had anew: all wait for those that lost theirs.
	s = &stands{membership.NewStanding(terms, 0, 0), t}
	s.Step(0, absent(0, nil))
	from := renew(s, 0, 20*time.Second)
	s.Step(from+time.Second, membership.Tick{})
	s.Step(from+time.Second, membership.Renewed{Sent: from + time.Second, Outcome: membership.Refused})
	s.step(from+time.Second, absent(membership.Unsent, only), time.Hour)
	holds(s, "x", true)
	s.step(from+18*time.Second, membership.Tick{}, time.Hour) // it has no lease: it lets nobody go, and removes nobody
	holds(s, "x", true)
	from += 19 * time.Second
	s.step(from, membership.Returned{Sent: from}, from+time.Second, membership.Remove{Node: "x", Epoch: 5, Modified: 6, After: 18 * time.Second})
	holds(s, "x", true)
	renew(s, from, from+15*time.Second)
	holds(s, "x", true)
	renew(s, from+15*time.Second, from+16*time.Second)
	holds(s, "x", false)
}
