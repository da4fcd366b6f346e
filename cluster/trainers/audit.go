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

	"github.com/cespare/xxhash/v2"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// phase is that of the batches that are audited.
const phase = "train"

// keyDomain keeps the choice of what is audited apart from other draws of a seed.
const keyDomain = 0x6175646974 // "audit"

// errOver: the group of trainers that was to be asked is over.
var errOver = errors.New("trainers: the group of trainers is over")

// auditOptions are those of startAuditor.
type auditOptions struct {
	Member   *membership.Member
	Plane    *dataplane.Plane
	Identity string  // of the run
	Seed     uint64  // of the run
	Rate     float64 // of the micro-batches sampled here, those that another node samples again
	// Again samples a micro-batch anew, by nothing that an earlier call has left, and
	// returns its digest. It is called by one goroutine at a time.
	// nil: this node cannot, and says so.
	Again    func(sampling.ID) (sampling.Digest, error)
	Samplers Samplers // nil: none is asked
	// Expel takes a node that joined at epoch out of the cluster; nil: nothing does.
	Expel  func(ctx context.Context, node string, epoch int64, reason string) error
	Logger *slog.Logger
}

// auditor is a node's part in the audit of one run.
type auditor struct {
	o      auditOptions
	run    uint64
	me     string
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	turn   chan struct{} // has room for who calls Again

	mu        sync.Mutex
	changed   chan struct{} // closed when anything below changes
	queue     []sampled
	submitted int64 // micro-batches that were ever queued
	settled   int64 // of them, those that have come back, in order
	left      int64 // micro-batches that were to be audited and are not, for lack of room
	members   []string
	group     context.Context // ends with the group of members; nil: there was none yet
	endGroup  context.CancelFunc
	leave     func() // ends the group for all
	judging   int    // verdicts that are being written here
	known     int64  // revision of the newest verdict that this node's state has seen
	verdict   *Verdict
}

// sampled is a micro-batch to audit.
type sampled struct {
	id     sampling.ID
	digest sampling.Digest
	by     string
}

// maxQueue bounds the micro-batches that wait: what is sampled beyond it is left out.
const maxQueue = 1 << 16

// startAuditor begins to answer other nodes, and to audit what Sampled is told of. Verdicts
// on the run that are there already are taken to be known to this node's state. The
// caller must call Close.
func startAuditor(o auditOptions) *auditor {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	a := &auditor{
		o: o, run: xxhash.Sum64String(o.Identity), me: o.Plane.Node(),
		turn: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	if v := a.newest(); v != nil {
		a.known = v.Revision
	}
	o.Plane.Handle(dataplane.MethodAudit, a.sample)
	o.Plane.Handle(dataplane.MethodSettle, a.settle)
	a.tasks.Go(a.audit)
	a.tasks.Go(a.follow)
	return a
}

// Close ends it, and waits for a call of Again. Verdicts that are being written are
// given up. The others are told from now on, at once, whether all audits of what was
// sampled here had come back.
func (a *auditor) Close() {
	a.o.Plane.Handle(dataplane.MethodAudit, nil)
	a.mu.Lock()
	a.cancel() // no task begins from now on
	settled := a.settled == a.submitted && a.judging == 0
	a.mu.Unlock()
	a.o.Plane.Handle(dataplane.MethodSettle, func(context.Context, *dataplane.Request) (dataplane.Reply, error) {
		if settled {
			return dataplane.Reply{}, nil
		}
		return dataplane.Reply{Data: [][]byte{never}}, nil
	})
	a.tasks.Wait()
	a.turn <- struct{}{} // Again reads what the caller may free now
	<-a.turn
}

// never is the answer to MethodSettle of a node that has closed too early; an empty one
// says that its audits have come back.
var never = []byte{1}

// notify wakes whoever waits for a change. The lock is held.
func (a *auditor) notify() {
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *auditor) key(id sampling.ID) rng.Key {
	return rng.New(a.o.Seed, keyDomain, uint64(id.Epoch), uint64(id.Batch), uint64(id.Micro))
}

// Chosen reports whether a micro-batch is audited.
func (a *auditor) Chosen(id sampling.ID) bool {
	return id.Phase == phase && a.key(id).Float64(0) < a.o.Rate
}

// Sampled audits a batch that a node sampled for training here ("": this one), if it is
// among the chosen. It does not wait, and keeps nothing of b. Any goroutine may call it.
func (a *auditor) Sampled(b *sampling.Batch, node string) {
	if a.Chosen(b.ID) {
		a.submit(sampled{b.ID, b.Digest(), cmp.Or(node, a.me)})
	}
}

func (a *auditor) submit(x sampled) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) >= maxQueue {
		if a.left++; a.left == 1 {
			a.o.Logger.Warn("audits fall behind: some micro-batches are left out; a lower rate needs less of the other nodes", "rate", a.o.Rate)
		}
		return
	}
	a.queue = append(a.queue, x)
	a.submitted++
	a.notify()
}

