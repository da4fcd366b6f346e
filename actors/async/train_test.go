package async

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gnnactor/gnnactor/messages"
)

// Worker computes the batches of one trainer, as the actors of a pipeline do. It has room for two: while the
// gradient of one is computed the next is sampled. Sample and Gradient may be
// called at the same time, for different places.
type Worker interface {
	// Sample readies the batch of a step in place 0 or 1.
	Sample(ctx context.Context, place int, step int64) error
	// Gradient overwrites grad with the gradient of the batch in a place.
	Gradient(grad, params []float32, place int, step int64) (messages.Stats, error)
}

// Train has a trainer compute until every batch is applied, or ctx ends. size is
// how many parameters there are.
func Train(ctx context.Context, p Parameters, trainer string, w Worker, size int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type batch struct {
		place int
		step  int64
	}
	ready, free := make(chan batch), make(chan int, 2)
	free <- 0
	free <- 1
	var sampling sync.WaitGroup
	defer sampling.Wait()
	defer cancel(nil)
	var ended error
	sampling.Go(func() {
		defer close(ready)
		for {
			var b batch
			select {
			case b.place = <-free:
			case <-ctx.Done():
				ended = context.Cause(ctx)
				return
			}
			if b.step, ended = p.Deal(ctx, trainer); ended != nil {
				return
			}
			if ended = w.Sample(ctx, b.place, b.step); ended != nil {
				ended = fmt.Errorf("step %d: %w", b.step, ended)
				return
			}
			select {
			case ready <- b:
			case <-ctx.Done():
				ended = context.Cause(ctx)
				return
			}
		}
	})
	grad := make([]float32, size)
	for b := range ready {
		if err := compute(ctx, p, trainer, w, grad, b.place, b.step); err != nil && !errors.Is(err, ErrOver) {
			return err
		}
		free <- b.place
	}
	if errors.Is(ended, ErrOver) {
		return nil
	}
	return ended
}

func compute(ctx context.Context, p Parameters, trainer string, w Worker, grad []float32, place int, step int64) error {
	v, err := p.Read(ctx, trainer, step)
	if err != nil {
		return err
	}
	if len(v.Params) != len(grad) {
		v.Release()
		return fmt.Errorf("async: %d parameters where this trainer has %d; all nodes must run one configuration", len(v.Params), len(grad))
	}
	stats, err := w.Gradient(grad, v.Params, place, step)
	version := v.Number
	v.Release()
	if err != nil {
		return fmt.Errorf("step %d: %w", step, err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.Push(ctx, trainer, Push{Step: step, Version: version, Stats: stats, Data: grad})
}
