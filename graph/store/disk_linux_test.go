package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
)

// Opening 10 million edges must touch neither their 40 MB through the mapping
// (over 600 page faults, even when the kernel maps 16 pages at a time) nor read
// them.
func TestOpenTouchesFewPages(t *testing.T) {
	dir := sparseStore(t, 1_000_000, 10_000_000)
	measure := func() (faults, bytes int64) {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile("/proc/self/io")
		if err != nil {
			t.Skip(err)
		}
		if _, err := fmt.Sscanf(string(b), "rchar: %d", &bytes); err != nil {
			t.Fatal(err)
		}
		return u.Minflt + u.Majflt, bytes
	}
	faults, bytes := measure()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	faultsAfter, bytesAfter := measure()
	t.Logf("Open: %d page faults, %d bytes read", faultsAfter-faults, bytesAfter-bytes)
	if faultsAfter-faults > 300 || bytesAfter-bytes > 1<<16 {
		t.Errorf("Open took %d page faults and read %d bytes", faultsAfter-faults, bytesAfter-bytes)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A write that cannot be finished leaves the store with what it had.
func TestSavePartitionIsAtomic(t *testing.T) {
	dir := created(t, graphtest.Everything(t))
	p := graph.Partition{Method: "metis", Parts: 2, Cluster: []uint32{0, 1, 1, 0, 1}}
	if err := SavePartition(t.Context(), dir, p); err != nil {
		t.Fatal(err)
	}
	before := entriesOf(t, dir)
	// What something is mounted on cannot be replaced.
	manifest := filepath.Join(dir, Manifest)
	if err := unix.Mount(manifest, manifest, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	q := p
	q.Cluster = []uint32{1, 1, 1, 1, 0}
	err := SavePartition(t.Context(), dir, q)
	if err := unix.Unmount(manifest, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EBUSY) {
		t.Errorf("got %v, want a file that is in use", err)
	}
	if after := entriesOf(t, dir); !reflect.DeepEqual(before, after) {
		t.Errorf("files %v became %v", before, after)
	}
	s := opened(t, dir)
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if got := s.Dataset().Partition("metis", 2); got == nil || !reflect.DeepEqual(got.Cluster, p.Cluster) {
		t.Errorf("the partition is %+v", got)
	}
}
