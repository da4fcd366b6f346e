package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/internal/interrupt/interrupttest"
)

// Verify asks before each block of each array, and says why it ended; so do Check, of files
// that are known to be sound, and what reads the graph and the values.
func TestVerifyIsInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	const n = 2 * blockBytes / 4
	ds := &graph.Dataset{Graph: &graph.Graph{Indptr: make([]int64, 2)}, NodeFeatures: graph.NewFeatures(1, n, make([]float32, n))}
	if err := Create(t.Context(), dir, ds); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	values := interrupttest.New(t, interrupttest.Never)
	if err := ds.Validate(values); err != nil {
		t.Fatal(err)
	}
	blocks, old := 0, time.Now().Add(-time.Hour)
	for i := range s.m.Arrays {
		a := &s.m.Arrays[i]
		blocks += int(numBlocks(a.Bytes))
		if err := os.Chtimes(s.path(a.Name), old, old); err != nil { // Verify remembers what is old
			t.Fatal(err)
		}
	}
	interrupttest.Check(t, blocks+values.Asked(), s.Verify)
	interrupttest.Check(t, len(s.m.Arrays), func(ctx context.Context) error { return s.Check(ctx, CheckOptions{}) })
	for least, f := range map[int]func(context.Context) error{values.Asked(): s.Validate, 2: s.CheckGraph} {
		interrupttest.Check(t, least, func(ctx context.Context) error {
			err := f(ctx)
			if errors.Is(err, graph.ErrDamaged) || errors.Is(err, graph.ErrFormat) {
				t.Errorf("sound data is called damaged: %v", err)
			}
			return err
		})
	}
}

// A store that is not whole yet when the context ends leaves nothing behind.
func TestCreateIsInterrupted(t *testing.T) {
	parent := t.TempDir()
	const chunks = 3
	x := make([]float32, chunks*copiedAtOnce/4)
	ds := &graph.Dataset{Graph: &graph.Graph{Indptr: make([]int64, 2)}, NodeFeatures: graph.NewFeatures(1, len(x), x)}
	interrupttest.Check(t, 4+chunks, func(ctx context.Context) error {
		dir := filepath.Join(parent, "store")
		err := Create(ctx, dir, ds)
		if err == nil {
			err = os.RemoveAll(dir)
		}
		if left, _ := os.ReadDir(parent); len(left) != 0 {
			t.Errorf("left are %v", left)
		}
		return err
	})
}

// Features are encoded, and the store gets its name, only as long as the context lasts.
func TestWriterIsInterrupted(t *testing.T) {
	parent := t.TempDir()
	n := 3 * interrupt.Every
	ds := &graph.Dataset{Graph: &graph.Graph{Indptr: make([]int64, n+1)}, NodeFeatures: graph.NewFeatures(n, 1, make([]float32, n))}
	write := func(do func(w *Writer) error) error {
		dir := filepath.Join(parent, "store")
		w, err := NewWriter(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.putDataset(t.Context(), ds); err != nil {
			t.Fatal(err)
		}
		err = do(w)
		w.Abort()
		if _, there := os.Stat(dir); err != nil && !errors.Is(there, os.ErrNotExist) {
			t.Errorf("%v, but the store is there", err)
		}
		return errors.Join(err, os.RemoveAll(dir))
	}
	interrupttest.Check(t, 4, func(ctx context.Context) error {
		return write(func(w *Writer) error { return w.EncodeFeatures(ctx, graph.Encoding{DType: graph.Float16}) })
	})
	interrupttest.Check(t, 1, func(ctx context.Context) error {
		return write(func(w *Writer) error { return w.Commit(ctx) })
	})
}

// A partition is not saved once the context has ended, nor waited for then.
func TestSavePartitionIsInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	ds := generate.Builtin()
	if err := Create(t.Context(), dir, ds); err != nil {
		t.Fatal(err)
	}
	p := graph.Partition{Method: "hash", Parts: 1, Cluster: make([]uint32, ds.Graph.NumNodes())}
	listed := func() int {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return len(s.Dataset().Partitions)
	}
	ctx := interrupttest.New(t, 1)
	if err := SavePartition(ctx, dir, p); !errors.Is(err, interrupttest.ErrEnough) || listed() != 0 {
		t.Errorf("%v, and %d partitions are listed", err, listed())
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*partition*")); err != nil || left != nil {
		t.Errorf("left are %v, %v", left, err)
	}
	ctx.Cancel()
	unlock, err := lockStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unlock(); err != nil {
			t.Error(err)
		}
	}()
	if release, held := holdDir(dir); held {
		release()
		t.Skip("this file system does not lock directories")
	}
	if err := SavePartition(ctx, dir, p); !errors.Is(err, interrupttest.ErrEnough) || listed() != 0 {
		t.Errorf("%v, while another call has the store", err)
	}
}
