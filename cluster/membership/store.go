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
// concerned do together, and comes back to its place by a new one; package group says
// when, and why that is safe.
//
//	members/NODE   the node's place: what it says of itself; its epoch is when it was made
//	alive/NODE     under its lease
//	departed/NODE  how its newest former membership ended
//	leader         under the leader's lease
//	places/, state/  the table, and the run's state
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
