// Cluster is a program that trains as one node of a cluster.
//
// Each node computes a part of every batch, and all come to the same parameters, those
// that one process alone would have come to, bit for bit. Interrupted, a node hands its
// part to the others. README.md says how to run nodes on several machines; on one:
//
//	gnnactor cluster start &
//	go run ./examples/cluster --node a --wait-for 2 &
//	go run ./examples/cluster --node b --wait-for 2
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/runtime"
)

func main() {
	o, store := options(), ""
	flag.StringVar(&store, "store", "127.0.0.1:7400", "HOST:PORT of the cluster's store")
	flag.StringVar(&o.Node, "node", "a", "this node's name")
	flag.StringVar(&o.Config.Data.Path, "data", "", "the data, a store; none: the built-in graph")
	flag.IntVar(&o.WaitFor, "wait-for", 1, "nodes to wait for before the first step")
	flag.Parse()
	o.Dir, o.Store = "node-"+o.Node, []string{store}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := train(ctx, o, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// options are the same on every node. A batch is cut into as many parts as there
// may be nodes, or more.
func options() cluster.Options {
	o := cluster.Options{Config: runtime.DefaultConfig()}
	o.Config.Training.Epochs, o.Config.Sampling.BatchSize, o.Config.Sampling.MicroBatches = 3, 64, 6
	return o
}

// train is all that a node does.
func train(ctx context.Context, o cluster.Options, out io.Writer) error {
	for e, err := range cluster.Train(ctx, o) {
		if err != nil {
			return err
		}
		if e.Kind == runtime.EventDone {
			fmt.Fprintf(out, "node %s: test accuracy %.3f, lineage %.12s\n", o.Node, e.TestAccuracy, e.Lineage)
		}
	}
	return nil
}
