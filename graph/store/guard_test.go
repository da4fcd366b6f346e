package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
)

// A panic over values of a damaged store is an error that names the store and the
// remedy, whichever array was damaged; over a sound one it goes on.
func TestDamageExplainsPanics(t *testing.T) {
	whole := generate.Builtin()
	n := whole.Graph.NumNodes()
	whole.Partitions = []graph.Partition{{Method: "hash", Parts: 2, Cluster: make([]uint32, n)}}
	for _, c := range []struct {
		array string
		bytes []byte
		at    int64
	}{
		{"", nil, 0},
		{arrays.Indptr, le64(1 << 40), 8 * 3},
		{arrays.Indptr, le64(-5), 8 * 3},
		{arrays.Indices, le32(uint32(n)), 4 * 7},
		{arrays.Labels, le32(1 << 30), 4 * 7},
		{arrays.Train, le32(1 << 31), 4},
		{arrays.Valid, le32(uint32(n)), 4},
		{"partition", le32(2), 4 * 9},
	} {
		t.Run(fmt.Sprint(c.array, c.at), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			if err := Create(t.Context(), dir, whole); err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, a := range s.m.Arrays {
				if a.Name == c.array || c.array == "partition" && isPartitionArray(a.Name) {
					overwrite(t, s.path(a.Name), c.bytes, headerSize+c.at)
				}
			}
			recovered := func() (r any) {
				defer func() { r = recover() }()
				err = graph.Guard(func() error { panic("index out of range") })
				return nil
			}()
			switch {
			case c.array == "" && recovered == nil:
				t.Errorf("a panic over a sound store became %v", err)
			case c.array != "" && (!errors.Is(err, graph.ErrDamaged) || !errors.Is(err, graph.ErrFormat)):
				t.Errorf("the error is %v, the panic %v", err, recovered)
			case c.array != "":
				for _, want := range []string{dir, ".bin", "offsets [128", "import the data again", "index out of range"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the error %q does not tell of %q", err, want)
					}
				}
			}
			split := c.array == arrays.Train || c.array == arrays.Valid
			if err := s.CheckSplits(); split != errors.Is(err, graph.ErrDamaged) {
				t.Errorf("the splits: %v", err)
			}
			rows := c.array == arrays.Indptr || c.array == arrays.Indices
			if err := s.CheckGraph(t.Context()); rows != errors.Is(err, graph.ErrDamaged) {
				t.Errorf("the graph: %v", err)
			}
		})
	}
}

func overwrite(t *testing.T, path string, b []byte, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func le32(x uint32) []byte { return binary.LittleEndian.AppendUint32(nil, x) }
func le64(x int64) []byte  { return binary.LittleEndian.AppendUint64(nil, uint64(x)) }
