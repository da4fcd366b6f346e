package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The copy of the graph of a node that samples for others breaks off in the middle of a run, as on a disk that
// fails: the node lives, and says what is wrong with it; another one draws in its place, and the run ends with the bits of one process.
func TestClusterSamplerDisk(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	mustInvoke(t, "generate", "sbm", data, "--nodes", "3000", "--features", "16")
	settings := []string{"--data", data, "--micro-batches", "6", "--batch-size", "60", "--epochs", "30", "--eval-every", "0", "--fanouts", "3,3", "--hidden", "16",
		"--threads", "1", "--output", "json", "--baseline=false"}
	alone, _ := mustInvoke(t, slices.Concat([]string{"train"}, settings)...)

	_, at := startStore(t, ctx, "--dir", filepath.Join(dir, "s"))
	place := func(name, roles string) []string {
		return []string{"--node", name, "--node-dir", filepath.Join(dir, name), "--lease", "60s", "--roles", roles}
	}
	join := func(name string) *command {
		return spawn(t, ctx, slices.Concat([]string{"cluster", "join", at, "--output", "json"}, place(name, "sampler"))...)
	}
	c := begin(t, slices.Concat([]string{"train", "--cluster", at, "--samplers", "4"}, settings, place("c", "trainer,rows"))...)
	b := join("b") // the only one for now
	c.log.await(t, ctx, "epoch 1/30")
	a := join("a")
	a.log.await(t, ctx, "this node samples for the trainers")
	c.log.await(t, ctx, "a sampler moved") // who trains knows of it
	if err := os.Truncate(filepath.Join(dir, "b", "store", "indices.bin"), 0); err != nil {
		t.Fatal(err)
	}
	if out := c.wait(t, ctx); resultSHA(t, out) != resultSHA(t, alone) {
		t.Errorf("not the bits of one process: %s", out)
	}
	if _, why, _ := strings.Cut(c.log.String(), "a node is not asked for batches until it answers again"); !strings.Contains(why, "node=b") {
		t.Errorf("who is not asked:\n%s", c.log)
	}
	a.wait(t, ctx)
	if code := b.ends(t, ctx); code != exitDone && code != exitFailed {
		t.Errorf("b: exit %d\n%s", code, b.log)
	}
}
