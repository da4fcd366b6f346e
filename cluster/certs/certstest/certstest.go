// Package certstest makes certificates for tests.
package certstest

import (
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/certs"
)

// Authority makes an authority, and returns what issues nodes at 127.0.0.1 certificates
// of it, good for an hour, and says where their files are.
func Authority(t testing.TB) func(node string) certs.Files {
	t.Helper()
	dir := t.TempDir()
	a, err := certs.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Save(dir); err != nil {
		t.Fatal(err)
	}
	return func(node string) certs.Files {
		t.Helper()
		f, err := a.Issue(dir, node, []string{"127.0.0.1"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

// Reloaders is Authority, of certificates that are loaded.
func Reloaders(t testing.TB) func(node string) *certs.Reloader {
	t.Helper()
	issue := Authority(t)
	return func(node string) *certs.Reloader {
		t.Helper()
		k, err := certs.Load(issue(node))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
}
