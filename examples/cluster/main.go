// Cluster embeds nodes of a cluster in a program: three that train one model.
//
// A node of a real cluster is a process of its own on a machine of its own;
// the three here share one process, on loopback, with a store of the first
// node's, so that the example needs nothing else. Each computes a part of every
// batch, and all come to the same parameters, those that one alone would have
// come to, bit for bit. README.md says how to run nodes on several machines.
//
//	go run ./examples/cluster
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/cluster/node"
	"github.com/gnnactor/gnnactor/runtime"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// names of the nodes.
var names = []string{"a", "b", "c"}

func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "gnnactor-cluster-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := etcd.Serve(ctx, etcd.Options{
		Node: names[0], Dir: filepath.Join(dir, "store"), ClientListen: "127.0.0.1:0", PeerListen: "127.0.0.1:0",
	})
	if err != nil {
		return err
	}
	defer store.Close()

	// What one process comes to.
	_, alone, err := train(ctx, config())
	if err != nil {
		return err
	}

	// One that fails takes the others with it: they would wait for it.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var nodes sync.WaitGroup
	accuracy, sums := make([]float64, len(names)), make([]string, len(names))
	for i, name := range names {
		nodes.Go(func() {
			var err error
			accuracy[i], sums[i], err = member(ctx, name, filepath.Join(dir, name), store.Endpoint())
			if err != nil {
				cancel(fmt.Errorf("node %s: %w", name, err))
			}
		})
	}
	nodes.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for i, name := range names {
		fmt.Fprintf(out, "node %s: parameters %.12s, as of one process alone: %v\n", name, sums[i], sums[i] == alone)
	}
	fmt.Fprintf(out, "test accuracy %.3f\n", accuracy[0])
	return nil
}

// config is the same on every node. A batch is cut into as many parts as there
// may be nodes, or more.
func config() runtime.Config {
	cfg := runtime.DefaultConfig()
	cfg.Training.Epochs, cfg.Sampling.BatchSize, cfg.Sampling.MicroBatches, cfg.Execution.Threads = 3, 64, 6, 1
	return cfg
}

// member is all that a node does.
func member(ctx context.Context, name, dir, store string) (accuracy float64, sum string, err error) {
	n, err := node.Enter(ctx, node.Options{
		Cluster: "example", Node: name, Dir: dir, Store: []string{store}, Listen: "127.0.0.1:0",
		TTL: time.Minute, // three nodes share this machine's cores: who is late is not dead
	})
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, n.Leave(context.WithoutCancel(ctx))) }()
	cfg := config()
	team, err := n.Train(ctx, cfg.Sampling.MicroBatches, len(names))
	if err != nil {
		return 0, "", err
	}
	defer team.Close()
	cfg.Cluster.Peers = team
	return train(ctx, cfg)
}

// train trains to the end.
func train(ctx context.Context, cfg runtime.Config) (accuracy float64, sum string, err error) {
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	for ev, err := range rt.Train(ctx) {
		if err != nil {
			return 0, "", err
		}
		accuracy = ev.TestAccuracy
	}
	sum, err = rt.ParametersSHA256(ctx)
	return accuracy, sum, err
}
