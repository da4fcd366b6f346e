package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Four hosts train over the pieces of Cora, on sampled and on global batches. Any of them is killed every 15 s for 2 minutes, then one
// stands still, one is cut off, one loses packets, and one is drained and comes back: all end with the bits of one process.
func TestNetPiecesLong(t *testing.T) {
	epochs := longEpochs(t)
	data := filepath.Join("..", "..", "..", "shared", "data", "cora")
	if _, err := os.Stat(data); err != nil {
		t.Skip("needs ../shared/data/cora")
	}
	for name, args := range map[string][]string{
		"sampled": {"--micro-batches", "8", "--batch-size", "64", "--eval-every", "0", "--baseline=false", "--epochs", fmt.Sprint(epochs)},
		"global":  {"--sampler", "full", "--hidden", "64", "--epochs", fmt.Sprint(4 * epochs)},
	} {
		t.Run(name, func(t *testing.T) {
			c := startStores(t, 4, 3)
			whole, set := filepath.Join(c.dir, "cora"), filepath.Join(c.dir, "set")
			mustInvoke(t, "import", data, whole)
			mustInvoke(t, "partition", "--data", whole, "--parts", "4", "--method", "contiguous", "--out", set)
			c.dealPieces(set, 4)
			args := append([]string{"--model", "gcn", "--threads", "1", "--seed", "3"}, args...)
			train := func(n *netNode) {
				own := []string{"train", "--data", c.data(n), "--checkpoint", filepath.Join(c.dir, "kept-"+n.name), "--output", "json"}
				if name == "sampled" {
					own = append(own, "--resume")
				}
				n.process = c.start(n.host, n.log, slices.Concat(own, args, c.nodeArgs(n)))
			}
			for _, n := range c.nodes {
				train(n)
			}
			if err := c.nodes[3].log.await(c.ctx, func(s string) bool { return strings.Contains(s, "epoch 1 of ") || len(firstSteps(s)) > 0 }); err != nil {
				t.Fatal(err)
			}
			for _, v := range []int{3, 0, 1, 2, 0, 3, 1, 2} {
				c.kill(v)
				<-time.After(15 * time.Second)
			}
			for _, d := range []disturbance{
				{name: "freeze", begin: stop(3, syscall.SIGSTOP), end: stop(3, syscall.SIGCONT)},
				{name: "cut", begin: func(c *netCluster) error { return c.nodes[1].host.Cut() }, end: func(c *netCluster) error { return c.nodes[1].host.Mend() }},
				{name: "loss", begin: func(c *netCluster) error { return c.nodes[2].host.Loss(5) }, end: func(c *netCluster) error { return c.nodes[2].host.Loss(0) }},
			} {
				c.fault(d.name)
				if err := d.begin(c); err != nil {
					t.Fatal(err)
				}
				<-time.After(10 * time.Second)
				if err := d.end(c); err != nil {
					t.Fatal(err)
				}
				<-time.After(5 * time.Second)
			}
			for i, n := range c.nodes {
				if strings.Contains(n.log.String(), `"parameters_sha256"`) {
					t.Errorf("n%d was done before the disturbances ended: more epochs are needed", i)
				}
			}
			c.fault("drain")
			n, log := c.nodes[3], newOutput(t, "drain")
			p := c.start(c.nodes[0].host, log, []string{"cluster", "drain", c.endpoints[0], n.name, "--node", c.nodes[0].name, "--certs", c.certs()})
			if state, err := p.Wait(c.ctx); err != nil || !state.Success() {
				t.Fatalf("drain: %v, %v:\n%s", state, err, log)
			}
			if state, err := n.process.Wait(c.ctx); err != nil || !state.Success() {
				t.Fatalf("%s drains: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
			}
			train(n)
			one := alone(t, append([]string{"--data", set}, args...))
			if name == "sampled" {
				c.finish(one)
				return
			}
			for _, n := range c.nodes {
				state, err := n.process.Wait(c.ctx)
				if err != nil || !state.Success() {
					t.Fatalf("%s: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
				}
				if r := resultOf(t, n.log.String()); r.SHA == "" || r.SHA != one.SHA {
					t.Errorf("%s: parameters %s, not those of one process, %s", n.name, r.SHA, one.SHA)
				}
				t.Logf("%s: started %d times, said %d times that pieces are computed again", n.name, n.process.Starts(), strings.Count(n.log.String(), "pieces are computed again"))
			}
		})
	}
}
