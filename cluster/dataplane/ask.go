package dataplane

import (
	"context"
	"fmt"
	"sync"
)

// ask is a request that waits for its reply.
type ask struct {
	id     uint64
	node   string
	method Method
	max    uint64
	done   chan struct{}

	mu    sync.Mutex // held while bytes are copied to dst
	over  bool
	err   error
	begun bool
	total uint64 // bytes of the reply
	dst   []byte // what came of it
}

// preallocLimit is how many bytes of a reply are made room for when it begins; beyond
// that, room is made as they come.
const preallocLimit = 64 << 20

// finish ends the ask, once; afterwards nobody writes to dst.
func (a *ask) finish(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.over, a.err = true, err
		close(a.done)
	}
}

// Call is a request to a node.
type Call struct {
	Node   string
	Method Method
	// Body is sent from where it lies: it must not change until Ask returns,
	// or, when Ask fails, ever.
	Body [][]byte
	// Into, when it is large enough, is where the reply is put.
	Into []byte
	// Max is the largest reply that is accepted; 0: cap(Into).
	Max int
}

// Ask sends a request and waits for the whole reply, which it returns: in Into
// if it fits, else in new memory. It fails at once when the peer goes
// (ErrPeerGone), and when ctx ends. When MaxAsks are open at the node, it waits.
func (p *Plane) Ask(ctx context.Context, c Call) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // otherwise an answer that is fast enough might win
	}
	s, err := p.session(ctx, c.Node)
	if err != nil {
		return nil, err
	}
	var total uint64
	for _, b := range c.Body {
		total += uint64(len(b))
	}
	if total > uint64(s.g.maxBytes) {
		return nil, fmt.Errorf("%w: a request of %d bytes; node %s takes %d", ErrLimit, total, c.Node, s.g.maxBytes)
	}
	select {
	case s.slots <- struct{}{}:
	case <-s.closed:
		return nil, s.cause()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.slots }()
	if c.Max == 0 {
		c.Max = cap(c.Into)
	}
	a := &ask{node: c.Node, method: c.Method, max: uint64(c.Max), done: make(chan struct{}), dst: c.Into[:0]}
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.last++
	a.id = s.last
	s.asks[a.id] = a
	body := make([][]byte, len(c.Body)) // the caller's slice is not to be cut up
	copy(body, c.Body)
	taken := make(chan struct{})
	s.requests = append(s.requests, &transfer{ask: a.id, method: c.Method, what: c.Method.String(), class: classRequest, total: total, rest: body,
		refs: released(body, func() { close(taken) })})
	s.mu.Unlock()
	p.asked.Add(1)
	s.nudge()
	select {
	case <-a.done:
	case <-ctx.Done():
		s.mu.Lock()
		_, open := s.asks[a.id]
		delete(s.asks, a.id)
		for i, t := range s.requests {
			if t.ask == a.id && !t.begun {
				s.requests = append(s.requests[:i:i], s.requests[i+1:]...)
				open = false // the peer never heard of it
				break
			}
		}
		s.mu.Unlock()
		a.finish(ctx.Err())
		if open {
			s.queue(&frame{header: header{kind: kindCancel, ask: a.id}})
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return nil, a.err
	}
	select { // the reply may overtake the transport's giving the last bytes back
	case <-taken:
	case <-s.closed:
	}
	return a.dst, nil
}

func (s *session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// reply takes a frame of a reply. One for an ask that was given up is dropped.
func (s *session) reply(h header, c *cursor) error {
	s.mu.Lock()
	a := s.asks[h.ask]
	unknown := h.ask == 0 || h.ask > s.last
	s.mu.Unlock()
	if unknown {
		return fmt.Errorf("%w: a reply to ask %d, which was never made", ErrProtocol, h.ask)
	}
	if a == nil {
		return nil
	}
	a.mu.Lock()
	if a.over {
		a.mu.Unlock()
		return nil
	}
	if begins := h.kind == kindReply; begins == a.begun {
		a.mu.Unlock()
		return fmt.Errorf("%w: parts of a reply out of order", ErrProtocol)
	}
	if !a.begun {
		if h.value > a.max {
			a.mu.Unlock()
			s.forget(a, fmt.Errorf("%w: node %s answers method %d with %d bytes; %d were expected at most", ErrLimit, a.node, a.method, h.value, a.max))
			s.queue(&frame{header: header{kind: kindCancel, ask: a.id}})
			return nil
		}
		a.begun, a.total = true, h.value
		if uint64(cap(a.dst)) < h.value {
			a.dst = make([]byte, 0, min(h.value, preallocLimit))
		}
	}
	ok := c.append(&a.dst, h.size, a.total)
	complete := uint64(len(a.dst)) == a.total
	a.mu.Unlock()
	if !ok {
		return fmt.Errorf("%w: a reply of %d bytes goes on beyond its end, or not at all", ErrProtocol, a.total)
	}
	if complete {
		s.forget(a, nil)
	}
	return nil
}

// forget ends an ask.
func (s *session) forget(a *ask, err error) {
	s.mu.Lock()
	delete(s.asks, a.id)
	s.mu.Unlock()
	a.finish(err)
}

func (s *session) failed(id uint64, text string) {
	s.mu.Lock()
	a := s.asks[id]
	s.mu.Unlock()
	if a != nil {
		s.forget(a, &RemoteError{Node: a.node, Method: a.method, Text: text})
	}
}
