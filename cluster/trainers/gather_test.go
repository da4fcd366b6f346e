package trainers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// What trainers tell each other comes to all of them, some of whom are a number ahead of others, beside sums that
// are made.
func TestGather(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, n := range []int{1, 2, 5} {
		all := nodes(t, n)
		var wg sync.WaitGroup
		for i, x := range all {
			wg.Go(func() {
				for number := int64(0); number < 40; number += 4 {
					told, err := x.group.Gather(ctx, number, fmt.Append(nil, number, " by ", i))
					if err != nil {
						t.Errorf("%d trainers, number %d: %v", n, number, err)
						return
					}
					for j, b := range told {
						if string(b) != fmt.Sprint(number, " by ", j) {
							t.Errorf("trainer %d tells %q under %d", j, b, number)
						}
					}
				}
			})
			wg.Go(func() {
				parts := gradients(3, n, 1000)
				for number := range int64(20) {
					mine, meta := partsOf(parts, n, i)
					if _, err := x.group.AllReduce(ctx, number, make([]float32, 1000), mine, meta); err != nil {
						t.Errorf("%d trainers, step %d: %v", n, number, err)
						return
					}
				}
			})
		}
		wg.Wait()
		for _, x := range all {
			if len(x.group.told) > 2 {
				t.Errorf("%d numbers are kept", len(x.group.told))
			}
			if _, err := x.group.Gather(ctx, 36, nil); err == nil {
				t.Error("a number was told twice")
			}
			if _, err := x.group.Gather(ctx, 8, nil); err == nil {
				t.Error("a number was told again that was over")
			}
		}
	}
}

// Who waits for what another one tells hears at once that the group is over, or that one is gone; a pipeline that ends
// leaves the group as it is.
func TestGatherEnds(t *testing.T) {
	for name, end := range map[string]func(*node){
		"the group is closed": func(x *node) { x.group.Close() },
		"a node is gone":      func(x *node) { x.plane.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			all := nodes(t, 3)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := all[0].group.Gather(ctx, 0, nil); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			select {
			case <-all[0].group.closed:
				t.Error("the group is closed by who is interrupted")
			default:
			}
			var wg sync.WaitGroup
			for _, x := range all[:2] {
				wg.Go(func() {
					if _, err := x.group.Gather(t.Context(), 1, nil); err == nil {
						t.Error("it did not end")
					}
					<-x.group.closed
				})
			}
			end(all[2])
			wg.Wait()
		})
	}
}

// Who hears that another one has left the group, before it hears so itself, keeps what peers lack of the step that was
// made last: all make it or none.
func TestGatherEndsAfterStep(t *testing.T) {
	const micros, size = 3, 9
	all := nodes(t, 3)
	var wg sync.WaitGroup
	for i, x := range all {
		parts, meta := partsOf(gradients(1, micros, size), len(all), i)
		wg.Go(func() {
			if _, err := x.group.AllReduce(t.Context(), 1, make([]float32, size), parts, meta); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	all[2].group.End()
	a, b := all[0], all[1]
	if _, err := a.group.Gather(t.Context(), 0, nil); err == nil {
		t.Error("one has left, and all were told of")
	}
	<-a.group.closed
	parts, meta := partsOf(gradients(2, micros, size), len(all), 0)
	if _, err := a.group.AllReduce(t.Context(), 2, make([]float32, size), parts, meta); !errors.Is(err, ErrRegroup) {
		t.Errorf("a step of a group that is over: %v", err)
	}
	for _, k := range []cellKey{{kind: metaCell}, {kind: resultCell}} {
		if _, err := b.group.get(t.Context(), 0, 1, k, nil, 1<<20); err != nil {
			t.Errorf("part %v of the last step: %v", k, err)
		}
	}
}
