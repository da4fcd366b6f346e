// Package membership knows which nodes a cluster has, who leads it, and where
// its actors are, and takes a node out that can no longer be sure of it.
//
// All of it lives in a Store (etcd): a node is a member while it has a place and its
// lease lives, the leader is whose key was made first, and every entry of the placement
// table is written under the leader's epoch, the revision at which it was
// elected. The store refuses a write under an epoch that is over. A node counts its
// lease from the moment at which it sent the last renewal that was answered, which is
// earlier than when the store began to count: so it stops what takes a lease before
// anyone else may begin it. Without a lease it goes on, for a time, with what all
// concerned do together, and comes back to its place by a new one.
//
//	members/NODE   the node's place: what it says of itself; its epoch is when it was made
//	alive/NODE     under its lease
//	departed/NODE  how its newest former membership ended
//	leader         under the leader's lease
//	places/, state/  the table, and the run's state
//
// Whether a node is a member, in which group of trainers it is, and which one is written next is
// decided without goroutines, clocks or input and output by a Standing and a Trainer; Member and
// package trainers are the shells that carry their decisions out, and the tests run them against a
// simulated store, network and clocks.
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
package membership

import (
	"context"
	"errors"
	"time"
)

// Store is a replicated key-value store with revisions and leases. Package
// etcd implements it.
type Store interface {
	// Grant makes a lease.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// Renew lets a lease live for its time again; ErrLeaseGone when it does not.
	Renew(ctx context.Context, l Lease) error
	// Revoke ends a lease and deletes its keys.
	Revoke(ctx context.Context, l Lease) error
	// Commit makes all changes at once if every condition holds, at a revision.
	Commit(ctx context.Context, ifs []If, do []Change) (ok bool, revision int64, err error)
	// List returns all entries under a prefix, by key, and the revision.
	List(ctx context.Context, prefix string) ([]Entry, int64, error)
	// Watch calls f with each batch of changes under prefix after revision, in
	// order, and the revision of the last of them, until ctx ends or the store
	// can no longer be followed. A batch has all changes of its revisions. A
	// deleted entry has Deleted set, and is Modified when it was deleted.
	Watch(ctx context.Context, prefix string, after int64, f func(changed []Entry, revision int64)) error
}

// Lease names a lease.
type Lease int64

// Entry is a key and its value; Created and Modified are revisions.
type Entry struct {
	Key               string
	Value             []byte
	Created, Modified int64
	Deleted           bool
}

// If is a condition: the key was made at revision Created (0: it does not
// exist) and, unless Modified is 0, changed last at Modified.
type If struct {
	Key               string
	Created, Modified int64
}

// Change puts a value under a key, or deletes the key when Value is nil.
type Change struct {
	Key   string
	Value []byte
	Lease Lease
}

// ErrLeaseGone: a lease has ended.
var ErrLeaseGone = errors.New("membership: the lease has ended")

// patient is a Store whose calls end after a limit, whatever the caller's context
// says: a server that stands still answers never, and the call
// that follows goes by way of another one. Whether a write that ended so was
// made is unknown.
type patient struct {
	Store
	limit time.Duration
}

func (s *patient) Commit(ctx context.Context, ifs []If, do []Change) (bool, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.Store.Commit(ctx, ifs, do)
}

func (s *patient) List(ctx context.Context, prefix string) ([]Entry, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.Store.List(ctx, prefix)
}

func (s *patient) Renew(ctx context.Context, l Lease) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.Store.Renew(ctx, l)
}

func (s *patient) Revoke(ctx context.Context, l Lease) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.Store.Revoke(ctx, l)
}
