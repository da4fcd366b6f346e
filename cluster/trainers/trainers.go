// Package trainers makes nodes train one model together, synchronously, while
// nodes come, go and die.
//
// The leader writes down who the trainers are: a group, numbered by the
// revision at which it was written. A group's members first agree on where they
// are: whoever is behind gets the state of the one who is furthest, which every
// trainer holds. Then they make steps together. When one of them fails to, all of
// them leave the step as it is; when the leader writes another group down, they
// leave after it. Then they meet in the next group. A
// step is made by all members of a group or not at all, so a group that lost a
// member, or a member that was cut off, makes none: there are no two histories.
//
// # Sums
//
// Gradients are added up among the trainers in the tree that compute.SumTree adds
// them in within a process: neighbours first, then pairs, then fours, over the micro-batches of a step. The result has the same
// bits on every node, for any number of trainers.
//
// A tree's edge joins the sums of two ranges of micro-batches. Where both lie at
// one trainer they are added there; otherwise one of the two trainers gets the
// other's sum over the data plane. Which of the two takes turns from segment to
// segment of the vector (a+b and b+a have the same bits), so that trainers send
// and add alike, all of them where there are as many segments; the trainer that
// ends up with a segment of the root sends it to all others. Where the
// micro-batches of each trainer make a subtree, as with 8 micro-batches and 4
// trainers, N trainers send 2·(N−1) vectors in all.
//
// # Audits
//
// Nodes whose memory or disk lies about the graph are found by each other.
// A micro-batch is a pure function of the run and its id, so any node can sample any
// of them. Of those that a node samples, a keyed choice is sampled again by another
// node of the group, chosen by the same key, beside training, or, if none of them can, by
// one that samples for others, and the digests of all that sampling made are compared. Where they differ further nodes are asked, until
// two agree: the others lie. The one that makes two agree writes the verdict into the
// cluster's store, and has those that lie expelled; it is never one of them.
//
// A verdict ends the group, for what a lying node computed is in the parameters of all.
// Nodes that it names stop with it as their error. The others go back to the last
// state for which Settle had returned, and meet again; those that have are kept from
// those that have not heard of it yet. Where no two nodes agree, as with two, all that
// were asked are named.
//
// So a state that was settled is sound as far as its audits could tell: of a node all
// of whose micro-batches are wrong, n of them pass unnoticed with probability
// (1-rate)^n, and damage that few micro-batches meet is found late or not at all.
package trainers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/training"
)

// Kind is what a trainer has among membership's kinds.
const Kind = "trainer"

// Nobody is what a cluster lacks in which no node trains, and what to do.
const Nobody = "no node trains: add a node with --roles trainer"

const groupKey = "trainers"

// ErrTooMany: a run has fewer micro-batches than it would have trainers.
var ErrTooMany = errors.New("trainers: fewer micro-batches than trainers")

// ErrDiverged: two trainers at one step have states that differ.
var ErrDiverged = errors.New("trainers: the states differ")

// ErrOtherRun: the trainers do not run the same thing.
var ErrOtherRun = errors.New("trainers: not the same run")

// Options of Join.
type Options struct {
	Member *membership.Member
	Plane  *dataplane.Plane
	// MaxTrainers is the most trainers there can be: the micro-batches of a batch.
	MaxTrainers int
	// MinTrainers is how many trainers the run waits for before its first step.
	MinTrainers int
	// Samplers are the nodes that sample for others; nil: this node asks none of them.
	Samplers Samplers
	// Replicas are those of others' checkpoints that this node keeps; nil: none.
	Replicas *dataplane.ReplicaServer
	Logger   *slog.Logger
}

// Samplers are nodes that can be asked for a micro-batch.
type Samplers interface {
	// Nodes returns those of other nodes that sample now.
	Nodes() []string
	// DrawAt makes b, which is empty, a micro-batch as a node draws it. An error: later says that it may do so if it is
	// asked again, or is gone.
	DrawAt(ctx context.Context, node string, id sampling.ID, b *sampling.Batch) (later bool, err error)
}

// Trainers is this node's part in the run.
type Trainers struct {
	o      Options
	life   context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	born time.Time
	team *team // of the run; its caller's alone

	mu      sync.Mutex
	part    *membership.Trainer // decides
	looked  chan struct{}       // closed when it has seen a newer view
	reduce  *reducer
	group   *reduceGroup
	id      int64
	lineage []training.Run
	made    int64
	mates   []membership.Peer
	stepped time.Time // when the newest step was made here
	pauses  Pauses
	over    func() // ends the newest group's Over
	offered func() // takes the state back that this node gave to others; nil: none

	wake       chan struct{} // makes follow look again
	announcing sync.Mutex    // held while announced changes
	announced  bool          // that this node is a trainer
}

