package dataplane

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pair is a node, and another one that keeps copies in dir.
func pair(t testing.TB) (a *Plane, k *ReplicaServer, dir string) {
	t.Helper()
	p := planes(t, nil, "a", "b")
	dir = filepath.Join(t.TempDir(), "copies")
	k, err := ServeReplicas(p[1], dir)
	if err != nil {
		t.Fatal(err)
	}
	return p[0], k, dir
}

// content returns n bytes and the copy that they are.
func content(t testing.TB, run byte, step int64, n int) ([]byte, Replica) {
	t.Helper()
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(step), uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	c, err := DescribeReplica(RunID{run}, step, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return b, c
}

func send(t testing.TB, p *Plane, run byte, step int64, n int) ([]byte, Replica) {
	t.Helper()
	b, c := content(t, run, step, n)
	if err := SendReplica(ctxFor(t), p, "b", c, bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	return b, c
}

// What was sent is fetched again, from another node and where it lies; the
// newest ReplicaDepth of a run are kept, and nothing else is left.
func TestSendFetch(t *testing.T) {
	a, k, dir := pair(t)
	var last []byte
	var newest Replica
	for step, n := range []int{1, ChunkBytes, 2*ChunkBytes + 3} {
		last, newest = send(t, a, 7, int64(step), n)
	}
	send(t, a, 7, 2, len(last)) // again: it is there
	all, err := ListReplicas(ctxFor(t), a, "b", RunID{7})
	if err != nil || len(all) != ReplicaDepth || all[0] != newest || all[1].Step != 1 {
		t.Fatalf("listed: %+v, %v", all, err)
	}
	if all, err := ListReplicas(ctxFor(t), a, "b", RunID{8}); err != nil || len(all) != 0 {
		t.Errorf("of another run: %+v, %v", all, err)
	}
	path := filepath.Join(t.TempDir(), "x")
	for _, fetch := range []func() error{
		func() error { return FetchReplica(ctxFor(t), a, "b", newest, path) },
		func() error { return k.Fetch(newest, path) },
	} {
		if err := fetch(); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, last) {
			t.Errorf("another content, or %v", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(k.run("a", RunID{7}))
	if err != nil || len(entries) != ReplicaDepth {
		t.Errorf("in %s: %v, %v", dir, entries, err)
	}
}

// A copy that was interrupted goes on; one that is not what it was said to be
// goes away.
func TestResumed(t *testing.T) {
	a, k, _ := pair(t)
	b, c := content(t, 1, 5, 2*ChunkBytes)
	if have, err := k.take("a", &c, 0, b[:ChunkBytes]); err != nil || have != ChunkBytes {
		t.Fatalf("%d, %v", have, err)
	}
	if have, err := k.take("a", &c, 9, b[9:20]); err != nil || have != ChunkBytes {
		t.Errorf("a chunk at another place: %d, %v", have, err)
	}
	if all, err := k.List(c.Run); err != nil || len(all) != 0 {
		t.Errorf("half a copy is listed: %v, %v", all, err)
	}
	only := readerFrom{bytes.NewReader(b), ChunkBytes, t}
	if err := SendReplica(ctxFor(t), a, "b", c, only); err != nil {
		t.Fatal(err)
	}
	c.SHA256[0] ^= 1
	if err := SendReplica(ctxFor(t), a, "b", c, bytes.NewReader(b)); err == nil || !strings.Contains(err.Error(), ErrDamaged.Error()) {
		t.Errorf("another content: %v", err)
	}
	entries, err := os.ReadDir(k.run("a", c.Run))
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// What was damaged there is taken anew when it is sent again.
func TestDamagedThere(t *testing.T) {
	a, k, _ := pair(t)
	b, c := send(t, a, 1, 5, 1000)
	path := filepath.Join(k.run("a", c.Run), c.name())
	damaged := bytes.Clone(b)
	damaged[500] ^= 1
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	send(t, a, 1, 5, 1000)
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, b) {
		t.Errorf("it is still damaged, or %v", err)
	}
}

// readerFrom fails the test when something before from is read.
type readerFrom struct {
	*bytes.Reader
	from int64
	t    *testing.T
}

func (r readerFrom) ReadAt(b []byte, at int64) (int, error) {
	if at < r.from {
		r.t.Errorf("byte %d is sent again", at)
	}
	return r.Reader.ReadAt(b, at)
}

// What rots on the disk is not taken for a copy, and makes no file.
func TestDamaged(t *testing.T) {
	a, k, _ := pair(t)
	b, c := send(t, a, 1, 5, 100)
	b[3] ^= 1
	if err := os.WriteFile(filepath.Join(k.run("a", c.Run), c.name()), b, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, err := range []error{FetchReplica(ctxFor(t), a, "b", c, filepath.Join(dir, "x")), k.Fetch(c, filepath.Join(dir, "y"))} {
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%v", err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A peer that invents runs loses its own older ones, and no one else's.
func TestRuns(t *testing.T) {
	_, k, dir := pair(t)
	b, c := content(t, 99, 1, 10)
	if _, err := k.take("other", &c, 0, b); err != nil {
		t.Fatal(err)
	}
	for run := range byte(3 * runs) {
		b, c := content(t, run, 1, 10)
		if have, err := k.take("a", &c, 0, b); err != nil || have != 10 {
			t.Fatalf("run %d: %d, %v", run, have, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "a")); err != nil || len(left) != runs {
		t.Errorf("%d runs are left, %v", len(left), err)
	}
	if all, err := k.List(c.Run); err != nil || len(all) != 1 {
		t.Errorf("of the other peer: %v, %v", all, err)
	}
}

// Whatever a peer sends neither ends the process nor leaves the directory.
func FuzzWire(f *testing.F) {
	c := Replica{Run: RunID{1}, Step: 3, Size: 5, SHA256: [32]byte{2}}
	f.Add(encodeReplicas(c))
	f.Add(encodeReplicas(c, c))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := decodeReplica(b); err == nil && (c.Step < 0 || c.Size < 1 || !bytes.Equal(encodeReplicas(c), b)) {
			t.Errorf("%x is %+v", b, c)
		}
		if all, err := decodeReplicas(b); err == nil && !bytes.Equal(encodeReplicas(all...), b) {
			t.Error("a list is not what it was")
		}
		if c, ok := named(string(b)); ok && (c.name() != string(b) || strings.ContainsAny(string(b), "/\\")) {
			t.Errorf("%q is the name of %+v", b, c)
		}
	})
}
