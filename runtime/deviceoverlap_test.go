//go:build linux && amd64 && !nogpu

package runtime

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// The sizes of meetingData, whose every batch has all of its rows for itself.
const (
	meetingBatches, meetingBatch, meetingLeaves = 16, 6, 4
	meetingCols                                 = 8
)

// meetingData has nodes to train with that have leaves of their own. The features of node v are
// ±(v+1)/1024 by turns, so that a copy says whose rows it has.
func meetingData() *graph.Dataset {
	const train = meetingBatches * meetingBatch
	const n = train * (1 + meetingLeaves)
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	x := make([]float32, n*meetingCols)
	labels := make([]int32, n)
	ds := &graph.Dataset{Graph: g, Name: "meeting"}
	for v := range n {
		if v < train {
			ds.Train = append(ds.Train, uint32(v))
			for l := range meetingLeaves {
				g.Indices = append(g.Indices, uint32(train+v*meetingLeaves+l))
			}
		}
		g.Indptr[v+1] = int64(len(g.Indices))
		labels[v] = int32(v % 2)
		for j := range meetingCols {
			x[v*meetingCols+j] = float32(v+1) / 1024 * float32(1-j%2*2)
		}
	}
	ds.NodeFeatures = graph.NewFeatures(n, meetingCols, x)
	ds.Labels = &graph.Labels{NumClasses: 2, Class: labels}
	return ds
}

// firstRow returns the node whose row data begins with, if it begins with one of meetingData's.
func firstRow(data []byte) (uint32, bool) {
	if len(data) < 4*meetingCols {
		return 0, false
	}
	at := func(j int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(data[4*j:])) }
	v := at(0)*1024 - 1
	ok := v >= 0 && v == float32(uint32(v))
	for j := range meetingCols {
		ok = ok && at(j) == at(0)*float32(1-j%2*2)
	}
	return uint32(v), ok
}

// meetings hold a kernel of batch k, a copy of rows of batch k+1 and the sampling of batch k+2 until all
// three are under way: those that begin when the first batch is over, in which a queue's memory grows, for which
// the driver waits for all streams.
type meetings struct {
	mu     sync.Mutex
	first  int // k from which they meet; 0: the first batch is not over
	came   [meetingBatches][3]bool
	all    [meetingBatches]chan struct{}
	batch  map[uint32]int // that a node is sampled for
	failed error          // a meeting that was not
	over   chan struct{}  // closed then, so that the run ends
}

const computes, copies, samples = 0, 1, 2

func newMeetings() *meetings {
	m := &meetings{batch: map[uint32]int{}, over: make(chan struct{})}
	for k := range m.all {
		m.all[k] = make(chan struct{})
	}
	return m
}

// meet tells that what is under way for a batch, and waits for the others.
func (m *meetings) meet(what, batch int) {
	k := batch - what
	if k < 0 || k+samples >= meetingBatches {
		return
	}
	m.mu.Lock()
	if what == computes && k == 1 {
		for m.first = 1; m.came[m.first][copies] || m.came[m.first][samples]; m.first++ {
		}
	}
	if m.came[k][what] = true; m.first == 0 || k < m.first {
		m.mu.Unlock()
		return
	}
	if m.came[k] == [3]bool{true, true, true} {
		select {
		case <-m.all[k]:
		default:
			close(m.all[k])
		}
	}
	m.mu.Unlock()
	select {
	case <-m.all[k]:
	case <-m.over:
	case <-time.After(20 * time.Second): // a pipeline that never does it
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.failed != nil {
			return
		}
		var missing []string
		for w, text := range []string{"no kernel of batch %d's loss began", "no copy of batch %d's rows began", "batch %d was not sampled"} {
			if !m.came[k][w] {
				missing = append(missing, fmt.Sprintf(text, k+w))
			}
		}
		m.failed = fmt.Errorf("%s of batch %d was held: %s meanwhile", []string{"a kernel", "a copy", "sampling"}[what], batch, strings.Join(missing, ", and "))
		close(m.over)
	}
}

// sampled tells whose rows a batch has.
func (m *meetings) sampled(id sampling.ID, nodes []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range nodes {
		m.batch[v] = id.Batch
	}
}

// meetingSampler is a sampler of the processor's that meets.
type meetingSampler struct {
	of sampling.Sampler
	m  *meetings
}

func (s meetingSampler) Sample(b *sampling.Batch, key rng.Key, seeds []uint32) error {
	id := b.ID
	if id.Phase == "train" {
		s.m.meet(samples, id.Batch)
	}
	err := s.of.Sample(b, key, seeds)
	if err == nil && id.Phase == "train" {
		s.m.sampled(id, b.Inputs())
	}
	return err
}

// meetingDevice is a device's sampler, whose kernels meet.
type meetingDevice struct {
	devices.Sampler
	m    *meetings
	turn sync.Mutex
	now  chan int // the batch that is drawn, until a kernel of its met
}

func (s *meetingDevice) Sample(to devices.Blocks, key rng.Key, seeds []uint32, cache devices.Cache, again any) (any, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	b := to.(*sampling.Batch)
	s.now <- b.ID.Batch
	there, err := s.Sampler.Sample(to, key, seeds, cache, again)
	if err == nil {
		s.m.sampled(b.ID, b.Inputs())
	}
	return there, err
}

