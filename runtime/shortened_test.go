//go:build unix

package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/partition"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
)

// names reports an error that does not tell which file was shortened, or that it is damage.
func names(err error, path string) error {
	if err == nil {
		return fmt.Errorf("%s: shortened, and no error", filepath.Base(path))
	}
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "shortened") {
		return fmt.Errorf("%s: the error does not say that it was shortened: %w", filepath.Base(path), err)
	}
	if !errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%s: the error is none of damage: %w", filepath.Base(path), err)
	}
	return nil
}

// A file of the data that is shortened after Start is an error of every call that
// uses the data, whichever file it is, and the program goes on.
func TestShortenedUnderEveryCall(t *testing.T) {
	ctx := context.Background()
	nodes := []uint32{1, 2, 3, 150}
	calls := map[string]func(r *Runtime) error{
		"Train": func(r *Runtime) error {
			for _, err := range r.Train(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"Batches": func(r *Runtime) error {
			for _, err := range r.Batches(ctx, BatchesOptions{Nodes: nodes}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"Evaluate":         func(r *Runtime) error { _, err := r.Evaluate(ctx, r.Dataset().Test); return err },
		"EvaluateAUC":      func(r *Runtime) error { _, err := r.EvaluateAUC(ctx, r.Dataset().Valid); return err },
		"Embed":            func(r *Runtime) error { _, err := r.Embed(ctx, nodes); return err },
		"Predict":          func(r *Runtime) error { _, err := r.Predict(ctx, nodes); return err },
		"BaselineAccuracy": func(r *Runtime) error { _, err := r.BaselineAccuracy(ctx); return err },
	}
	c := storedRun(t)
	c.Training.Epochs, c.Data.Verify = 1, false
	for _, path := range payloads(t, c.Data.Path) {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r := started(t, c)
		for _, size := range []int64{int64(len(whole)) - 1, 0} {
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
			for name, call := range calls {
				if err := names(call(r), path); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if err := os.WriteFile(path, whole, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Evaluate(ctx, nodes); err != nil {
			t.Errorf("%s is whole again: %v", filepath.Base(path), err)
		}
	}
	c.Model.Task, c.Model.Name, c.Model.EdgeFeatures = "link", "sage", false
	r := started(t, c)
	path := filepath.Join(c.Data.Path, "node-features.bin")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	_, err := r.EvaluateLinks(ctx, TestLinks)
	if err := names(err, path); err != nil {
		t.Error(err)
	}
	c = storedRun(t)
	c.Data.Verify, c.Memory.Features = false, "disk"
	r = started(t, c)
	path = filepath.Join(c.Data.Path, "node-features.bin")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{"Predict", "Train"} {
		if err := names(calls[call](r), path); err != nil {
			t.Errorf("features on disk, %s: %v", call, err)
		}
	}
}

// The same under the calls of the libraries, of a graph without any page.
func TestShortenedUnderLibraries(t *testing.T) {
	workers := pool.New(3)
	defer workers.Close()
	spec := compute.Spec{Model: "gcn", Layers: 2, Hidden: 8, InDim: small().NodeFeatures.Cols, OutDim: 3}
	calls := map[string]func(s *store.Store, early sampling.Sampler, m *compute.Model) error{
		"CheckFiles": func(s *store.Store, _ sampling.Sampler, _ *compute.Model) error { return s.CheckFiles() },
		"Validate": func(s *store.Store, _ sampling.Sampler, _ *compute.Model) error {
			return s.Dataset().Validate(t.Context())
		},
		"CheckGraph":  func(s *store.Store, _ sampling.Sampler, _ *compute.Model) error { return s.CheckGraph(t.Context()) },
		"CheckSplits": func(s *store.Store, _ sampling.Sampler, _ *compute.Model) error { return s.CheckSplits() },
		"Create": func(s *store.Store, _ sampling.Sampler, _ *compute.Model) error {
			return store.Create(t.Context(), filepath.Join(t.TempDir(), "copy"), s.Dataset())
		},
		"Guard": func(s *store.Store, _ sampling.Sampler, _ *compute.Model) error {
			return graph.Guard(func() error { _ = s.Dataset().Summary(); return nil })
		},
		"Compute": func(s *store.Store, _ sampling.Sampler, _ *compute.Model) error {
			_, err := partition.Compute(t.Context(), s.Dataset().Graph, "metis", 4, 1)
			return err
		},
		"NewModel": func(s *store.Store, _ sampling.Sampler, _ *compute.Model) error {
			_, err := compute.NewModel(spec, s.Dataset().Graph)
			return err
		},
		"Sample": func(_ *store.Store, early sampling.Sampler, _ *compute.Model) error {
			return early.Sample(new(sampling.Batch), 1, []uint32{1, 2, 3})
		},
		"Infer": func(s *store.Store, _ sampling.Sampler, m *compute.Model) error {
			_, err := m.Infer(context.Background(), cpu.NewExec(workers, cpu.Go), m.Init(1), s.Dataset(), nil, 64)
			return err
		},
	}
	for _, name := range []string{"labor", "walk", "node", "edge", "frontier", "fastgcn", "pinsage", "cluster"} {
		calls["Prepare "+name] = func(s *store.Store, _ sampling.Sampler, _ *compute.Model) error {
			o := sampling.Spec{Name: name, Layers: 2}
			switch name {
			case "labor", "fastgcn":
				o.Fanouts = []int{3, 3}
			case "walk":
				o.Roots, o.WalkLength = 3, 2
			case "pinsage":
				o.Fanouts, o.Walks, o.WalkLength = []int{3, 3}, 2, 2
			case "cluster":
				o.Clusters = 3
			case "frontier":
				o.Budget, o.Frontier = 9, 3
			default:
				o.Budget = 9
			}
			p, err := sampling.Prepare(t.Context(), o, s.Dataset(), 1)
			if err != nil {
				return err
			}
			return p.NewSampler().Sample(new(sampling.Batch), 1, []uint32{1, 2, 3})
		}
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			dir := stored(t)
			s, err := store.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			p, err := sampling.Prepare(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{3, 3}}, s.Dataset(), 1)
			if err != nil {
				t.Fatal(err)
			}
			early, ok := p.NewParallelSampler(workers)
			if !ok {
				t.Fatal("no parallel sampler")
			}
			m, err := compute.NewModel(spec, s.Dataset().Graph)
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"indptr.bin", "indices.bin", "train.bin", "labels.bin", "node-features.bin"} {
				if err := os.Truncate(filepath.Join(dir, file), 0); err != nil {
					t.Fatal(err)
				}
			}
			err = call(s, early, m)
			if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "shortened") || !errors.Is(err, graph.ErrDamaged) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
