package runtime

import (
	"bytes"
	"context"
	"math"
	"reflect"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/training/checkpoint"
	"github.com/gnnactor/gnnactor/training/update"
)

// stateOf trains c for one epoch, and returns the checkpoint that it wrote, what
// it was read as, and what it was expected to be.
func stateOf(t testing.TB, c Config) ([]compute.RawTensor, map[string]string, *checkpoint.State, *checkpoint.Expected) {
	t.Helper()
	c.Checkpoint.Dir, c.Training.Epochs = t.TempDir(), 1
	r := started(t, c)
	done := trained(t, r)
	e := &checkpoint.Expected{Layout: r.model.Layout(), Identity: r.identity, Steps: int64(done.Batches)}
	e.Identity.Start = r.start
	path := checkpoint.Path(c.Checkpoint.Dir, done.Applied)
	tensors, meta, err := compute.OpenSafetensors(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	good, err := e.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return tensors, meta, good, e
}

// Whatever another node gives as its state, with checksums as they should be, it
// is one that this run can go on from, or an error.
func FuzzState(f *testing.F) {
	c := config()
	c.Model.Hidden, c.Training.Schedule, c.Training.Keep, c.Sampling.Reorder = 2, "plateau", "best", 2
	tensors, meta, _, e := stateOf(f, c)
	model, err := compute.NewModel(e.Identity.Model, graph.Elsewhere(0, 0))
	if err != nil {
		f.Fatal(err)
	}
	workers := pool.New(1)
	f.Cleanup(workers.Close)
	x := cpu.NewExec(workers, cpu.Go)
	text := meta[checkpoint.Key]
	f.Add(text, uint16(0), uint32(0))
	for _, change := range stateChanges {
		f.Add(change.in(f, text), uint16(0), uint32(0))
	}
	f.Fuzz(func(t *testing.T, text string, at uint16, bits uint32) {
		data := tensors[int(at)%len(tensors)].Data
		for i := range min(4, len(data)) { // its first value
			was := data[i]
			defer func() { data[i] = was }()
			data[i] ^= byte(bits >> (8 * i))
		}
		var b bytes.Buffer
		if err := compute.WriteSafetensors(&b, tensors, map[string]string{checkpoint.Key: text}); err != nil {
			t.Fatal(err)
		}
		c, err := e.FromPeer(b.Bytes())
		if err != nil {
			if text == meta[checkpoint.Key] {
				t.Fatalf("a run's own metadata is refused: %v", err)
			}
			return
		}
		if n := e.Layout.Len(); len(c.Params) != n || len(c.M) != n || len(c.V) != n {
			t.Fatalf("a state of %d, %d and %d values", len(c.Params), len(c.M), len(c.V))
		}
		// What training computes from it before its first step.
		u := update.New(model, e.Identity.Recipe, x, make([]float32, e.Layout.Len()), nil)
		u.Restore(c)
		u.SetRate(int(c.Step/e.Steps), c.Scale())
		if c.Step/e.Steps > maxEpochs || u.Rate() < 0 || u.Rate() > u.Recipe().LR {
			t.Fatalf("step %d, rate %v", c.Step, u.Rate())
		}
		for next := c.Step; len(c.Lineage) > 0; c.Lineage = c.Lineage[:len(c.Lineage)-1] {
			if r := c.Lineage[len(c.Lineage)-1]; r.Next != next || r.First >= next || r.First < 0 {
				t.Fatalf("a lineage with %+v before %d", r, next)
			} else {
				next = r.First
			}
		}
		// It is a state again.
		c.Lineage = nil
		b.Reset()
		if err := c.Write(&b, e.Layout); err != nil {
			t.Fatal(err)
		}
		again, err := e.FromPeer(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		pairs := [][2][]float32{{c.Params, again.Params}, {c.M, again.M}, {c.V, again.V}}
		if c.Kept != nil && again.Kept != nil {
			pairs = append(pairs, [2][]float32{c.Kept.Params, again.Kept.Params})
			c.Kept.Params, again.Kept.Params = nil, nil
		}
		for _, x := range pairs {
			for i := range x[0] {
				if math.Float32bits(x[0][i]) != math.Float32bits(x[1][i]) {
					t.Fatalf("value %d is %v, and was %v", i, x[1][i], x[0][i])
				}
			}
		}
		c.Params, c.M, c.V, again.Params, again.M, again.V = nil, nil, nil, nil, nil, nil
		if !reflect.DeepEqual(c, again) {
			t.Fatalf("%+v is written, and %+v read", c, again)
		}
	})
}
