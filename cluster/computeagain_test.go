package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/parts"
	"github.com/gnnactor/gnnactor/runtime"
)

// What is computed again, as a node was lost, goes on from its checkpoints, if it keeps any; what begins does not.
func TestComputeAgainResumes(t *testing.T) {
	t.Parallel()
	set := dividedInTwo(t)
	for _, keeps := range []bool{true, false} {
		o := Options{NodeOptions: options(serve(t), "a", t.TempDir()), Config: runtime.DefaultConfig(), WaitFor: 1}
		o.TTL = time.Minute
		c := &o.Config
		c.Data.Path, c.Sampling.Sampler, c.Sampling.Fanouts, c.Training.Epochs, c.Execution.Threads = set, "full", nil, 5, 1
		if keeps {
			c.Checkpoint.Dir = t.TempDir()
		}
		s, err := Join(within(t), o)
		if err != nil {
			t.Fatal(err)
		}
		var trained []int
		var resumes []bool
		if err := s.Leave(s.Compute(within(t), func(ctx context.Context, cfg runtime.Config) error {
			resumes = append(resumes, cfg.Checkpoint.Resume)
			d, err := runtime.OpenDivided(ctx, cfg)
			if err != nil {
				return err
			}
			defer d.Close()
			return d.Train(ctx, func(epoch int, _, _ float64) error {
				if trained = append(trained, epoch); len(trained) == 3 {
					return fmt.Errorf("%w: as if", parts.ErrLost)
				}
				return nil
			})
		})); err != nil {
			t.Fatal(err)
		}
		want := []int{0, 1, 2, 0, 1, 2, 3, 4}
		if keeps {
			want = []int{0, 1, 2, 3, 4}
		}
		if !slices.Equal(resumes, []bool{false, keeps}) || !slices.Equal(trained, want) {
			t.Errorf("with checkpoints %v: the epochs %v, want %v; resumed %v", keeps, trained, want, resumes)
		}
	}
}
