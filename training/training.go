// Package training declares what a run and those that make it together need of each
// other, so that neither imports the other: package runtime makes the steps, and a
// cluster, if the program links one, is a Session to it.
//
// A Session begins a run as a Team. The team meets in a Group, whose members are at one
// step of one run, and makes steps in it until it is over: because the run is, or
// because nodes come, go or fail, when they meet in the next group. A step is made by
// all members of a group or by none (Reducing), or by one of them for all (SSP).
package training

import (
	"context"
	"errors"
	"io"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/sampling"
)

// Why a Team meets in no further group.
var (
	// ErrDrained: this node gave its part to the others, as it was told to.
	ErrDrained = errors.New("training: drained")
	// ErrLast: this node was told to give its part away, and nobody is there to take it.
	ErrLast = errors.New("training: nobody is left to take over")
	// ErrFenced: this node is none of the others' any more. Its state is that of a step
	// that all made, and may be kept.
	ErrFenced = errors.New("training: fenced")
)

// ErrGroup: the group does not go on, or its first node does not answer.
var ErrGroup = errors.New("training: the group does not go on")

// Why a checkpoint is not published.
var (
	ErrStaleGroup = errors.New("training: there is a newer group")
	ErrAway       = errors.New("training: the store is away")
)

// ErrNoCopies: no other node keeps copies of checkpoints.
var ErrNoCopies = errors.New("training: no other node is there to keep a copy")

// Session is this process's place among nodes that train together.
type Session interface {
	// Node is the name that this process has there.
	Node() string
	// Begin begins this node's part in a run, which goes on from a state with this
	// lineage. There is one at a time; the caller must Close it.
	Begin(a Audit, lineage []Run) Team
	Archive
}

// Archive is where a run's checkpoints are beside this process's own directory. It
// needs no Team.
type Archive interface {
	// Alone reports whether no other node trains: none has the state of the run.
	Alone() bool
	// Replicate puts a copy of a run's checkpoint on another node's disk, and returns which.
	Replicate(ctx context.Context, run [32]byte, step int64, checkpoint io.ReaderAt) (node string, err error)
	// Recover looks for copies of a run's checkpoints that are further than a step, and has
	// them taken, the furthest first, until take returns nil: fetch brings one to a path,
	// whole or not at all. from is the node that it was of; "": there is none. problems
	// are of nodes that were asked in vain, and of copies that were passed over.
	Recover(ctx context.Context, run [32]byte, beyond int64, take func(step int64, fetch func(path string) error) error) (from string, problems error)
	// Published returns the newest checkpoint in a directory that the nodes share; false: none yet.
	Published() (Published, bool)
}

// Published names a checkpoint in a directory that the nodes share.
type Published struct {
	File   string `json:"file"` // within the directory
	SHA256 string `json:"sha256"`
	Step   int64  `json:"step"`
	Group  int64  `json:"group"` // that published it
}

// Audit says how nodes find out whether one of them samples what it should not.
type Audit struct {
	Identity string // of the run
	Seed     uint64 // of the run
	// Rate is which part of the micro-batches sampled here another node samples again.
	Rate float64
	// Draw makes b the micro-batch of an ID, by nothing that sampling for training has left. It is
	// called by one goroutine at a time. nil: this node cannot, and others sample what it has
	// audited.
	Draw func(b *sampling.Batch, id sampling.ID) error
}

// Verdict is an error: some nodes do not sample what they should.
type Verdict interface {
	error
	// Names reports whether a node is among those to blame.
	Names(node string) bool
	// Decided reports whether it is known who is wrong: else a run that goes on might go on with that one.
	Decided() bool
}

