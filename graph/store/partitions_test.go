package store

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
)

func entriesOf(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// A partition comes back as it was saved, replaces one of the same kind, and
// changes neither the data's fingerprint nor what an open store sees.
func TestSavePartition(t *testing.T) {
	want := graphtest.Everything(t)
	dir := created(t, want)
	before := opened(t, dir)
	first := graph.Partition{Method: "metis", Parts: 2, Seed: 7, Cluster: []uint32{0, 1, 1, 0, 1}}
	other := graph.Partition{Method: "louvain", Parts: 3, Cluster: []uint32{2, 2, 2, 0, 0}}
	second := graph.Partition{Method: "metis", Parts: 2, Seed: 8, Cluster: []uint32{1, 0, 0, 1, 1}}
	for _, p := range []graph.Partition{first, other, first, second} {
		if err := SavePartition(t.Context(), dir, p); err != nil {
			t.Fatal(err)
		}
	}
	s := opened(t, dir)
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	ds := s.Dataset()
	if len(before.Dataset().Partitions) != 0 || ds.Fingerprint != graphtest.Hash(t, want) || len(ds.Partitions) != 2 {
		t.Errorf("partitions %+v, fingerprint %s", ds.Partitions, ds.Fingerprint)
	}
	for _, c := range []struct {
		method string
		parts  int
		want   *graph.Partition
	}{{"metis", 2, &second}, {"metis", 0, &second}, {"", 3, &other}, {"labels", 0, nil}, {"metis", 3, nil}} {
		got := ds.Partition(c.method, c.parts)
		if (got == nil) != (c.want == nil) {
			t.Fatalf("%s %d: got %v", c.method, c.parts, got)
		}
		if got != nil && (got.Seed != c.want.Seed || !reflect.DeepEqual(got.Cluster, c.want.Cluster) || len(got.SHA256) != 64) {
			t.Errorf("%s %d: got %+v", c.method, c.parts, got)
		}
	}
	files := 0
	for _, name := range entriesOf(t, dir) {
		if strings.Contains(name, "partition-") {
			files++
		}
		if strings.HasPrefix(name, ".") {
			t.Errorf("%s is left over", name)
		}
	}
	if files != 2 {
		t.Errorf("%d files of partitions, want 2", files)
	}
	p := ds.Summary().Partitions
	if len(p) != 2 || p[0].Largest != 3 || p[0].Method != "louvain" {
		t.Errorf("the summary has %+v", p)
	}
	// A copy made of the dataset has them too.
	again := opened(t, created(t, ds))
	if !reflect.DeepEqual(again.Dataset().Partitions, ds.Partitions) {
		t.Errorf("a copy has %+v", again.Dataset().Partitions)
	}
}

// A refused partition leaves the store as it was.
func TestSavePartitionRefuses(t *testing.T) {
	dir := created(t, graphtest.Everything(t))
	before := entriesOf(t, dir)
	for name, p := range map[string]graph.Partition{
		"nodes":         {Method: "metis", Parts: 2, Cluster: []uint32{0, 1}},
		"out of range":  {Method: "metis", Parts: 2, Cluster: []uint32{0, 1, 2, 0, 0}},
		"at least 1":    {Method: "metis", Cluster: make([]uint32, 5)},
		"small letters": {Method: "../up", Parts: 1, Cluster: make([]uint32, 5)},
	} {
		if name == "at least 1" {
			name = "give 1 to"
		}
		if err := SavePartition(t.Context(), dir, p); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := entriesOf(t, dir); !reflect.DeepEqual(before, after) {
		t.Errorf("files %v became %v", before, after)
	}
}

// What cannot be written is named once.
func TestSavePartitionNamesTheFile(t *testing.T) {
	dir := created(t, graphtest.Everything(t))
	p := graph.Partition{Method: "metis", Parts: 2, Cluster: []uint32{0, 1, 1, 0, 1}}
	if err := SavePartition(t.Context(), dir, p); err != nil {
		t.Fatal(err)
	}
	made, err := filepath.Glob(filepath.Join(dir, "partition-*"+arrayFileSuffix))
	if err != nil || len(made) != 1 {
		t.Fatal(made, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "."+strings.TrimSuffix(filepath.Base(made[0]), arrayFileSuffix)+".tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := SavePartition(t.Context(), dir, p); err == nil || strings.Count(err.Error(), "graph: write") != 1 {
		t.Errorf("got %v, want one file named", err)
	}
}

// What a call left that was interrupted (after the array was renamed, before it,
// or before the manifest was) goes with the next call; what is not a
// partition's stays.
func TestSavePartitionSweeps(t *testing.T) {
	dir := created(t, graphtest.Everything(t))
	first := graph.Partition{Method: "metis", Parts: 2, Cluster: []uint32{0, 1, 1, 0, 1}}
	if err := SavePartition(t.Context(), dir, first); err != nil {
		t.Fatal(err)
	}
	before := entriesOf(t, dir)
	var stay []string
	for _, name := range []string{"partition-notes.bin", "partition-notes.txt", ".partition.tmp"} {
		stay = append(stay, filepath.Join(dir, name))
	}
	left := []string{"partition-louvain-3-0123456789ab.bin", ".partition-metis-4-0123456789ab.tmp", ".store.json.tmp-12", ".store.json.tmp"}
	write := func(names ...string) {
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), []byte("x"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(stay...)
	write(left...)
	if err := SavePartition(t.Context(), dir, first); err != nil {
		t.Fatal(err)
	}
	for _, path := range stay {
		if err := os.Remove(path); err != nil {
			t.Errorf("a file that is no partition's: %v", err)
		}
	}
	if after := entriesOf(t, dir); !reflect.DeepEqual(before, after) {
		t.Errorf("files %v became %v", before, after)
	}
	if err := opened(t, dir).Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

// No call that runs beside others is lost.
func TestSavePartitionAtOnce(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("there is no lock on this platform")
	}
	dir := created(t, graphtest.Everything(t))
	const calls = 12
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			p := graph.Partition{Method: fmt.Sprintf("m%d", i), Parts: 2, Seed: uint64(i), Cluster: []uint32{0, 1, 1, 0, 1}}
			if err := SavePartition(t.Context(), dir, p); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := opened(t, dir)
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	for i := range calls {
		if p := s.Dataset().Partition(fmt.Sprintf("m%d", i), 2); p == nil || p.Seed != uint64(i) {
			t.Errorf("partition %d is %+v", i, p)
		}
	}
}
