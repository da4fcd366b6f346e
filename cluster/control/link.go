package control

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/internal/bounded"
)

// envelope is what travels, as msgpack.
type envelope struct {
	From int64  `msgpack:"f"` // epoch of the sender
	To   int64  `msgpack:"t"` // epoch of the receiver
	Type kind   `msgpack:"y"`
	Seq  uint64 `msgpack:"s"` // counts from 1, per pair of epochs
	Ask  uint64 `msgpack:"a"`
	Kind string `msgpack:"k"`
	Body []byte `msgpack:"b"`
	Err  string `msgpack:"r"`
}

type kind uint8

const (
	kindRequest kind = iota + 1
	kindReply
)

// maxError bounds the text of an error on the wire.
const maxError = 4 << 10

// errMessage is wrapped by every error of unmarshal.
var errMessage = errors.New("control: malformed message")

// unmarshal decodes what a peer sent; memory is bounded by a small multiple of
// len(raw).
func unmarshal(raw []byte) (*envelope, error) {
	if len(raw) > maxMessage {
		return nil, fmt.Errorf("%w: %d bytes", errMessage, len(raw))
	}
	m := new(envelope)
	if err := bounded.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	if m.Type < kindRequest || m.Type > kindReply || m.Seq == 0 || len(m.Kind) > 64 || len(m.Body) > MaxBody {
		return nil, fmt.Errorf("%w: type %d, number %d", errMessage, m.Type, m.Seq)
	}
	return m, nil
}

// peer is the link to one epoch of a node.
type peer struct {
	Peer
	node   string
	member string          // what Proto.Actor's cluster calls it
	ctx    context.Context // ends when it is gone
	cancel context.CancelFunc
	// One for each message on its way: requests, and answers, which must not wait
	// for requests that the peer will not take before it could answer.
	slots, answers chan struct{}

	// Guarded by the plane's lock.
	last  uint64          // number sent
	low   uint64          // every message up to it was taken
	taken map[uint64]bool // later ones that were
	busy  int             // requests being handled, or whose answer waits for a slot
}

func newPeer(ctx context.Context, node string, at Peer, joined int) *peer {
	pr := &peer{Peer: at, node: node, member: fmt.Sprintf("%s#%d", node, joined), slots: make(chan struct{}, outstanding), answers: make(chan struct{}, outstanding), taken: map[uint64]bool{}}
	pr.ctx, pr.cancel = context.WithCancel(ctx)
	return pr
}

type ask struct {
	node  string
	reply chan result
}

type result struct {
	body []byte
	err  error
}

// Ask sends a message to the actor of a kind on a node, and waits for its answer. It
// fails at once when the peer goes; when ctx ends, the message may still be handled.
func (p *Plane) Ask(ctx context.Context, node, kind string, body []byte) ([]byte, error) {
	if len(body) > MaxBody {
		return nil, fmt.Errorf("%w: %s of %d bytes; at most %d: send a ticket", ErrLimit, kind, len(body), MaxBody)
	}
	a := &ask{node: node, reply: make(chan result, 1)}
	p.mu.Lock()
	pr := p.peers[node]
	closed := p.closed
	p.last++
	id := p.last
	if pr != nil && !closed {
		p.asks[id] = a
	}
	p.mu.Unlock()
	switch {
	case closed:
		return nil, ErrClosed
	case pr == nil:
		return nil, fmt.Errorf("%w: node %s is not a member", ErrPeerGone, node)
	}
	if pid := p.cluster.Get(node, kind); pid != nil { // else it has gone, and its ask has failed
		p.system.Root.RequestWithCustomSender(pid, &request{ask: id, body: body, ctx: ctx, peer: pr}, p.asker)
	}
	select {
	case r := <-a.reply:
		return r.body, r.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	delete(p.asks, id)
	p.mu.Unlock()
	select {
	case r := <-a.reply: // why it failed, if the peer went
		return r.body, r.err
	default:
		return nil, ctx.Err()
	}
}

// answered gives an answer to who waits for it.
func (p *Plane) answered(r *reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.asks[r.ask]; a != nil {
		delete(p.asks, r.ask)
		a.reply <- result{r.body, r.err}
	}
}

// post numbers a message, and sees to it that it is sent until the peer has it.
func (p *Plane) post(ctx context.Context, pr *peer, m *envelope) error {
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
	pr.last++
	m.From, m.To, m.Seq = p.o.Epoch, pr.Epoch, pr.last
	raw, err := msgpack.Marshal(m)
	if err == nil && p.closed {
		err = ErrClosed
	}
	if err != nil {
		<-slots
		return fmt.Errorf("control: %w", err)
	}
	p.tasks.Go(func() {
		defer func() { <-slots }()
		p.insist(pr, raw)
	})
	return nil
}

// insist delivers raw, again and again until the peer says that it has it, or
// is gone.
func (p *Plane) insist(pr *peer, raw []byte) {
	for wait := p.o.Resend; ; wait = min(2*wait, time.Second) {
		err := p.deliver(pr.ctx, pr.node, raw)
		if err == nil || pr.ctx.Err() != nil {
			return
		}
		p.o.Logger.Debug("control message not delivered yet", "node", pr.node, "error", err)
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-pr.ctx.Done():
			pause.Stop()
			return
		}
	}
}

