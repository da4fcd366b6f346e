package cluster_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/runtime"
)

// Two nodes, which would be processes on two machines, train one model. Their lineages, hashes of what
// each step came to, are those of one process that trains alone.
func ExampleJoin() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := etcd.Serve(ctx, etcd.Options{Node: "a", Dir: filepath.Join(dir, "store"), ClientListen: "127.0.0.1:0", PeerListen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	node := func(name string) (lineage string, err error) {
		o := cluster.Options{Config: runtime.DefaultConfig(), WaitFor: 2}
		o.Node, o.Dir, o.Store, o.TTL = name, filepath.Join(dir, name), []string{store.Endpoint()}, time.Minute
		o.Config.Training.Epochs, o.Config.Sampling.BatchSize, o.Config.Sampling.MicroBatches = 1, 64, 4
		s, err := cluster.Join(ctx, o)
		if err != nil {
			return "", err
		}
		for e, err := range s.Train() {
			if err != nil {
				return "", s.Leave(err)
			}
			lineage = e.Lineage
		}
		return lineage, s.Leave(nil)
	}
	var nodes sync.WaitGroup
	var lineages [2]string
	for i, name := range []string{"a", "b"} {
		nodes.Go(func() {
			var err error
			if lineages[i], err = node(name); err != nil {
				log.Print(name, ": ", err)
			}
		})
	}
	nodes.Wait()
	fmt.Println("trained:", lineages[0] != "", "- the same steps:", lineages[0] == lineages[1])
	// Output: trained: true - the same steps: true
}
