// Package group decides, without goroutines, clocks or input and output, whether
// a node is a member of the cluster, in which group of trainers it makes steps,
// and which group is written down next. Packages membership and trainers are the
// shells that carry its decisions out, and the tests run it against a simulated
// store, network and clocks.
//
// # Standing
//
// A node has a place in the store, which outlives its lease, and a key that says
// that it lives, which does not. Its Standing is
//
//	Attached  its lease lives, by its own count, which ends before the store's
//	Detached  its lease may have ended: the store does not answer, or said so
//	Fenced    it is no member any more, and does nothing
//
// Renewals keep it attached. A lease that has ended is not taken up again: the
// way back is a new lease and a compare-and-swap on the place, which must still be
// of the node's epoch, so that the node is the same member as before. A node is
// fenced when its place is gone or another's, or when it has not read for
// Terms.Outage (by its own clock, from when it sent the read) that it has its
// place and lives. The newest read also says which group is the newest.
//
// A member whose lease ended is not gone for those that were without the store
// themselves: for a while after they are back it counts as one (Held), so that it
// can come back. Who was with the store all the time lets it go at once. Its place
// is removed when it has not come back for Terms.Over, which is longer than it can
// have gone on, and departures say which memberships are over for good: those, and
// those of processes that were proved dead.
//
// # Groups
//
// The leader writes down who trains: a group, numbered by its revision, larger
// than all before. Members enter groups in rising order and take no part in
// one that is older than what they entered. A step takes a part of every
// member. So nobody needs the store to make steps: an unchanged group goes on
// without it while all its members answer.
//
// The rule: a new group shares a member with every group that may still make
// steps, or all members of that one are over. Which groups may: the newest that is
// written down and, until that one has begun, those before it (Record.Before).
//
// Why there are no two groups that go on. Let group G be written before H, and let
// both make steps at a time. When H was written either (1) H had a member x of G:
// x entered H before H began, so it gave no part to G's steps afterwards, and G
// made at most the step that x had given its part to, which is H's first if the
// result reached another and not x. Or (2) all of G's members were over: dead, or
// fenced, because the leader saw that they did not live for Terms.Over, while
// each had read that it lived before, and at most Terms.Outage before its fence;
// clocks may differ in rate by one part in Drift. Or (3) G was not among those
// that may still make steps, because a group F between them had begun: then F's
// members had all entered it, and (1) or (2) held between G and F. And x has
// what G made, so that nothing of it is lost.
//
// In all cases what a member that was left behind made is not more than one step,
// and not another one than its successors make.
//
// All of that rests on three premises. A host refuses connections to a node only when
// its process is dead: no firewall or proxy does so in the name of one that lives. A
// clock does not stand still while the node is suspended and its members step on: one
// that sleeps for longer than Terms.Over may, alone in its group, make steps beside its
// successors until it reads of them. And a node's directory is in one place: a copy of
// it that is started elsewhere puts the first down as dead.
package group

import (
	"slices"
	"time"
)

// Time is what a node's own clock shows, since whenever.
type Time = time.Duration

// Member is a node, and the revision at which it became a member.
type Member struct {
	Node  string `json:"node"`
	Epoch int64  `json:"epoch"`
}

// Group is who trains together. ID is the revision at which it was written down.
type Group struct {
	ID      int64    `json:"id,omitempty"`
	Members []Member `json:"members"`
}

// Record is a group as the leader writes it down.
type Record struct {
	Group
	// Before are older groups that might still make steps when it was written.
	Before []Group `json:"before,omitempty"`
}

// has reports whether m is in the group.
func (g *Group) has(m Member) bool { return slices.Contains(g.Members, m) }

// shares reports whether the group has one of members.
func (g *Group) shares(members []Member) bool { return slices.ContainsFunc(members, g.has) }

// Terms are what a node lives by. Nodes may have different ones.
type Terms struct {
	// TTL is how long the store lets a lease live after a renewal.
	TTL time.Duration
	// Outage is how long the node goes on without the store; at most TTL: as long as
	// its lease lives.
	Outage time.Duration
}

// Drift: the clocks of two nodes run at rates that differ by less than one part in
// so many.
const Drift = 64

// lease is how long the node counts on its lease from when it sent a renewal.
func (t Terms) lease() time.Duration { return t.TTL - t.TTL/8 }

// persists reports whether the node goes on without the store.
func (t Terms) persists() bool { return t.Outage > t.TTL }

// Grace is how long those that were without the store wait for others to come back.
func (t Terms) Grace() time.Duration { return 2 * t.TTL }

// Over is how long after its lease ended a node is fenced, by the clock of any other.
func (t Terms) Over() time.Duration {
	d := max(t.Outage, t.TTL) + t.TTL
	return d + 2*d/Drift
}

// Gate lets a node into groups in rising order only.
type Gate struct{ entered uint64 }

// Enter reports whether the node may enter a group, and takes it into it.
func (g *Gate) Enter(id uint64) bool {
	if g.Passed(id) {
		return false
	}
	g.entered = id
	return true
}

// Passed reports whether the node entered a group, or a newer one.
func (g *Gate) Passed(id uint64) bool { return id <= g.entered }

// Entered returns the newest group that the node entered; 0: none.
func (g *Gate) Entered() uint64 { return g.entered }

// Event is something that a Standing or a Trainer hears of.
type Event interface{ event() }

// Action is something that it wants done.
type Action interface{ action() }

// Tick: time has passed.
type Tick struct{}

func (Tick) event() {}
