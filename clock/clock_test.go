package clock

import (
	"sync"
	"testing"
	"time"
)

func TestBusyAddsUp(t *testing.T) {
	var r Recorder
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				r.Add(Sample, time.Millisecond)
				r.Add(Compute, 2*time.Millisecond)
			}
		})
	}
	wg.Wait()
	busy := r.Busy()
	if busy[Sample] != 400*time.Millisecond || busy[Compute] != 800*time.Millisecond || busy[Load] != 0 {
		t.Errorf("busy %v", busy)
	}
	if o := Overlap(busy, [Stages]int{}, time.Second); o != 0.8 {
		t.Errorf("overlap %v, want the longest stage's share of the wall time, 0.8", o)
	}
	if o := Overlap(busy, [Stages]int{Compute: 4}, time.Second); o != 0.4 {
		t.Errorf("overlap %v, want 0.4: four trainers share 0.8 s, and one sampler has 0.4", o)
	}
	if o := Overlap(busy, [Stages]int{}, 0); o != 0 {
		t.Errorf("overlap without time is %v", o)
	}
}
