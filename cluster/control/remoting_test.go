package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

func TestBatch(t *testing.T) {
	want := []*message{{target: "echo/b", sender: "asks", raw: []byte("one")}, {target: "asks", sender: "echo/a"}, {target: "x", sender: "y", raw: make([]byte, maxMessage)}}
	for len(want) < maxBatch {
		want = append(want, &message{target: strings.Repeat("t", maxName), sender: "s", raw: make([]byte, maxMessage)})
	}
	raw, err := encodeBatch("test/a", "test/b", want)
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeFrame(raw)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeBatch(m.GetMessageBatch(), "test/a", "test/b")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(got, want, func(a, b *message) bool {
		return a.target == b.target && a.sender == b.sender && bytes.Equal(a.raw, b.raw)
	}) {
		t.Errorf("%d messages came of %d, or other ones", len(got), len(want))
	}
	for _, between := range [][2]string{{"test/c", "test/b"}, {"test/a", "test/c"}} {
		if _, err := decodeBatch(m.GetMessageBatch(), between[0], between[1]); !errors.Is(err, errRemoting) {
			t.Errorf("from %s to %s: %v", between[0], between[1], err)
		}
	}
}

// Frames that are malformed, or of more parts than a node sends, are refused before
// they are decoded; what batches refer to has to be there.
func TestForgedFrames(t *testing.T) {
	data, err := proto.Marshal(wrapperspb.Bytes([]byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	batch := func(change func(*remote.MessageBatch)) []byte {
		b := &remote.MessageBatch{
			TypeNames: []string{messageType}, Targets: []*actor.PID{actor.NewPID("test/b", "echo/b")}, Senders: []*actor.PID{actor.NewPID("test/a", "asks")},
			Envelopes: []*remote.MessageEnvelope{{MessageData: data, Sender: 1}},
		}
		change(b)
		raw, err := encodeFrame(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: b}})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	good := batch(func(*remote.MessageBatch) {})
	decode := func(raw []byte) error {
		m, err := decodeFrame(raw)
		if err == nil {
			_, err = decodeBatch(m.GetMessageBatch(), "test/a", "test/b")
		}
		return err
	}
	if err := decode(good); err != nil {
		t.Fatal(err)
	}
	type b = remote.MessageBatch
	for name, raw := range map[string][]byte{
		"truncated":              good[:len(good)-1],
		"oversized":              make([]byte, maxFrame+1),
		"many targets":           batch(func(b *b) { b.Targets = slices.Repeat([]*actor.PID{{}}, maxFields) }),
		"many fields":            bytes.Repeat([]byte{0x22, 0}, maxFields+1),
		"a group that is open":   bytes.Repeat([]byte{0x0b}, 1000),
		"a header":               batch(func(b *b) { b.Envelopes[0].MessageHeader = &remote.MessageHeader{} }),
		"an unknown type":        batch(func(b *b) { b.TypeNames[0] = "actor.Stop" }),
		"no type":                batch(func(b *b) { b.TypeNames = nil }),
		"a type below 0":         batch(func(b *b) { b.Envelopes[0].TypeId = -1 }),
		"another serializer":     batch(func(b *b) { b.Envelopes[0].SerializerId = 1 }),
		"no such target":         batch(func(b *b) { b.Envelopes[0].Target = 1 }),
		"a target below 0":       batch(func(b *b) { b.Envelopes[0].Target = -1 }),
		"nobody's":               batch(func(b *b) { b.Envelopes[0].Sender = 0 }),
		"no such sender":         batch(func(b *b) { b.Envelopes[0].Sender = 2 }),
		"another's name":         batch(func(b *b) { b.Senders[0].Address = "test/c" }),
		"for another":            batch(func(b *b) { b.Targets[0].Address = "test/c" }),
		"a long sender's name":   batch(func(b *b) { b.Senders[0].Id = strings.Repeat("s", maxName+1) }),
		"a long target's name":   batch(func(b *b) { b.Targets[0].Id = strings.Repeat("t", maxName+1) }),
		"data of another type":   batch(func(b *b) { b.Envelopes[0].MessageData = []byte{0xff} }),
		"a name that is no text": bytes.Replace(good, []byte("echo/b"), []byte("\xff\xff\xff\xff\xff\xff"), 1),
	} {
		if err := decode(raw); !errors.Is(err, errRemoting) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever comes, nothing panics, and a batch that is taken has at most as many
// messages as a frame has parts.
func FuzzFrame(f *testing.F) {
	raw, err := encodeBatch("test/a", "test/b", []*message{{target: "echo/b", sender: "asks", raw: []byte("one")}, {target: "asks", sender: "echo/a"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(raw))
	f.Add([]byte(raw[:len(raw)/2]))
	hello, err := encodeFrame(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{ConnectRequest: &remote.ConnectRequest{
		ConnectionType: &remote.ConnectRequest_ServerConnection{ServerConnection: &remote.ServerConnection{SystemId: "a#1", Address: "test/a"}},
	}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(hello))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeFrame(b)
		if err != nil {
			return
		}
		all, err := decodeBatch(m.GetMessageBatch(), "test/a", "test/b")
		if err == nil && len(all) > maxFields {
			t.Errorf("%d messages in a frame of %d bytes", len(all), len(b))
		}
		_ = m.GetConnectRequest().GetServerConnection().GetAddress()
	})
}

// A node that is written with Proto.Actor's own remote talks to one of ours.
func TestLibrarysRemote(t *testing.T) {
	var ours *Plane
	var system *actor.ActorSystem
	var theirs *remote.Remote
	var address string
	start := func() (ok bool) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address = l.Addr().String()
		port := l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		system = actor.NewActorSystem()
		system.ID = "x#7"
		theirs = remote.NewRemote(system, remote.Configure("127.0.0.1", port, remote.WithAdvertisedHost("test/x"), remote.WithDialOptions(
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
				if target != "test/a" {
					return nil, errors.New("a stranger")
				}
				return new(net.Dialer).DialContext(ctx, "tcp", ours.Address())
			}),
			grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				return stream(metadata.AppendToOutgoingContext(ctx, transport.MetaVersion, transport.WireVersion), d, cc, method, opts...)
			})), remote.WithServerOptions(grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return errors.Join(s.SetHeader(metadata.Pairs(transport.MetaVersion, transport.WireVersion)), handle(srv, s))
		}))))
		defer func() { // it panics if somebody has taken the port meanwhile
			if x := recover(); x != nil {
				t.Log(x)
				system.Shutdown()
				ok = false
			}
		}()
		theirs.Start() // before gRPC is at work: it sets its logger
		return true
	}
	for tries := 0; !start(); tries++ {
		if tries == 10 {
			t.Fatal("no port is to be had")
		}
	}
	ours = planes(t, nil, "a")[0]
	ours.SetPeers(map[string]Peer{"x": {address, 7}})

	// It answers like a node, by hand: word that a request came, and its answer.
	answers := make(chan *envelope, 16)
	me := actor.NewPID("test/x", "asks")
	target := actor.NewPID("test/a", "echo/a")
	pack := func(m *envelope) *wrapperspb.BytesValue { return wrapperspb.Bytes(mustMarshal(t, m)) }
	props := actor.PropsFromFunc(func(c actor.Context) {
		b, ok := c.Message().(*wrapperspb.BytesValue)
		if !ok {
			return
		}
		m, err := unmarshal(b.GetValue())
		if err != nil {
			t.Error(err)
			return
		}
		if m.Type != kindTaken {
			c.RequestWithCustomSender(c.Sender(), pack(&envelope{From: 7, To: 1, Type: kindTaken, Link: m.Link, Of: m.Type, Seq: m.Seq}), me)
		}
		if m.Type == kindRequest {
			c.RequestWithCustomSender(c.Sender(), pack(&envelope{From: 7, To: 1, Type: kindReply, Seq: 1, Ask: m.Ask, Body: append([]byte("x heard "), m.Body...)}), me)
		}
		answers <- m
	})
	for _, name := range []string{"asks", "greet/x"} {
		if _, err := system.Root.SpawnNamed(props, name); err != nil {
			t.Fatal(err)
		}
	}
	ctx := within(t)
	next := func(want kind) *envelope {
		t.Helper()
		for {
			select {
			case m := <-answers:
				if m.Type == want {
					return m
				}
			case <-ctx.Done():
				t.Fatal("no answer")
			}
		}
	}
	system.Root.RequestWithCustomSender(target, pack(&envelope{From: 7, To: 1, Type: kindRequest, Seq: 1, Ask: 5, Body: []byte("hello")}), me)
	if m := next(kindReply); m.Ask != 5 || string(m.Body) != "x: hello" {
		t.Errorf("%d: %q", m.Ask, m.Body)
	}
	if b, err := ours.Ask(ctx, "greet", "x", []byte("hello")); err != nil || string(b) != "x heard hello" {
		t.Errorf("%q, %v", b, err)
	}
	// Before ours is closed: what the library tries to connect then it leaves open.
	theirs.Shutdown(false)
	for _, name := range []string{"asks", "greet/x", "activator", "EndpointSupervisor"} {
		_ = system.Root.StopFuture(system.NewLocalPID(name)).Wait()
	}
	system.Shutdown()
	ours.Close()
}

