package runtime

import (
	"context"
	"path/filepath"
	"testing"
)

// Metamorphic: batch norm's running statistics, which are part of the
// parameters' hash, are the same for any number of trainers,
// in a run that was interrupted within epochs, and after saving and loading.
func TestBatchNormBits(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"sage", "gin"} {
		t.Run(model, func(t *testing.T) {
			c := config()
			c.Model.Name, c.Model.Norm, c.Sampling.MicroBatches, c.Training.Epochs = model, "batch", 3, 4
			first := started(t, c)
			done := trained(t, first)
			want := sumOf(t, first)
			same := func(what string, r *Runtime) {
				t.Helper()
				if got := sumOf(t, r); got != want {
					t.Errorf("%s: other bits", what)
				}
			}
			v := c
			v.Execution.Trainers, v.Execution.Threads, v.Execution.Samplers = 2, 2, 3
			r := started(t, v)
			trained(t, r)
			same("2 trainers", r)
			v.Execution.Trainers = 3
			r = started(t, v)
			trained(t, r)
			same("3 trainers", r)

			v.Checkpoint.Dir, v.Checkpoint.Resume = t.TempDir(), true
			for range 6 {
				for e, err := range started(t, v).Train(context.Background()) {
					if err != nil {
						t.Fatal(err)
					}
					if e.Kind == EventStep && e.Applied%4 == 3 {
						break
					}
				}
			}
			r = started(t, v)
			trained(t, r)
			same("interrupted and resumed", r)

			file := filepath.Join(t.TempDir(), "m.safetensors")
			if err := first.Save(context.Background(), file); err != nil {
				t.Fatal(err)
			}
			c.Model.Params = file
			r = started(t, c)
			same("saved and loaded", r)
			m, err := r.Evaluate(context.Background(), r.Dataset().Test)
			if err != nil {
				t.Fatal(err)
			}
			if m.Accuracy != done.TestAccuracy {
				t.Errorf("evaluated to %v, trained to %v", m.Accuracy, done.TestAccuracy)
			}

			// Whoever loses the statistics computes something else.
			layout := first.model.Layout()
			tracked, _ := layout.Lookup("norms.0.module.num_batches_tracked")
			mean, _ := layout.Lookup("norms.0.module.running_mean")
			micro := 3 * float32(done.Applied)
			if got := first.params[tracked.Offset]; got != micro {
				t.Errorf("%v micro-batches tracked, %v were trained", got, micro)
			}
			moved := false
			for _, x := range first.params[mean.Offset : mean.Offset+mean.Len] {
				moved = moved || x != 0
			}
			if !moved {
				t.Error("the running mean is still 0")
			}
		})
	}
}
