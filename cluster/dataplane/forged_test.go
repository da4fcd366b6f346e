package dataplane

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
)

// forged is a stream whose frames come from a test, and which swallows what is
// sent to it.
type forged struct {
	frames [][]byte
	ctx    context.Context
}

func (f *forged) SendMsg(v any) error {
	v.(*frame).buffers().Free()
	return f.ctx.Err()
}

func (f *forged) RecvMsg(v any) error {
	if len(f.frames) == 0 {
		return errors.New("the end")
	}
	next := f.frames[0]
	f.frames = f.frames[1:]
	half := len(next) / 2 // the transport cuts where it likes
	return codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(next[:half]), mem.SliceBuffer(next[half:])}, v)
}

func raw(k kind, m Method, ask, value uint64, payload []byte) []byte {
	h := header{kind: k, method: m, size: len(payload), ask: ask, value: value}
	b := make([]byte, headerSize, headerSize+len(payload))
	h.put(b)
	return append(b, payload...)
}

// feed runs a session over frames; a call is open meanwhile. It returns why the
// session ended and the call's error.
func feed(t testing.TB, p *Plane, frames [][]byte) (ended, asked error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := newSession(p, greeting{node: "x", maxAsks: 2, maxBytes: 100}, &forged{frames, ctx}, cancel)
	a := &ask{id: 1, node: "x", max: 1 << 20, done: make(chan struct{})}
	s.last, s.asks[1] = 1, a
	ended = s.run(ctx)
	<-a.done
	if len(s.asks)+len(s.inward)+len(s.urgent)+len(s.replies)+len(s.requests) != 0 {
		t.Fatal("the session holds on to something")
	}
	return ended, a.err
}

func forgedPlane(t testing.TB) *Plane {
	p := planes(t, func(o *Options) { o.Window, o.MaxRequest, o.MaxAsks, o.DialTimeout = 4<<20, 2<<20, 3, time.Second }, "a")[0]
	p.Handle(methodSize, nil) // allocates what it is told to
	return p
}

func TestForgedFrames(t *testing.T) {
	p := forgedPlane(t)
	full := make([]byte, chunk)
	many := func(n int, f func(i int) []byte) (all [][]byte) {
		for i := range n {
			all = append(all, f(i))
		}
		return all
	}
	for name, frames := range map[string][][]byte{
		"empty":                      {{}},
		"short":                      {make([]byte, headerSize-1)},
		"kind 0":                     {make([]byte, headerSize)},
		"kind 99":                    {raw(99, 0, 0, 0, nil)},
		"a size that is not there":   {append(raw(kindReply, 0, 1, 9, nil)[:4], append([]byte{9, 0, 0, 0}, make([]byte, 16)...)...)},
		"a reply never asked for":    {raw(kindReply, 0, 7, 1, []byte{1})},
		"a reply to nothing":         {raw(kindReply, 0, 0, 1, []byte{1})},
		"a reply that begins twice":  {raw(kindReply, 0, 1, 9, []byte{1}), raw(kindReply, 0, 1, 9, []byte{1})},
		"a part before its reply":    {raw(kindReplyPart, 0, 1, 9, []byte{1})},
		"a reply beyond its end":     {raw(kindReply, 0, 1, 1, []byte{1, 2})},
		"a reply that never goes on": {raw(kindReply, 0, 1, 9, nil)},
		"a request too large":        {raw(kindRequest, methodEcho, 1, 2<<20+1, []byte{1})},
		"a request inside another":   {raw(kindRequest, methodEcho, 1, 9, []byte{1}), raw(kindRequest, methodEcho, 2, 1, []byte{1})},
		"a part without a request":   {raw(kindRequestPart, methodEcho, 1, 9, []byte{1})},
		"a part of another request":  {raw(kindRequest, methodEcho, 1, 9, []byte{1}), raw(kindRequestPart, 0, 2, 0, []byte{1})},
		"a request beyond its end":   {raw(kindRequest, methodEcho, 1, 2, []byte{1}), raw(kindRequestPart, 0, 1, 0, []byte{1, 2})},
		"a request numbered 0":       {raw(kindRequest, methodEcho, 0, 1, []byte{1})},
		"a grant that takes back":    {raw(kindGrantData, 0, 0, 9, nil), raw(kindGrantData, 0, 0, 8, nil)},
		"a grant with a payload":     {raw(kindGrantAsks, 0, 0, 9, []byte{1})},
		"an error too long":          {raw(kindFail, 0, 1, 0, make([]byte, maxErrorText+1))},
		"requests beyond their credit": many(6, func(i int) []byte {
			if i%2 == 0 {
				return raw(kindRequest, methodWait, uint64(i+1), 2<<20, full)
			}
			return raw(kindRequestPart, 0, uint64(i), 0, full)
		}),
	} {
		if ended, _ := feed(t, p, frames); !errors.Is(ended, ErrProtocol) {
			t.Errorf("%s: the session ended with %v", name, ended)
		}
	}
	for name, frames := range map[string][][]byte{
		"an error for no ask":   {raw(kindFail, 0, 9, 0, []byte("x"))},
		"a cancel for no ask":   {raw(kindCancel, 0, 9, 0, nil)},
		"cancelled half-way":    {raw(kindRequest, methodEcho, 1, 9, []byte{1}), raw(kindCancel, 0, 1, 0, nil)},
		"a grant of everything": {raw(kindGrantData, 0, 0, 1<<64-1, nil)},
		"a request and its end": {raw(kindRequest, methodEcho, 1, 2, []byte{1}), raw(kindRequestPart, 0, 1, 0, []byte{2})},
	} {
		if ended, asked := feed(t, p, frames); errors.Is(ended, ErrProtocol) || !errors.Is(asked, ErrPeerGone) {
			t.Errorf("%s: the session ended with %v, the ask with %v", name, ended, asked)
		}
	}
	if _, asked := feed(t, p, [][]byte{raw(kindReply, 0, 1, 1<<20+1, full)}); !errors.Is(asked, ErrLimit) {
		t.Errorf("a reply over the asker's limit: %v", asked)
	}
	if _, asked := feed(t, p, [][]byte{raw(kindReply, 0, 1, 1<<20, full)}); asked != nil {
		t.Errorf("a whole reply: %v", asked)
	}
}

