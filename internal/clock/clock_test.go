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
	if o := Overlap(busy, time.Second); o != 0.8 {
		t.Errorf("overlap %v, want the longest stage's share of the wall time, 0.8", o)
	}
	if o := Overlap(busy, 0); o != 0 {
		t.Errorf("overlap without time is %v", o)
	}
}
