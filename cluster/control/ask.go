package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

type ask struct {
	node, kind string
	reply      chan *reply
}

// Ask sends a message to the actor of a kind and an identity, and waits for its
// answer. It fails at once when there is no such actor (ErrElsewhere), or when its
// node goes (ErrPeerGone); when ctx ends, the message may still be handled.
func (p *Plane) Ask(ctx context.Context, kind, identity string, body []byte) ([]byte, error) {
	pid := p.cluster.Get(identity, kind)
	if pid == nil {
		return nil, fmt.Errorf("%w: no node has the %s %s", ErrElsewhere, kind, identity)
	}
	return p.ask(ctx, p.nodeOf(pid), pid, kind, identity, body)
}

// AskAt is Ask of the actor on one node, wherever Place says it is: that node answers if, as it
// sees it, the actor is there.
func (p *Plane) AskAt(ctx context.Context, node, kind, identity string, body []byte) ([]byte, error) {
	return p.ask(ctx, node, actor.NewPID(p.pidAddress(node), actorID(kind, identity)), kind, identity, body)
}

func (p *Plane) ask(ctx context.Context, node string, pid *actor.PID, kind, identity string, body []byte) ([]byte, error) {
	if len(body) > MaxBody {
		return nil, fmt.Errorf("%w: %s of %d bytes; at most %d: send a ticket", ErrLimit, kind, len(body), MaxBody)
	}
	a := &ask{node: node, kind: kind, reply: make(chan *reply, 1)}
	p.mu.Lock()
	pr := p.peers[node]
	closed := p.closed
	p.last++
	id := p.last
	if !closed && (pr != nil || node == p.o.Node) {
		p.asks[id] = a
	}
	p.mu.Unlock()
	r := &request{ask: id, body: body, ctx: ctx, peer: pr}
	switch {
	case closed:
		return nil, ErrClosed
	case node == p.o.Node:
		r.ctx = p.ctx // as if another node had asked
		p.give(actorID(kind, identity), p.asker, r)
	case pr == nil:
		return nil, fmt.Errorf("%w: node %s is not a member", ErrPeerGone, node)
	default:
		p.system.Root.RequestWithCustomSender(pid, r, p.asker)
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

// Request asks like Ask, and asks again, wherever the actor is by then, while it is
// on no node, moves, or loses its node: until ctx ends. It may be handled more than
// once.
func (p *Plane) Request(ctx context.Context, kind, identity string, body []byte) ([]byte, error) {
	for wait := p.o.Resend; ; wait = min(2*wait, time.Second) {
		b, err := p.Ask(ctx, kind, identity, body)
		if !errors.Is(err, ErrElsewhere) && !errors.Is(err, ErrPeerGone) {
			return b, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// answered gives an answer to who waits for it.
func (p *Plane) answered(r *reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.asks[r.ask]; a != nil {
		delete(p.asks, r.ask)
		a.reply <- r
	}
}
