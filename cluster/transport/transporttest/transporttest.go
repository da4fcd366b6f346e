// Package transporttest makes certificates for tests.
package transporttest

import (
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// Authority makes an authority, and returns what issues nodes at 127.0.0.1 certificates
// of it, good for an hour, and says where their files are.
func Authority(t testing.TB) func(node string) transport.CertFiles {
	t.Helper()
	dir := t.TempDir()
	a, err := transport.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Save(dir); err != nil {
		t.Fatal(err)
	}
	return func(node string) transport.CertFiles {
		t.Helper()
		f, err := a.Issue(dir, node, []string{"127.0.0.1"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

// Reloaders is Authority, of certificates that are loaded.
func Reloaders(t testing.TB) func(node string) *transport.Reloader {
	t.Helper()
	issue := Authority(t)
	return func(node string) *transport.Reloader {
		t.Helper()
		k, err := transport.LoadCerts(issue(node), nil)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
}
