package pool

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
)

// TestForFollowsItself runs loops so soon after each other that workers find
// the next one while they look for it, with plain memory passed from loop to
// loop: the race detector sees it if the end of a loop, found by looking, is no
// synchronisation.
func TestForFollowsItself(t *testing.T) {
	const chunks, loops = 7, 500
	for _, size := range []int{2, 3} {
		for _, spin := range []bool{true, false} {
			t.Run(fmt.Sprint(size, spin), func(t *testing.T) {
				p := New(size)
				defer p.Close()
				// Workers read spin no sooner than after their first loop.
				p.spin = spin
				from, to := make([]int, chunks), make([]int, chunks)
				for range loops {
					p.For(chunks, func(_, c int) { to[c] = from[(c+1)%chunks] + 1 })
					from, to = to, from
				}
				if want := slices.Repeat([]int{loops}, chunks); !slices.Equal(from, want) {
					t.Errorf("chunks computed %v, want %v", from, want)
				}
			})
		}
	}
}

// TestAwaitGivesUp shows that a goroutine without work parks: await returns
// though nothing comes, and does not look where that would keep others waiting.
func TestAwaitGivesUp(t *testing.T) {
	calls := 0
	count := func() bool { calls++; return false }
	(&Pool{spin: true}).await(0, count)
	if calls < 1 {
		t.Error("await did not look")
	}
	calls = 0
	(&Pool{}).await(0, count)
	if calls != 0 {
		t.Errorf("await looked %d times where only one goroutine can run", calls)
	}
	calls = 0
	(&Pool{spin: true}).await(0, func() bool { calls++; return calls == 5 })
	if calls > 5 {
		t.Errorf("await looked %d times, the fifth was enough", calls)
	}
}

// TestAwaitLetsJobsRun shows that who looks for work does not keep a background
// job from the only processor there is.
func TestAwaitLetsJobsRun(t *testing.T) {
	p := New(1)
	defer p.Close()
	p.spin = true
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	// One time in 61 the scheduler prefers who has just yielded.
	const jobs = 20
	ran := 0
	for range jobs {
		var began atomic.Bool
		p.Go(func() error { began.Store(true); return nil }, func(error) {})
		p.await(0, began.Load)
		if began.Load() {
			ran++
		}
		p.jobs.Wait()
	}
	if ran < jobs/2 {
		t.Errorf("%d of %d jobs ran while another goroutine looked for work", ran, jobs)
	}
	if n := p.due.Load(); n != 0 {
		t.Errorf("%d jobs are due of which all have begun", n)
	}
}

// TestCloseWhileWorkersLook closes pools whose workers have just run out of
// chunks; goleak finds those that do not end.
func TestCloseWhileWorkersLook(t *testing.T) {
	for range 200 {
		p := New(3)
		p.For(3, func(int, int) {})
		p.Close()
	}
}
