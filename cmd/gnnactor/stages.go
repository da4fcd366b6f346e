package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/internal/machinelimits"
)

// stages notes what the kernels of a step, and its sampling, take.
type stages struct {
	mu    sync.Mutex // the sampler may be another goroutine's
	at    int        // calls seen in this step
	order []*stage
	other []float64 // seconds of a step that no stage took, one for each repeat
	found map[stageKey]*stage
}

// stageKey tells a step's calls apart: sizes that depend on the batch are not in it.
type stageKey struct {
	at     int
	kernel string
	n      int
}

// stage is one of a step's calls, summed over steps.
type stage struct {
	at      int
	call    cpu.Call // of all steps
	calls   int
	did     work
	took    time.Duration // since the last take
	seconds []float64     // of a step, one for each repeat
}

// otherStage is what no stage takes of a step.
const otherStage = "other"

func newStages() *stages { return &stages{found: map[stageKey]*stage{}} }

// step is told that a step begins.
func (s *stages) step() { s.at = 0 }

// kernel takes down a call.
func (s *stages) kernel(c cpu.Call, took time.Duration) {
	s.at++
	s.note(stageKey{s.at, c.Kernel, c.N}, c, took)
}

// sampled takes down a batch that was sampled.
func (s *stages) sampled(edges int, took time.Duration) {
	s.note(stageKey{0, sampleStage, 0}, cpu.Call{Kernel: sampleStage, K: edges}, took)
}

const sampleStage = "sample"

func (s *stages) note(key stageKey, c cpu.Call, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.found[key]
	if st == nil {
		st = &stage{at: key.at}
		s.found[key] = st
		s.order = append(s.order, st)
	}
	st.calls++
	st.call.Kernel = c.Kernel
	st.call.M, st.call.N, st.call.K = st.call.M+c.M, st.call.N+c.N, st.call.K+c.K
	st.did.add(stageWork(c))
	st.took += took
}

// forget makes as if nothing had been taken down.
func (s *stages) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order, s.other = nil, nil
	clear(s.found)
}

// take ends a repeat of so many steps, in so many threads, which took so many seconds.
func (s *stages) take(steps, threads int, seconds float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	other := seconds / float64(steps)
	for _, st := range s.order {
		took := st.took.Seconds() / float64(steps)
		if st.call.Kernel != sampleStage || threads == 1 { // else it is beside the step
			other -= took
		}
		st.seconds = append(st.seconds, took)
		st.took = 0
	}
	s.other = append(s.other, other)
}

// figures divides every stage by its own limit.
func (s *stages) figures(name string, threads, steps int, limits map[machinelimits.Limit]float64) []benchFigure {
	var all []benchFigure
	slices.SortStableFunc(s.order, func(a, b *stage) int { return a.at - b.at })
	for i, st := range s.order {
		c, calls, n := st.call, float64(st.calls), float64(steps)
		of := stageLimit(c.Kernel)
		unit, size := of.Unit()
		f := benchFigure{Name: fmt.Sprintf("%s/%02d %s", name, i+1, c.Kernel), Threads: threads, Unit: unit, LimitName: of, Limit: limits[of],
			FLOP: st.did.flop / n, Bytes: st.did.bytes / n, Edges: st.did.edges / n, Seconds: median(st.seconds)}
		if c.Kernel != sampleStage {
			f.Name += fmt.Sprintf(" %.0fx%.0fx%.0f", float64(c.M)/calls, float64(c.N)/calls, float64(c.K)/calls)
		}
		did := work{f.FLOP, f.Bytes, f.Edges}
		f.Achieved = did.against(of) / f.Seconds / size
		f.Ratio = f.Achieved / f.Limit
		all = append(all, f)
	}
	unit, _ := machinelimits.FMA32.Unit()
	return append(all, benchFigure{Name: name + "/" + otherStage, Threads: threads, Seconds: median(s.other), Unit: unit, Limit: limits[machinelimits.FMA32], LimitName: machinelimits.FMA32})
}

// stageLimits are those that stageLimit chooses from.
var stageLimits = []machinelimits.Limit{machinelimits.FMA32, machinelimits.Gather512, machinelimits.Random8, machinelimits.Read}

// stageLimit returns what a kernel is divided by.
func stageLimit(kernel string) machinelimits.Limit {
	switch kernel {
	case "gemm-nn", "gemm-nt", "gemm-tn", "gemm-add", "gemm-both":
		return machinelimits.FMA32
	case "aggregate", "aggregate-backward":
		return machinelimits.Gather512
	case "transpose", sampleStage:
		return machinelimits.Random8
	}
	return machinelimits.Read
}

// stageWork is what a call does at least, in float32.
func stageWork(c cpu.Call) work {
	m, n, k := float64(c.M), float64(c.N), float64(c.K)
	switch stageLimit(c.Kernel) {
	case machinelimits.FMA32:
		return work{flop: 2 * m * n * k, bytes: 4 * (m*k + k*n + m*n)}
	case machinelimits.Gather512:
		return work{flop: n * k, bytes: 4 * n * k, edges: k}
	case machinelimits.Random8:
		return work{edges: k}
	}
	values := map[string]float64{"column-sums": 1, "fill": 1, "copy": 2, "gather": 2, "scale": 2, "dropout": 2, "loss": 2, "adam": 7}[c.Kernel]
	if values == 0 {
		values = 3 // two operands and the result
	}
	return work{bytes: 4 * values * m * n}
}
