// Package samplers places the samplers of a run's trainers on the nodes of a cluster.
//
// A trainer has as many samplers as its plan says; sampler i of node c is the actor
// "c:i" of the kind sampler. At says where it is: on the trainer's own node, which
// hands batches on by pointer, unless that has not the role or the table has the
// sampler elsewhere; or on one of the nodes that have it, which need the graph and no
// features. There it is asked for a micro-batch by a message of the control plane,
// Seeds without the seeds, and answers Sampled with a ticket, by which the batch is fetched
// over the data plane.
//
// A micro-batch is a pure function of its ID. So a sampler has no state that could be
// handed over, two nodes that both think that they have it do no harm, and what it
// had not delivered when it moved, or its node died, is drawn again where it is next:
// drawn twice at most, and used once.
package samplers

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/cluster/control"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/memlimit"
	"github.com/gnnactor/gnnactor/internal/msgpackcheck"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// Kind is that of a sampler, and what a node that has the role has among membership's
// kinds.
const Kind = "sampler"

// Nobody is what a cluster lacks in which no node samples, and what to do.
const Nobody = "no node samples, and those that train need one that does: add a node with --roles sampler"

// Name returns what sampler i of a trainer's node is called.
func Name(node string, i int) string { return node + ":" + strconv.Itoa(i) }

// Of returns the trainer's node that a sampler is of; "": it is no sampler's name.
func Of(name string) string {
	node, _, _ := parse(name)
	return node
}

// Count returns how many samplers a node has as a trainer; no node has more than 4096,
// whatever it says.
func Count(m *membership.Info) int { return min(max(m.Samplers, 0), 1<<12) }

// known reports whether a trainer that is a member has the sampler.
func known(v *membership.View, name string) bool {
	trainer, i, ok := parse(name)
	m, in := v.Member(trainer)
	return ok && in && i < Count(&m)
}

// parse is the inverse of Name.
func parse(name string) (node string, i int, ok bool) {
	at := strings.LastIndexByte(name, ':')
	if at < 0 {
		return "", 0, false
	}
	i, err := strconv.Atoi(name[at+1:])
	if err != nil || i < 0 || Name(name[:at], i) != name {
		return "", 0, false
	}
	return name[:at], i, true
}

// Can reports whether a node takes samplers.
func Can(m *membership.Info) bool { return slices.Contains(m.Kinds, Kind) && !m.Drains() }

// At returns the node that a sampler is on; placed is where the table has it, if it
// does. "": no node can have it, or no trainer has such a sampler. It is a function of its arguments
// alone: a node that asks and the leader agree as soon as they see the same members.
func At(v *membership.View, name, placed string) string { return at(v, name, placed, nil) }

// at is At without some nodes; without may be nil.
func at(v *membership.View, name, placed string, without func(node string) bool) string {
	if !known(v, name) {
		return ""
	}
	takes := func(m *membership.Info) bool { return Can(m) && (without == nil || !without(m.Node)) }
	if m, ok := v.Member(placed); ok && takes(&m) {
		return placed
	}
	trainer, _, _ := parse(name)
	if m, ok := v.Member(trainer); ok && slices.Contains(m.Kinds, Kind) { // while it drains it trains
		return trainer
	}
	var can []string
	for i := range v.Members {
		if takes(&v.Members[i]) {
			can = append(can, v.Members[i].Node)
		}
	}
	return deal(v, can, name)
}

// deal returns which of some nodes a sampler is on if all that are of trainers without the role are shared
// out alike: each in turn has the node that suits it best, by a hash, of those that have room. So
// a node that comes takes its share, one that leaves gives away its own, and most others stay.
func deal(v *membership.View, can []string, name string) string {
	all := 0
	for i := range v.Members {
		if m := &v.Members[i]; !slices.Contains(m.Kinds, Kind) {
			all += Count(m)
		}
	}
	if len(can) == 0 || all == 0 {
		return ""
	}
	room := make([]int, len(can))
	for i := range room {
		room[i] = (all + len(can) - 1) / len(can)
	}
	for j := range v.Members {
		m := &v.Members[j]
		if slices.Contains(m.Kinds, Kind) {
			continue
		}
		for i := range Count(m) {
			sampler, best, most := Name(m.Node, i), -1, uint64(0)
			for k, node := range can {
				if h := suits(sampler, node); room[k] > 0 && (best < 0 || h > most) {
					best, most = k, h
				}
			}
			if sampler == name {
				return can[best]
			}
			room[best]--
		}
	}
	return ""
}