// A stream is opened by a member, under its own name, or not at all; one that breaks
// the protocol ends.
func TestGreeting(t *testing.T) {
	ours := keep(t, "a", "b", "x")
	p := planes(t, func(o *Options) { o.Certs = ours[o.Node] }, "a", "b")
	version := transport.WireVersion
	open := func(who string, first *remote.RemoteMessage) (grpc.ClientStream, *remote.ConnectResponse, error) {
		t.Helper()
		cc, err := transport.Dial(p[0].Address(), transportOptions(ours[who], false, slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cc.Close() })
		ctx := within(t)
		if version != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, transport.MetaVersion, version)
		}
		stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+remotingService+"/"+remotingStream)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := encodeFrame(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(&raw); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&raw); err != nil {
			cc.Close() // there may be a few of a node
			return nil, nil, err
		}
		m, err := decodeFrame(raw)
		return stream, m.GetConnectResponse(), err
	}
	hello := func(address, id string) *remote.RemoteMessage {
		return &remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{ConnectRequest: &remote.ConnectRequest{
			ConnectionType: &remote.ConnectRequest_ServerConnection{ServerConnection: &remote.ServerConnection{SystemId: id, Address: address}},
		}}}
	}
	for name, c := range map[string]struct {
		who   string
		first *remote.RemoteMessage
	}{
		"another's name":  {"x", hello("test/b", "b#2")},
		"another cluster": {"b", hello("prod/b", "b#2")},
		"no name":         {"b", hello("test/", "b#2")},
		"no hello":        {"b", &remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: &remote.MessageBatch{}}}},
		"a client's":      {"b", &remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{ConnectRequest: &remote.ConnectRequest{}}}},
	} {
		if _, _, err := open(c.who, c.first); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	for other, says := range map[string]string{"": `node b speaks none, and this one "`, "2": `node b speaks "2", and this one "`} {
		version = other
		if _, _, err := open("b", hello("test/b", "b#2")); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "run one version of gnnactor on all nodes") {
			t.Errorf("wire version %q: %v", other, err)
		}
	}
	version = transport.WireVersion
	for name, c := range map[string]struct{ who, address, id string }{
		"no member":        {"x", "test/x", "x#1"},
		"an older self":    {"b", "test/b", "b#1"},
		"one without self": {"b", "test/b", ""},
	} {
		if _, r, err := open(c.who, hello(c.address, c.id)); err != nil || !r.GetBlocked() || r.GetMemberId() != "a#1" {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	stream, r, err := open("b", hello("test/b", "b#2"))
	if err != nil || r.GetBlocked() {
		t.Fatalf("b is refused: %v, %v", r, err)
	}
	raw, err := encodeBatch("test/a", "test/a", []*message{{target: "echo/a", sender: "asks", raw: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&raw); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&raw); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a message in another's name: %v", err)
	}
}

// What answers at a peer's address is that peer since the same epoch, and lets this node
// in, or it is not talked to.
func TestWhoAnswers(t *testing.T) {
	p := planes(t, nil, "a")[0]
	var answer atomic.Pointer[remote.RemoteMessage]
	var version atomic.Value
	version.Store(transport.WireVersion)
	server, err := transport.Listen("127.0.0.1:0", transportOptions(nil, false, slog.New(slog.DiscardHandler)), &grpc.ServiceDesc{
		ServiceName: remotingService, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
			StreamName: remotingStream, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				var raw frame
				if err := stream.RecvMsg(&raw); err != nil {
					return err
				}
				raw, err := encodeFrame(answer.Load())
				if err != nil {
					return err
				}
				if err := stream.SetHeader(metadata.Pairs(transport.MetaVersion, version.Load().(string))); err != nil {
					return err
				}
				return stream.SendMsg(&raw)
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	connect := func(m *remote.RemoteMessage) error {
		answer.Store(m)
		cc, err := transport.Dial(server.Address(), transportOptions(nil, false, p.o.Logger))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		_, err = p.connect(ctx, cc, newPeer(ctx, "b", Peer{server.Address(), 2}, 1, new(heard)))
		return err
	}
	says := func(id string, blocked bool) *remote.RemoteMessage {
		return &remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectResponse{ConnectResponse: &remote.ConnectResponse{MemberId: id, Blocked: blocked}}}
	}
	if err := connect(says("b#2", false)); err != nil {
		t.Error(err)
	}
	for name, m := range map[string]*remote.RemoteMessage{
		"another":         says("c#2", false),
		"an older self":   says("b#1", false),
		"one that blocks": says("b#2", true),
		"no answer":       {MessageType: &remote.RemoteMessage_DisconnectRequest{DisconnectRequest: &remote.DisconnectRequest{}}},
	} {
		if err := connect(m); err == nil {
			t.Errorf("%s is talked to", name)
		}
	}
	version.Store("2")
	if err := connect(says("b#2", false)); !errors.Is(err, transport.ErrVersion) || !strings.Contains(err.Error(), `node b speaks "2", and this one "`) {
		t.Errorf("one of another wire version: %v", err)
	}
	server.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
