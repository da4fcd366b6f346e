package runtime

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
)

// Exact inference does not depend on how it is cut, and Embed returns the
// whole graph's rows bit for bit.
func TestInference(t *testing.T) {
	for _, model := range Models() {
		c := config()
		c.Model.Name, c.Training.Epochs = model, 1
		c.Sampling.Fanouts = slices.Repeat([]int{4}, c.Blocks())
		r := started(t, c)
		trained(t, r)
		all := make([]uint32, small().Graph.NumNodes())
		for i := range all {
			all[i] = uint32(i)
		}
		whole, err := r.Embed(context.Background(), all)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "params.safetensors")
		if err := r.Save(context.Background(), file); err != nil {
			t.Fatal(err)
		}
		want, err := r.Evaluate(context.Background(), small().Test)
		if err != nil || want.Count != len(small().Test) {
			t.Fatalf("%+v, %v", want, err)
		}
		for _, chunk := range []int{1, 7, 100000} {
			c := c
			c.Memory.EvalChunk, c.Model.Params, c.Execution.Threads = chunk, file, 1+chunk%2
			again := started(t, c)
			ids := []uint32{599, 3, 77, 4}
			e, err := again.Embed(context.Background(), ids)
			if err != nil {
				t.Fatal(err)
			}
			p, err := again.Predict(context.Background(), ids)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range ids {
				row := whole.Data[int(v)*whole.Cols : (int(v)+1)*whole.Cols]
				if !slices.Equal(e.Data[i*e.Cols:(i+1)*e.Cols], row) {
					t.Errorf("%s, chunk %d: node %d has another row alone than in the whole graph", model, chunk, v)
				}
				if p[i].Class != compute.ArgMax(row) || !(p[i].Probability > 0.2 && p[i].Probability <= 1) {
					t.Errorf("%s: node %d is predicted as %+v from %v", model, v, p[i], row)
				}
			}
			if got, err := again.Evaluate(context.Background(), small().Test); err != nil || got != want {
				t.Errorf("%s, chunk %d: %+v, %v; want %+v", model, chunk, got, err, want)
			}
		}
	}
}

func TestServingWhileTraining(t *testing.T) {
	r := started(t, config())
	n := 0
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventStep && e.Batch == 1 {
			if _, err := r.Predict(context.Background(), []uint32{1, 2}); err != nil {
				t.Fatal(err)
			}
			for _, err := range r.Train(context.Background()) {
				if !errors.Is(err, ErrBusy) {
					t.Fatalf("a second Train: %v", err)
				}
			}
			n++
		}
	}
	if n != config().Training.Epochs {
		t.Errorf("%d of %d epochs were served", n, config().Training.Epochs)
	}
}
