package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph/pieces"
)

// Four hosts, three of which have a piece of Cora each, train on global batches to the bits of one process on the same pieces. One that is killed is waited for
// until it is back with its directory, and all compute again. What they make of all nodes then are the rows of one process.
func TestNetSpread(t *testing.T) {
	data := filepath.Join("..", "..", "..", "shared", "data", "cora")
	if _, err := os.Stat(data); err != nil {
		t.Skip("needs ../shared/data/cora")
	}
	c := startStores(t, 4, 1)
	whole, set := filepath.Join(c.dir, "cora"), filepath.Join(c.dir, "set")
	mustInvoke(t, "import", data, whole)
	mustInvoke(t, "partition", "--data", whole, "--parts", "3", "--method", "contiguous", "--out", set)
	args := []string{"--model", "gcn", "--sampler", "full", "--epochs", "150", "--threads", "1", "--seed", "3", "--output", "json"}
	for i, n := range c.nodes {
		to := filepath.Join(c.dir, "data-"+n.name)
		for _, name := range append(pieces.Files(), pieces.PieceName(i)) {
			if err := copyAny(filepath.Join(set, name), filepath.Join(to, name)); err != nil && i < 3 {
				t.Fatal(err)
			}
		}
		n.process = c.start(n.host, n.log, slices.Concat([]string{"train", "--data", to}, args, c.nodeArgs(n)))
	}
	if err := c.nodes[0].log.await(c.ctx, func(s string) bool { return strings.Contains(s, "epoch 20 of 150") }); err != nil {
		t.Fatal(err)
	}
	starts := c.nodes[1].process.Starts()
	c.kill(1)
	if err := c.nodes[1].process.Await(c.ctx, starts+1); err != nil {
		t.Fatal(err)
	}
	params, rows := filepath.Join(c.dir, "params"), filepath.Join(c.dir, "all.npy")
	one := alone(t, append([]string{"--data", set, "--save", params}, args[:len(args)-2]...))
	succeeds := func(n *netNode) {
		state, err := n.process.Wait(c.ctx)
		if err != nil || !state.Success() {
			t.Fatalf("%s: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
		}
	}
	for i, n := range c.nodes {
		succeeds(n)
		if i == 3 { // it has no piece
			continue
		}
		if r := resultOf(t, n.log.String()); r.SHA == "" || r.SHA != one.SHA || r.TestAccuracy != one.TestAccuracy {
			t.Errorf("%s: parameters %s, accuracy %v, not those of one process: %s, %v", n.name, r.SHA, r.TestAccuracy, one.SHA, one.TestAccuracy)
		}
		if log := n.log.String(); i != 1 && !strings.Contains(log, "pieces are computed again when each is somewhere") {
			t.Errorf("%s does not say that a node was lost:\n%s", n.name, ending(log))
		}
	}
	infer := func(n *netNode) []string {
		return append([]string{"embed", "--data", filepath.Join(c.dir, "data-"+n.name), "--params", params, "--out", filepath.Join(c.dir, n.name+".npy"),
			"--scratch", filepath.Join(c.dir, "scratch-"+n.name)}, c.nodeArgs(n)...)
	}
	for _, n := range c.nodes {
		n.process = c.start(n.host, n.log, infer(n))
	}
	mustInvoke(t, "embed", "--data", set, "--params", params, "--out", rows)
	want, err := os.ReadFile(rows)
	if err != nil {
		t.Fatal(err)
	}
	const header = 128
	got := want[:header:header]
	for i, n := range c.nodes {
		if succeeds(n); i == 3 {
			continue
		}
		b, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("%s-%04d.npy", n.name, i)))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b[header:]...)
	}
	if !bytes.Equal(got, want) {
		t.Error("the rows of all nodes are not those of one process")
	}
}

// nodeArgs are a node's flags for the cluster.
func (c *netCluster) nodeArgs(n *netNode) []string {
	return []string{"--cluster", strings.Join(c.endpoints, ","), "--certs", c.certs(), "--node", n.name, "--node-dir", filepath.Join(c.dir, n.name),
		"--listen", n.host.Addr().String() + ":7402", "--control", n.host.Addr().String() + ":7403", "--wait-for", fmt.Sprint(len(c.nodes))}
}

// copyAny copies a file or a directory.
func copyAny(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, b, 0o644)
	}
	return err
}
