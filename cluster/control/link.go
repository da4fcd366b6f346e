package control

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/internal/msgpackcheck"
)

// envelope is what travels, as msgpack.
type envelope struct {
	From int64  `msgpack:"f"` // epoch of the sender
	To   int64  `msgpack:"t"` // epoch of the receiver
	Type kind   `msgpack:"y"`
	Link uint64 `msgpack:"l"` // the sender's, of a kindTaken the receiver's: grows when a node is a member anew, if only for one of the two
	Seq  uint64 `msgpack:"s"` // counts from 1, per link and type; of a kindTaken: which message that was
	Of   kind   `msgpack:"o"` // a kindTaken: of which type it was
	Ask  uint64 `msgpack:"a"`
	Body []byte `msgpack:"b"`
	Err  string `msgpack:"r"`
	// Elsewhere: the actor that was asked is not on this node.
	Elsewhere bool `msgpack:"e"`
}

type kind uint8

const (
	kindRequest kind = iota + 1
	kindReply
	kindTaken // a message was taken, or not, for Err
)

const (
	// maxError bounds the text of an error on the wire.
	maxError = 4 << 10
	// maxName bounds the ids of actors.
	maxName = 256
)

// errMessage is wrapped by every error of unmarshal.
var errMessage = errors.New("control: malformed message")

// unmarshal decodes what a peer sent; memory is bounded by a small multiple of
// len(raw).
func unmarshal(raw []byte) (*envelope, error) {
	if len(raw) > maxMessage {
		return nil, fmt.Errorf("%w: %d bytes", errMessage, len(raw))
	}
	m := new(envelope)
	if err := msgpackcheck.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	numbered := m.Type
	if m.Type == kindTaken {
		numbered = m.Of
	}
	if numbered != kindRequest && numbered != kindReply || m.Seq == 0 || len(m.Body) > MaxBody {
		return nil, fmt.Errorf("%w: type %d, number %d", errMessage, m.Type, m.Seq)
	}
	return m, nil
}

// peer is the link to one epoch of a node.
type peer struct {
	Peer
	node   string
	number uint64          // of this link, among all of this node
	member string          // what Proto.Actor's cluster calls it
	ctx    context.Context // ends when it is gone
	cancel context.CancelFunc
	// One for each message on its way: requests, and answers, which must not wait
	// for requests that the peer will not take before it could answer.
	slots, answers chan struct{}
	out            chan *message

	say chan *message // word of what was taken; when it is full it is lost, and the peer asks again

	// Guarded by the plane's lock.
	waiting map[number]chan error // who wants to know what became of a message
	last    [kindTaken]uint64     // number sent, by type: requests that are not taken hold no answers up
	heard   *heard
	busy    int // requests being handled, or whose answer waits for a slot
}

// number is that of a message.
type number struct {
	of  kind
	seq uint64
}

// heard is what came of one epoch of a node. It outlives the peer: a node whose lease ended
// may come back at the same epoch, and need not know that it was away.
type heard struct {
	epoch int64
	link  uint64 // the newest of its links: what it gave up with an older one is never taken
	taken [kindTaken]taken
	owed  []owed // answers that were lost with older links
}

// owed is an answer that did not come to its asker, as that was no member here meanwhile.
type owed struct {
	ask  uint64
	from string // the actor
}

// owe sees to it that an asker that is a member again at the epoch that it had hears that its ask, which
// was taken, came to nothing: it may not know that it was away, and waits.
func (p *Plane) owe(pr *peer, o owed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.heard[pr.node] != pr.heard {
		return
	}
	if now := p.peers[pr.node]; now != nil {
		p.tasks.Go(func() { p.pay(now, o) })
		return
	}
	pr.heard.owed = append(pr.heard.owed[max(0, len(pr.heard.owed)-2*outstanding):], o)
}

func (p *Plane) pay(pr *peer, o owed) {
	e := &envelope{Type: kindReply, Ask: o.ask, Elsewhere: true, Err: "who asked was no member here meanwhile"}
	if p.post(pr.ctx, pr, asker, o.from, e) != nil {
		p.owe(pr, o)
	}
}

