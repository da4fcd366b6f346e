package samplers

import (
	"math"
	"runtime"
	"testing"
	"time"
)

// A quota is what a node that only samples has, whether its samplers wait for it or not; what others have of a
// processor shows where samplers wait, and is seen beside a quota if it is more than half of it.
func TestLoad(t *testing.T) {
	const ms = time.Millisecond
	none, all := math.Inf(1), float64(runtime.GOMAXPROCS(0))
	for _, x := range []struct {
		only            bool
		quota           float64
		cpu, wall, busy time.Duration
		want            float64
	}{
		{true, 0.5, 100 * ms, 110 * ms, 100 * ms, 0.5}, // it need not wait
		{true, 0.5, 100 * ms, 400 * ms, 300 * ms, 0.5},
		{true, 0.5, 100 * ms, 900 * ms, 800 * ms, 0.125},
		{false, 0.5, 100 * ms, 400 * ms, 250 * ms, 0.4},
		{false, 0.5, 100 * ms, 200 * ms, 100 * ms, 0.5},
		{true, none, 100 * ms, 110 * ms, 100 * ms, all},
		{true, none, 100 * ms, 400 * ms, 200 * ms, 0.5},
		{true, none, 0, 400 * ms, 200 * ms, all}, // not measured
	} {
		m := meter{only: x.only, quota: func() float64 { return x.quota }, work: ms, last: window{batches: 9, cpu: x.cpu, wall: x.wall, busy: x.busy}}
		if l, ok := m.load(); !ok || l.Work != ms || l.Cores != x.want {
			t.Errorf("%+v: %+v, %v", x, l, ok)
		}
	}
	if l, ok := new(meter).load(); ok {
		t.Errorf("nothing was drawn: %+v", l)
	}
}

// What a batch takes is measured over some windows: one that is off is not believed.
func TestWork(t *testing.T) {
	m := meter{quota: func() float64 { return 1 }}
	for i, want := range []time.Duration{4, 7, 13} { // 4, and a quarter of what is more
		m.now = window{batches: 9, cpu: 10 * time.Duration([]int{4, 16, 31}[i]) * time.Second, wall: time.Hour, busy: time.Hour}
		m.begin()()
		if got := m.work.Round(time.Second); got != want*time.Second {
			t.Errorf("window %d: %v, want %v s", i, got, want)
		}
	}
}