// Team is this node's part in a run.
type Team interface {
	// Rendezvous waits for a group that this node is in, and brings its run to where the group
	// is. It returns ErrFenced when this node is not a member any longer, and ErrDrained or
	// ErrLast when it drains.
	Rendezvous(ctx context.Context, p Position) (Group, error)
	// Lineage returns the steps before next that led to this node's state, by groups.
	Lineage(next int64) []Run
	// Sampled audits a batch that a node sampled for training here ("": this one), if it is
	// among those that are chosen. It does not wait, and keeps nothing of b. Any goroutine
	// may call it.
	Sampled(b *sampling.Batch, node string)
	// Audited returns when the audits of all that the nodes of the group have sampled until
	// now have come back. The error is a Verdict, or why that cannot be known.
	Audited(ctx context.Context) error
	// Verdict returns one that this node's state has not seen, nil if there is none, and the
	// revision of the newest that it has, 0 if there is none.
	Verdict() (v Verdict, known int64)
	// WentBack tells that this node's state is one of a lineage from before a verdict; nil:
	// one that it had seen.
	WentBack(v Verdict, lineage []Run)
	Close()
}

// Position is where this node's run is. Nothing may be computing while it is used.
type Position struct {
	Identity string // what must be the same everywhere
	Step     int64  // the next one
	Mark     string // what must be the same wherever Step is: a hash of how the state came about
	Save     func() ([]byte, error)
	Restore  func([]byte) (step int64, err error) // step: that of the state
	// Begin is called when it is known who is in a group and at which step it goes on,
	// while the state may still be on its way, so that what does not need it can be
	// begun. Rendezvous may call it again, for another group, and may fail after it. nil: nothing is.
	Begin func(g Group, step int64) error
}

// Group is this node's part in a group of nodes, from one meeting to the next. An error
// that wraps actors.ErrReduce says that it is over, and that the team should meet again.
type Group interface {
	// Settle returns when the audits of what led to the state at step have come back.
	Settle(ctx context.Context, step int64) error
	// Finish ends the run after its last step, when all members have made that.
	Finish(ctx context.Context, step int64) error
	// Leave ends the group for all: this node makes no step with it any more.
	Leave()
	// Abort is Leave for a reason, which it returns, of which the others hear.
	Abort(ctx context.Context, why error) error
	Writing
	Reducing
	SSP
}

// Writing is what a group's first node does for all: it decides what cannot be taken back.
type Writing interface {
	// First reports whether this node is it.
	First() bool
	// Number is the group's: larger for later ones.
	Number() int64
	// MayDecide reports whether Decides would not wait.
	MayDecide() bool
	// Decides waits until this node may do by itself what counts for others.
	Decides(ctx context.Context) error
	// Publish makes a checkpoint that this node has written the newest. It tries until it
	// has, or there is a newer group (ErrStaleGroup), or the store is away (ErrAway), or ctx ends.
	Publish(ctx context.Context, p Published) error
}

// Reducing is how a group makes steps synchronously: each member computes its own
// micro-batches, and all add them up.
type Reducing interface {
	actors.Reducer
	// Mine reports whether this node has micro-batch m of so many.
	Mine(m, of int) bool
	// Over is closed when the group makes no more steps: what is being computed for it is
	// for nothing.
	Over() <-chan struct{}
}

// SSP is how a group makes steps with bounded staleness: its first node has the
// parameters, and gives the others the state that each epoch ends with.
type SSP interface {
	// ServeParameters lets the trainers of the other nodes ask parameters of a size for the steps of an epoch, and waits
	// until all of those have asked in this group. It returns what ended the group if that did before.
	ServeParameters(ctx context.Context, epoch int, p async.Parameters, size int) error
	// HandOver gives the others the state that the epoch of ServeParameters has ended with, or, in the
	// middle of it, the group: over says why, nil being the epoch's end. It returns nil when all have
	// it, and what ended the group if that did.
	HandOver(ctx context.Context, state []byte, over error) error
	// RemoteParameters returns the first node's parameters for trainer i of this node.
	RemoteParameters(epoch, i, size int) async.Parameters
	// TakeOver waits for the state of HandOver, of at most so many bytes, for some time more
	// when the group is over.
	TakeOver(ctx context.Context, epoch int, most int64) ([]byte, error)
	// Done is closed when the group is over for this node.
	Done() <-chan struct{}
	// Made books steps [from, to), of which this node computed so many.
	Made(from, to int64, here int)
}
