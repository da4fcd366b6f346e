package cpu

import (
	"testing"

	"github.com/gnnactor/gnnactor/pool"
)

// An Exec keeps to the threads that it was given, until it gets all again.
func TestSetThreads(t *testing.T) {
	p := pool.New(3)
	defer p.Close()
	x := NewExec(p, Go)
	// used returns whether a worker but the caller had a chunk.
	used := func() bool {
		var on [3]bool
		x.For(64, func(worker, _ int) { on[worker] = true })
		return on[1] || on[2]
	}
	x.SetThreads(1)
	for range 1000 {
		if used() {
			t.Fatal("a second thread had a chunk")
		}
	}
	x.SetThreads(0)
	for !used() {
		if t.Context().Err() != nil {
			t.Fatal("no second thread ever had a chunk")
		}
	}
}
