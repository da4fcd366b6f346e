package dataplane

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// incoming is a peer's request.
type incoming struct {
	id     uint64
	method Method
	total  uint64
	body   []byte
	ctx    context.Context
	cancel context.CancelFunc
}

// request takes a frame of a request, and starts its handler when it is whole.
func (s *session) request(h header, c *cursor) error {
	s.mu.Lock()
	in := s.coming
	open := len(s.inward) + len(s.replies) // a reply that its asker gives no credit for is open too
	_, twice := s.inward[h.ask]
	s.mu.Unlock()
	if h.kind == kindRequest {
		switch {
		case in != nil:
			return fmt.Errorf("%w: a request inside another", ErrProtocol)
		case h.value > uint64(s.p.o.MaxRequest):
			return fmt.Errorf("%w: a request of %d bytes; at most %d were agreed", ErrProtocol, h.value, s.p.o.MaxRequest)
		case open >= s.p.o.MaxAsks:
			return fmt.Errorf("%w: more than %d asks", ErrProtocol, s.p.o.MaxAsks)
		case h.ask == 0 || twice:
			return fmt.Errorf("%w: ask %d is open already", ErrProtocol, h.ask)
		}
		in = &incoming{id: h.ask, method: h.method, total: h.value}
		in.ctx, in.cancel = context.WithCancel(s.p.ctx)
		s.mu.Lock()
		if s.err != nil {
			s.mu.Unlock()
			in.cancel()
			return nil
		}
		s.inward[h.ask], s.coming = in, in
		s.mu.Unlock()
	} else if in == nil || in.id != h.ask {
		return fmt.Errorf("%w: a part of a request that did not begin", ErrProtocol)
	}
	if !c.append(&in.body, h.size, in.total) {
		return fmt.Errorf("%w: a request of %d bytes goes on beyond its end, or not at all", ErrProtocol, in.total)
	}
	if uint64(len(in.body)) < in.total {
		return nil
	}
	s.mu.Lock()
	s.coming = nil
	s.mu.Unlock()
	switch {
	case in.ctx.Err() != nil: // taken back while it came
		s.answered(in, ErrPeerGone)
	case !s.p.takeOn(s.peer, len(in.body)):
		s.answered(in, errBusy)
	case !s.p.start(func() { s.handle(in) }):
		s.p.putDown(s.peer, len(in.body))
		in.cancel()
	}
	return nil
}

// handle runs the handler and queues what it answers.
func (s *session) handle(in *incoming) {
	defer in.cancel()
	r, err := s.call(in)
	s.p.putDown(s.peer, len(in.body))
	s.p.answered.Add(1)
	if err != nil {
		s.answered(in, err)
		return
	}
	s.consumed(classRequest, len(in.body))
	in.body = nil
	var total uint64
	for _, b := range r.Data {
		total += uint64(len(b))
	}
	rest := append([][]byte(nil), r.Data...)
	if r.what == "" {
		r.what = in.method.String() + " answered"
	}
	t := &transfer{ask: in.id, what: r.what, class: classReply, total: total, rest: rest, refs: released(rest, r.Release)}
	s.mu.Lock()
	wanted := s.inward[in.id] == in // and not a later one of the same number
	if wanted {
		delete(s.inward, in.id)
		s.replies = append(s.replies, t)
	}
	s.mu.Unlock()
	if !wanted && r.Release != nil {
		r.Release()
	}
	s.nudge()
}

// answered ends a request without a reply: the asker hears why, if it still
// wants to know.
func (s *session) answered(in *incoming, err error) {
	in.cancel()
	s.consumed(classRequest, len(in.body))
	in.body = nil
	s.mu.Lock()
	wanted := s.inward[in.id] == in
	if wanted {
		delete(s.inward, in.id)
	}
	s.mu.Unlock()
	if !wanted {
		return
	}
	text := err.Error()
	s.queue(&frame{header: header{kind: kindFail, ask: in.id}, payload: []byte(text[:min(len(text), maxErrorText)])})
}

// call runs the handler; a panic in it is the asker's error, and logged here.
func (s *session) call(in *incoming) (r Reply, err error) {
	defer func() {
		if x := recover(); x != nil {
			s.p.o.Logger.Error("a data plane handler panicked", "method", in.method, "panic", x, "stack", string(debug.Stack()))
			err = errors.New("the handler panicked")
		}
	}()
	s.p.mu.Lock()
	h := s.p.handlers[in.method]
	s.p.mu.Unlock()
	if h == nil {
		return Reply{}, fmt.Errorf("node %s serves no method %d", s.p.o.Node, in.method)
	}
	return h(in.ctx, &Request{Peer: s.peer, Body: in.body})
}

// cancelled takes back an ask of the peer: its handler's context ends, and what
// of its reply is not sent yet is not sent.
func (s *session) cancelled(id uint64) {
	s.mu.Lock()
	in := s.inward[id]
	if in != nil && in != s.coming {
		delete(s.inward, id)
	}
	var dropped *transfer
	for i, t := range s.replies {
		if t.ask == id {
			dropped = t
			s.replies = append(s.replies[:i:i], s.replies[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	if in != nil {
		in.cancel()
	}
	if dropped != nil {
		dropped.drop()
	}
}

// drop releases what of t was not sent.
func (t *transfer) drop() {
	if t.refs == nil {
		return
	}
	frames := frameCount(t.rest)
	if !t.begun {
		frames = max(frames, 1)
	}
	for range frames {
		t.refs.Put(nil)
	}
}

// released returns what calls f once all frames of data were taken by the
// transport; nil when there is nothing to call.
func released(data [][]byte, f func()) mem.BufferPool {
	if f == nil {
		return nil
	}
	r := &release{f: f}
	r.left.Store(int64(max(frameCount(data), 1)))
	return r
}

// frameCount returns how many frames carry data.
func frameCount(data [][]byte) int {
	n := 0
	for _, b := range data {
		n += (len(b) + chunk - 1) / chunk
	}
	return n
}

// release is a buffer pool by interface only: gRPC puts a frame's bytes back
// when it has read them.
type release struct {
	left atomic.Int64
	f    func()
}

// Get is not called: nothing is received into this pool.
func (*release) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put hears that a frame was taken.
func (r *release) Put(*[]byte) {
	if r.left.Add(-1) == 0 {
		r.f()
	}
}

// load is what a peer makes this node do and hold, over all the connections
// that it ever had: a handler may go on for a while after its request was taken
// back, or its connection ended.
type load struct {
	handlers int
	bytes    uint64 // of requests
}

// errBusy is what a peer hears that takes its requests back faster than their
// handlers return.
var errBusy = errors.New("too many requests of this node are being handled, those that it took back included")

// takeOn books a request of a peer; false: there are too many.
func (p *Plane) takeOn(peer string, bytes int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.loads[peer]
	if l.handlers >= 2*p.o.MaxAsks || l.bytes+uint64(bytes) > 2*uint64(p.o.Window) {
		return false
	}
	l.handlers++
	l.bytes += uint64(bytes)
	p.loads[peer] = l
	return true
}

// putDown books that a request's handler has returned.
func (p *Plane) putDown(peer string, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.loads[peer]
	l.handlers--
	l.bytes -= uint64(bytes)
	if p.loads[peer] = l; l == (load{}) {
		delete(p.loads, peer)
	}
}
