package clock_test

import (
	"fmt"
	"time"

	"github.com/gnnactor/gnnactor/clock"
)

func ExampleRecorder() {
	now := time.Unix(0, 0)
	r := clock.At(func() time.Time { return now }) // new(clock.Recorder) reads the time
	sample := r.Begin(clock.Sample)
	now = now.Add(30 * time.Millisecond)
	compute := r.Begin(clock.Compute)
	now = now.Add(50 * time.Millisecond)
	sample.End("train/e0/b1")
	compute.End("train/e0/b0")
	busy := r.Busy()
	fmt.Println(clock.Sample, busy[clock.Sample], clock.Compute, busy[clock.Compute])
	fmt.Println(clock.Overlap(busy, [clock.Stages]int{}, 80*time.Millisecond))
	// Output:
	// sample 80ms compute 50ms
	// 1
}
