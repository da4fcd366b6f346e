package membership

import (
	"cmp"
	"slices"
	"time"
)

// PeerView is a node that has a place.
type PeerView struct {
	Peer
	Lives   bool  // its lease does
	Held    bool  // it does not live, and may be on its way back
	Trainer bool  // it is one
	Drains  bool  // it is on its way out
	Failed  int64 // the newest group that did not work out for it
	Left    int64 // it makes no step in groups up to this one
}

func (p *PeerView) trains() bool { return p.Trainer && !p.Drains }

// Over says that the memberships of a node from one epoch to another are: the
// processes do nothing any more.
type Over struct{ From, To int64 }

// What a Trainer hears of.
type (
	// Seen is the newest view of the cluster.
	Seen struct {
		Record Record          // the newest group; ID 0: none
		Peers  []PeerView      // all places, by node
		Over   map[string]Over // by node
		Leads  bool
	}
	// Want: this node's state is ready for a group.
	Want struct{}
	// Began: all members of the group that this node entered have entered it.
	Began struct{ ID int64 }
	// Made: the group made a step; More: it is to make another.
	Made struct {
		ID   int64
		More bool
	}
	// Aborted: the group does not work for this node.
	Aborted struct{ ID int64 }
	// Ended: this node made its run's last step, or (not Is) begins another run.
	Ended struct{ Is bool }
)

func (Seen) event()    {}
func (Want) event()    {}
func (Began) event()   {}
func (Made) event()    {}
func (Aborted) event() {}
func (Ended) event()   {}

// What a Trainer wants done.
type (
	// Enter the group, and bring all its members to the furthest one's state.
	Enter struct{ Group Group }
	// Close the group that this node is in: it takes no part in steps any more.
	Close struct{}
	// End is Close after a step: the others may still get the step's result.
	End struct{}
	// Drained: this node's part is the others'.
	Drained struct{}
	// Last: this node drains, and nobody takes its part.
	Last struct{}
	// Suspect finds out whether nodes have died, and puts those that have out.
	Suspect struct{ Members []Peer }
	// Tell the leader that a group does not work.
	Tell struct{ ID int64 }
	// Retire says that this node trains no more, and makes no step in groups up to ID.
	Retire struct{ ID int64 }
	// Write a group down, in place of the one of its ID.
	Write struct{ Record Record }
	// Await: a group cannot be written before these are back, or over.
	Await struct{ Members []Peer }
)

func (Enter) action()   {}
func (Close) action()   {}
func (End) action()     {}
func (Drained) action() {}
func (Last) action()    {}
func (Suspect) action() {}
func (Tell) action()    {}
func (Retire) action()  {}
func (Write) action()   {}
func (Await) action()   {}

// Trainer is a node's part in the groups, and the leader's choice of the next one.
type Trainer struct {
	self       Peer
	maxMembers int
	minMembers int
	wait       time.Duration // for the leader to see by itself that a group broke

	seen  Seen
	tried int64 // the newest group that was entered
	group Group // that it is in
	open  bool
	began bool
	more  bool // the group makes steps
	last  bool // it makes no more than the one that it is at
	ended bool

	broke int64
	tell  Time
}

// NewTrainer returns that of a node, in a run of groups of at most maxMembers members that
// begins with minMembers; wait is how long the leader is given to see why a group broke.
func NewTrainer(self Peer, maxMembers, minMembers int, wait time.Duration) *Trainer {
	return &Trainer{self: self, maxMembers: maxMembers, minMembers: minMembers, wait: wait}
}

// State is what a trainer does in groups. In one group it only rises.
type State int

// The states of a trainer.
const (
	Outside  State = iota // it is in no group: it waits for one, or for the next one
	Entered               // it entered a group, of which not all members are known to have
	Stepping              // all members have entered, and make steps
	Leaving               // a newer group is written: it makes the step that it is at, and leaves
	Finished              // it made the run's last step
)

var stateNames = [...]string{"outside", "entered", "stepping", "leaving", "finished"}

// String returns the state in a word.
func (s State) String() string { return stateNames[s] }

// State returns what this node does.
func (t *Trainer) State() State {
	switch {
	case t.ended:
		return Finished
	case !t.open:
		return Outside
	case t.last:
		return Leaving
	case t.began:
		return Stepping
	}
	return Entered
}

// In reports whether this node takes part in the steps of a group.
func (t *Trainer) In(id int64) bool { return t.open && t.group.ID == id }

// Newest returns the number of the newest group that was seen.
func (t *Trainer) Newest() int64 { return t.seen.Record.ID }

// HasEnded reports whether this node made its run's last step.
func (t *Trainer) HasEnded() bool { return t.ended }

// Next returns when a Tick is due; false: none is.
func (t *Trainer) Next() (Time, bool) { return t.tell, t.broke != 0 }

// Step takes an event in and returns what is to be done.
func (t *Trainer) Step(now Time, e Event) []Action {
	switch e := e.(type) {
	case Seen:
		t.seen = e
		return t.look(now)
	case Want:
		return t.enter()
	case Began:
		t.began = t.began || t.In(e.ID)
	case Made:
		if !t.In(e.ID) {
			return nil
		}
		if t.began, t.more = true, e.More; t.last {
			t.open = false
			return []Action{End{}}
		}
	case Aborted:
		t.close(e.ID)
		if t.seen.Record.ID > e.ID {
			return nil
		}
		t.broke, t.tell = e.ID, now+t.wait
		return []Action{Suspect{slices.Clone(t.group.Members)}}
	case Ended:
		t.ended = e.Is
		return t.look(now)
	case Tick:
		if t.broke != 0 && now >= t.tell {
			id := t.broke
			if t.broke = 0; t.seen.Record.ID <= id {
				return []Action{Tell{id}}
			}
		}
	}
	return nil
}

