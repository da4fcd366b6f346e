package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/internal/interrupt/interrupttest"
)

// edgeFile writes a ring of n nodes as a list of edges, and returns its directory.
func edgeFile(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for v := range n {
		fmt.Fprintf(&b, "%d,%d\n", v, (v+1)%n)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "edges.csv"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Start heeds its context wherever it is: before it began, while it imports, and after;
// then it says why and leaves nothing behind.
func TestStartIsInterrupted(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	c := DefaultConfig()
	c.Data.Path = edgeFile(t, 1<<14)
	asked := interrupttest.New(t, interrupttest.Never)
	r, err := Start(asked, c)
	if err != nil {
		t.Fatal(err)
	}
	asked.Cancel() // what was started goes on
	for _, err := range r.Batches(t.Context(), BatchesOptions{Nodes: []uint32{1, 2}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	times := asked.Asked()
	if times < 5 {
		t.Fatalf("Start asks for the context's error %d times", times)
	}
	for n := range times {
		r, err := Start(interrupttest.New(t, n+1), c)
		if !errors.Is(err, interrupttest.ErrEnough) {
			t.Errorf("of %d times that it asks whether to go on, Start was told to stop at %d: %v", times, n, err)
		}
		if r != nil {
			t.Errorf("it returns a run, told at %d", n)
		}
		left, err := os.ReadDir(temp)
		if err != nil || len(left) > 0 {
			t.Errorf("told at %d, it leaves %v (%v)", n, left, err)
		}
	}
}

// Settings that are texts are read when a run starts, and never again: what becomes of the
// texts then changes nothing.
func TestSettingsAreReadOnce(t *testing.T) {
	c := config()
	c.Sampling.Reorder, c.Sampling.ReorderMethod, c.Memory.Cache, c.Memory.Features, c.Memory.Match, c.Memory.Limit = 2, "sketch", "degree:5%", "throttled:10GB/s", "on", "8GiB"
	c.Sampling.Options = map[string]string{"replace": "true"}
	want := parametersOf(t, c)
	r := started(t, c)
	const nonsense = "?"
	r.cfg.Memory.Features, r.cfg.Memory.Cache, r.cfg.Memory.Limit, r.cfg.Sampling.ReorderMethod, r.cfg.Model.Precision = nonsense, nonsense, nonsense, nonsense, nonsense
	r.cfg.Sampling.Options = map[string]string{nonsense: nonsense}
	trained(t, r)
	if got := sumOf(t, r); got != want {
		t.Errorf("the parameters are %s, and were %s", got, want)
	}
	if rows := r.Stats().Rows; rows.Pinned == 0 || rows.Shared == 0 {
		t.Errorf("no cache, or nothing matched: %+v", rows)
	}
}
