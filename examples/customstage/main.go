// Customstage trains with two stages of its own between those of the dataflow.
//
// The data has a fault: the features of some nodes were never measured, and are noise with
// a mark in the last column. A stage after load sets such rows to zero, in training and in
// inference, as it is a function of the row alone. A stage after sample takes edges out of
// the batches: those that come from such nodes, and one in ten of the others, drawn under
// the batch's key (DropEdge). Both are actors beside the others, under the samplers'
// credits, and any number of samplers, trainers and nodes comes to the same parameters. In
// a cluster every node runs this program: one that lacks a stage is refused.
//
//	go run ./examples/customstage
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/runtime"
)

// mark is in the last column of a row that was not measured.
const mark = 1000

func unmeasured(row []float32) bool { return row[len(row)-1] == mark }

// clean is the stage after load.
type clean struct{}

// Process implements runtime.Processor.
func (clean) Process(_ context.Context, b *runtime.StageBatch) error {
	for x := b.X; len(x) > 0; x = x[b.NumFeatures:] {
		if row := x[:b.NumFeatures]; unmeasured(row) {
			clear(row)
		}
	}
	return nil
}

// thin is the stage after sample.
type thin struct{ unmeasured []bool } // by node

func newThin(ds *graph.Dataset) (runtime.Processor, error) {
	t := thin{make([]bool, ds.NodeFeatures.Rows)}
	row := make([]float32, ds.NodeFeatures.Cols)
	for v := range t.unmeasured {
		ds.NodeFeatures.Row(row, v)
		t.unmeasured[v] = unmeasured(row)
	}
	return t, nil
}

// Process implements runtime.Processor.
func (t thin) Process(_ context.Context, b *runtime.StageBatch) error {
	nodes := b.Batch.Inputs()
	for i := range b.Batch.Blocks {
		key := b.Key.With(uint64(i))
		b.Batch.Blocks[i].Keep(func(_, src uint32, at int) bool {
			return !t.unmeasured[nodes[src]] && key.Uintn(uint64(at), 10) > 0
		})
	}
	return nil
}

func main() {
	if _, err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// result is what a run came to.
type result struct {
	accuracy float64 // on the test set
	edges    int     // in the batches of an epoch
}

// run trains without stages, with the one after load, and with both.
func run(ctx context.Context, out io.Writer) (results []result, err error) {
	stages := []runtime.Stage{
		{Name: "clean", Version: "1", After: runtime.AfterLoad, New: func(*graph.Dataset) (runtime.Processor, error) { return clean{}, nil }},
		{Name: "thin", Version: "1", After: runtime.AfterSample, New: newThin},
	}
	cfg := runtime.DefaultConfig()
	cfg.Data.Dataset = faulty()
	for n := range len(stages) + 1 {
		cfg.Stages = stages[:n]
		r, err := train(ctx, cfg)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "stages %v: %d edges an epoch, test accuracy %.3f\n", cfg.StageNames(), r.edges, r.accuracy)
		results = append(results, r)
	}
	return results, nil
}

// faulty is the built-in data, of which the features of three nodes in ten were not measured.
func faulty() *graph.Dataset {
	ds := *generate.Builtin()
	n, cols := ds.NodeFeatures.Rows, ds.NodeFeatures.Cols
	x := make([]float32, n*cols)
	for v := range n {
		row := x[v*cols : (v+1)*cols]
		ds.NodeFeatures.Row(row, v)
		if noise := rng.New(7, uint64(v)); noise.Uintn(0, 10) < 3 {
			for j := range row {
				row[j] = 100 * float32(noise.Float64(uint64(j+1))-0.5)
			}
			row[cols-1] = mark
		}
	}
	ds.NodeFeatures, ds.Fingerprint = graph.NewFeatures(n, cols, x), ""
	return &ds
}

func train(ctx context.Context, cfg runtime.Config) (r result, err error) {
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	for b, err := range rt.Batches(ctx, runtime.BatchesOptions{NoCopy: true}) {
		if err != nil {
			return r, err
		}
		r.edges += b.NumEdges()
	}
	for e, err := range rt.Train(ctx) {
		if err != nil {
			return r, err
		}
		r.accuracy = e.TestAccuracy // the last event's is the final one
	}
	return r, nil
}
