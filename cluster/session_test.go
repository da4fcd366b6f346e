package cluster

import (
	"errors"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/internal/leak"
	"github.com/gnnactor/gnnactor/runtime"
)

func TestMain(m *testing.M) {
	leak.Beside(8)
	leak.Main(m)
}

// Who stops in the middle of Train has left when it is over; what cannot be joined says why, once.
func TestTrain(t *testing.T) {
	t.Parallel()
	s, dir := serve(t), t.TempDir()
	o := Options{NodeOptions: options(s, "a", dir), Config: runtime.DefaultConfig()}
	steps := 0
	for e, err := range Train(within(t), o) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == runtime.EventStep {
			steps++
			break
		}
	}
	if steps != 1 {
		t.Error("it made no step")
	}
	a := enter(t, options(s, "a", dir)) // its directory is nobody's
	if v, _ := a.Member.View(); len(v.Members) != 1 {
		t.Errorf("members %+v", v.Members)
	}
	var errs []error
	for _, err := range Train(within(t), o) {
		errs = append(errs, err)
	}
	if len(errs) != 1 || !errors.Is(errs[0], ErrInUse) {
		t.Errorf("it ends with %v", errs)
	}
}

// Statuses that are asked for all the time neither hold events up nor go back.
func TestProgressWhileTraining(t *testing.T) {
	const steps = 20000
	p := &Session{team: new(trainers.Trainers)}
	event := p.event(nil)
	over := make(chan struct{})
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for last := int64(0); ; {
				select {
				case <-over:
					return
				default:
				}
				s := p.progress()
				if s.Step < last {
					t.Errorf("step %d after step %d", s.Step, last)
					return
				}
				last = s.Step
			}
		})
	}
	for i := range int64(steps) {
		event(runtime.Event{Kind: runtime.EventStep, Applied: i + 1})
	}
	close(over)
	asking.Wait()
	if s := p.progress(); s.Step != steps {
		t.Errorf("step %d of %d", s.Step, steps)
	}
}
