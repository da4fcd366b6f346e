package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// storedRun returns the settings of a run on a store that has every array that one
// can read.
func storedRun(t testing.TB) Config {
	t.Helper()
	ds := *small()
	n, e := ds.Graph.NumNodes(), len(ds.Graph.Indices)
	g := *ds.Graph
	g.Weights = make([]float32, e)
	ds.NodeTimes, ds.EdgeTimes = make([]int64, n), make([]int64, e)
	ds.EdgeFeatures = &graph.Features{Rows: e, Cols: 2, DType: graph.Uint8, Data: make([]byte, 2*e), Stride: 2}
	ds.Partitions = []graph.Partition{{Method: "hash", Parts: 2, Cluster: make([]uint32, n)}}
	for i := range e {
		g.Weights[i], ds.EdgeTimes[i], ds.EdgeFeatures.Data[2*i] = 1, -1, byte(i)
	}
	ds.Graph = &g
	encoded, err := ds.NodeFeatures.Encode(t.Context(), graph.Encoding{DType: graph.Int8})
	if err != nil {
		t.Fatal(err)
	}
	ds.NodeFeatures = encoded
	c := config()
	c.Data.Dataset, c.Data.Path = nil, filepath.Join(t.TempDir(), "store")
	if err := store.Create(t.Context(), c.Data.Path, &ds); err != nil {
		t.Fatal(err)
	}
	c.Model.Name, c.Model.EdgeFeatures = "gat", true
	return c
}

func flip(t testing.TB, path string, at int64, bit byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= bit
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func payloads(t testing.TB, dir string) (paths []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.bin"))
	if err != nil || len(paths) != 13 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	return paths
}

// A bit that is flipped in any file ends the run with an error that names it, and
// nothing of the run is left.
func TestDamagedDataEndsTheRun(t *testing.T) {
	c := storedRun(t)
	trained(t, started(t, c))
	for _, path := range payloads(t, c.Data.Path) {
		const value = 128 + 8 // the low byte of the second value, or of the third
		flip(t, path, value, 1)
		c.Checkpoint.Dir = filepath.Join(t.TempDir(), "checkpoints")
		done, err := false, error(nil)
		r, err := Start(context.Background(), c)
		if err == nil {
			for e, failed := range r.Train(context.Background()) {
				done, err = done || e.Kind == EventDone, failed
			}
			if err := r.Save(context.Background(), filepath.Join(t.TempDir(), "parameters")); !errors.Is(err, graph.ErrFormat) {
				t.Errorf("%s: parameters were saved: %v", path, err)
			}
			if _, err := r.Evaluate(context.Background(), r.Dataset().Test); !errors.Is(err, graph.ErrFormat) {
				t.Errorf("%s: evaluated: %v", path, err)
			}
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		}
		if done || !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), filepath.Base(path)) || !strings.Contains(err.Error(), "import the data again") {
			t.Errorf("%s: done %v, %v", path, done, err)
		}
		if left, err := filepath.Glob(filepath.Join(c.Checkpoint.Dir, "*.safetensors")); err != nil || len(left) > 0 {
			t.Errorf("%s: checkpoints %v were left, %v", path, left, err)
		}
		flip(t, path, value, 1)
	}
	// Nobody reads edge features without the setting.
	c.Model.EdgeFeatures, c.Checkpoint.Dir = false, ""
	flip(t, filepath.Join(c.Data.Path, "edge-features.bin"), 128, 1)
	trained(t, started(t, c))
	c.Data.Verify = false
	flip(t, filepath.Join(c.Data.Path, "node-features.bin"), 128, 1)
	r := started(t, c)
	trained(t, r)
	if err := r.Verified(t.Context()); err != nil {
		t.Error(err)
	}
}

// What a stage makes of damage before it is found is not the error.
func TestDamageIsTheErrorOfAPanic(t *testing.T) {
	c := storedRun(t)
	c.Data.Verify, c.Training.EvalEvery = false, 0
	for i := range int64(1000) {
		flip(t, filepath.Join(c.Data.Path, "indices.bin"), 128+4*i+3, 0x7f)
	}
	r, v := unverified(t, c)
	v.err = errors.New("damaged")
	close(v.done)
	var err error
	for _, failed := range r.Train(context.Background()) {
		err = failed
	}
	if !errors.Is(err, v.err) || !strings.Contains(err.Error(), "before it was found") {
		t.Error(err)
	}
}

// unverified starts a run whose verification ends when the test says so.
func unverified(t testing.TB, c Config) (*Runtime, *verification) {
	t.Helper()
	r := started(t, c)
	<-r.verification.done
	v := verify(context.Background(), &settings{}, nil, nil)
	v.done = make(chan struct{})
	r.verification = v
	return r, v
}