// suits returns how well a node suits a sampler: any number, the same everywhere.
func suits(sampler, node string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, sampler)
	_, _ = h.Write([]byte{0})
	_, _ = io.WriteString(h, node)
	return rng.New(h.Sum64()).Uint64(0)
}

// Keeps reports whether a sampler that was put on a node may stay there.
func Keeps(v *membership.View, name, placed string) bool {
	return placed != "" && At(v, name, placed) == placed
}

// Member is who knows the members and where the table has samplers: a membership.Member.
type Member interface {
	View() (*membership.View, <-chan struct{})
	Place(kind, id string) (membership.Place, bool)
	Suspect(ctx context.Context, nodes []string) (died []string, err error)
	Announce(ctx context.Context, change func(*membership.Info)) error
}

// Options of a Host and of a Remote.
type Options struct {
	Member  Member
	Control *control.Plane
	Plane   *dataplane.Plane
	Logger  *slog.Logger
}

// Draw makes b what m wants, or returns a message that is. It is called by one goroutine at a
// time.
type Draw func(b *sampling.Batch, m *messages.Seeds) (messages.Message, error)

// Run is what a node samples for.
type Run struct {
	// ID is a hash of what the micro-batches depend on: who has another one draws others.
	ID string
	// First names one of them.
	First sampling.ID
	// Open makes what draws them, for each sampler one.
	Open func() Draw
}

// Host is a node's part in sampling for others.
type Host struct {
	o     Options
	run   Run
	meter meter
	stop  chan struct{} // nil: it is not measured while it is idle
	idle  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	asked    sync.WaitGroup // answers under way
	samplers map[string]*hosted
	drawn    atomic.Int64
	bytes    atomic.Int64
}

// hosted is a sampler that is, or was, on this node.
type hosted struct {
	turn  chan struct{} // has room for the one that samples
	draw  Draw
	batch sampling.Batch
	out   []func() // withdraw what waits to be fetched, the newest last
	kept  int      // how many of them there may be
}

// kept is how many batches of a sampler wait to be fetched: its trainer asks for two
// at a time, and for some answers beside. One that is still wanted when so many came after it is
// asked for again.
const kept = 8

// ErrNotReady: the node does not sample yet. Who asks is told that the sampler is
// elsewhere, and asks again.
var ErrNotReady = fmt.Errorf("%w: the node does not sample yet", control.ErrElsewhere)

// Serve makes this node sample for the trainers of its run. A node that does nothing else
// (only) is measured while it is idle, too. Close ends it.
func Serve(o Options, run Run, only bool) *Host {
	h := &Host{o: o, run: run, meter: meter{only: only, quota: memlimit.Cores}, samplers: map[string]*hosted{}}
	o.Plane.Handle(dataplane.MethodWatch, func(ctx context.Context, _ *dataplane.Request) (dataplane.Reply, error) {
		<-ctx.Done()
		return dataplane.Reply{}, context.Cause(ctx)
	})
	if only {
		h.stop = make(chan struct{})
		h.idle.Go(h.measure)
	}
	return h
}

// Close ends the offers, when what is being drawn is drawn: afterwards nothing that Run.Open
// made is called any more, and who asks hears ErrNotReady. It may be called again.
func (h *Host) Close() {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	h.mu.Unlock()
	if h.stop != nil && !closed {
		close(h.stop)
	}
	h.idle.Wait()
	h.asked.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.samplers {
		s.withdraw(0)
	}
	h.samplers = nil
}

// withdraw ends the offers but the newest ones.
func (s *hosted) withdraw(but int) {
	for len(s.out) > but {
		s.out[0]()
		s.out = s.out[1:]
	}
}

// Drawn returns how many micro-batches were drawn here for other nodes, and their
// bytes on the data plane.
func (h *Host) Drawn() (batches, bytes int64) { return h.drawn.Load(), h.bytes.Load() }

// Load returns what sampling takes here, lately; false: nothing was drawn.
func (h *Host) Load() (Load, bool) { return h.meter.load() }

// sampler returns the sampler of a name, for which h.asked counts; nil: the host is closed.
// Those of trainers that the cluster has no more are forgotten.
func (h *Host) sampler(name string) *hosted {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.asked.Add(1)
	s := h.samplers[name]
	if s == nil {
		v, _ := h.o.Member.View()
		for other, old := range h.samplers {
			if !known(v, other) {
				old.withdraw(0)
				old.kept = 0
				delete(h.samplers, other)
			}
		}
		s = &hosted{turn: make(chan struct{}, 1), kept: kept}
		h.samplers[name] = s
	}
	return s
}

