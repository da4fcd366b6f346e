package sampling

import (
	"context"
	"fmt"
	"iter"
	"sync"
)

// Ready samples the micro-batches that plan lists, with their seeds, on
// samplers goroutines which run up to depth batches ahead, and yields them in
// the order of plan: the pool of ready subgraphs of Zeng et al., for programs that
// do not run the dataflow. A batch belongs to the caller until the next one is
// yielded. After an error, that of ctx included, nothing follows. All goroutines
// have ended when the sequence has.
//
// plan is run on another goroutine, and what it yields must not change
// afterwards.
func (p *Prepared) Ready(ctx context.Context, seed uint64, samplers, depth int, plan iter.Seq2[ID, []uint32]) iter.Seq2[*Batch, error] {
	samplers = max(samplers, 1)
	depth = max(depth, samplers)
	return func(yield func(*Batch, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()

		free := make(chan *ready, depth)
		for range depth {
			free <- &ready{done: make(chan struct{}, 1)}
		}
		order := make(chan *ready, depth) // as plan has them
		work := make(chan *ready, depth)
		wg.Go(func() {
			defer close(order)
			defer close(work)
			for id, seeds := range plan {
				select {
				case r := <-free:
					r.batch.ID, r.seeds = id, seeds
					order <- r // neither blocks: there are depth of them
					work <- r
				case <-ctx.Done():
					return
				}
			}
		})
		for range samplers {
			wg.Go(func() {
				s := p.NewSampler()
				for r := range work {
					if r.err = ctx.Err(); r.err == nil {
						r.err = s.Sample(&r.batch, r.batch.ID.Key(seed), r.seeds) // under Guard
					}
					r.done <- struct{}{}
				}
			})
		}
		for r := range order {
			<-r.done
			if r.err != nil {
				yield(nil, fmt.Errorf("%v: %w", r.batch.ID, r.err))
				return
			}
			if !yield(&r.batch, nil) {
				return
			}
			free <- r
		}
		if err := ctx.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// ready is a batch on its way through a pool.
type ready struct {
	batch Batch
	seeds []uint32
	err   error
	done  chan struct{}
}