func (t *Trainer) close(id int64) {
	if t.group.ID == id {
		t.open = false
	}
}

// peer returns a member's; false: it has no place any more.
func (t *Trainer) peer(m Peer) (PeerView, bool) {
	i, ok := slices.BinarySearchFunc(t.seen.Peers, m.Node, func(p PeerView, node string) int { return cmp.Compare(p.Node, node) })
	if !ok || t.seen.Peers[i].Epoch != m.Epoch {
		return PeerView{}, false
	}
	return t.seen.Peers[i], true
}

// live reports whether all of members are members of the cluster; strictly: and none
// is only held.
func (t *Trainer) live(members []Peer, strictly bool) bool {
	return !slices.ContainsFunc(members, func(m Peer) bool {
		p, ok := t.peer(m)
		return !ok || !p.Lives && (strictly || !p.Held)
	})
}

func (t *Trainer) candidates() (all []PeerView) {
	for _, p := range t.seen.Peers {
		if p.trains() && p.Lives {
			all = append(all, p)
		}
	}
	return all
}

// others reports whether anyone trains, or may be back to.
func (t *Trainer) others() bool {
	return slices.ContainsFunc(t.seen.Peers, func(p PeerView) bool { return p.trains() && (p.Lives || p.Held) })
}

// look leaves a group that is not the newest: at once if one of its members is gone or
// failed, or else when the step that it is at is made. Whoever leaves first ends the
// group for all, so those that hear of the new one late have at most begun a step
// more.
func (t *Trainer) look(now Time) (do []Action) {
	me, _ := t.peer(t.self)
	newest := &t.seen.Record
	if newest.ID > t.broke {
		t.broke = 0
	}
	switch {
	case !t.open:
	case me.Drains && !t.others(),
		newest.ID > t.group.ID && !(t.more && t.live(t.group.Members, false) && !slices.Equal(newest.Members, t.group.Members)):
		t.open = false
		do = append(do, Close{})
	case newest.ID > t.group.ID:
		t.last = true // after the step that they are at: nothing is computed in vain
	}
	if t.ended && newest.ID > t.group.ID && newest.has(t.self) && me.Left < newest.ID {
		do = append(do, Retire{newest.ID})
	}
	if t.seen.Leads {
		do = append(do, t.recordGroup()...)
	}
	return do
}

// enter returns a group that was not tried, that this node is in, and all of whose
// members live, or why there will be none.
func (t *Trainer) enter() []Action {
	me, _ := t.peer(t.self)
	newest := &t.seen.Record
	if me.Drains {
		switch {
		case !t.others():
			return []Action{Last{}}
		case !newest.has(t.self):
			return []Action{Drained{}}
		}
	}
	if newest.ID <= t.tried || !newest.has(t.self) || !t.live(newest.Members, true) {
		return nil
	}
	t.tried, t.group = newest.ID, Group{newest.ID, slices.Clone(newest.Members)}
	t.open, t.began, t.more, t.last, t.broke = true, false, false, false, 0
	return []Action{Enter{t.group}}
}

// over reports whether a member takes no part in steps of the group any more, and
// cannot come back with what it made.
func (t *Trainer) over(m Peer, id int64) bool {
	if o, ok := t.seen.Over[m.Node]; ok && m.Epoch >= o.From && m.Epoch <= o.To {
		return true
	}
	p, ok := t.peer(m)
	return ok && p.Left >= id
}

// recordGroup returns the group that should be written down, if it is not there.
func (t *Trainer) recordGroup() []Action {
	newest := &t.seen.Record
	all := t.candidates()
	// Those that are in stay in; others come in the order in which they joined.
	slices.SortFunc(all, func(a, b PeerView) int {
		if in, other := newest.has(a.Peer), newest.has(b.Peer); in != other {
			if in {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Epoch, b.Epoch)
	})
	all = all[:min(len(all), t.maxMembers)]
	if len(all) == 0 || newest.ID == 0 && len(all) < t.minMembers {
		return nil
	}
	next, failed := Record{}, false
	for _, p := range all {
		next.Members = append(next.Members, p.Peer)
		failed = failed || p.Failed >= newest.ID
	}
	// The groups that may still make steps.
	var may []Group
	if newest.ID != 0 {
		if !(t.began && t.group.ID == newest.ID) {
			may = append(may, newest.Before...)
		}
		may = append(may, newest.Group)
	}
	var await []Peer
	for _, g := range may {
		var left []Peer // that may have what it made
		for _, m := range g.Members {
			if p, ok := t.peer(m); ok && p.Held {
				return nil // it may be on its way back
			}
			if !t.over(m, g.ID) {
				left = append(left, m)
			}
		}
		if len(left) == 0 {
			continue
		}
		// Of groups of the same members the newest will do.
		next.Before = append(slices.DeleteFunc(next.Before, func(o Group) bool { return slices.Equal(o.Members, g.Members) }), g)
		if next.shares(g.Members) {
			continue
		}
		// One that drains brings its state first.
		if i := slices.IndexFunc(left, func(m Peer) bool { p, ok := t.peer(m); return ok && p.Lives && p.Trainer && p.Drains }); i >= 0 {
			next.Members = append(next.Members, left[i])
			continue
		}
		await = append(await, left...)
	}
	slices.SortFunc(next.Members, func(a, b Peer) int { return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Node, b.Node)) })
	switch {
	case slices.Equal(next.Members, newest.Members) && !failed:
		return nil
	case len(await) > 0:
		return []Action{Await{await}}
	}
	next.ID = newest.ID
	return []Action{Write{next}}
}