// Has reports whether a sampler of that name, which may be anybody's, is answered for here. One
// that moves away is until its trainer has heard of its next place: two do no harm.
func (h *Host) Has(name string) bool {
	v, _ := h.o.Member.View()
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.closed && known(v, name)
}

// Answer draws a micro-batch: it is what the sampler of a name answers Seeds. The batch of no ID
// is the run's first, drawn for nobody: who asks wants to know that this node is ready, and hears it by
// an answer without a ticket.
func (h *Host) Answer(ctx context.Context, name string, body []byte) ([]byte, error) {
	m, err := messages.Unmarshal("seeds", body)
	if err != nil {
		return nil, err
	}
	seeds := m.(*messages.Seeds)
	nameless := seeds.ID == (sampling.ID{})
	if seeds.Run != h.run.ID && !(seeds.Run == "" && nameless) { // who asks does not know yet what the run is
		return nil, errors.New("it samples for a run of other settings or data; start all nodes with the same --cache and --sampler-options, and one version of gnnactor")
	}
	s := h.sampler(name)
	if s == nil {
		return nil, ErrNotReady
	}
	defer h.asked.Done()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ErrNotReady // the node leaves, or the asker did
	}
	if nameless && seeds.Want == "" {
		if _, err := h.sample(s, &messages.Seeds{ID: h.run.First}); err != nil {
			return nil, err
		}
		return messages.Marshal(&messages.Sampled{})
	}
	data, err := h.sample(s, seeds)
	if err != nil {
		return nil, err
	}
	what := "sampled batch"
	if seeds.Want != "" { // one that there is: it was answered
		what = "sampled " + string(seeds.Want)
	}
	ticket, withdraw := h.o.Plane.Offer(what, [][]byte{data}, nil)
	if seeds.Want == "" {
		h.drawn.Add(1)
		h.bytes.Add(int64(len(data)))
	}
	h.mu.Lock()
	s.out = append(s.out, withdraw)
	s.withdraw(s.kept)
	h.mu.Unlock()
	b, err := msgpack.Marshal(&ticket)
	if err != nil {
		return nil, fmt.Errorf("samplers: %w", err)
	}
	return messages.Marshal(&messages.Sampled{Step: seeds.Step, Ticket: b})
}

// sample has s, whose turn it is, draw a micro-batch, or find out what else m wants.
func (h *Host) sample(s *hosted, m *messages.Seeds) (data []byte, err error) {
	var answer messages.Message
	err = pool.Recovered(func() (err error) {
		if s.draw == nil {
			s.draw = h.run.Open()
		}
		if m.Want == "" {
			defer h.meter.begin()()
		}
		answer, err = s.draw(&s.batch, m)
		return err
	})
	switch {
	case err != nil:
		s.draw = nil // a panic may have left anything in it
		return nil, err
	case answer != nil:
		return messages.Marshal(answer)
	}
	return messages.AppendBatch(nil, &s.batch), nil
}

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
	peers   map[string]*peer
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
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Remote{o: o, node: node, local: local, at: map[int]string{}, since: map[int]time.Time{}, next: map[int]string{}, peers: map[string]*peer{}, shunned: map[string]*shunned{}}
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

// peer is a node that samplers are asked at. It is watched: the question is answered when the node ends, and who asks
// hears at once when its connection breaks, as those of the control plane, which are made anew, do not tell.
type peer struct {
	ctx    context.Context // ends when the node does not answer any more
	cancel context.CancelCauseFunc
}

// peer returns a node, which is watched from now on.
func (r *Remote) peer(node string) *peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[node]
	if p != nil && p.ctx.Err() == nil {
		return p
	}
	p = new(peer)
	p.ctx, p.cancel = context.WithCancelCause(r.ctx)
	r.peers[node] = p
	r.start(func() {
		_, err := r.o.Plane.Ask(p.ctx, dataplane.Call{Node: node, Method: dataplane.MethodWatch})
		p.cancel(fmt.Errorf("%w: %w", dataplane.ErrPeerGone, err))
	})
	return p
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
	p := r.peer(at)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	reply, err := r.o.Control.AskAt(ctx, at, Kind, Name(r.node, d.i), d.body)
	if err != nil {
		if gone := context.Cause(p.ctx); gone != nil {
			return gone
		}
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
	if gone := context.Cause(p.ctx); err != nil && gone != nil {
		return gone
	}
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
