package pool

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestForCallsEachChunkOnce(t *testing.T) {
	for _, size := range []int{0, 1, 2, 5} {
		p := New(size)
		for _, chunks := range []int{0, 1, 2, 7, 1000} {
			calls := make([]atomic.Int32, chunks)
			busy := make([]atomic.Bool, p.Size())
			p.For(chunks, func(worker, chunk int) {
				if busy[worker].Swap(true) {
					t.Errorf("worker %d runs two chunks at once", worker)
				}
				calls[chunk].Add(1)
				busy[worker].Store(false)
			})
			for c := range calls {
				if n := calls[c].Load(); n != 1 {
					t.Errorf("size %d: chunk %d of %d ran %d times", size, c, chunks, n)
				}
			}
		}
		p.Close()
	}
}

// ForOn keeps to its number of goroutines, and calls every chunk all the same.
func TestForOn(t *testing.T) {
	p := New(4)
	defer p.Close()
	for n := range 7 {
		var calls atomic.Int32
		const loops, chunks = 300, 32
		for range loops {
			var workers [4]atomic.Int32
			p.ForOn(n, chunks, func(worker, _ int) {
				calls.Add(1)
				for range 200 { // long enough for others to come
					workers[worker].Add(1)
				}
			})
			came := 0
			for w := range workers {
				came += int(min(workers[w].Load(), 1))
			}
			if came > max(n, 1) {
				t.Fatalf("%d goroutines: %d workers came", n, came)
			}
		}
		if calls.Load() != loops*chunks {
			t.Errorf("%d goroutines: %d calls of %d", n, calls.Load(), loops*chunks)
		}
	}
}

// A worker has the same chunks of its own in every loop, and those of a worker that
// does not come are run by who does.
func TestForKeepsToItsOwn(t *testing.T) {
	p := New(2)
	defer p.Close()
	const chunks = 8
	for range 100 {
		var first [2]atomic.Int32 // a worker's first chunk, and one more
		var both sync.WaitGroup
		both.Add(2)
		p.For(chunks, func(worker, c int) {
			if first[worker].CompareAndSwap(0, int32(c+1)) {
				both.Done()
				both.Wait() // so that neither begins with what is the other's
			}
		})
		if a, b := first[0].Load()-1, first[1].Load()-1; a != 0 || b != chunks/2 {
			t.Fatalf("the workers began with chunks %d and %d of %d", a, b, chunks)
		}
	}
	// The only other worker is kept in a loop while this one runs.
	held, done := make(chan struct{}), make(chan struct{})
	var both, over sync.WaitGroup
	both.Add(2)
	over.Go(func() {
		p.For(2, func(worker, _ int) {
			both.Done()
			both.Wait()
			if worker == 0 {
				close(held)
			}
			<-done
		})
	})
	<-held
	var ran [chunks]int
	p.For(chunks, func(_, c int) { ran[c]++ })
	close(done)
	over.Wait()
	for c, n := range ran {
		if n != 1 {
			t.Errorf("chunk %d ran %d times without the other worker", c, n)
		}
	}
}

// Loops may be started from many goroutines, and from within chunks.
func TestForNests(t *testing.T) {
	p := New(3)
	defer p.Close()
	var n atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			p.For(5, func(int, int) { p.For(6, func(int, int) { n.Add(1) }) })
		})
	}
	wg.Wait()
	if n.Load() != 4*5*6 {
		t.Errorf("%d of %d inner chunks ran", n.Load(), 4*5*6)
	}
}

func TestForPassesPanicsOn(t *testing.T) {
	broken := errors.New("broken")
	for _, size := range []int{1, 3} {
		p := New(size)
		func() {
			defer func() {
				r := recover()
				err, ok := r.(error)
				if !ok || !errors.Is(err, broken) {
					t.Errorf("size %d: recovered %v", size, r)
				}
			}()
			p.For(10, func(_, c int) {
				if c == 4 {
					panic(broken)
				}
			})
		}()
		ran := false
		p.For(1, func(int, int) { ran = true })
		if !ran {
			t.Error("the pool does not survive a panic")
		}
		p.Close()
	}
}

func TestCloseWaitsForJobs(t *testing.T) {
	p := New(2)
	var done atomic.Bool
	gate := make(chan struct{})
	p.Go(func() error { <-gate; return nil }, func(error) { done.Store(true) })
	close(gate)
	p.Close()
	if !done.Load() {
		t.Error("Close returned before the job")
	}
}

func TestForDoesNotAllocate(t *testing.T) {
	p := New(2)
	defer p.Close()
	var sum atomic.Int64
	f := func(_, c int) { sum.Add(int64(c)) }
	if n := testing.AllocsPerRun(100, func() { p.For(8, f) }); n > 0.5 {
		t.Errorf("%.1f allocations per loop", n)
	}
}

func BenchmarkFor(b *testing.B) {
	p := New(2)
	defer p.Close()
	for b.Loop() {
		p.For(2, func(int, int) {})
	}
}

// A worker that was busy elsewhere while loops came and went helps with the one
// that runs: what is left in the queue of those that are over does not hide it.
func TestForIsOfferedPastLoopsThatAreOver(t *testing.T) {
	p := New(2)
	defer p.Close()
	held, free, done := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		p.For(2, func(int, int) {
			held <- struct{}{}
			<-free
		})
	}()
	<-held
	<-held // the only worker runs one of the two chunks
	for range 8 {
		p.For(2, func(int, int) {})
	}
	var begun atomic.Int32
	both := make(chan struct{})
	p.For(2, func(_, chunk int) {
		switch begun.Add(1) {
		case 1:
			close(free)
		case 2:
			close(both)
			return
		}
		select {
		case <-both:
		case <-time.After(time.Minute):
			t.Error("the worker did not come to help within a minute")
			<-done // the worker is free all the same
		}
	})
	<-done
}