// Why a message is not taken; its sender tries again, for it may be a member
// that this node has not heard of yet.
var (
	errStranger = errors.New("control: from no member, or an older self of one")
	errOther    = errors.New("control: for another self of this node")
	errBusy     = errors.New("control: busy")
)

// receive takes a message from a node. nil: it was taken, now or before.
func (p *Plane) receive(from string, raw []byte) error {
	m, err := unmarshal(raw)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pr := p.peers[from]
	switch {
	case p.closed:
		return ErrClosed
	case m.To != p.o.Epoch || m.To == 0:
		return errOther
	case pr == nil || pr.Epoch != m.From:
		return errStranger
	case m.Seq <= pr.low || pr.taken[m.Seq]:
		return nil
	case m.Seq > pr.low+4*outstanding || m.Type == kindRequest && pr.busy >= outstanding:
		return errBusy
	}
	pr.taken[m.Seq] = true
	for pr.taken[pr.low+1] {
		delete(pr.taken, pr.low+1)
		pr.low++
	}
	if m.Type == kindReply {
		if a := p.asks[m.Ask]; a != nil && a.node == from {
			r := &reply{ask: m.Ask, body: m.Body}
			if m.Err != "" {
				r.err = &RemoteError{from, m.Kind, m.Err}
			}
			p.system.Root.Send(p.asker, r)
		}
		return nil
	}
	pr.busy++
	sender, r := actor.NewPID(pidAddress(from), asker), &request{ask: m.Ask, body: m.Body, ctx: pr.ctx, peer: pr}
	if p.handlers[m.Kind] == nil {
		p.tasks.Go(func() { p.handle(m.Kind, nil, sender, r) })
		return nil
	}
	p.system.Root.RequestWithCustomSender(p.system.NewLocalPID(m.Kind), r, sender)
	return nil
}

// asked starts the handler of a kind.
func (p *Plane) asked(kind string, sender *actor.PID, r *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.handlers[kind]; !p.closed {
		p.tasks.Go(func() { p.handle(kind, h, sender, r) })
	}
}

// handle runs a handler and sends what it answers.
func (p *Plane) handle(kind string, h Handler, sender *actor.PID, r *request) {
	body, err := p.call(kind, h, r)
	if err == nil && len(body) > MaxBody {
		err = fmt.Errorf("%w: an answer of %d bytes", ErrLimit, len(body))
	}
	// A peer that does not take its answers is busy until it does.
	p.system.Root.Send(sender, &reply{ask: r.ask, kind: kind, body: body, err: err, peer: r.peer})
	p.mu.Lock()
	r.peer.busy--
	p.mu.Unlock()
}

func (p *Plane) call(kind string, h Handler, r *request) (body []byte, err error) {
	defer func() {
		if x := recover(); x != nil {
			p.o.Logger.Error("a control plane handler panicked", "kind", kind, "panic", x, "stack", string(debug.Stack()))
			err = errors.New("the handler panicked")
		}
	}()
	if h == nil {
		return nil, fmt.Errorf("node %s does not know %.64q", p.o.Node, kind)
	}
	return h(r.ctx, r.peer.node, r.body)
}