// While a kernel of a batch runs rows of the next one go over the bus, and the one after that is sampled, by the
// processor or the device: each waits here until the others are under way. The clock has time of all three, and of
// the spans of a trace those of copies and sampling overlap with those of computing.
func TestDeviceOverlaps(t *testing.T) {
	if fakecuda.Real() {
		t.Skip("only the emulated driver holds kernels")
	}
	for _, where := range []string{onProcessor, onDevice} {
		t.Run(where, func(t *testing.T) {
			d := fakecuda.Use(t)
			m := newMeetings()
			c := DefaultConfig()
			c.Data.Dataset, c.Training.Epochs, c.Training.EvalEvery, c.Sampling.BatchSize, c.Execution.Device = meetingData(), 1, 0, meetingBatch, "cuda"
			c.Model.Hidden, c.Sampling.Fanouts, c.Execution.SampleOn, c.Execution.Threads, c.Execution.Spans = 8, []int{3, 3}, where, 2, 1000
			c.Execution.Samplers = 1                        // a sampler that is held holds a thread
			c.Memory.Match, c.Memory.Pinned = "on", "20MiB" // which is too little for the table, so that rows are copied
			c.Memory.Loaders = 1                            // of several the later batch's rows might go over first
			if where == onProcessor {
				c.Execution.SampleOn, c.Sampling.Sampler = "", "meeting"
				c.Sampling.Own = &OwnSampler{Version: "1", New: func(ds *graph.Dataset, spec sampling.Spec) (sampling.Sampler, error) {
					p, err := sampling.Prepare(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: spec.Fanouts}, ds, 1)
					if err != nil {
						return nil, err
					}
					return meetingSampler{p.NewSampler(), m}, nil
				}}
			}
			r := started(t, c)
			if p := r.Plan(); !p.DeviceSlab || p.Registered != 0 {
				t.Fatalf("plan %v", p)
			}
			drawn := make(chan int, 1)
			if where == onDevice {
				r.drawn = &meetingDevice{Sampler: r.drawn, m: m, now: drawn}
			}
			computed, copied := 0, map[int]bool{}
			var mu sync.Mutex
			d.Watch(func(w fakecuda.Work) {
				switch v, rows := firstRow(w.Data); {
				case rows:
					m.mu.Lock()
					batch := m.batch[v]
					m.mu.Unlock()
					mu.Lock()
					first := !copied[batch]
					copied[batch] = true
					mu.Unlock()
					if first {
						m.meet(copies, batch)
					}
				case w.What == "softmax_loss":
					mu.Lock()
					batch := computed
					computed++
					mu.Unlock()
					m.meet(computes, batch)
				case strings.HasPrefix(w.What, "sample_"):
					select {
					case batch := <-drawn:
						m.meet(samples, batch)
					default: // it is not the batch's first
					}
				}
			})
			var stages map[string]time.Duration
			for e, err := range r.Train(context.Background()) {
				if err != nil {
					t.Fatal(err)
				}
				stages = e.Stages
			}
			if m.failed != nil {
				t.Fatal(m.failed)
			}
			if computed != meetingBatches || len(copied) != meetingBatches {
				t.Fatalf("%d batches were computed, rows of %d were copied", computed, len(copied))
			}
			spans := map[string][]Span{}
			for _, s := range r.Spans() {
				spans[s.Stage] = append(spans[s.Stage], s)
			}
			for _, stage := range []string{"sample", "copy", "compute"} {
				var sum time.Duration
				for _, s := range spans[stage] {
					sum += s.Wall
				}
				if got := stages[stage]; got <= 0 || got != sum {
					t.Errorf("the clock has %v of %s, the trace's spans are of %v", got, stage, sum)
				}
			}
			of := func(stage string, batch int) Span {
				name := sampling.ID{Phase: "train", Batch: batch, Of: 1}.String()
				at := slices.IndexFunc(spans[stage], func(s Span) bool { return s.Name == name })
				if at < 0 {
					t.Fatalf("no span of %s is %s's: %+v", stage, name, spans[stage])
				}
				return spans[stage][at]
			}
			if m.first > meetingBatches-samples-3 {
				t.Fatalf("batch %d was the first that was not sampled when the second was computed", m.first+samples)
			}
			for k := m.first; k < meetingBatches-samples; k++ {
				computed, sampled := of("compute", k), of("sample", k+samples)
				if !beside(computed, sampled) {
					t.Errorf("%+v and %+v do not overlap", computed, sampled)
				}
				// The device's clock and the host's differ by what it takes to ask.
				if !slices.ContainsFunc(spans["copy"], func(s Span) bool { return beside(computed, s) }) {
					t.Errorf("no copy overlaps with %+v", computed)
				}
			}
			stopped(t, r)
		})
	}
}

// beside reports whether there is a time at which both spans are.
func beside(a, b Span) bool { return a.Begin <= b.Begin+b.Wall && b.Begin <= a.Begin+a.Wall }
