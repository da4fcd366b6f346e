package dataplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// stream is what the two kinds of gRPC stream have in common.
type stream interface {
	SendMsg(any) error
	RecvMsg(any) error
}

// session is the stream with one peer.
type session struct {
	p      *Plane
	peer   string
	g      greeting
	stream stream
	cancel context.CancelFunc // ends the stream
	slots  chan struct{}      // one for each ask that may be open at the peer
	closed chan struct{}
	wake   chan struct{} // to the sender: there is something to do

	mu  sync.Mutex
	err error // why it ended

	// What is to be sent.
	urgent   []*frame    // bears no payload that needs credit
	requests []*transfer // one after another
	replies  []*transfer // taking turns
	out      [2]window   // what the peer granted, by class

	// What is received.
	in     [2]window
	last   uint64
	asks   map[uint64]*ask
	inward map[uint64]*incoming
	coming *incoming // the request whose parts are arriving
}

// The classes of credit.
const (
	classRequest = iota
	classReply
)

// window counts the bytes of one class in one direction.
type window struct{ sent, granted, done uint64 }

func newSession(p *Plane, g greeting, st stream, cancel context.CancelFunc) *session {
	s := &session{
		p: p, peer: g.node, g: g, stream: st, cancel: cancel, slots: make(chan struct{}, min(max(g.maxAsks, 1), 1<<16)),
		closed: make(chan struct{}), wake: make(chan struct{}, 1), asks: map[uint64]*ask{}, inward: map[uint64]*incoming{},
	}
	for class := range s.in {
		s.in[class].granted = uint64(p.o.Window)
	}
	s.urgent = []*frame{
		{header: header{kind: kindGrantAsks, value: uint64(p.o.Window)}},
		{header: header{kind: kindGrantData, value: uint64(p.o.Window)}},
	}
	return s
}

// run sends and receives until the session ends, and returns why.
func (s *session) run(ctx context.Context) error {
	// A server's stream ends when its handler returns and not before: neither
	// goroutine may be waited for here.
	if !s.p.start(func() { s.sendAll(ctx) }) || !s.p.start(s.receiveAll) {
		s.end(ErrClosed)
	}
	<-s.closed
	return s.cause()
}

func (s *session) receiveAll() {
	for {
		if err := s.stream.RecvMsg(s); err != nil {
			s.end(fmt.Errorf("%w: node %s: %w", ErrPeerGone, s.peer, err))
			return
		}
	}
}

// end fails everything that is open. It may be called several times.
func (s *session) end(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	asks, inward, replies := s.asks, s.inward, s.replies
	s.asks, s.inward, s.coming = nil, nil, nil
	s.requests, s.replies, s.urgent = nil, nil, nil
	s.mu.Unlock()
	close(s.closed)
	s.cancel()
	for _, a := range asks {
		a.finish(err)
	}
	for _, in := range inward {
		in.cancel()
	}
	for _, t := range replies {
		t.drop()
	}
	s.p.dismiss(s)
	level := slog.LevelInfo
	if closing(err) {
		level = slog.LevelDebug
	}
	s.p.o.Logger.Log(context.Background(), level, "data plane connection ended", "node", s.peer, "error", err)
}

// closing reports whether a connection ended as one does whose peer, or this node, leaves: a server says that it is
// closed, and of whoever dialled nothing is left but a stream that is canceled. Who waits for an answer says so where it matters.
func closing(err error) bool {
	said, ok := status.FromError(err)
	return errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) || ok && (said.Code() == codes.Canceled || strings.HasSuffix(said.Message(), ErrClosed.Error()))
}