// Join readies this node's part. The others count on it from when it first
// meets them, so that they do not wait for what it does until then.
func Join(ctx context.Context, o Options) (*Trainers, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	v, _ := o.Member.View()
	if n := len(candidates(v)); n >= o.MaxTrainers {
		return nil, fmt.Errorf("%w: %d micro-batches, and %d trainers already; raise micro-batches, or start fewer nodes", ErrTooMany, o.MaxTrainers, n)
	}
	me := membership.Peer{Node: o.Plane.Node(), Epoch: o.Member.Epoch()}
	t := &Trainers{o: o, reduce: newReducer(o.Plane), born: time.Now(), over: func() {}, looked: make(chan struct{}), wake: make(chan struct{}, 1),
		part: membership.NewTrainer(me, o.MaxTrainers, o.MinTrainers, max(patience, o.Member.Patience()/2))}
	t.life, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.tasks.Go(func() { t.follow(t.life) })
	o.Member.Stand()
	return t, nil
}

// Close ends this node's part; the others go on without it when it leaves.
func (t *Trainers) Close() {
	t.cancel()
	t.tasks.Wait()
	t.leave()
	t.withdraw()
}

func (t *Trainers) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.group != nil {
		t.group.Close()
	}
	t.over()
}

// Rendezvous waits for a group that this node is in, and brings its run to where the
// group is. It returns membership.ErrFenced when this node is not a member any longer, and
// training.ErrDrained or training.ErrLast when it drains.
func (t *Trainers) Rendezvous(ctx context.Context, s training.Position) (*Share, error) {
	t.step(membership.Ended{Is: false})
	for {
		err := t.announce(ctx)
		if err != nil {
			return nil, err
		}
		share, err := t.rendezvous(ctx, &s)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrOtherRun) || errors.Is(err, ErrDiverged) || errors.Is(err, errState) || errors.Is(err, errAudit) || errors.Is(err, training.ErrDrained) || errors.Is(err, training.ErrLast) {
			return share, err
		}
		if lost := t.o.Member.Err(); lost != nil {
			return nil, lost
		}
		t.o.Logger.Info("the trainers meet again", "because", err)
	}
}

// connect connects to the other trainers, so that they do not wait for it later.
// Those that cannot be reached now may be by then.
func (t *Trainers) connect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.o.Member.Patience())
	defer cancel()
	v, _ := t.o.Member.View()
	var wg sync.WaitGroup
	for _, m := range candidates(v) {
		if m.Node == t.o.Plane.Node() {
			continue
		}
		t.o.Plane.SetPeer(m.Node, m.Data)
		wg.Go(func() {
			if err := t.o.Plane.Connect(ctx, m.Node); err != nil {
				t.o.Logger.Warn("a trainer cannot be reached yet", "node", m.Node, "error", err)
			}
		})
	}
	wg.Wait()
}

// announce says that this node is a trainer, once, and tries until the store has
// heard it.
func (t *Trainers) announce(ctx context.Context) error {
	t.announcing.Lock()
	defer t.announcing.Unlock()
	if !t.announced {
		t.connect(ctx)
	}
	for !t.announced {
		write, cancel := context.WithTimeout(ctx, t.o.Member.Patience())
		err := t.o.Member.Announce(write, func(i *membership.Info) {
			if !slices.Contains(i.Kinds, Kind) {
				i.Kinds = append(slices.Clone(i.Kinds), Kind)
			}
		})
		cancel()
		switch {
		case err == nil:
			t.announced = true
			return nil
		case errors.Is(err, membership.ErrFenced):
			return err
		}
		t.o.Logger.Warn("the others could not be told of this trainer yet", "error", err)
		if err := t.o.Member.Wait(ctx, nil, patience); err != nil {
			return err
		}
	}
	return nil
}

// errState: this node's own state could not be saved or restored.
var errState = errors.New("trainers: state")

// errAudit: this node's state must not be gone on from.
var errAudit = errors.New("trainers: the audit failed")

