package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Four hosts, three of which have a piece of Cora each, and the fourth the set's description alone, train to the bits of one process
// on the store. One that is killed is waited for, by its name and its piece, until it is back with its directory; where each piece lies on two nodes
// the others go on without it.
func TestNetParts(t *testing.T) {
	data := filepath.Join("..", "..", "..", "shared", "data", "cora")
	if _, err := os.Stat(data); err != nil {
		t.Skip("needs ../shared/data/cora")
	}
	for replicas := 1; replicas <= 2; replicas++ {
		t.Run(fmt.Sprintf("replicas %d", replicas), func(t *testing.T) {
			c := startStores(t, 4, 1)
			whole, set := filepath.Join(c.dir, "cora"), filepath.Join(c.dir, "set")
			mustInvoke(t, "import", data, whole)
			mustInvoke(t, "partition", "--data", whole, "--parts", "3", "--method", "contiguous", "--out", set)
			args := []string{"--model", "gcn", "--micro-batches", "8", "--batch-size", "64", "--epochs", "120", "--eval-every", "0",
				"--threads", "1", "--seed", "3", "--baseline=false"}
			c.dealPieces(set, 3)
			c.trainEach(func(n *netNode) []string {
				return append([]string{"--data", c.data(n), "--replicas", fmt.Sprint(replicas)}, args...)
			})
			c.settled()
			starts := c.nodes[1].process.Starts()
			c.kill(1)
			waits := func(s string) bool {
				return strings.Contains(s, `waiting for pieces that no node holds`) && strings.Contains(s, `pieces=[1] were-at=[n1]`)
			}
			if replicas == 1 {
				if err := c.nodes[0].log.await(c.ctx, waits); err != nil {
					t.Errorf("nobody says what is waited for: %v", err)
				}
			}
			if err := c.nodes[1].process.Await(c.ctx, starts+1); err != nil {
				t.Fatal(err)
			}
			c.settled()
			one := alone(t, append([]string{"--data", set}, args...))
			if store := alone(t, append([]string{"--data", whole}, args...)); store.SHA != one.SHA {
				t.Errorf("on the pieces in one process the parameters are %s, on the store %s", one.SHA, store.SHA)
			}
			for i := range c.finish(one) {
				if here, err := filepath.Glob(filepath.Join(c.data(c.nodes[i]), "piece-*")); replicas == 1 && i < 3 && (err != nil || len(here) != 1) { // n3 may be told to have n1's, while that is away
					t.Errorf("n%d has %v, %v: it had what belongs there, and needs no other", i, here, err)
				}
				if replicas > 1 && waits(c.nodes[i].log.String()) {
					t.Errorf("n%d waited for a piece that another node holds", i)
				}
			}
		})
	}
}
