// Slices trains on a graph that a program already has in memory.
//
// There is no file and no store: two slices name the ends of the edges, one
// holds the nodes' features, one their classes. The data here are two circles
// of acquaintances who mostly know people of their own circle; what is known of
// each person says little about the circle, what is known of the neighbours
// says more.
//
//	go run ./examples/slices
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/runtime"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	ds, err := circles(1000, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		return err
	}
	cfg := runtime.DefaultConfig()
	cfg.Data.Dataset = ds // ours: the runtime reads it, and copies nothing
	cfg.Model.Hidden, cfg.Training.Epochs, cfg.Sampling.BatchSize = 16, 10, 128
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	for ev, err := range rt.Train(ctx) {
		if err != nil {
			return err
		}
		if ev.Kind == runtime.EventEpoch {
			fmt.Fprintf(out, "epoch %2d  loss %.3f  validation accuracy %.3f\n", ev.Epoch+1, ev.Loss, ev.ValidAccuracy)
		}
	}
	m, err := rt.Evaluate(ctx, ds.Test)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "test accuracy %.3f on %d people\n", m.Accuracy, m.Count)
	return nil
}

// circles returns a data set of n people in two circles.
func circles(n int, random *rand.Rand) (*graph.Dataset, error) {
	class := make([]int32, n)
	x := make([]float32, n*4) // four features per person, row by row
	for v := range n {
		class[v] = int32(v % 2)
		for j := range 4 {
			x[v*4+j] = float32(random.NormFloat64()) + 0.4*float32(2*class[v]-1)
		}
	}
	var src, dst []uint32 // edge i runs from src[i] to dst[i]
	for v := range n {
		for range 6 {
			u := random.IntN(n/2)*2 + v%2 // of the same circle
			if random.Float64() < 0.15 {
				u = random.IntN(n)
			}
			src, dst = append(src, uint32(v), uint32(u)), append(dst, uint32(u), uint32(v))
		}
	}
	g, err := graph.FromEdges(n, src, dst, nil)
	if err != nil {
		return nil, err
	}
	ds := &graph.Dataset{
		Name:         "circles",
		Graph:        g,
		NodeFeatures: graph.NewFeatures(n, 4, x),
		Labels:       &graph.Labels{NumClasses: 2, Class: class},
	}
	for v := range uint32(n) {
		switch v / 2 % 4 {
		case 0, 1:
			ds.Train = append(ds.Train, v)
		case 2:
			ds.Valid = append(ds.Valid, v)
		default:
			ds.Test = append(ds.Test, v)
		}
	}
	return ds, nil
}
