package importer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
	"github.com/gnnactor/gnnactor/graph/store"
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
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 12, Edges: 300_000, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := store.Create(t.Context(), big, ds); err != nil {
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
	if err := Import(t.Context(), wide.write(t), filepath.Join(disk, "fits"), Options{}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(disk, "fits")); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(dst string) error{
		"Create":        func(dst string) error { return store.Create(t.Context(), dst, ds) },
		"Import, edges": func(dst string) error { return Import(t.Context(), big, dst, Options{}) },
		"Import, rows":  func(dst string) error { return Import(t.Context(), late.write(t), dst, Options{}) },
	} {
		err := f(filepath.Join(disk, "store"))
		if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, graph.ErrFormat) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(err.Error(), filepath.Join(disk, "store")) || !strings.Contains(err.Error(), "free some space") || strings.Contains(err.Error(), ".tmp-") {
			t.Errorf("%s: the error should name the file and the remedy: %v", name, err)
		}
		graphtest.OnlyContains(t, disk)
	}
}
