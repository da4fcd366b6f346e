package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func options(k *Reloader) Options {
	return Options{Certs: k, Codec: encoding.GetCodecV2("proto"), MaxMessage: 1 << 10, Window: 1 << 16, Buffer: 1 << 12, Streams: 4, Connections: 16, PerNode: 3}
}

// whose answers with the name that its caller has a certificate of.
var whose = &grpc.ServiceDesc{ServiceName: "test", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
	MethodName: "Whose",
	Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in wrapperspb.StringValue
		if err := decode(&in); err != nil {
			return nil, err
		}
		name, _ := Name(ctx)
		return wrapperspb.String(name), nil
	},
}}}

func serve(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Listen("127.0.0.1:0", o, whose)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return s
}

func call(t *testing.T, address string, o Options, in string) (string, error) {
	t.Helper()
	cc, err := Dial(address, o)
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out wrapperspb.StringValue
	err = cc.Invoke(ctx, "/test/Whose", wrapperspb.String(in), &out)
	return out.GetValue(), err
}

// Under TLS callers are known by their certificates, and others are refused.
func TestCertificates(t *testing.T) {
	ours, theirs := reloaders(t), reloaders(t)
	s := serve(t, options(ours("a")))
	if name, err := call(t, s.Address(), options(ours("b")), ""); err != nil || name != "b" {
		t.Errorf("b is called %q, %v", name, err)
	}
	for who, k := range map[string]*Reloader{"plaintext": nil, "another authority": theirs("b")} {
		if _, err := call(t, s.Address(), options(k), ""); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", who, err)
		}
	}
	plain := serve(t, options(nil))
	if name, err := call(t, plain.Address(), options(nil), ""); err != nil || name != "" {
		t.Errorf("in plaintext somebody is called %q, %v", name, err)
	}
	if _, err := call(t, plain.Address(), options(nil), string(make([]byte, 1<<10))); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message over the limit: %v", err)
	}
	if s, err := Listen("0.0.0.0:0", options(nil)); !errors.Is(err, ErrPlaintext) {
		t.Errorf("plaintext off loopback: %v, %v", s, err)
	}
	if got, want := plain.AddressAt("host"), net.JoinHostPort("host", plain.Address()[len("127.0.0.1:"):]); got != want {
		t.Errorf("it is at %s, not %s", got, want)
	}
}

// A node has a few connections at a time, whatever its certificate, and what it closes
// makes room.
func TestConnectionsPerNode(t *testing.T) {
	issue := reloaders(t)
	o := options(issue("a"))
	s := serve(t, o)
	other := issue("c")
	dial := func() (net.Conn, bool) {
		config := other.Client("127.0.0.1")
		config.NextProtos = []string{"h2"}
		c, err := tls.Dial("tcp", s.Address(), config)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
			return c, false
		}
		_, err = c.Read(make([]byte, 9))
		return c, err == nil
	}
	var open []net.Conn
	for range o.PerNode + 4 {
		c, ok := dial()
		defer c.Close()
		if ok {
			open = append(open, c)
		}
	}
	if len(open) != o.PerNode {
		t.Errorf("%d connections of one node, not %d", len(open), o.PerNode)
	}
	if _, err := call(t, s.Address(), options(issue("b")), ""); err != nil {
		t.Errorf("another node is kept out: %v", err)
	}
	if err := open[0].Close(); err != nil {
		t.Error(err)
	}
	for limit := time.Now().Add(time.Minute); ; { // the server hears of it
		c, ok := dial()
		defer c.Close()
		if ok {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("a connection that was closed makes no room")
		}
	}
}

// A server takes so many connections and closes those beyond.
func TestConnectionsInAll(t *testing.T) {
	o := options(nil)
	o.Connections = 2
	s := serve(t, o)
	taken := 0
	for range 5 {
		c, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil { // the server's settings come first
			taken++
		}
	}
	if taken != o.Connections {
		t.Errorf("%d connections, not %d", taken, o.Connections)
	}
}

// Strangers who connect and say nothing, as many as there are connections in all and
// more than may wait, keep nobody out who has a certificate; and no more of them are
// open than may wait.
func TestStrangersKeepNobodyOut(t *testing.T) {
	issue := reloaders(t)
	o := options(issue("a"))
	o.DialTimeout = time.Minute // of a stranger's handshake: it is not that which ends it
	s := serve(t, o)
	var all []net.Conn
	for range waiting + o.Connections {
		c, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	for range 2 * o.Connections { // each makes room when it is done
		if name, err := call(t, s.Address(), options(issue("b")), ""); err != nil || name != "b" {
			t.Fatalf("b is called %q, %v", name, err)
		}
	}
	closed := make(chan bool)
	for _, c := range all {
		go func() {
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			_, err := c.Read(make([]byte, 1))
			closed <- !errors.Is(err, os.ErrDeadlineExceeded)
		}()
	}
	open := 0
	for range all {
		if !<-closed {
			open++
		}
	}
	if open > waiting {
		t.Errorf("%d strangers are connected, not %d", open, waiting)
	}
}
