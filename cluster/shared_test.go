package cluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/runtime/runtimetest"
	"github.com/gnnactor/gnnactor/training"
)

// trainAs trains on n nodes of a cluster and checks that all end with the
// parameters want and have the whole lineage. It returns what was published.
func trainAs(t *testing.T, store membership.Store, n int, want string, config func(i int) runtime.Config) (p training.Published) {
	t.Helper()
	var all []*node
	for i := range n {
		all = append(all, enter(t, store, fmt.Sprint("n", i), 8, n))
	}
	var wg sync.WaitGroup
	ends := make([]int64, n)
	for i, x := range all {
		wg.Go(func() {
			c := config(i)
			c.Cluster.Peers = x.team
			got, err := trainOn(t.Context(), c, nil)
			if err != nil || got != want {
				t.Errorf("node %d of %d: the parameters differ, or %v", i, n, err)
			}
			at := int64(0)
			for _, r := range x.team.Runs() {
				if r.First != at {
					t.Errorf("node %d of %d: its lineage goes on with step %d after %d", i, n, r.First, at)
				}
				at = r.Next
			}
			ends[i] = at
		})
	}
	wg.Wait()
	if slices.Max(ends) == 0 { // who came after the last step has none
		t.Errorf("%d nodes: no lineage", n)
	}
	for _, x := range all {
		x.exit(t)
	}
	entries, _, err := store.List(t.Context(), "") // what a node has heard of may be older
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Key, "/checkpoint") {
			if err := json.Unmarshal(e.Value, &p); err != nil {
				t.Error(err)
			}
		}
	}
	return p
}

// Nodes that share a checkpoint directory write one checkpoint per epoch, and
// any other number of them, or one process, goes on from it.
func TestSharedCheckpoint(t *testing.T) {
	t.Parallel()
	c := clusterConfig()
	var wants []string
	for c.Training.Epochs = 1; c.Training.Epochs <= 4; c.Training.Epochs++ {
		want, err := trainOn(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		wants = append(wants, want)
	}
	c.Checkpoint.Dir, c.Checkpoint.Resume, c.Checkpoint.Shared, c.Checkpoint.Keep = t.TempDir(), true, true, 2
	store := membership.NewMemStore()
	defer store.Close()
	for k, nodes := range []int{3, 1, 4} {
		c.Training.Epochs = k + 1
		p := trainAs(t, store, nodes, wants[k], func(int) runtime.Config { return c })
		all := runtimetest.Files(t, c.Checkpoint.Dir)
		if len(all) != min(k+1, 2) || all[len(all)-1] != p.File {
			t.Errorf("%d nodes: the directory holds %v, and %q was published", nodes, all, p.File)
		}
		if want := fmt.Sprintf("-g%012d", p.Group); !strings.Contains(p.File, want) {
			t.Errorf("%s is not of group %d", p.File, p.Group)
		}
	}
	c.Training.Epochs, c.Checkpoint.Shared = 4, false
	if got, err := trainOn(t.Context(), c, nil); err != nil || got != wants[3] {
		t.Errorf("one process: the parameters differ, or %v", err)
	}
}

// The file that the store names is taken only if it is the one.
func TestPublishedDamaged(t *testing.T) {
	c := clusterConfig()
	want, err := trainOn(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Checkpoint.Dir, c.Checkpoint.Resume, c.Checkpoint.Shared = t.TempDir(), true, true
	store := membership.NewMemStore()
	defer store.Close()
	p := trainAs(t, store, 2, want, func(int) runtime.Config { return c })
	path := filepath.Join(c.Checkpoint.Dir, p.File)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	trainAs(t, store, 2, want, func(int) runtime.Config { return c }) // from the one before
}

// All nodes die; one comes back without its directory. It has its state from
// the one that is there, and its checkpoints again.
func TestLostDirectory(t *testing.T) {
	c := clusterConfig()
	c.Training.Epochs = 1
	first, err := trainOn(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Training.Epochs = 2
	want, err := trainOn(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Checkpoint.Resume = true
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	own := func(epochs int) func(i int) runtime.Config {
		return func(i int) runtime.Config {
			c := c
			c.Checkpoint.Dir, c.Training.Epochs = dirs[i], epochs
			return c
		}
	}
	for i, store := range []*membership.MemStore{membership.NewMemStore(), membership.NewMemStore()} { // the stores' data is lost, too
		defer store.Close()
		if i == 0 {
			trainAs(t, store, 3, first, own(1))
			continue
		}
		if err := os.RemoveAll(dirs[0]); err != nil {
			t.Fatal(err)
		}
		trainAs(t, store, 2, want, own(2))
	}
	if a, b := runtimetest.Files(t, dirs[0]), runtimetest.Files(t, dirs[1]); len(a) == 0 || a[len(a)-1] != b[len(b)-1] {
		t.Errorf("the newest checkpoints are of %v and %v", a, b)
	}
}