// taken are the messages that came over a link.
type taken struct {
	low   uint64          // every one up to it was taken
	later map[uint64]bool // and these
}

func (t *taken) has(seq uint64) bool { return seq <= t.low || t.later[seq] }

// add takes a message; false: it was taken before.
func (t *taken) add(seq uint64) bool {
	if t.has(seq) {
		return false
	}
	if t.later == nil {
		t.later = map[uint64]bool{}
	}
	t.later[seq] = true
	for t.later[t.low+1] {
		delete(t.later, t.low+1)
		t.low++
	}
	return true
}

func newPeer(ctx context.Context, node string, at Peer, joined uint64, h *heard) *peer {
	pr := &peer{
		Peer: at, node: node, number: joined, heard: h, member: fmt.Sprintf("%s#%d", node, joined), slots: make(chan struct{}, outstanding), answers: make(chan struct{}, outstanding),
		out: make(chan *message, outstanding), say: make(chan *message, 2*outstanding), waiting: map[number]chan error{},
	}
	pr.ctx, pr.cancel = context.WithCancel(ctx)
	return pr
}

// post numbers a message for an actor on a peer, and sees to it that it is sent until
// the peer has it.
func (p *Plane) post(ctx context.Context, pr *peer, target, sender string, m *envelope) error {
	slots := pr.slots
	if m.Type == kindReply {
		slots = pr.answers
	}
	select {
	case slots <- struct{}{}:
	case <-pr.ctx.Done():
		return ErrPeerGone
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pr.last[m.Type]++
	m.From, m.To, m.Link, m.Seq = p.o.Epoch, pr.Epoch, pr.number, pr.last[m.Type]
	raw, err := msgpack.Marshal(m)
	if err == nil && p.closed {
		err = ErrClosed
	}
	what, _, _ := strings.Cut(target, "/")
	if m.Type == kindReply {
		if what, _, _ = strings.Cut(sender, "/"); p.handlers[what] == nil {
			what = "unknown"
		}
		what += " answered"
	}
	if err != nil {
		<-slots
		return fmt.Errorf("control: %w", err)
	}
	p.tasks.Go(func() {
		defer func() { <-slots }()
		if !p.sendUntilAcked(pr, &message{number: number{m.Type, m.Seq}, target: target, sender: sender, what: what, raw: raw}) && m.Type == kindReply {
			p.owe(pr, owed{m.Ask, sender})
		}
	})
	return nil
}

// sendUntilAcked sends a message, again and again until the peer acknowledges it, or
// is gone: then it returns false.
func (p *Plane) sendUntilAcked(pr *peer, m *message) bool {
	m.acked = make(chan error, 1)
	p.mu.Lock()
	pr.waiting[m.number] = m.acked
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(pr.waiting, m.number)
	}()
	for wait := p.o.Resend; ; wait = min(2*wait, time.Second) {
		err := p.deliver(pr.ctx, pr, m)
		if err == nil || pr.ctx.Err() != nil {
			return err == nil
		}
		p.o.Logger.Debug("control message not delivered yet", "node", pr.node, "error", err)
		select {
		case <-time.After(wait):
		case err := <-m.acked: // late
			if err == nil {
				return true
			}
		case <-pr.ctx.Done():
			return false
		}
	}
}

// Why a message is not taken.
var (
	errStranger = errors.New("control: from no member, or an older self of one")
	errOther    = errors.New("control: for another self of this node")
	errBusy     = errors.New("control: busy")
)

// receive takes a message from a node. errBusy: it did not, which the node is told;
// another error is its fault.
func (p *Plane) receive(from string, in *message) error {
	m, err := unmarshal(in.raw)
	if err != nil {
		return err
	}
	pr, a, err := p.take(from, in, m)
	switch {
	case pr == nil || m.Type == kindReply && (a == nil || a.node != from): // nobody waits, or not for this node
	case m.Type == kindReply:
		r := &reply{ask: m.Ask, body: m.Body}
		switch {
		case m.Elsewhere:
			r.err = fmt.Errorf("%w: node %s: %s", ErrElsewhere, from, m.Err)
		case m.Err != "":
			r.err = &RemoteError{from, a.kind, m.Err}
		}
		p.system.Root.Send(p.asker, r)
	default:
		sender := actor.NewPID(p.pidAddress(from), in.sender)
		p.give(in.target, sender, &request{ask: m.Ask, body: m.Body, ctx: pr.ctx, peer: pr})
	}
	return err
}