func (t *Trainers) rendezvous(ctx context.Context, s *training.Position) (*Share, error) {
	to, err := t.await(ctx)
	t.withdraw() // of an older group
	if err != nil {
		return nil, err
	}
	verdict := int64(0)
	if t.team != nil {
		if verdict, err = t.team.auditor.Known(); err != nil {
			// It does not enter this group any more, in which the others may wait for it.
			return nil, errors.Join(fmt.Errorf("%w: %w", errAudit, err), t.failed(ctx, to.ID))
		}
	}
	nodes := names(to.Members)
	v, _ := t.o.Member.View()
	for _, m := range v.Members {
		if m.Node != t.o.Plane.Node() && slices.Contains(nodes, m.Node) {
			t.o.Plane.SetPeer(m.Node, m.Data)
		}
	}
	g, err := t.reduce.newGroup(uint64(to.ID), nodes)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.over()
	serve := serves(t.mates, to.Members, t.o.Plane.Node())
	over, end := context.WithCancel(context.Background())
	t.group, t.id, t.mates, t.over = g, to.ID, to.Members, end
	if !t.part.In(to.ID) { // there was a newer one before
		g.Close()
	}
	t.mu.Unlock()
	share := &Share{t: t, team: t.team, group: g, id: to.ID, over: over.Done()}
	if err := share.sync(ctx, s, verdict, serve); err != nil {
		return nil, errors.Join(err, t.failed(ctx, to.ID))
	}
	t.o.Logger.Info("training in a group", "group", to.ID, "trainers", nodes, "step", s.Step)
	return share, nil
}

func names(members []membership.Peer) (all []string) {
	for _, m := range members {
		all = append(all, m.Node)
	}
	return all
}

// patience is how long a trainer whose group failed waits for the leader to see
// why by itself; without it a dead member's group would be made again and again
// until its lease ends.
const patience = 300 * time.Millisecond

// failed is what follows on a group that did not work out: its members that
// died are taken out of the cluster, so that the leader makes a group without
// them. If it makes none, it is told. failed tries until there is another group,
// or the leader was told, or this node is no member any more.
func (t *Trainers) failed(ctx context.Context, id int64) error {
	if err := t.o.Member.Err(); err != nil {
		return err
	}
	for do := t.step(membership.Aborted{ID: id}); ; do = t.step(membership.Tick{}) {
		for _, a := range do {
			switch a := a.(type) {
			case membership.Suspect:
				died, err := t.o.Member.Suspect(ctx, names(a.Members))
				if err != nil {
					return err
				}
				if len(died) > 0 {
					t.o.Logger.Info("trainers died", "group", id, "trainers", died)
				}
			case membership.Tell:
				return t.tell(ctx, id)
			}
		}
		t.mu.Lock()
		next, waits := t.part.Next()
		t.mu.Unlock()
		if !waits {
			return nil
		}
		if newer, err := t.newer(ctx, id, next-t.now()); newer || err != nil {
			return err
		}
	}
}

// tell tells the leader of a group that did not work, until it was told.
func (t *Trainers) tell(ctx context.Context, id int64) error {
	for {
		write, cancel := context.WithTimeout(ctx, t.o.Member.Patience())
		err := t.o.Member.Announce(write, func(i *membership.Info) { i.Failed = max(i.Failed, id) })
		cancel()
		if err == nil || errors.Is(err, membership.ErrFenced) {
			return err
		}
		t.o.Logger.Warn("the leader could not be told of a group that failed", "group", id, "error", err)
		if newer, err := t.newer(ctx, id, patience); newer || err != nil {
			return err
		}
	}
}

// newer waits for a newer group than id, for so long.
func (t *Trainers) newer(ctx context.Context, id int64, limit time.Duration) (bool, error) {
	for until := time.Now().Add(limit); ; {
		t.mu.Lock()
		newest, looked := t.part.Newest(), t.looked
		t.mu.Unlock()
		left := time.Until(until)
		if newest > id || left <= 0 {
			return newest > id, nil
		}
		if err := t.o.Member.Wait(ctx, looked, left); err != nil {
			return false, err
		}
	}
}

// await waits for a group to enter.
func (t *Trainers) await(ctx context.Context) (to membership.Group, err error) {
	for {
		t.mu.Lock()
		looked := t.looked
		t.mu.Unlock()
		for _, a := range t.step(membership.Want{}) {
			switch a := a.(type) {
			case membership.Enter:
				return a.Group, nil
			case membership.Last:
				return to, training.ErrLast
			case membership.Drained:
				return to, training.ErrDrained
			}
		}
		if err := t.o.Member.Wait(ctx, looked, 0); err != nil {
			return to, err
		}
	}
}
