package graph

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of the given size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFullDiskLeavesNothingBehind(t *testing.T) {
	disk := smallDisk(t, "1m")
	ds, err := RMAT(RMATOptions{Scale: 12, Edges: 300_000, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := Create(big, ds); err != nil {
		t.Fatal(err)
	}
	wide := files{
		"edges.npy":    npy("<i8", "(2, 1)", []int64{0, 1}),
		"features.npy": npy("<f4", "(4096, 100)", make([]float32, 409600)), // all 0: 400 KB as uint8
		"weights.npy":  npy("<f4", "(1,)", []float32{1}),
	}
	x := make([]float32, 409600)
	x[len(x)-1] = .5 // written again as float32 at the very end
	late := wide.with("features.npy", npy("<f4", "(4096, 100)", x))
	if err := Import(wide.write(t), filepath.Join(disk, "fits"), ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(disk, "fits")); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(dst string) error{
		"Create":        func(dst string) error { return Create(dst, ds) },
		"Import, edges": func(dst string) error { return Import(big, dst, ImportOptions{}) },
		"Import, rows":  func(dst string) error { return Import(late.write(t), dst, ImportOptions{}) },
	} {
		err := f(filepath.Join(disk, "store"))
		if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(err.Error(), filepath.Join(disk, "store")) || !strings.Contains(err.Error(), "free some space") || strings.Contains(err.Error(), ".tmp-") {
			t.Errorf("%s: the error should name the file and the remedy: %v", name, err)
		}
		onlyContains(t, disk)
	}
}

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
	dir := created(t, everything(t))
	p := Partition{Method: "metis", Parts: 2, Cluster: []uint32{0, 1, 1, 0, 1}}
	if err := SavePartition(dir, p); err != nil {
		t.Fatal(err)
	}
	before := entriesOf(t, dir)
	// What something is mounted on cannot be replaced.
	manifest := filepath.Join(dir, manifestFile)
	if err := unix.Mount(manifest, manifest, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	q := p
	q.Cluster = []uint32{1, 1, 1, 1, 0}
	err := SavePartition(dir, q)
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
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
	if got := s.Dataset().Partition("metis", 2); got == nil || !reflect.DeepEqual(got.Cluster, p.Cluster) {
		t.Errorf("the partition is %+v", got)
	}
}