// take takes a request or a reply from a peer, of which it also returns the ask; nil: nothing is left to be done.
func (p *Plane) take(from string, in *message, m *envelope) (*peer, *ask, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pr := p.peers[from]
	var err error
	switch {
	case p.closed:
		return nil, nil, ErrClosed
	case m.To != p.o.Epoch || m.To == 0:
		return nil, nil, errOther
	case pr == nil || pr.Epoch != m.From:
		return nil, nil, errStranger
	case m.Type == kindTaken:
		if m.Err != "" {
			err = fmt.Errorf("node %s: %s", from, m.Err)
		}
		if w := pr.waiting[number{m.Of, m.Seq}]; w != nil && m.Link == pr.number { // else nobody waits for it any more
			tell(w, err)
		}
		return nil, nil, nil
	case m.Link < pr.heard.link: // nor for this
		return nil, nil, nil
	case m.Link > pr.heard.link:
		pr.heard.link, pr.heard.taken = m.Link, [kindTaken]taken{}
	}
	first, taken := false, &pr.heard.taken[m.Type]
	if m.Seq > taken.low+4*outstanding || m.Type == kindRequest && pr.busy >= outstanding && !taken.has(m.Seq) {
		err = errBusy
	} else {
		first = taken.add(m.Seq)
	}
	p.sayTaken(pr, in, m.Link, number{m.Type, m.Seq}, err)
	if !first {
		return nil, nil, err
	}
	if m.Type == kindRequest {
		pr.busy++
	}
	return pr, p.asks[m.Ask], nil
}

// sayTaken tells a peer what became of its message; the lock is held.
func (p *Plane) sayTaken(pr *peer, in *message, link uint64, what number, err error) {
	e := envelope{From: p.o.Epoch, To: pr.Epoch, Link: link, Type: kindTaken, Of: what.of, Seq: what.seq}
	if err != nil {
		e.Err = err.Error()
	}
	raw, err := msgpack.Marshal(&e)
	if err != nil {
		return // it cannot be: the peer asks again
	}
	select {
	case pr.say <- &message{target: in.sender, sender: in.target, what: "taken", raw: raw}:
	default:
	}
}

// handle runs a handler and sends what it answers.
func (p *Plane) handle(id string, h Handler, sender *actor.PID, r *request) {
	kind, identity, _ := strings.Cut(id, "/")
	from := p.o.Node
	if r.peer != nil {
		from = r.peer.node
	}
	a := &reply{ask: r.ask, peer: r.peer}
	a.body, a.err = p.guard(kind, func() ([]byte, error) { return h(r.ctx, identity, from, r.body) })
	if a.err == nil && len(a.body) > MaxBody {
		a.body, a.err = nil, fmt.Errorf("%w: an answer of %d bytes", ErrLimit, len(a.body))
	}
	p.answer(sender, id, a)
}

// answer sends a reply. A peer that does not take its answers is busy until it does.
func (p *Plane) answer(sender *actor.PID, id string, a *reply) {
	if a.peer == nil { // on this node
		if a.err != nil && !errors.Is(a.err, ErrElsewhere) {
			kind, _, _ := strings.Cut(id, "/")
			a.err = &RemoteError{p.o.Node, kind, a.err.Error()}
		}
		p.answered(a)
		return
	}
	a.from = id
	p.system.Root.Send(sender, a)
	p.mu.Lock()
	a.peer.busy--
	p.mu.Unlock()
}

// guard calls f; a panic in it is an error.
func (p *Plane) guard(what string, f func() ([]byte, error)) (body []byte, err error) {
	defer func() {
		if x := recover(); x != nil {
			p.o.Logger.Error("a control plane handler panicked", "kind", what, "panic", x, "stack", string(debug.Stack()))
			body, err = nil, errors.New("the handler panicked")
		}
	}()
	return f()
}
