package async_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/messages"
)

// slope is y = a·x, whose one parameter takes gradient steps.
type slope struct{ a [1]float32 }

func (s *slope) Params() []float32 { return s.a[:] }

func (s *slope) Apply(g *async.Push) error {
	s.a[0] -= 0.1 * g.Data[0]
	return nil
}

// sampled computes the gradient of (a·x − 3x)², a batch being one x.
type sampled struct{ x [2]float32 }

func (w *sampled) Sample(_ context.Context, place int, step int64) error {
	w.x[place] = 1 + float32(step%2)/2
	return nil
}

func (w *sampled) Gradient(grad, params []float32, place int, _ int64) (messages.Stats, error) {
	x := w.x[place]
	grad[0] = 2 * (params[0] - 3) * x * x
	return messages.Stats{Count: 1}, nil
}

// Two trainers make the 40 steps of an epoch, none with a gradient over 2 steps late.
func ExampleTrain() {
	ctx := context.Background()
	quiet := actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) })
	system, model := actor.NewActorSystem(quiet), new(slope)
	defer system.Shutdown()
	owner := async.NewOwner(async.Options{System: system, Model: model, Bound: 2, End: 40})
	defer owner.Close()
	var trainers sync.WaitGroup
	for i := range 2 {
		trainers.Go(func() {
			if err := async.Train(ctx, owner, async.Name("a", i), new(sampled), 1); err != nil {
				log.Print(err)
			}
		})
	}
	steps, late := 0, int64(0)
	for {
		s, err := owner.Next(ctx)
		if err != nil {
			fmt.Println(err)
			break
		}
		steps, late = steps+1, max(late, s.Stale)
	}
	trainers.Wait()
	fmt.Printf("%d steps, at most 2 late: %t; a = %.2f\n", steps, late <= 2, model.a[0])
	// Output:
	// async: every batch is applied
	// 40 steps, at most 2 late: true; a = 3.00
}