// A peer that asks without reading answers is cut off.
func TestUnreadAnswers(t *testing.T) {
	p := forgedPlane(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	block := &blocked{forged: forged{ctx: ctx}, ctx: ctx}
	for i := range 1000 {
		block.frames = append(block.frames, raw(kindRequest, 999, uint64(i+1), 0, nil))
	}
	s := newSession(p, greeting{node: "x", maxAsks: 2, maxBytes: 100}, block, cancel)
	if err := s.run(ctx); !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrLimit) {
		t.Errorf("it ended with %v", err)
	}
}

// blocked never gets rid of what is sent on it.
type blocked struct {
	forged
	ctx context.Context
}

func (b *blocked) SendMsg(any) error {
	<-b.ctx.Done()
	return b.ctx.Err()
}

func (b *blocked) RecvMsg(v any) error {
	if len(b.frames) == 0 {
		<-b.ctx.Done()
	}
	return b.forged.RecvMsg(v)
}

// Whatever a peer sends, a session ends and nothing panics; memory follows what
// really came.
func FuzzSession(f *testing.F) {
	p := forgedPlane(f)
	f.Add(raw(kindRequest, methodEcho, 1, 2, []byte{1}), raw(kindRequestPart, 0, 1, 0, []byte{2}), raw(kindCancel, 0, 1, 0, nil))
	f.Add(raw(kindReply, 0, 1, 2, []byte{1}), raw(kindReplyPart, 0, 1, 0, []byte{2}), raw(kindFail, 0, 1, 0, nil))
	f.Add(raw(kindGrantData, 0, 0, 9, nil), raw(kindGrantAsks, 0, 0, 8, nil), []byte{})
	f.Add(raw(kindRequest, methodTicket, 1, 32, make([]byte, 32)), raw(kindRequest, methodEcho, 3, 1<<20, nil), []byte{5})
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		if ended, _ := feed(t, p, [][]byte{a, b, c}); ended == nil {
			t.Fatal("the session has no end")
		}
	})
}

// Whatever a ticket request holds, it is answered with bytes of the offer.
func FuzzTicket(f *testing.F) {
	p := planes(f, nil, "a")[0]
	data := pattern(1000)
	ticket, withdraw := p.Offer("numbers", [][]byte{data[:10], data[10:]}, nil)
	f.Cleanup(withdraw)
	f.Add(append(ticket.ID[:], make([]byte, 16)...))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 32 {
			copy(b, ticket.ID[:])
		}
		r, err := p.tickets.serve(t.Context(), &Request{Peer: "x", Body: b})
		n := 0
		for _, part := range r.Data {
			n += len(part)
		}
		if n > len(data) {
			t.Fatalf("%d bytes of %d, %v", n, len(data), err)
		}
		if r.Release != nil {
			r.Release()
		}
	})
}
