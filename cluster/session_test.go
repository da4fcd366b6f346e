package cluster

import (
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