// nudge wakes the sender.
func (s *session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// queue adds a frame that needs no credit.
func (s *session) queue(f *frame) {
	s.mu.Lock()
	full := false
	if s.err == nil {
		s.urgent = append(s.urgent, f)
		full = len(s.urgent) > 4*s.p.o.MaxAsks+16 // answers that a peer causes without reading them
	}
	s.mu.Unlock()
	if full {
		s.end(fmt.Errorf("%w: %w: node %s does not read its answers", ErrPeerGone, ErrLimit, s.peer))
		return
	}
	s.nudge()
}

// transfer is a request's or a reply's bytes on their way out.
type transfer struct {
	ask    uint64
	method Method // of a request
	what   string // it is counted as
	class  int
	total  uint64
	begun  bool
	rest   [][]byte
	refs   mem.BufferPool // hears when the transport has taken a frame
}

// next cuts the next frame; false: it was the last.
func (t *transfer) next() (f *frame, more bool) {
	for len(t.rest) > 0 && len(t.rest[0]) == 0 {
		t.rest = t.rest[1:]
	}
	f = &frame{header: header{kind: kindRequestPart, ask: t.ask}, what: t.what, taken: t.refs}
	if t.class == classReply {
		f.kind = kindReplyPart
	}
	if !t.begun {
		t.begun = true
		f.kind, f.method, f.value = f.kind-1, t.method, t.total
	}
	if len(t.rest) > 0 {
		n := min(chunk, len(t.rest[0]))
		f.payload, t.rest[0] = t.rest[0][:n:n], t.rest[0][n:]
	}
	for len(t.rest) > 0 && len(t.rest[0]) == 0 {
		t.rest = t.rest[1:]
	}
	return f, len(t.rest) > 0
}

// pick returns the next frame to send; nil: there is none that may be sent.
func (s *session) pick() *frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil
	}
	if len(s.urgent) > 0 {
		f := s.urgent[0]
		s.urgent = s.urgent[1:]
		return f
	}
	allowed := func(class int) bool { return s.out[class].granted >= s.out[class].sent+chunk }
	if len(s.requests) > 0 && allowed(classRequest) {
		f, more := s.requests[0].next()
		if !more {
			s.requests = s.requests[1:]
		}
		s.out[classRequest].sent += uint64(len(f.payload))
		return f
	}
	if len(s.replies) > 0 && allowed(classReply) {
		t := s.replies[0]
		s.replies = s.replies[1:]
		f, more := t.next()
		if more {
			s.replies = append(s.replies, t)
		}
		s.out[classReply].sent += uint64(len(f.payload))
		return f
	}
	return nil
}

func (s *session) sendAll(ctx context.Context) {
	for {
		f := s.pick()
		if f == nil {
			select {
			case <-s.wake:
				continue
			case <-s.closed:
				return
			case <-ctx.Done():
				s.end(fmt.Errorf("%w: node %s: %w", ErrPeerGone, s.peer, ctx.Err()))
				return
			}
		}
		s.p.sent.Add(int64(headerSize + len(f.payload)))
		switch f.kind {
		case kindRequest, kindReply:
			s.p.traffic.Add(f.what, 1, headerSize, len(f.payload), 0)
		case kindRequestPart, kindReplyPart:
			s.p.traffic.Add(f.what, 0, headerSize, len(f.payload), 0)
		default: // credits, errors, and what is taken back
			s.p.traffic.Add("data plane's own", 1, headerSize+len(f.payload), 0, 0)
		}
		if err := s.stream.SendMsg(f); err != nil {
			s.end(fmt.Errorf("%w: node %s: %w", ErrPeerGone, s.peer, err))
			return
		}
	}
}

// receive takes one frame; an error ends the stream. Only the goroutine of run
// calls it, by way of the codec.
func (s *session) receive(data mem.BufferSlice) error {
	length := data.Len()
	if length < headerSize {
		return fmt.Errorf("%w: frame of %d bytes", ErrProtocol, length)
	}
	s.p.received.Add(int64(length))
	c := cursor{rest: data}
	var raw [headerSize]byte
	c.read(raw[:])
	h, err := parseHeader(&raw, length)
	if err != nil {
		return err
	}
	switch h.kind {
	case kindGrantAsks, kindGrantData:
		return s.granted(int(h.kind-kindGrantAsks), h)
	case kindRequest, kindRequestPart:
		if err := s.count(classRequest, h.size); err != nil {
			return err
		}
		return s.request(h, &c)
	case kindReply, kindReplyPart:
		if err := s.count(classReply, h.size); err != nil {
			return err
		}
		err := s.reply(h, &c)
		s.consumed(classReply, h.size)
		return err
	case kindFail:
		if h.size > maxErrorText {
			return fmt.Errorf("%w: an error of %d bytes", ErrProtocol, h.size)
		}
		text := make([]byte, h.size)
		c.read(text)
		s.failed(h.ask, string(text))
	case kindCancel:
		s.cancelled(h.ask)
	}
	return nil
}

// granted takes a grant: bytes that may have been sent in all. It never falls.
func (s *session) granted(class int, h header) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.size != 0 || h.value < s.out[class].granted {
		return fmt.Errorf("%w: a grant that takes back", ErrProtocol)
	}
	s.out[class].granted = h.value
	s.nudge()
	return nil
}

// count books n bytes that arrived; they must have been granted.
func (s *session) count(class, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.in[class]
	if f.sent += uint64(n); f.sent > f.granted {
		return fmt.Errorf("%w: %d bytes beyond its credit", ErrProtocol, f.sent-f.granted)
	}
	return nil
}

// consumed books n bytes that are held no longer, and grants as many again when
// a quarter of the window is free.
func (s *session) consumed(class, n int) {
	s.mu.Lock()
	f := &s.in[class]
	f.done += uint64(n)
	window := uint64(s.p.o.Window)
	grant := s.err == nil && f.done+window-f.granted >= window/4
	var value uint64
	if grant {
		f.granted = f.done + window
		value = f.granted
	}
	s.mu.Unlock()
	if grant {
		s.queue(&frame{header: header{kind: kindGrantAsks + kind(class), value: value}})
	}
}
