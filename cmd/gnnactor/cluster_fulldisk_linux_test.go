package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A node whose disk is full cannot copy the store: it says which file and what to
// do, ends, and goes on where it stopped when there is space.
func TestNetFullDisk(t *testing.T) {
	c := startStores(t, 2, 1)
	data := filepath.Join(c.dir, "data")
	mustInvoke(t, "generate", "sbm", data, "--nodes", "20000", "--features", "32")
	small := filepath.Join(c.dir, "n1-dir")
	if err := os.Mkdir(small, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("no right to mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	run := []string{"--data", data, "--micro-batches", "8", "--batch-size", "64", "--epochs", "2", "--eval-every", "0", "--fanouts", "5,5",
		"--hidden", "16", "--threads", "1", "--seed", "3", "--baseline=false"}
	begin := func(n *netNode, dir string, args ...string) {
		host := n.host.Addr().String()
		n.process = c.start(n.host, n.log, append(args, "--certs", c.certs(), "--node", n.name, "--node-dir", dir,
			"--listen", host+":7402", "--control", host+":7403", "--output", "json"))
	}
	begin(c.nodes[0], filepath.Join(c.dir, "n0-dir"), slices.Concat([]string{"train", "--cluster", c.endpoints[0], "--shards", "4", "--wait-for", "2"}, run)...)
	n := c.nodes[1]
	begin(n, small, "cluster", "join", c.endpoints[0], "--threads", "1", "--checkpoint", filepath.Join(small, "checkpoint"), "--resume")
	said := func(log string) bool {
		return slices.ContainsFunc(strings.Split(log, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "gnnactor: ") && strings.Contains(line, small) && strings.Contains(line, "free some space")
		})
	}
	if err := n.log.await(c.ctx, said); err != nil {
		t.Fatalf("it does not say that the disk is full: %v", err)
	}
	if err := n.process.Await(c.ctx, 2); err != nil { // it ended, and was started again
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	one := alone(t, run)
	for _, n := range c.nodes {
		state, err := n.process.Wait(c.ctx)
		if err != nil || !state.Success() {
			t.Fatalf("%s: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
		}
		if r := resultOf(t, n.log.String()); r.SHA == "" || r.SHA != one.SHA || r.Chain != one.Chain {
			t.Errorf("%s: parameters %s and lineage %s, not those of one process, %s and %s", n.name, r.SHA, r.Chain, one.SHA, one.Chain)
		}
	}
	t.Logf("%s was started %d times", n.name, n.process.Starts())
}
