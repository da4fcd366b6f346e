package membership_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// trains returns a node that lives and trains, changed by what is said of it.
func trains(node string, epoch int64, but ...func(*membership.PeerView)) membership.PeerView {
	p := membership.PeerView{Peer: membership.Peer{Node: node, Epoch: epoch}, Lives: true, Trainer: true}
	for _, f := range but {
		f(&p)
	}
	return p
}

func gone(p *membership.PeerView)    { p.Lives = false }
func held(p *membership.PeerView)    { p.Lives, p.Held = false, true }
func drains(p *membership.PeerView)  { p.Drains = true }
func retired(p *membership.PeerView) { p.Trainer = false }

func failed(id int64) func(*membership.PeerView) {
	return func(p *membership.PeerView) { p.Failed = id }
}

func leftAt(id int64) func(*membership.PeerView) {
	return func(p *membership.PeerView) { p.Left = id }
}

func group(id int64, members ...membership.Peer) membership.Group {
	return membership.Group{ID: id, Members: members}
}

func record(g membership.Group, before ...membership.Group) membership.Record {
	return membership.Record{Group: g, Before: before}
}

// does fails unless a trainer did what is wanted.
func does(t *testing.T, what string, got []membership.Action, want ...membership.Action) {
	t.Helper()
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

var (
	a1, b2, c3, d4 = membership.Peer{Node: "a", Epoch: 1}, membership.Peer{Node: "b", Epoch: 2}, membership.Peer{Node: "c", Epoch: 3}, membership.Peer{Node: "d", Epoch: 4}
	b9             = membership.Peer{Node: "b", Epoch: 9}
)

// The leader writes the next group down when there is a better one, and none beside a group
// that may still make steps without it.
func TestLead(t *testing.T) {
	type over = map[string]membership.Over
	write := func(r membership.Record) []membership.Action { return []membership.Action{membership.Write{Record: r}} }
	await := func(members ...membership.Peer) []membership.Action {
		return []membership.Action{membership.Await{Members: members}}
	}
	for _, c := range []struct {
		what   string
		newest membership.Record
		peers  []membership.PeerView
		over   over
		want   []membership.Action
	}{
		{what: "nobody is there"},
		{what: "fewer than the run begins with", peers: []membership.PeerView{trains("a", 1)}},
		{what: "as many as the run begins with", peers: []membership.PeerView{trains("a", 1), trains("b", 2)}, want: write(record(group(0, a1, b2)))},
		{what: "in the order in which they joined", peers: []membership.PeerView{trains("a", 1), trains("b", 9), trains("c", 3)},
			want: write(record(group(0, a1, c3, b9)))},
		{what: "at most as many as are wanted, who joined first", peers: []membership.PeerView{trains("a", 1), trains("b", 9), trains("c", 3), trains("d", 4)},
			want: write(record(group(0, a1, c3, d4)))},
		{what: "who drains, trains no more or does not live is not taken", peers: []membership.PeerView{trains("a", 1, gone), trains("b", 2, drains), trains("c", 3, retired), trains("d", 4)}},
		{what: "a run that has begun goes on with fewer", newest: record(group(1, a1, b2)), peers: []membership.PeerView{trains("a", 1)}, over: over{"b": {From: 2, To: 2}},
			want: write(record(group(1, a1), group(1, a1, b2)))},
		{what: "nobody trains any more", newest: record(group(7, a1)), peers: []membership.PeerView{trains("a", 1, drains)}},
		{what: "the group stays", newest: record(group(7, a1, b2)), peers: []membership.PeerView{trains("a", 1), trains("b", 2)}},
		{what: "an older group had failed", newest: record(group(7, a1, b2)), peers: []membership.PeerView{trains("a", 1, failed(6)), trains("b", 2)}},
		{what: "the group failed", newest: record(group(7, a1, b2)), peers: []membership.PeerView{trains("a", 1, failed(7)), trains("b", 2)},
			want: write(record(group(7, a1, b2), group(7, a1, b2)))},
		{what: "those that are in stay in", newest: record(group(7, a1, b9)), peers: []membership.PeerView{trains("a", 1), trains("b", 9), trains("c", 3), trains("d", 4)},
			want: write(record(group(7, a1, c3, b9), group(7, a1, b9)))},
		{what: "one that drains is in no group more, if another has the state", newest: record(group(7, a1, b2)), peers: []membership.PeerView{trains("a", 1), trains("b", 2, drains)},
			want: write(record(group(7, a1), group(7, a1, b2)))},
		{what: "one that drains brings the state", newest: record(group(7, b2)), peers: []membership.PeerView{trains("a", 1), trains("b", 2, drains), trains("c", 3)},
			want: write(record(group(7, a1, b2, c3), group(7, b2)))},
		{what: "one that drains and does not live brings nothing", newest: record(group(7, b2)), peers: []membership.PeerView{trains("a", 1), trains("b", 2, drains, gone), trains("c", 3)},
			want: await(b2)},
		{what: "one that trains no more brings nothing", newest: record(group(7, b2)), peers: []membership.PeerView{trains("a", 1), trains("b", 2, drains, retired), trains("c", 3)},
			want: await(b2)},
		{what: "one that does not live may have made steps", newest: record(group(7, b2)), peers: []membership.PeerView{trains("a", 1), trains("b", 2, gone)}, want: await(b2)},
		{what: "one that has another place now may have, too", newest: record(group(7, b2)), peers: []membership.PeerView{trains("a", 1), trains("b", 9)}, want: await(b2)},
		{what: "one may be on its way back", newest: record(group(7, a1, b2)), peers: []membership.PeerView{trains("a", 1), trains("b", 2, held), trains("c", 3)}},
		{what: "one is over, the first of those that are", newest: record(group(7, b2)), peers: []membership.PeerView{trains("a", 1)}, over: over{"b": {From: 2, To: 5}},
			want: write(record(group(7, a1)))},
		{what: "one is over, the last of those that are", newest: record(group(7, b9)), peers: []membership.PeerView{trains("a", 1)}, over: over{"b": {From: 2, To: 9}},
			want: write(record(group(7, a1)))},
		{what: "one was before those that are over", newest: record(group(7, b2)), peers: []membership.PeerView{trains("a", 1)}, over: over{"b": {From: 3, To: 9}}, want: await(b2)},
		{what: "one came after those that are over", newest: record(group(7, b9)), peers: []membership.PeerView{trains("a", 1)}, over: over{"b": {From: 2, To: 8}}, want: await(b9)},
		{what: "one makes no step in the group any more", newest: record(group(7, b2)), peers: []membership.PeerView{trains("a", 1), trains("b", 2, retired, leftAt(7))},
			want: write(record(group(7, a1)))},
		{what: "one makes none in an older group", newest: record(group(7, b2)), peers: []membership.PeerView{trains("a", 1), trains("b", 2, retired, leftAt(6))}, want: await(b2)},
		{what: "an older group may make steps", newest: record(group(7, a1), group(5, b2), group(6, c3, d4)),
			peers: []membership.PeerView{trains("a", 1, failed(7)), trains("b", 2, gone), trains("c", 3, gone), trains("d", 4, retired, leftAt(6))},
			want:  await(b2, c3)},
		{what: "older groups share a member, of the same members the newest counts", newest: record(group(7, a1), group(4, a1, b2), group(5, a1, c3), group(6, a1, b2)),
			peers: []membership.PeerView{trains("a", 1, failed(7)), trains("b", 2, gone), trains("c", 3, gone)},
			want:  write(record(group(7, a1), group(5, a1, c3), group(6, a1, b2), group(7, a1)))},
	} {
		for _, leads := range []bool{true, false} {
			n := membership.NewTrainer(a1, 3, 2, time.Second)
			got := n.Step(0, membership.Seen{Record: c.newest, Peers: c.peers, Over: c.over, Leads: leads})
			if !leads {
				c.want = nil
			}
			does(t, c.what, got, c.want...)
			if n.Newest() != c.newest.ID {
				t.Errorf("%s: the newest group is %d", c.what, n.Newest())
			}
		}
	}
}

// Who has begun the newest group knows that the older ones make no steps any more, and one
// member more takes part in a group that works.
func TestLeadOfBegun(t *testing.T) {
	old, peers := group(5, b2), []membership.PeerView{trains("a", 1, failed(7)), trains("b", 2, gone)}
	for _, began := range []int64{0, 6, 7} {
		n := membership.NewTrainer(a1, 3, 1, time.Second)
		seen := membership.Seen{Record: record(group(7, a1), old), Peers: peers, Leads: true}
		does(t, "before it has begun", n.Step(0, seen), membership.Await{Members: []membership.Peer{b2}})
		does(t, "it wants a group", n.Step(0, membership.Want{}), membership.Enter{Group: group(7, a1)})
		does(t, "it has begun", n.Step(0, membership.Began{ID: began}))
		if began == 7 {
			does(t, "it is in the newest group", n.Step(0, seen), membership.Write{Record: record(group(7, a1), group(7, a1))})
		} else {
			does(t, "it is not yet in the newest group", n.Step(0, seen), membership.Await{Members: []membership.Peer{b2}})
		}
	}
}

// inGroup returns trainer a of group 7 of a and b, and how it sees both; more: it made a step.
func inGroup(t *testing.T, more bool) (*membership.Trainer, membership.Seen) {
	t.Helper()
	n := membership.NewTrainer(a1, 3, 1, time.Second)
	seen := membership.Seen{Record: record(group(7, a1, b2)), Peers: []membership.PeerView{trains("a", 1), trains("b", 2), trains("c", 3)}}
	does(t, "it sees its group", n.Step(0, seen))
	does(t, "it wants one", n.Step(0, membership.Want{}), membership.Enter{Group: group(7, a1, b2)})
	does(t, "it has begun", n.Step(0, membership.Began{ID: 7}))
	if more {
		does(t, "it made a step", n.Step(0, membership.Made{ID: 7, More: true}))
	}
	return n, seen
}

// A newer group ends the one before: after the step that it is at where that can be made, or at once.
func TestNewerGroup(t *testing.T) {
	closes := []membership.Action{membership.Close{}}
	for _, c := range []struct {
		what  string
		more  bool
		next  membership.Group
		b     membership.PeerView
		want  []membership.Action
		state membership.State
	}{
		{"the same group", true, group(7, a1, b2), trains("b", 2), nil, membership.Stepping},
		{"others are in the next one", true, group(8, a1, b2, c3), trains("b", 2), nil, membership.Leaving},
		{"one may be on its way back", true, group(8, a1, c3), trains("b", 2, held), nil, membership.Leaving},
		{"one is gone", true, group(8, a1, c3), trains("b", 2, gone), closes, membership.Outside},
		{"one has another place", true, group(8, a1, c3), trains("b", 9), closes, membership.Outside},
		{"it failed: the same are in the next one", true, group(8, a1, b2), trains("b", 2), closes, membership.Outside},
		{"it makes no steps yet", false, group(8, a1, b2, c3), trains("b", 2), closes, membership.Outside},
	} {
		n, seen := inGroup(t, c.more)
		seen.Record.Group, seen.Peers[1] = c.next, c.b
		does(t, c.what, n.Step(0, seen), c.want...)
		if n.State() != c.state || n.In(7) != (c.state != membership.Outside) || n.In(8) {
			t.Errorf("%s: it is %v", c.what, n.State())
		}
		does(t, "another group's step", n.Step(0, membership.Made{ID: 6, More: true}))
		made := n.Step(0, membership.Made{ID: 7, More: true})
		if c.state == membership.Leaving {
			does(t, c.what, made, membership.End{})
		} else {
			does(t, c.what, made)
		}
		if n.In(7) != (c.state == membership.Stepping) {
			t.Errorf("%s: after a step it is %v", c.what, n.State())
		}
	}
}

// A group that is not the one that was tried is entered, if all of its members live and this
// node is one.
func TestEnters(t *testing.T) {
	for _, c := range []struct {
		what string
		next membership.Group
		b    membership.PeerView
		want []membership.Action
	}{
		{"the one that it was in", group(7, a1, b2), trains("b", 2), nil},
		{"an older one", group(6, a1, b2), trains("b", 2), nil},
		{"a newer one", group(8, a1, b2), trains("b", 2), []membership.Action{membership.Enter{Group: group(8, a1, b2)}}},
		{"one without it", group(8, b2), trains("b", 2), nil},
		{"one of its former place", group(8, membership.Peer{Node: "a"}, b2), trains("b", 2), nil},
		{"one has gone", group(8, a1, b2), trains("b", 2, gone), nil},
		{"one is held", group(8, a1, b2), trains("b", 2, held), nil},
		{"one has no place", group(8, a1, d4), trains("b", 2), nil},
	} {
		n, seen := inGroup(t, true)
		n.Step(0, membership.Aborted{ID: 7})
		seen.Record.Group, seen.Peers[1] = c.next, c.b
		does(t, c.what, n.Step(0, seen))
		does(t, c.what, n.Step(0, membership.Want{}), c.want...)
		if in := c.want != nil; n.In(8) != in || in != (n.State() == membership.Entered) {
			t.Errorf("%s: it is %v", c.what, n.State())
		}
	}
}

// One that drains goes when nobody needs what it has: the others have it, or there are none.
func TestDraining(t *testing.T) {
	me := trains("a", 1, drains)
	for _, c := range []struct {
		what       string
		next       membership.Group
		b          membership.PeerView
		look, want []membership.Action
	}{
		{"the next group is without it", group(8, b2), trains("b", 2), nil, []membership.Action{membership.Drained{}}},
		{"the next group has its state from it", group(8, a1, b2, c3), trains("b", 2), nil, []membership.Action{membership.Enter{Group: group(8, a1, b2, c3)}}},
		{"another may be on its way back", group(8, b2), trains("b", 2, held), nil, []membership.Action{membership.Drained{}}},
		{"nobody else is there", group(8, b2), trains("b", 2, gone), []membership.Action{membership.Close{}}, []membership.Action{membership.Last{}}},
		{"the other drains, too", group(7, a1, b2), trains("b", 2, drains), []membership.Action{membership.Close{}}, []membership.Action{membership.Last{}}},
		{"the other trains no more", group(7, a1, b2), trains("b", 2, retired), []membership.Action{membership.Close{}}, []membership.Action{membership.Last{}}},
	} {
		n, seen := inGroup(t, true)
		seen.Record.Group, seen.Peers = c.next, []membership.PeerView{me, c.b, trains("c", 3, func(p *membership.PeerView) { p.Trainer = c.next.ID == 8 && len(c.next.Members) == 3 })}
		does(t, c.what, n.Step(0, seen), c.look...)
		n.Step(0, membership.Made{ID: 7})
		does(t, c.what, n.Step(0, membership.Want{}), c.want...)
	}
}

// One that made the run's last step says so when a newer group waits for it, once.
func TestRetires(t *testing.T) {
	n, seen := inGroup(t, true)
	if n.HasEnded() {
		t.Error("it has ended before its last step")
	}
	seen.Record.Group = group(7, a1, b2)
	does(t, "its group is the newest", n.Step(0, membership.Ended{Is: true}))
	if !n.HasEnded() {
		t.Error("it has not ended after its last step")
	}
	seen.Record.Group = group(8, b2, c3)
	does(t, "a newer group is without it", n.Step(0, seen))
	seen.Record.Group = group(8, a1, b2, c3)
	does(t, "a newer group has it", n.Step(0, seen), membership.Retire{ID: 8})
	seen.Peers[0].Left = 7
	does(t, "it left an older one", n.Step(0, seen), membership.Retire{ID: 8})
	seen.Peers[0].Left = 8
	does(t, "it said so", n.Step(0, seen))
	seen.Peers[0].Left = 0
	n.Step(0, membership.Ended{})
	does(t, "it begins another run", n.Step(0, seen))
	if n.HasEnded() {
		t.Error("it begins another run, and has ended")
	}
}

// Of a group that broke the members are suspected at once, and the leader is told after a
// while, unless there is a newer one.
func TestBroken(t *testing.T) {
	const at, wait = 5 * time.Second, time.Second
	suspect := membership.Suspect{Members: []membership.Peer{a1, b2}}
	waits := func(n *membership.Trainer, want bool) {
		t.Helper()
		if due, is := n.Next(); is != want || is && due != at+wait {
			t.Errorf("it waits %t, until %v; want %t", is, due, want)
		}
	}
	n, seen := inGroup(t, true)
	waits(n, false)
	does(t, "a tick, and nothing broke", n.Step(at, membership.Tick{}))
	does(t, "the group broke", n.Step(at, membership.Aborted{ID: 7}), suspect)
	if n.State() != membership.Outside {
		t.Errorf("its group broke, and it is %v", n.State())
	}
	waits(n, true)
	does(t, "it wants the same group again", n.Step(at, membership.Want{}))
	does(t, "too early", n.Step(at+wait-1, membership.Tick{}))
	does(t, "the same group is the newest", n.Step(at, seen))
	waits(n, true)
	does(t, "it tells the leader", n.Step(at+wait, membership.Tick{}), membership.Tell{ID: 7})
	waits(n, false)
	does(t, "it has told the leader", n.Step(at+wait, membership.Tick{}))

	n, seen = inGroup(t, true)
	n.Step(at, membership.Aborted{ID: 7})
	seen.Record.Group = group(8, a1, c3)
	does(t, "a newer group", n.Step(at, seen))
	waits(n, false)
	does(t, "nobody has to be told", n.Step(at+wait, membership.Tick{}))

	n, seen = inGroup(t, true)
	seen.Record.Group = group(8, a1, c3)
	does(t, "a newer group is there", n.Step(at, seen))
	does(t, "the older one broke", n.Step(at, membership.Aborted{ID: 7}))
	waits(n, false)

	n, _ = inGroup(t, true)
	does(t, "a group broke that it is not in", n.Step(at, membership.Aborted{ID: 6}))
	if n.State() != membership.Stepping {
		t.Errorf("another group broke, and it is %v", n.State())
	}

	// The numbers of groups are revisions, which may be small.
	n = membership.NewTrainer(a1, 3, 1, wait)
	seen = membership.Seen{Record: record(group(1, a1)), Peers: []membership.PeerView{trains("a", 1)}}
	does(t, "a tick before any group", n.Step(at, membership.Tick{}))
	n.Step(0, seen)
	n.Step(0, membership.Want{})
	does(t, "the first group broke", n.Step(at, membership.Aborted{ID: 1}), membership.Suspect{Members: []membership.Peer{a1}})
	waits(n, true)
	seen.Record.ID = 2
	n.Step(at, seen)
	waits(n, false)
}
