package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/training"
)

// A node of global batches over pieces whose Compute is interrupted trains on until the other one has its piece, and ends as drained; the other one, whose Join is, is
// the last, and says so. No epoch is trained twice, though nothing is kept on disk.
func TestComputeDrains(t *testing.T) {
	t.Parallel()
	set := dividedInTwo(t)
	s := serve(t)
	var interrupt [2]context.CancelFunc
	var ended [2]error
	var nodes sync.WaitGroup
	var trained []int // by the first node
	ctx := within(t)
	for i, name := range []string{"a", "b"} {
		o := Options{NodeOptions: options(s, name, t.TempDir()), Config: runtime.DefaultConfig(), WaitFor: 2}
		o.TTL = time.Minute
		c := &o.Config
		c.Data.Path, c.Sampling.Sampler, c.Sampling.Fanouts, c.Training.Epochs, c.Execution.Threads = t.TempDir(), "full", nil, 1000, 1
		if err := errors.Join(os.CopyFS(c.Data.Path, os.DirFS(set)), os.RemoveAll(filepath.Join(c.Data.Path, pieces.PieceName(1-i)))); err != nil {
			t.Fatal(err)
		}
		var told context.Context
		told, interrupt[i] = context.WithCancel(ctx)
		nodes.Go(func() {
			join := []context.Context{told, ctx}[i]
			p, err := Join(join, o)
			if err != nil {
				ended[i] = err
				return
			}
			times := 0
			ended[i] = p.Leave(p.Compute([]context.Context{ctx, told}[i], func(ctx context.Context, cfg runtime.Config) error {
				d, err := runtime.OpenDivided(ctx, cfg)
				if err != nil {
					return err
				}
				defer d.Close()
				times++
				return d.Train(ctx, func(epoch int, _, _ float64) error {
					if i == 1 {
						return nil
					}
					switch trained = append(trained, epoch); {
					case times == 1 && epoch == 3:
						interrupt[1]()
						_, err := p.node.Member.Until(ctx, func(*membership.View) bool { return cfg.Cluster.Spread.Better() })
						return err
					case times == 2:
						interrupt[0]()
						<-ctx.Done()
						return context.Cause(ctx)
					}
					return nil
				})
			}))
		})
	}
	nodes.Wait()
	if !errors.Is(ended[0], training.ErrLast) || !errors.Is(ended[0], context.Canceled) || !errors.Is(ended[1], ErrDrained) {
		t.Errorf("the nodes ended with %v, and %v", ended[0], ended[1])
	}
	if want := []int{0, 1, 2, 3, 4, 5}; !slices.Equal(trained, want) {
		t.Errorf("the epochs %v were trained; want %v", trained, want)
	}
}

// dividedInTwo returns a partition set of two pieces.
func dividedInTwo(t *testing.T) string {
	t.Helper()
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 2 * pieces.Border, Classes: 4, AvgDegree: 6, Homophily: 0.8, FeatureDim: 8, Signal: 0.5, TrainFraction: 0.1, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	whole, set := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "set")
	ds.Fingerprint = ""
	if err := store.Create(t.Context(), whole, ds); err != nil {
		t.Fatal(err)
	}
	if err := store.View(whole, func(s *store.Store) error {
		_, err := pieces.Create(t.Context(), set, s, pieces.Options{Method: "contiguous", Pieces: 2})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return set
}
