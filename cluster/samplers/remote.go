package samplers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gnnactor/gnnactor/cluster/control"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/msgpackcheck"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Remote has a trainer's samplers sample where they are. It implements
// actors.Elsewhere.
type Remote struct {
	o     Options
	node  string
	local bool // this node has the role
	graph atomic.Pointer[graph.Graph]
	run   atomic.Pointer[string]

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	took took

	drawAt func(ctx context.Context, d *drawing, node string) error  // draw; tests have others
	answer func(ctx context.Context, sampler int, node string) error // ready; likewise

	mu      sync.Mutex
	peers   map[string]context.Context
	at      map[int]string      // where each is asked
	since   map[int]time.Time   // and since when
	next    map[int]string      // the place that each moves to, which has not answered yet
	shunned map[string]*shunned // nodes that are not asked for now
	moves   int64
	seen    *membership.View // that wants is of
	wants   map[int]string   // where each is to be
	drawn   atomic.Int64
	bytes   atomic.Int64
	turn    atomic.Int64           // of the samplers, for Ask
	free    sync.Pool              // of *[]byte, that batches come in
	waiting atomic.Pointer[string] // what was said of nobody that samples; nil: nothing
}

// NewRemote makes it; local: this node has the role.
func NewRemote(o Options, local bool) *Remote {
	r := newRemote(o, o.Plane.Node(), local)
	r.drawAt, r.answer = r.draw, r.ready
	return r
}

func newRemote(o Options, node string, local bool) *Remote {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	r := &Remote{o: o, node: node, local: local, at: map[int]string{}, since: map[int]time.Time{}, next: map[int]string{}, peers: map[string]context.Context{}, shunned: map[string]*shunned{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Close ends what asks other nodes, and waits for it.
func (r *Remote) Close() {
	r.mu.Lock()
	r.cancel()
	r.mu.Unlock()
	r.tasks.Wait()
}

// peer returns what ends when a node does not answer any more, for why. The node is watched from now on: the question is
// answered when it ends, and who asks hears at once when its connection breaks, as those of the control plane, which are made anew, do not tell.
func (r *Remote) peer(node string) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[node]; p != nil && p.Err() == nil {
		return p
	}
	p, gone := context.WithCancelCause(r.ctx)
	r.peers[node] = p
	r.start(func() {
		_, err := r.o.Plane.Ask(p, dataplane.Call{Node: node, Method: dataplane.MethodWatch})
		gone(fmt.Errorf("%w: %w", dataplane.ErrPeerGone, err))
	})
	return p
}

// while calls f, which asks a node, for no longer than that answers; if it does not any more, that is the error.
func (r *Remote) while(ctx context.Context, node string, f func(context.Context) error) error {
	p := r.peer(node)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p, func() { cancel(context.Cause(p)) })()
	err := f(ctx)
	if gone := context.Cause(p); err != nil && gone != nil {
		return gone
	}
	return err
}

// Ready says how many samplers this trainer has, of which graph, whose sizes alone are read, and
// the Run.ID that theirs must be. It is to be called before Draw.
func (r *Remote) Ready(ctx context.Context, run string, samplers int, g *graph.Graph) error {
	r.graph.Store(g)
	r.run.Store(&run)
	return r.o.Member.Announce(ctx, func(i *membership.Info) { i.Samplers = samplers })
}

// Drawn returns how many micro-batches other nodes drew, and their bytes.
func (r *Remote) Drawn() (batches, bytes int64) { return r.drawn.Load(), r.bytes.Load() }

// question is what is sent for m: of a micro-batch its ID tells the seeds.
func (r *Remote) question(m *messages.Seeds) ([]byte, error) {
	q := messages.Seeds{ID: m.ID, Step: m.Step, Want: m.Want, Run: *r.run.Load()}
	if m.Want != "" {
		q.Seeds, q.Run = m.Seeds, m.Run
	}
	return messages.Marshal(&q)
}

// Ask implements actors.Elsewhere: the trainer's samplers are asked in turn.
func (r *Remote) Ask(ctx context.Context, m *messages.Seeds) ([]byte, error) {
	v, _ := r.o.Member.View()
	me, _ := v.Member(r.node)
	i, q := int(r.turn.Add(1)%int64(max(Count(&me), 1))), *m
	_, err := r.Draw(ctx, i, &q, new(sampling.Batch))
	return q.Answer, err
}

// moved reports whether what was asked for may be had elsewhere, or later.
func moved(err error) bool {
	for _, why := range []error{control.ErrElsewhere, control.ErrPeerGone, dataplane.ErrPeerGone, dataplane.ErrTicket} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}

// draw asks a node for what d is.
func (r *Remote) draw(ctx context.Context, d *drawing, at string) error {
	return r.while(ctx, at, func(ctx context.Context) error {
		reply, err := r.o.Control.AskAt(ctx, at, Kind, Name(r.node, d.i), d.body)
		if err != nil {
			return err
		}
		ticket, err := ticketOf(reply, at)
		if err != nil {
			return err
		}
		buf, _ := r.free.Get().(*[]byte)
		if buf == nil {
			buf = new([]byte)
		}
		defer r.free.Put(buf)
		data, err := r.o.Plane.Fetch(ctx, ticket, (*buf)[:cap(*buf)])
		var there *dataplane.RemoteError
		if errors.As(err, &there) { // it was withdrawn
			return fmt.Errorf("%w: %w", dataplane.ErrTicket, err)
		}
		if err != nil {
			return err
		}
		*buf = data
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.b == nil { // another node was first
			return nil
		}
		if err := read(d.b, d.m, data, r.graph.Load()); err != nil {
			return err
		}
		d.b, d.by, d.size = nil, at, len(data)
		return nil
	})
}

// Nodes returns those that sample, but for this one.
func (r *Remote) Nodes() (all []string) {
	v, _ := r.o.Member.View()
	for _, m := range v.Members {
		if m.Node != r.node && Can(&m) {
			all = append(all, m.Node)
		}
	}
	return all
}

// DrawAt makes b, which is empty, a micro-batch as one node draws it, which may take as long as a draw without another
// node's being asked. later: it may do so if it is asked again, or is gone.
func (r *Remote) DrawAt(ctx context.Context, node string, id sampling.ID, b *sampling.Batch) (later bool, err error) {
	m := &messages.Seeds{ID: id}
	body, err := r.question(m)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.took.limit(patience), errLate)
	defer cancel()
	err = r.drawAt(ctx, &drawing{body: body, m: m, b: b}, node)
	return moved(err) || err != nil && context.Cause(ctx) == errLate, err
}