// The end of training waits for that of the verification, and believes it.
func TestTheEndWaitsForVerification(t *testing.T) {
	for _, want := range []error{nil, errors.New("damaged")} {
		c := config()
		r, v := unverified(t, c)
		done, failed := false, error(nil)
		for e, err := range r.Train(context.Background()) {
			done, failed = done || e.Kind == EventDone, err
			if e.Kind == EventEpoch && e.Epoch == c.Training.Epochs-1 {
				v.err = want
				close(v.done)
			}
		}
		if done != (want == nil) || !errors.Is(failed, want) {
			t.Errorf("verified with %v: done %v, %v", want, done, failed)
		}
		if err := r.Save(context.Background(), filepath.Join(t.TempDir(), "parameters")); !errors.Is(err, want) {
			t.Errorf("verified with %v: saved: %v", want, err)
		}
		if _, err := r.Evaluate(t.Context(), r.Dataset().Test); !errors.Is(err, want) {
			t.Errorf("verified with %v: evaluated: %v", want, err)
		}
		if _, err := r.BaselineAccuracy(t.Context()); !errors.Is(err, want) {
			t.Errorf("verified with %v: the baseline: %v", want, err)
		}
	}
}

// A run that is interrupted before its data was verified writes no checkpoint.
func TestInterruptedBeforeVerified(t *testing.T) {
	atOnce(t)
	c := config()
	c.Checkpoint.Dir = t.TempDir()
	r, v := unverified(t, c)
	defer close(v.done)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var err error
	for e, failed := range r.Train(ctx) {
		err = failed
		if e.Kind == EventStep {
			cancel()
		}
	}
	if !errors.Is(err, context.Canceled) || !errors.Is(err, errUnverified) {
		t.Error(err)
	}
	if left, err := checkpoint.List(c.Checkpoint.Dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// So does one that is stopped, and it says so.
func TestStoppedBeforeVerified(t *testing.T) {
	c := storedRun(t)
	c.Checkpoint.Dir = t.TempDir()
	r := started(t, c)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	stopped, stopping := make(chan error, 1), false
	var err error
	for e, failed := range r.Train(context.Background()) {
		err = failed
		if e.Kind == EventStep && !stopping {
			stopping = true
			<-r.verification.done
			sound := filepath.Join(c.Data.Path, "indices.bin") // not to be known from before
			if err := os.Chtimes(sound, time.Time{}, time.Now()); err != nil {
				t.Fatal(err)
			}
			r.verification = verify(over, &r.cfg, r.data.stores(), r.log)
			<-r.verification.done
			go func() { stopped <- r.Stop() }()
			<-r.ctx.Done()
		}
	}
	if !errors.Is(err, ErrStopped) || !errors.Is(err, errUnverified) {
		t.Error(err)
	}
	if left, err := checkpoint.List(c.Checkpoint.Dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// Who leaves the loop over batches is not called again, whatever happened meanwhile.
func TestBatchesLeftOverShortenedFile(t *testing.T) {
	c := storedRun(t)
	c.Data.Verify = false
	r := started(t, c)
	path := filepath.Join(c.Data.Path, "edge-times.bin")
	for _, err := range r.Batches(t.Context(), BatchesOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		state, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, state.Size()-1); err != nil {
			t.Fatal(err)
		}
		break
	}
	if err := r.Verified(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("the file was shortened: %v", err)
	}
}

// What cannot be read is no setting that is wrong.
func TestUnreadableGraphIsNoSetting(t *testing.T) {
	c := storedRun(t)
	s, err := store.Open(c.Data.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Truncate(filepath.Join(c.Data.Path, "indptr.bin"), 0); err != nil {
		t.Fatal(err)
	}
	c.Model.Name, c.Model.EdgeFeatures = "gcn", false
	if _, err := newModel(&c, s.Dataset()); !ofData(err) || errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

// atOnce has the last checkpoint of an interrupted run wait for nothing.
func atOnce(t *testing.T) {
	limit := verifyLimit
	verifyLimit = 0
	t.Cleanup(func() { verifyLimit = limit })
}

// A run that is not interrupted waits with its checkpoints for the verification,
// however long that takes.
func TestCheckpointsWaitForVerification(t *testing.T) {
	atOnce(t)
	c := config()
	c.Checkpoint.Dir = t.TempDir()
	r, v := unverified(t, c)
	time.AfterFunc(50*time.Millisecond, func() { close(v.done) }) // Stop waits for that
	trained(t, r)
}

// Damage that is found while a run trains ends it there, and every later call.
func TestDamageEndsEveryCall(t *testing.T) {
	c := config()
	c.Training.Epochs = 1 << 20
	r, v := unverified(t, c)
	v.err = errors.New("damaged")
	var failed error
	for e, err := range r.Train(context.Background()) {
		if failed = err; e.Kind == EventStep && e.Applied == 2 {
			v.found(v.err)
			close(v.done)
		}
	}
	if !errors.Is(failed, v.err) {
		t.Error(failed)
	}
	if _, err := r.Embed(t.Context(), []uint32{1}); !errors.Is(err, v.err) {
		t.Errorf("embedded: %v", err)
	}
}
