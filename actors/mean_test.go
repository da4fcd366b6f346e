package actors

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// counter is a Gradienter whose gradient is the number of seeds.
type counter struct{}

func (counter) Gradient(grad, _ []float32, b *sampling.Batch, _ Rows, _ rng.Key) (messages.Stats, error) {
	grad[0] = float32(len(b.Seeds))
	return messages.Stats{Weight: float64(len(b.Seeds)), Count: len(b.Seeds)}, nil
}

// recorder is an Updater that keeps the gradients it is given.
type recorder struct{ got []float32 }

func (r *recorder) Params() []float32 { return []float32{0} }
func (r *recorder) Apply(parts [][]float32, weight float64) {
	r.got = append(r.got, mean(parts, weight)[0])
}

// What is applied is the mean over the global batch's seeds: the sum over its
// micro-batches, however uneven, divided once by the weight of all.
func TestMeanGradientIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := ring(nodes, 9)
		for _, micro := range []int{1, 3, 7} {
			system, p, r := quiet(), pool.New(2), &recorder{}
			s, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{2}}, g)
			if err != nil {
				t.Fatal(err)
			}
			seeds := make([]uint32, 25)
			for i := range seeds {
				seeds[i] = uint32(i)
			}
			pl, err := Start(Config{
				System: system, Pool: p, Clock: new(clock.Recorder), Samplers: []sampling.Sampler{s}, Credits: 2,
				Work:     Work{Phase: "train", Nodes: seeds, BatchSize: 10, Micro: micro, Epochs: 1},
				Trainers: []Gradienter{counter{}}, Updater: r,
			})
			if err != nil {
				t.Fatal(err)
			}
			pl.Proceed(0)
			for range 3 { // batches of 10, 10 and 5
				if _, err := pl.Next(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			pl.Stop()
			system.Shutdown()
			p.Close()
			if len(r.got) != 3 || r.got[0] != 1 || r.got[1] != 1 || r.got[2] != 1 {
				t.Errorf("%d micro-batches: the gradients applied are %v; each seed's is 1", micro, r.got)
			}
		}
	})
}
