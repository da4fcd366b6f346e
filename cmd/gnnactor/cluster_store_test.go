package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/graph/store"
)

// ends returns what a command exits with.
func (c *command) ends(t *testing.T, ctx context.Context) int {
	t.Helper()
	select {
	case code := <-c.code:
		return code
	case <-ctx.Done():
		t.Fatalf("it does not end: %v\n%s", context.Cause(ctx), c.log)
		return 0
	}
}

// startStore begins a store and returns its address.
func startStore(t *testing.T, ctx context.Context, args ...string) (store *command, at string) {
	t.Helper()
	store = begin(t, slices.Concat([]string{"cluster", "start", "--node", "s", "--listen", "127.0.0.1:0", "--peers", "127.0.0.1:0"}, args)...)
	_, at, _ = strings.Cut(store.log.await(t, ctx, "train with --cluster"), "serves at ")
	at, _, _ = strings.Cut(at, ";")
	return store, at
}

// Without the store a node whose lease has ended exits by itself, and one that is told
// to go does not wait for the store: each with a code of its own.
func TestEndWithoutStore(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	store, at := startStore(t, ctx, "--dir", filepath.Join(dir, "s"))
	train := func(name, lease string) *command {
		return beginHeld(t, "epoch 1/", "train", "--cluster", at, "--cluster-name", name, "--node", name, "--node-dir", filepath.Join(dir, name),
			"--lease", lease, "--outage", "0", "--epochs", "1000000", "--threads", "1", "--eval-every", "0", "--baseline=false")
	}
	fenced, told := train("fenced", "3s"), train("told", "60s")
	for _, c := range []*command{fenced, told} {
		c.log.await(t, ctx, "epoch 1/")
	}
	store.interrupt()
	if code := store.ends(t, ctx); code != exitDone {
		t.Errorf("the store: exit %d", code)
	}
	told.interrupt() // which waits for the store while the other's lease ends
	fenced.log.await(t, ctx, "this node is fenced")
	fenced.goOn()
	if code := fenced.ends(t, ctx); code != exitFenced || !strings.Contains(fenced.log.String(), "this node is fenced") {
		t.Errorf("fenced: exit %d\n%s", code, fenced.log)
	}
	told.goOn()
	if code := told.ends(t, ctx); code != exitInterrupted || !strings.Contains(told.log.String(), "the store has not answered for 5s") {
		t.Errorf("told to go: exit %d\n%s", code, told.log)
	}
}

// A node that cannot train on its data is told so before it is one. What counts are the
// settings of the run that there is.
func TestUnsuitedNeverEnters(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	_, at := startStore(t, ctx, "--dir", filepath.Join(dir, "s"))
	ds := twoRings(t)
	ds.Labels = nil
	data := filepath.Join(dir, "unlabelled")
	if err := store.Create(t.Context(), data, ds); err != nil {
		t.Fatal(err)
	}
	train := func(node string, extra ...string) *command {
		return begin(t, slices.Concat([]string{"train", "--cluster", at, "--node", node, "--node-dir", filepath.Join(dir, node), "--data", data,
			"--threads", "1", "--eval-every", "0", "--baseline=false"}, extra)...)
	}
	refused := func(c *command, want string) {
		t.Helper()
		if code := c.ends(t, ctx); code == exitDone || !strings.Contains(c.log.String(), want) {
			t.Errorf("exit %d, want %q:\n%s", code, want, c.log)
		}
		if _, err := os.Stat(filepath.Join(dir, "refused")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it was a node: %v", err)
		}
	}
	links := []string{"--task", "link", "--micro-batches", "2", "--wait-for", "2"}
	refused(train("refused"), "has no labels")
	refused(train("refused", append(links, "--sampler-options", "weighted=true")...), "no edge weights")
	list := filepath.Join(dir, "list.csv") // no store: it is imported to find out
	if err := os.WriteFile(list, []byte("0,1\n1,2\n2,0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused(train("refused", "--data", list), "has no node features")
	a := train("a", append(links, "--epochs", "1000000")...)
	a.log.await(t, ctx, "120 nodes") // it takes part
	refused(train("refused", "--task", "link", "--fanouts", "3,3"), "fanouts is")
	train("b").log.await(t, ctx, "the group made its first step")
}

// A node that waits for others to train with says for how many.
func TestTrainTellsShort(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	_, at := startStore(t, ctx, "--dir", filepath.Join(dir, "s"))
	train := begin(t, "train", "--cluster", at, "--node", "a", "--node-dir", filepath.Join(dir, "a"), "--micro-batches", "4", "--wait-for", "3", "--threads", "1")
	if line := train.log.await(t, ctx, "waiting for nodes that are to train with this one"); !strings.Contains(line, "wait-for=3 here=1") {
		t.Errorf("it says %q", line)
	}
}
