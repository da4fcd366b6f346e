package dataplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const (
	methodRead = 100
	methodPut  = 101
)

// A range that is damaged on the way, or cut short, is not taken: the next node is
// asked for it, and for those that follow.
func TestRange(t *testing.T) {
	p := planes(t, nil, "n0", "n1", "n2", "n3")
	want := bytes.Repeat([]byte("0123456789"), 10)
	find := func(_ context.Context, name []byte, at int64, n int) (func([]byte) error, error) {
		if string(name) != "x" || at+int64(n) > int64(len(want)) {
			return nil, fmt.Errorf("there are no %d bytes at %d of %q", n, at, name)
		}
		return func(b []byte) error {
			copy(b, want[at:])
			return nil
		}, nil
	}
	p[1].Handle(methodRead, func(context.Context, *Request) (Reply, error) {
		b := bytes.Clone(want[:32])
		b = appendSum(b, b)
		b[5] ^= 1
		return Reply{Data: [][]byte{b}}, nil
	})
	p[2].Handle(methodRead, func(context.Context, *Request) (Reply, error) {
		return Reply{Data: [][]byte{appendSum(bytes.Clone(want[:31]), want[:31])}}, nil
	})
	ServeRanges(p[3], methodRead, 32, find)
	s := Source{Plane: p[0], Method: methodRead, Nodes: []string{"n1", "n2", "n3"}}
	var got []byte
	err := s.All(t.Context(), []byte("x"), int64(len(want)), 32, func(at int64, b []byte) error {
		if at != int64(len(got)) {
			t.Errorf("byte %d comes after %d", at, len(got))
		}
		got = append(got, b...)
		return nil
	})
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if len(s.Nodes) != 1 {
		t.Errorf("%q are left, want the one that did not fail", s.Nodes)
	}
	for name, f := range map[string]func(s *Source) error{
		"damaged": func(s *Source) error {
			s.Nodes = s.Nodes[:1]
			_, err := s.Range(t.Context(), []byte("x"), 0, 32, nil)
			return err
		},
		"too much": func(s *Source) error {
			s.Nodes = s.Nodes[2:]
			_, err := s.Range(t.Context(), []byte("x"), 0, 33, nil)
			return err
		},
		"beyond": func(s *Source) error {
			s.Nodes = s.Nodes[2:]
			_, err := s.Range(t.Context(), []byte("x"), 90, 20, nil)
			return err
		},
	} {
		if err := f(&Source{Plane: p[0], Method: methodRead, Nodes: []string{"n1", "n2", "n3"}}); !errors.Is(err, ErrNobody) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whoever asks for what is not there is given no memory: neither a name that nobody
// knows, nor a range beyond what has one. The ranges are far larger than what the plane
// takes for an ask.
func TestServeNothing(t *testing.T) {
	p := planes(t, nil, "n0", "n1")
	dir, names, _ := source(t)
	all := ServeDirectories(p[1])
	all.Add("", dir, names)
	d, err := all.find("")
	if err != nil || d.err != nil {
		t.Fatal(err, d.err)
	}
	const asks, size = 16, 16 * ChunkBytes
	ServeRanges(p[1], methodRead, size, func(_ context.Context, name []byte, at int64, n int) (func([]byte) error, error) {
		return d.find(string(name), at, n)
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range asks {
		name := binary.LittleEndian.AppendUint32(nil, uint32(len(names)*(i%2)))
		body := [][]byte{appendRange(name, 1<<40, size)}
		if _, err := p[0].Ask(t.Context(), Call{Node: "n1", Method: methodRead, Body: body, Max: 8}); err == nil {
			t.Fatal("it was served")
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > asks*size/16 {
		t.Errorf("%d asks for nothing took %d bytes", asks, took)
	}
}

// What is put goes on where it was interrupted; what is damaged on the way is refused,
// and what is not what was announced gets no name.
func TestPut(t *testing.T) {
	p := planes(t, nil, "n0", "n1")
	b := bytes.Repeat([]byte("0123456789"), ChunkBytes/10+3)
	path := filepath.Join(t.TempDir(), "f")
	receiveRanges(p[1], methodPut, func(peer string, name []byte, at int64, data []byte) (have int64, err error) {
		f, err := openPartial(path, 0o600)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if have, err = f.Append(at, data); err != nil || have < int64(len(b)) {
			return have, err
		}
		if err := verify(f, int64(len(b)), sha256.Sum256(b)); err != nil {
			return 0, errors.Join(err, os.Remove(f.Name()))
		}
		return have, f.Commit()
	})
	put := func(body ...[]byte) ([]byte, error) {
		return p[0].Ask(t.Context(), Call{Node: "n1", Method: methodPut, Body: body, Max: 8})
	}
	damaged := append(appendSum(bytes.Clone(b[:100]), b[:100]), 0)
	damaged[3] ^= 1
	if _, err := put(appendRange([]byte("x"), 0, 100), damaged[:104]); err == nil || !strings.Contains(err.Error(), ErrDamaged.Error()) {
		t.Errorf("damaged on the way: %v", err)
	}
	if _, err := put(appendRange([]byte("x"), 0, 100), b[:100], appendSum(nil, b[:100])); err != nil {
		t.Fatal(err)
	}
	if err := putAll(t.Context(), p[0], "n1", methodPut, []byte("x"), int64(len(b)), tail{bytes.NewReader(b), 100, t}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, b) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(b)
	other[7] ^= 1
	if err := putAll(t.Context(), p[0], "n1", methodPut, []byte("x"), int64(len(b)), bytes.NewReader(other)); err == nil || !strings.Contains(err.Error(), ErrDamaged.Error()) {
		t.Errorf("another content: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// tail fails the test when something before from is read.
type tail struct {
	*bytes.Reader
	from int64
	t    *testing.T
}

func (r tail) ReadAt(b []byte, at int64) (int, error) {
	if at < r.from {
		r.t.Errorf("byte %d is sent again", at)
	}
	return r.Reader.ReadAt(b, at)
}

// Whatever a peer sends, what is taken of it is within its bytes and the limits.
func FuzzRange(f *testing.F) {
	data := []byte("hello")
	f.Add(appendRange([]byte("x"), 5, 7))
	f.Add(appendSum(append(appendRange([]byte("x"), 5, len(data)), data...), data))
	f.Add(appendRange(nil, -1, 1<<30))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, at, n, err := decodeRange(b, 1<<20)
		if err == nil && (at < 0 || n < 0 || n > 1<<20 || !bytes.Equal(appendRange(name, at, n), b)) {
			t.Errorf("%d bytes at %d of %x", n, at, name)
		}
		name, at, data, err := decodePut(b)
		if err == nil && (at < 0 || len(name) > maxName || !bytes.Equal(appendSum(append(appendRange(name, at, len(data)), data...), data), b)) {
			t.Errorf("%x at %d of %x", data, at, name)
		}
	})
}
