package membership

import (
	"slices"
	"time"
)

// Time is what a node's own clock shows, since whenever.
type Time = time.Duration

// Peer is a node, and the revision at which it became a member.
type Peer struct {
	Node  string `json:"node"`
	Epoch int64  `json:"epoch"`
}

// Group is who trains together. ID is the revision at which it was written down.
type Group struct {
	ID      int64  `json:"id,omitempty"`
	Members []Peer `json:"members"`
}

// Record is a group as the leader writes it down.
type Record struct {
	Group
	// Before are older groups that might still make steps when it was written.
	Before []Group `json:"before,omitempty"`
}

// has reports whether m is in the group.
func (g *Group) has(m Peer) bool { return slices.Contains(g.Members, m) }

// shares reports whether the group has one of members.
func (g *Group) shares(members []Peer) bool { return slices.ContainsFunc(members, g.has) }

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
