package etcd

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/cluster/transport/transporttest"
)

// Whoever asks a store in vain is told what to change.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	own, other := transporttest.Authority(t)("a"), transporttest.Authority(t)("a")
	ours, foreign := &own, &other
	serve := func(files *transport.CertFiles) string {
		s, err := Serve(t.Context(), Options{Node: "a", Dir: t.TempDir(), ClientListen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", Certs: files})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s.Endpoint()
	}
	plain, secure := serve(nil), serve(ours)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, at string
		files    *transport.CertFiles
		want     string
	}{
		{"nothing listens", gone, nil, "cannot be reached"},
		{"plaintext to TLS", secure, nil, "give --certs"},
		{"TLS to plaintext", plain, ours, "leave --certs out"},
		{"a foreign authority", secure, foreign, "one authority"},
		{"as it should be", secure, ours, "can be reached"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var reloader *transport.Reloader
			if c.files != nil {
				var err error
				if reloader, err = transport.LoadCerts(*c.files, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := unanswered(context.Background(), []string{c.at}, reloader); !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.at) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A directory is one store's; when that ends, another may have it. A port that is taken
// is named.
func TestInUse(t *testing.T) {
	t.Parallel()
	o := Options{Node: "a", Dir: t.TempDir(), ClientListen: "127.0.0.1:0", PeerListen: "127.0.0.1:0"}
	s, err := Serve(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := Serve(t.Context(), o); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), o.Dir) {
		t.Errorf("a second store in a directory: %v", err)
	}
	taken := o
	taken.Dir, taken.ClientListen = t.TempDir(), s.Endpoint()
	if _, err := Serve(t.Context(), taken); err == nil || !strings.Contains(err.Error(), s.Endpoint()) || !strings.Contains(err.Error(), "choose other ports") {
		t.Errorf("a second store on a port: %v", err)
	}
	s.Close()
	again, err := Serve(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// The error of a store that does not answer says why.
func TestReadyInVain(t *testing.T) {
	c, err := Dial(t.Context(), []string{"127.0.0.1:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if err := c.Ready(ctx); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1 cannot be reached") {
		t.Errorf("%v", err)
	}
}