// Group tells who trains together from now on, this node included, and how this node
// ends that for all. What was asked of the group before is asked of this one.
func (a *auditor) Group(members []string, leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.endGroup != nil {
		a.endGroup()
	}
	a.members, a.leave = slices.Clone(members), leave
	a.group, a.endGroup = context.WithCancel(a.ctx)
	if a.verdict != nil {
		a.endGroup()
		leave()
	}
	a.notify()
}

// Known returns the revision of the newest verdict that this node's state has seen, 0
// if there is none, and a newer one, a *Verdict, as the error.
func (a *auditor) Known() (int64, error) {
	v, known := a.Verdict()
	if v != nil {
		return known, v
	}
	return known, nil
}

// Verdict returns a verdict that this node's state has not seen, nil if there is none,
// and the revision of the newest that it has.
func (a *auditor) Verdict() (v *Verdict, known int64) {
	a.hear()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.verdict, a.known
}

// WentBack tells that this node's state is one from before what v is about.
func (a *auditor) WentBack(v *Verdict) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = max(a.known, v.Revision)
	if a.verdict != nil && a.verdict.Revision <= a.known {
		a.verdict = nil
	}
	a.settled += int64(len(a.queue)) // of what is sampled anew
	a.queue = nil
	a.notify()
}

// Settle returns when the audits of all that the nodes of the group have sampled
// until now have come back, and nobody lied. The error is a *Verdict, errOver, or
// that of ctx.
func (a *auditor) Settle(ctx context.Context) error {
	a.mu.Lock()
	group, members := a.group, a.members
	a.mu.Unlock()
	if group == nil {
		return a.settledHere(ctx) // nothing was trained
	}
	asks, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(group, func() { cancel(errOver) })()
	var wg sync.WaitGroup
	for _, node := range members {
		wg.Go(func() {
			settled := a.settledHere
			if node != a.me {
				settled = func(ctx context.Context) error { return a.settledAt(ctx, node) }
			}
			if err := settled(asks); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if _, err := a.Known(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return context.Cause(asks) // of the first that failed
}

// again is how long a node that could not answer is left until it is asked again.
const again = 100 * time.Millisecond

func (a *auditor) settledAt(ctx context.Context, node string) error {
	for {
		b, err := a.o.Plane.Ask(ctx, dataplane.Call{Node: node, Method: dataplane.MethodSettle, Max: len(never)})
		switch {
		case err == nil && len(b) == 0:
			return nil
		case err == nil:
			return fmt.Errorf("trainers: node %s ended before the audits of what it sampled had come back", node)
		}
		// One that has died makes no sum here that would fail.
		if _, err := a.o.Member.Suspect(ctx, []string{node}); err != nil {
			return err
		}
		if !sleep(ctx, again) {
			return fmt.Errorf("trainers: node %s: %w", node, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// settledHere waits for the audits of what was sampled here.
func (a *auditor) settledHere(ctx context.Context) error {
	a.mu.Lock()
	until := a.submitted
	a.mu.Unlock()
	over := false
	for {
		a.mu.Lock()
		done, changed, group := a.settled >= until && a.judging == 0, a.changed, a.group
		a.mu.Unlock()
		if _, err := a.Known(); err != nil {
			return err
		}
		if done {
			return nil
		}
		if over {
			return errOver
		}
		end := a.ctx.Done()
		if group != nil {
			end = group.Done()
		}
		select {
		case <-changed:
		case <-end:
			over = true // because of a verdict, it may be
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle answers when what was sampled here has been audited.
func (a *auditor) settle(ctx context.Context, _ *dataplane.Request) (dataplane.Reply, error) {
	return dataplane.Reply{}, a.settledHere(ctx)
}

// sampleAgain is Again, by one goroutine at a time.
func (a *auditor) sampleAgain(ctx context.Context, id sampling.ID) (sampling.Digest, error) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-a.ctx.Done():
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if a.ctx.Err() != nil {
		return 0, errors.New("trainers: this node has ended")
	}
	d, err := a.o.Again(id)
	if err != nil { // here, of all nodes: that is a finding, too
		a.o.Logger.Error("a micro-batch of another node cannot be sampled here", "batch", id, "error", err)
		return 0, nil
	}
	return d, nil
}

// sample answers with what this node finds a micro-batch to be. If that is what another
// one found, after others found something else, it judges them.
func (a *auditor) sample(ctx context.Context, r *dataplane.Request) (dataplane.Reply, error) {
	q, err := parseQuestion(r.Body)
	if err != nil {
		return dataplane.Reply{}, err
	}
	if q.Run != a.run {
		return dataplane.Reply{}, errors.New("trainers: this node trains another run")
	}
	if a.o.Again == nil {
		return dataplane.Reply{}, nil
	}
	d, err := a.sampleAgain(ctx, q.id())
	if err != nil {
		return dataplane.Reply{}, err
	}
	votes := append(q.Votes, Vote{a.me, d})
	decided := len(odd(votes)) > 0 && agreed(votes)
	if decided {
		if err := a.judge(ctx, q.id(), votes); err != nil {
			return dataplane.Reply{}, err
		}
	}
	return dataplane.Reply{Data: [][]byte{encodeAnswer(d, decided)}}, nil
}
