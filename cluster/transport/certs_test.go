package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
)

func authority(t *testing.T, dir string) *Authority {
	t.Helper()
	a, err := NewAuthority("test cluster", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Save(dir); err != nil {
		t.Fatal(err)
	}
	return a
}

func reloader(t *testing.T, a *Authority, dir, node string) *Reloader {
	t.Helper()
	f, err := a.Issue(dir, node, []string{"127.0.0.1", "localhost"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	k, err := LoadCerts(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// reloaders makes an authority, and returns what makes nodes' of it.
func reloaders(t *testing.T) func(node string) *Reloader {
	dir := t.TempDir()
	a := authority(t, dir)
	return func(node string) *Reloader { return reloader(t, a, dir, node) }
}

// shake runs one handshake over loopback and returns both sides' errors and
// who the server saw.
func shake(t *testing.T, server, client credentials.TransportCredentials, authority string) (string, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type result struct {
		name string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- result{err: err}
			return
		}
		defer c.Close()
		_, info, err := server.ServerHandshake(c)
		name, _ := NodeName(info)
		done <- result{name, err}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _, cerr := client.ClientHandshake(context.Background(), authority, c)
	c.Close()
	r := <-done
	return r.name, errors.Join(cerr, r.err)
}

func TestMutual(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir)
	one, two := reloader(t, a, dir, "one"), reloader(t, a, dir, "two")
	name, err := shake(t, one.Credentials(), two.Credentials(), "127.0.0.1:1")
	if err != nil || name != "two" {
		t.Fatalf("peer %q, %v", name, err)
	}
	if _, err := shake(t, one.Credentials(), two.Credentials(), "elsewhere:1"); err == nil {
		t.Error("a host that the certificate does not name was accepted")
	}
	foreignDir := t.TempDir()
	foreign := reloader(t, authority(t, foreignDir), foreignDir, "two")
	if _, err := shake(t, one.Credentials(), foreign.Credentials(), "127.0.0.1:1"); err == nil {
		t.Error("another authority's client was accepted")
	}
	if _, err := shake(t, foreign.Credentials(), two.Credentials(), "127.0.0.1:1"); err == nil {
		t.Error("another authority's server was accepted")
	}
	bare := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	if _, err := shake(t, one.Credentials(), bare, "127.0.0.1:1"); err == nil {
		t.Error("a client without a certificate was accepted")
	}
}

// A node whose files are replaced serves the new ones, to peers that know only
// the new authority; with files that do not match it keeps the old ones.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir)
	k := reloader(t, a, dir, "one")
	var log strings.Builder
	k.log = slog.New(slog.NewTextHandler(&log, nil))
	logged := func(what string) {
		t.Helper()
		if n := strings.Count(log.String(), what); n != 1 {
			t.Errorf("%q is logged %d times:\n%s", what, n, &log)
		}
		log.Reset()
	}
	creds := k.Credentials() // what a running server holds
	next := t.TempDir()
	b := authority(t, next)
	peer := reloader(t, b, next, "two")
	if _, err := shake(t, creds, peer.Credentials(), "127.0.0.1:1"); err == nil {
		t.Fatal("the new authority is known already")
	}
	// Both authorities, then the new certificate.
	old, err := os.ReadFile(filepath.Join(dir, AuthorityCert))
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := os.ReadFile(filepath.Join(next, AuthorityCert))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, AuthorityCert), append(old, fresh...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Issue(dir, "one", []string{"127.0.0.1"}, 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	if name, err := shake(t, creds, peer.Credentials(), "127.0.0.1:1"); err != nil || name != "two" {
		t.Fatalf("after rotation: %q, %v", name, err)
	}
	logged("new certificates serve")
	if err := os.WriteFile(k.Files().Key, []byte("half a k"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := shake(t, creds, peer.Credentials(), "127.0.0.1:1"); err != nil {
			t.Errorf("the last good pair is not served: %v", err)
		}
	}
	logged("new certificates are not taken")
	if _, err := b.Issue(dir, "other", []string{"127.0.0.1"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	other := NodeFiles(dir, "other")
	for from, to := range map[string]string{other.Cert: k.Files().Cert, other.Key: k.Files().Key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := shake(t, creds, peer.Credentials(), "127.0.0.1:1"); err != nil {
		t.Errorf("the last good pair is not served: %v", err)
	}
	logged("this is node one")
}

func TestAuthorityAgain(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir)
	if err := a.Save(dir); err == nil {
		t.Error("the authority was overwritten")
	}
	b, err := LoadAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	one, two := reloader(t, a, dir, "one"), reloader(t, b, dir, "two")
	if _, err := shake(t, one.Credentials(), two.Credentials(), "localhost"); err != nil {
		t.Errorf("the authority read back signs another chain: %v", err)
	}
	if s, err := os.Stat(filepath.Join(dir, AuthorityKey)); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v, %v", s.Mode(), err)
	}
	for _, bad := range []string{"", "A", "a/b", "-a", "a.b", strings.Repeat("a", 64)} {
		if _, err := a.Issue(dir, bad, []string{"x"}, time.Hour); err == nil {
			t.Errorf("node name %q was accepted", bad)
		}
	}
}

func TestCheckPlaintext(t *testing.T) {
	for _, c := range []struct {
		address string
		allowed bool
		ok      bool
	}{
		{"127.0.0.1:1", false, true}, {"[::1]:1", false, true}, {"localhost:1", false, true},
		{"0.0.0.0:1", false, false}, {":1", false, false}, {"10.0.0.1:1", false, false}, {"host:1", false, false},
		{"10.0.0.1:1", true, true},
	} {
		if err := CheckPlaintext(c.address, c.allowed); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrPlaintext) {
			t.Errorf("%s, allowed %v: %v", c.address, c.allowed, err)
		}
	}
}
