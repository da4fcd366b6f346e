package control

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// Who has a certificate of the cluster is answered, with answers larger than a
// message too; others are not, nor is one who means another cluster.
func TestOperator(t *testing.T) {
	ours, theirs := keep(t, "a", "ops"), keep(t, "ops")
	for _, secure := range []bool{true, false} {
		p := planes(t, func(o *Options) {
			if secure {
				o.Certs = ours["a"]
			}
		}, "a")[0]
		p.HandleOperator("long", func(_ context.Context, from string, body []byte) ([]byte, error) {
			return []byte(from + strings.Repeat(string(body), 3*MaxBody)), nil
		})
		p.HandleOperator("fail", func(context.Context, string, []byte) ([]byte, error) { return nil, errors.New("no such node") })
		p.HandleOperator("panic", func(context.Context, string, []byte) ([]byte, error) { panic("bug") })
		var mine *transport.Reloader
		from := ""
		if secure {
			mine, from = ours["ops"], "ops"
		}
		ctx := within(t)
		got, err := AskAsOperator(ctx, "test", p.Address(), mine, "long", []byte("x"))
		if err != nil || len(got) != 3*MaxBody+len(from) || !strings.HasPrefix(string(got), from) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		for kind, want := range map[string]string{"fail": "no such node", "panic": "panicked", "echo": "does not answer"} {
			if _, err := AskAsOperator(ctx, "test", p.Address(), mine, kind, nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", kind, err)
			}
		}
		if _, err := AskAsOperator(ctx, "other", p.Address(), mine, "long", []byte("x")); err == nil {
			t.Error("an operator of another cluster was answered")
		}
		if secure {
			for _, k := range []*transport.Reloader{nil, theirs["x"], theirs["ops"]} {
				if _, err := AskAsOperator(ctx, "test", p.Address(), k, "long", []byte("x")); !errors.Is(err, ErrPeerGone) {
					t.Errorf("a foreign operator: %v", err)
				}
			}
		}
		for version, want := range map[string]string{"2": `speaks "2", and this one`, "": "speaks none"} {
			md := metadata.Pairs(metaCluster, "test")
			if version != "" {
				md.Set(transport.MetaVersion, version)
			}
			cc, err := transport.Dial(p.Address(), transportOptions(mine, true, p.o.Logger))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := msgpack.Marshal(&question{Kind: "long"})
			if err != nil {
				t.Fatal(err)
			}
			in := frame(raw)
			err = cc.Invoke(metadata.NewOutgoingContext(ctx, md), "/"+operatorServiceName+"/"+operatorMethod, &in, new(frame))
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), want) {
				t.Errorf("an operator of version %q: %v", version, err)
			}
			cc.Close()
		}
		p.Close()
		if _, err := AskAsOperator(ctx, "test", p.Address(), mine, "long", nil); !errors.Is(err, ErrPeerGone) {
			t.Errorf("after the end: %v", err)
		}
	}
}

// A node of another wire version is not believed by operators, even if it answers them.
func TestOperatorOfOtherVersion(t *testing.T) {
	server, err := transport.Listen("127.0.0.1:0", transportOptions(nil, false, slog.New(slog.DiscardHandler)), &grpc.ServiceDesc{
		ServiceName: operatorServiceName, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: operatorMethod, Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var in frame
			return new(frame), decode(&in)
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	if _, err := AskAsOperator(within(t), "test", server.Address(), nil, "long", nil); !errors.Is(err, transport.ErrVersion) || !strings.Contains(err.Error(), server.Address()) {
		t.Errorf("a node that says no version: %v", err)
	}
	server.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A node hears nobody before it has joined.
func TestBegin(t *testing.T) {
	p := planes(t, nil, "a", "b")
	p[1].Begin(0)
	ctx, cancel := context.WithCancel(within(t))
	heard := make(chan error, 1)
	go func() {
		_, err := p[0].Ask(ctx, "echo", "b", nil)
		heard <- err
	}()
	if err := p[1].receive("a", &message{target: "echo/b", sender: "asks", raw: mustMarshal(t, &envelope{From: 1, To: 0, Type: kindRequest, Seq: 1, Ask: 1})}); !errors.Is(err, errOther) {
		t.Errorf("heard before it began: %v", err)
	}
	p[1].Begin(2)
	if err := <-heard; err != nil {
		t.Error(err)
	}
	cancel()
}

func mustMarshal(t testing.TB, m *envelope) []byte {
	t.Helper()
	b, err := msgpack.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzQuestion(f *testing.F) {
	b, err := msgpack.Marshal(&question{"status", []byte("x")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x82, 0xa1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, err := decodeQuestion(raw)
		if err == nil && (len(q.Kind) > 64 || len(q.Body) > MaxBody) {
			t.Errorf("%q of %d bytes was taken", q.Kind, len(q.Body))
		}
	})
}