// largest is how many bytes a batch may have; all those of a graph of 2³² edges have fewer.
const largest = 1 << 36

// ticketOf returns the ticket of what node answered to Seeds.
func ticketOf(reply []byte, node string) (t dataplane.Ticket, err error) {
	x, err := messages.Unmarshal("sampled", reply)
	if err != nil {
		return t, err
	}
	s := x.(*messages.Sampled)
	if s.Ticket == nil {
		return t, fmt.Errorf("its answer has a batch in place of a ticket; run one version of gnnactor on all nodes")
	}
	if err := msgpackcheck.Unmarshal(s.Ticket, &t); err != nil {
		return t, fmt.Errorf("its ticket: %w", err)
	}
	switch {
	case t.Node != node:
		return t, fmt.Errorf("its ticket is for what lies at node %.64q; it hands out what it drew itself", t.Node)
	case t.Size < 1 || t.Size > largest:
		return t, fmt.Errorf("its ticket is for %d bytes, and no batch has those", t.Size)
	}
	return t, nil
}

// read makes b the batch of m that data holds, which fits the graph; b is empty after an error.
func read(b *sampling.Batch, m *messages.Seeds, data []byte, g *graph.Graph) error {
	if m.Want != "" { // who asks reads it
		m.Answer = slices.Clone(data)
		return nil
	}
	if err := messages.ReadBatch(b, m.ID, data); err != nil {
		return err
	}
	err := b.CheckOf(g, false)
	if err != nil {
		err = fmt.Errorf("%v does not fit the graph: %w", m.ID, err)
	} else if m.Seeds != nil && b.Targets == nil && !slices.Equal(m.Seeds, b.Seeds) {
		err = fmt.Errorf("%v has other seeds there; run one version of gnnactor, on the same data, on all nodes", m.ID)
	}
	if err != nil {
		b.Reset()
	}
	return err
}
