package transport

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Whatever lies in a node's files, they are served or refused; a reloader that has
// good ones keeps them.
func FuzzLoad(f *testing.F) {
	dir := f.TempDir()
	a, err := NewAuthority("test", time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	if err := a.Save(dir); err != nil {
		f.Fatal(err)
	}
	files, err := a.Issue(dir, "a", []string{"127.0.0.1"}, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	good := [3][]byte{read(files.CA), read(files.Cert), read(files.Key)}
	f.Add(good[0], good[1], good[2])
	f.Add(good[1], good[0], good[2])
	f.Add(good[0], good[1], []byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"))
	f.Add([]byte{}, []byte("x"), []byte{})
	kept, err := LoadCerts(files, nil)
	if err != nil {
		f.Fatal(err)
	}
	work := f.TempDir()
	forged := CertFiles{CA: filepath.Join(work, AuthorityCert), Cert: filepath.Join(work, "a.crt"), Key: filepath.Join(work, AuthorityKey)}
	f.Fuzz(func(t *testing.T, ca, cert, key []byte) {
		for path, b := range map[string][]byte{forged.CA: ca, forged.Cert: cert, forged.Key: key} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if k, err := LoadCerts(forged, nil); err == nil && CheckNode(k.Node()) != nil {
			t.Fatalf("the certificate of %q is served", k.Node())
		}
		if a, err := LoadAuthority(work); err == nil && a.key == nil {
			t.Fatal("an authority without a key")
		}
		kept.mu.Lock()
		kept.files, kept.stamp = forged, [3]stamp{}
		kept.refresh()
		config := kept.cert != nil && kept.roots != nil && kept.node == "a"
		kept.mu.Unlock()
		if !config {
			t.Fatal("a reloader lost what it served")
		}
	})
}
