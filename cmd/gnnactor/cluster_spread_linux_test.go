package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph/pieces"
)

// Four hosts, three of which have a piece of Cora each, train on global batches to the bits of one process on the same pieces. One that is killed is waited for
// until it is back with its directory, and all go on from what they kept. What they make of all nodes then are the rows of one process.
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
	c.dealPieces(set, 3)
	for _, n := range c.nodes {
		n.process = c.start(n.host, n.log, slices.Concat([]string{"train", "--data", c.data(n), "--checkpoint", filepath.Join(c.dir, "kept-"+n.name)}, args, c.nodeArgs(n)))
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
		log := n.log.String()
		if i != 1 && !strings.Contains(log, "node n1, which computes the pieces") {
			t.Errorf("%s does not say which node was lost:\n%s", n.name, ending(log))
		}
		if times := strings.Count(log, "pieces are computed again"); times > 3 { // once of each other node, which ends then, too
			t.Errorf("%s says %d times that pieces are computed again", n.name, times)
		}
		if !strings.Contains(log, "resumed after") {
			t.Errorf("%s did not go on from its checkpoint:\n%s", n.name, ending(log))
		}
	}
	infer := func(n *netNode) []string {
		return append([]string{"embed", "--data", c.data(n), "--params", params, "--out", filepath.Join(c.dir, n.name+".npy"),
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
	for _, n := range c.nodes {
		succeeds(n)
	}
	for i := range 3 { // at the node that it was dealt to
		files, err := filepath.Glob(filepath.Join(c.dir, fmt.Sprintf("n?-%04d.npy", i)))
		if err != nil || len(files) != 1 {
			t.Fatalf("the rows of piece %d are in %v, %v; want one file", i, files, err)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b[header:]...)
		var list partList // each node that computes has it
		name := strings.TrimSuffix(filepath.Base(files[0]), ".npy")
		if b, err = os.ReadFile(filepath.Join(c.dir, name[:2]+".json")); err == nil {
			err = json.Unmarshal(b, &list)
		}
		if err != nil || list.Rows != 2708 || len(list.Parts) != 3 || list.Parts[i].File != name+".npy" || list.Parts[i].IDs != name+"-ids.npy" {
			t.Errorf("the list of files beside %s: %+v, %v", name, list, err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("the rows of all nodes are not those of one process")
	}
}

// data is the directory of a node's pieces.
func (c *netCluster) data(n *netNode) string { return filepath.Join(c.dir, "data-"+n.name) }

// dealPieces gives each host what describes a set, and each of the first n one of its pieces.
func (c *netCluster) dealPieces(set string, n int) {
	c.t.Helper()
	for i, host := range c.nodes {
		names := pieces.Files()
		if i < n {
			names = append(names, pieces.PieceName(i))
		}
		for _, name := range names {
			if err := copyAny(filepath.Join(set, name), filepath.Join(c.data(host), name)); err != nil {
				c.t.Fatal(err)
			}
		}
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
