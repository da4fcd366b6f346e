package dataplane

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// Replies that a peer asked for and gives no credit for are bounded: what it
// makes a node hold is not more than MaxAsks of them.
func TestRepliesWithoutCredit(t *testing.T) {
	p := forgedPlane(t)
	var handled, held atomic.Int64
	one := make(chan struct{}, 100)
	p.Handle(methodSize, func(context.Context, *Request) (Reply, error) {
		held.Add(1)
		handled.Add(1)
		one <- struct{}{}
		return Reply{Data: [][]byte{make([]byte, 1<<10)}, Release: func() { held.Add(-1) }}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := &paced{blocked: blocked{forged: forged{ctx: ctx}, ctx: ctx}}
	for i := range 100 {
		b.frames = append(b.frames, raw(kindRequest, methodSize, uint64(i+1), 0, nil))
	}
	b.pace = func(sent int) { // one at a time: that they do not wait for each other is not the point
		if sent == 0 {
			return
		}
		select {
		case <-one:
		case <-ctx.Done():
		}
	}
	s := newSession(p, greeting{node: "x", maxAsks: 2, maxBytes: 100}, b, cancel)
	if err := s.run(ctx); !errors.Is(err, ErrProtocol) {
		t.Errorf("it ended with %v", err)
	}
	p.Close() // a handler that has just returned gives its reply back then
	if n := handled.Load(); n > int64(p.o.MaxAsks) {
		t.Errorf("%d replies of a peer that may have %d asks open", n, p.o.MaxAsks)
	}
	if n := held.Load(); n != 0 {
		t.Errorf("%d replies are held after the session's end", n)
	}
}

// paced waits before each frame.
type paced struct {
	blocked
	given int
	pace  func(sent int)
}

func (p *paced) RecvMsg(v any) error {
	p.pace(p.given)
	p.given++
	return p.blocked.RecvMsg(v)
}

// A peer that takes its requests back at once cannot have more of their handlers
// running than twice what it may ask.
func TestTakenBack(t *testing.T) {
	p := forgedPlane(t)
	var running atomic.Int64
	let := make(chan struct{})
	p.Handle(methodSize, func(context.Context, *Request) (Reply, error) { // it does not heed its context
		running.Add(1)
		<-let
		return Reply{}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &forged{ctx: ctx}
	for i := range 50 {
		f.frames = append(f.frames, raw(kindRequest, methodSize, uint64(i+1), 1, []byte{1}), raw(kindCancel, 0, uint64(i+1), 0, nil))
	}
	s := newSession(p, greeting{node: "x", maxAsks: 2, maxBytes: 100}, f, cancel)
	if err := s.run(ctx); !errors.Is(err, ErrPeerGone) || errors.Is(err, ErrProtocol) {
		t.Errorf("it ended with %v", err)
	}
	p.mu.Lock()
	n := p.loads["x"].handlers
	p.mu.Unlock()
	if n != 2*p.o.MaxAsks {
		t.Errorf("%d handlers are running of a peer that may have %d asks open", n, p.o.MaxAsks)
	}
	close(let)
	p.Close()
	if got := running.Load(); got > int64(n) {
		t.Errorf("%d handlers ran, %d were counted", got, n)
	}
	if len(p.loads) != 0 {
		t.Errorf("%v is left", p.loads)
	}
}

// A reply that claims to be huge costs what came of it.
func TestClaimedReply(t *testing.T) {
	p := forgedPlane(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSession(p, greeting{node: "x", maxAsks: 2, maxBytes: 100}, &forged{frames: [][]byte{raw(kindReply, 0, 1, 1<<46, make([]byte, chunk))}, ctx: ctx}, cancel)
	a := &ask{id: 1, node: "x", max: 1 << 47, done: make(chan struct{})}
	s.last, s.asks[1] = 1, a
	s.run(ctx)
	if <-a.done; cap(a.dst) > preallocLimit {
		t.Errorf("%d bytes of memory for one frame", cap(a.dst))
	}
}

// A server that sends a frame before its greeting, or instead of it, is not
// heard: nothing of it reaches a handler.
func TestFrameBeforeGreeting(t *testing.T) {
	p := planes(t, nil, "m")[0]
	var heard atomic.Bool
	p.Handle(methodEcho, func(context.Context, *Request) (Reply, error) { heard.Store(true); return Reply{}, nil })
	address := forgedServer(t, func(st grpc.ServerStream) error {
		return st.SendMsg(&frame{header: header{kind: kindRequest, method: methodEcho, ask: 1}})
	})
	for _, node := range []string{"z", "a"} { // one that m connects to, one that it asks to dial back
		p.SetPeer(node, address)
		if _, err := p.Ask(ctxFor(t), Call{Node: node, Method: methodEcho}); !errors.Is(err, ErrProtocol) && !strings.Contains(err.Error(), ErrProtocol.Error()) {
			t.Errorf("node %s: %v", node, err)
		}
	}
	if p.Close(); heard.Load() {
		t.Error("a handler heard of it")
	}
}

// forgedServer serves the data plane's streams by handle until the test's end, and returns where.
func forgedServer(t *testing.T, handle func(grpc.ServerStream) error) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.Creds(insecure.NewCredentials()), grpc.WaitForHandlers(true))
	server.RegisterService(&grpc.ServiceDesc{ServiceName: serviceName, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: streamName, ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, st grpc.ServerStream) error { return handle(st) },
	}}}, nil)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// A node that was asked to dial back and ends before it does is given up at once.
func TestNotDialledBack(t *testing.T) {
	p := planes(t, nil, "m")[0]
	p.SetPeer("a", forgedServer(t, func(grpc.ServerStream) error { return nil }))
	if _, err := p.Ask(ctxFor(t), Call{Node: "a", Method: methodEcho}); !errors.Is(err, ErrPeerGone) || errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Requests to be dialled back: none from a node that should open the stream itself, no more of
// strangers than there may be peers, and who asks hears that it cannot be done.
func TestDialBack(t *testing.T) {
	p := planes(t, func(o *Options) { o.MaxPeers = 2 }, "m")[0]
	cc, err := transport.Dial(p.Address(), p.transport())
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	request := func(node string) codes.Code {
		md := metadata.Pairs(transport.MetaVersion, transport.WireVersion, metaCluster, "test", metaNode, node, metaIncarnation, "1",
			metaAddress, "127.0.0.1:1", metaAsks, "1", metaRequest, "1", metaDialBack, "1")
		st, err := cc.NewStream(metadata.NewOutgoingContext(ctxFor(t), md), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+serviceName+"/"+streamName)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.CloseSend(); err != nil {
			t.Fatal(err)
		}
		return status.Code(st.RecvMsg(silence{}))
	}
	if c := request("a"); c != codes.FailedPrecondition {
		t.Errorf("a request from a node that sorts first: %v", c)
	}
	full := 0
	for _, n := range []string{"n", "o", "p", "q", "r", "s", "t"} {
		switch c := request(n); c {
		case codes.ResourceExhausted:
			full++
		case codes.Unavailable: // there is nobody where it says that it is
		default:
			t.Errorf("a request from a node that cannot be reached: %v", c)
		}
	}
	if full != 3 {
		t.Errorf("%d of 7 strangers were refused; 4 fit", full)
	}
}
