package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A node's key and certificate are replaced where that is asked for, and one that is there keeps others from being made.
func TestCertsRenewed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	mustInvoke(t, "cluster", "certs", dir, "a=127.0.0.1")
	key, ca := read("a.key"), read("ca.crt")
	code, _, errs := invoke(t, "cluster", "certs", dir, "a=127.0.0.1", "b=127.0.0.1")
	if code != exitUsage || !strings.Contains(errs, "--renew") || !bytes.Equal(read("a.key"), key) {
		t.Errorf("exit %d, %s", code, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, "b.key")); err == nil {
		t.Error("b has a key all the same")
	}
	mustInvoke(t, "cluster", "certs", "--renew", dir, "a=127.0.0.1", "b=127.0.0.1")
	if bytes.Equal(read("a.key"), key) || !bytes.Equal(read("ca.crt"), ca) || len(read("b.key")) == 0 {
		t.Error("a's key is the old one, or the authority another")
	}
}
