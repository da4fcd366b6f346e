package actors

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/drawn"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// inserts two stages after sample, that drop entries, and two after load, that copy rows
// and change them; none may have more batches at once than its limit.
func inserts(t *testing.T, r *rand.Rand) func(c *Config, table *graph.Features) {
	limits := []int{1 + r.IntN(4), 1 + r.IntN(4), 1 + r.IntN(4), 1 + r.IntN(4)}
	return func(c *Config, table *graph.Features) {
		working := make([]atomic.Int64, len(limits))
		stage := func(i int, do Inserted) Inserted {
			process := do.Process
			do.Name, do.Clock, do.Limit = "own", clock.Own+clock.Stage(i), limits[i]
			do.Process = func(ctx context.Context, b *sampling.Batch, rows Rows, x []float32) ([]float32, error) {
				if n := working[i].Add(1); n > int64(limits[i]) {
					t.Errorf("stage %d works on %d batches, and may on %d", i, n, limits[i])
				}
				defer working[i].Add(-1)
				return process(ctx, b, rows, x)
			}
			return do
		}
		drop := func(n uint32) Inserted {
			return Inserted{Process: func(_ context.Context, b *sampling.Batch, _ Rows, _ []float32) ([]float32, error) {
				ids := b.Inputs()
				b.Blocks[0].Keep(func(dst, src uint32, _ int) bool { return (ids[dst]+ids[src])%n != 0 })
				return nil, nil
			}}
		}
		c.AfterSample = []Inserted{stage(0, drop(5)), stage(1, drop(7))}
		double := Inserted{Process: func(_ context.Context, b *sampling.Batch, rows Rows, x []float32) ([]float32, error) {
			if rows.X == nil {
				ids := b.Inputs()
				if rows.Slots != nil {
					ids = rows.Slots
				}
				x = slices.Grow(x[:0], len(ids)*featureCols)[:len(ids)*featureCols]
				for i, id := range ids {
					table.Row(x[i*featureCols:(i+1)*featureCols], int(id))
				}
			}
			for i := range x {
				x[i] = 2*x[i] + float32(b.Inputs()[i/featureCols])
			}
			return x, nil
		}}
		c.AfterLoad = []Inserted{stage(2, double), stage(3, double)}
	}
}

// Metamorphic: with stages of the program's own, whatever the plan, the bits are the same:
// rows that were copied stay when their slots are given to others.
func TestInsertedBits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := drawn.Cases(t)
		for _, window := range []int{0, 3} {
			base := plainMemoryJob()
			base.direct, base.window, base.micro, base.credits, base.samplers = true, window, 3, 12, 1
			plain, _, err := base.run(t, context.Background())
			if err != nil {
				t.Fatal(err)
			}
			base.insert = inserts(t, r)
			want, _, err := base.run(t, context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if slices.Equal(plain, want) {
				t.Error("the stages change nothing")
			}
			for range 8 {
				j := base
				j.direct, j.samplers, j.trainers, j.threads, j.ahead = r.IntN(3) == 0, 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(3)
				j.insert = inserts(t, r)
				j.slots, j.keep = nodes, 0
				got, _, err := j.run(t, context.Background())
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("%+v: the bits differ, or %v", j, err)
				}
			}
		}
	})
}

// One that fails ends the pipeline with an error that names batch and stage; others work
// or wait meanwhile, and end with Stop.
func TestInsertedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for _, late := range []bool{false, true} {
			for _, panics := range []bool{false, true} {
				j := plainMemoryJob()
				j.direct = late
				j.insert = func(c *Config, _ *graph.Features) {
					s := Inserted{Name: "mine", Clock: clock.Own, Limit: 3, Process: func(ctx context.Context, b *sampling.Batch, _ Rows, x []float32) ([]float32, error) {
						if b.ID.Batch > 4 {
							<-ctx.Done() // until Stop
							return nil, ctx.Err()
						}
						if b.ID.Batch == 4 && panics {
							panic(broken)
						}
						if b.ID.Batch == 4 {
							return nil, broken
						}
						return make([]float32, b.NumInputs()*featureCols), nil
					}}
					c.AfterSample = []Inserted{s}
					if late {
						c.AfterSample, c.AfterLoad = nil, c.AfterSample
					}
				}
				// By one sampler the fifth batch comes before those that wait, and finds room.
				j.threads, j.samplers, j.credits = 4, 1, 8
				_, _, err := j.run(t, context.Background())
				var f *messages.Failed
				if !errors.As(err, &f) || !strings.HasPrefix(err.Error(), "train/e0/b4: mine: ") || !strings.Contains(err.Error(), "broken") || !errors.Is(err, broken) {
					t.Errorf("late %v, panics %v: %v", late, panics, err)
				}
			}
		}
	})
}

// A stage that may have no batch at all is refused.
func TestInsertedWithoutLimit(t *testing.T) {
	g := ring(nodes, 9)
	s, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{2}}, g)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(Config{Samplers: []sampling.Sampler{s}, Credits: 1, Work: Work{BatchSize: 1, Micro: 1}, AfterLoad: []Inserted{{Name: "mine"}}})
	if err == nil || !strings.Contains(err.Error(), "stage mine may work on 0 batches at once") {
		t.Error(err)
	}
}
