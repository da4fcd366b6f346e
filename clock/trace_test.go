package clock

import (
	"bytes"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"
)

// stepper is a clock that is moved by hand.
type stepper struct {
	mu sync.Mutex
	t  time.Time
}

func (s *stepper) now() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.t }
func (s *stepper) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t = s.t.Add(d)
}

// traced is what a viewer reads of a trace.
type traced struct {
	Unit  string `json:"displayTimeUnit"`
	Other struct {
		Dropped int `json:"dropped_spans"`
	} `json:"otherData"`
	Events []struct {
		Name string         `json:"name"`
		Cat  string         `json:"cat"`
		Ph   string         `json:"ph"`
		TS   *float64       `json:"ts"`
		Dur  *float64       `json:"dur"`
		PID  *int           `json:"pid"`
		TID  *int           `json:"tid"`
		Args map[string]any `json:"args"`
	} `json:"traceEvents"`
}

func readTrace(t *testing.T, r *Recorder) traced {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteTrace(&b); err != nil {
		t.Fatal(err)
	}
	var out traced
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("not a trace: %v", err)
	}
	return out
}

// The trace is what the format's description asks for, and holds every span
// with its name, its times and a row of its own while others run.
func TestTrace(t *testing.T) {
	at := &stepper{t: time.Unix(1000, 0)}
	r := &Recorder{now: at.now}
	r.Keep(100)
	if !r.Keeping() {
		t.Fatal("Keep keeps nothing")
	}
	a := r.Begin(Sample)
	at.add(time.Millisecond)
	b := r.Begin(Sample) // while a runs
	at.add(2 * time.Millisecond)
	c := r.Begin(Compute)
	c.End("train/e0/b0") // ends first, begins last
	b.End("train/e0/b1")
	at.add(time.Millisecond)
	a.End("train/e0/b0")
	d := r.Begin(Sample) // a's row is free again
	d.End("train/e0/b2")

	out := readTrace(t, r)
	rows := map[int]string{}
	type slice struct {
		row       string
		ts, dur   float64
		name, cat string
	}
	var slices []slice
	for _, e := range out.Events {
		if e.PID == nil || e.TID == nil {
			t.Fatalf("%+v has no process or thread", e)
		}
		switch {
		case e.Ph == "M" && e.Name == "thread_name":
			rows[*e.TID] = e.Args["name"].(string)
		case e.Ph == "M":
		case e.Ph == "X" && e.TS != nil && e.Dur != nil:
			slices = append(slices, slice{rows[*e.TID], *e.TS, *e.Dur, e.Name, e.Cat})
		default:
			t.Fatalf("%+v is neither a complete event nor metadata", e)
		}
	}
	want := []slice{
		{"sample", 0, 4000, "train/e0/b0", "sample"},
		{"sample 2", 1000, 2000, "train/e0/b1", "sample"},
		{"compute", 3000, 0, "train/e0/b0", "compute"},
		{"sample", 4000, 0, "train/e0/b2", "sample"},
	}
	if len(slices) != len(want) {
		t.Fatalf("%d slices, want %d: %+v", len(slices), len(want), slices)
	}
	for i, w := range want {
		if slices[i] != w {
			t.Errorf("slice %d is %+v, want %+v", i, slices[i], w)
		}
	}
	if busy := r.Busy(); busy[Sample] != 6*time.Millisecond {
		t.Errorf("sample was busy for %v, want 6ms", busy[Sample])
	}
	if o := r.Occupied(); o[Sample] != 4*time.Millisecond || o[Compute] != 0 {
		t.Errorf("occupied %v, want 4ms of sampling, in which one span lies within the other", o)
	}
}

// A stage that always has a span under way is occupied all the time, although
// none of its spans ends without another.
func TestOccupiedSoFar(t *testing.T) {
	at := &stepper{t: time.Unix(1, 0)}
	r := At(at.now)
	last := r.Begin(Load)
	for i := range 5 {
		at.add(time.Second)
		next := r.Begin(Load)
		at.add(time.Second)
		last.End("x")
		last = next
		if got, want := r.Occupied()[Load], time.Duration(2*i+2)*time.Second; got != want {
			t.Errorf("occupied %v after %v", got, want)
		}
	}
	last.End("x")
	at.add(time.Second)
	if got := r.Occupied()[Load]; got != 10*time.Second {
		t.Errorf("occupied %v, want 10s", got)
	}
}

// Spans beyond the limit are counted, and still add to the busy time.
func TestKeepIsBounded(t *testing.T) {
	at := &stepper{t: time.Unix(1, 0)}
	r := &Recorder{now: at.now}
	r.Keep(3)
	for range 5 {
		s := r.Begin(Load)
		at.add(time.Second)
		s.End("x")
	}
	spans, dropped := r.Spans()
	if len(spans) != 3 || dropped != 2 || r.Busy()[Load] != 5*time.Second {
		t.Errorf("%d spans, %d dropped, busy %v; want 3, 2, 5s", len(spans), dropped, r.Busy()[Load])
	}
	if out := readTrace(t, r); out.Other.Dropped != 2 {
		t.Errorf("the trace tells of %d dropped spans, want 2", out.Other.Dropped)
	}
}

// Without Keep nothing is remembered, and a span costs no memory.
func TestOffByDefault(t *testing.T) {
	var r Recorder
	if n := testing.AllocsPerRun(100, func() { r.BeginThread(Match).End("") }); n != 0 {
		t.Errorf("%v allocations a span", n)
	}
	if spans, _ := r.Spans(); len(spans) != 0 || r.Keeping() {
		t.Errorf("%d spans were kept unasked", len(spans))
	}
}

// A thread's CPU time is booked, and is not more than a busy loop's wall time
// allows.
func TestThreadCPU(t *testing.T) {
	if ThreadCPU() == 0 {
		t.Skip("no CPU time of threads on this system")
	}
	var r Recorder
	r.Keep(1)
	s := r.BeginThread(Sample)
	x := uint64(1)
	for before := ThreadCPU(); ThreadCPU()-before < 2*time.Millisecond; {
		x = x*6364136223846793005 + 1
	}
	s.End("busy")
	spans, _ := r.Spans()
	if got := spans[0]; got.CPU < 2*time.Millisecond || got.CPU > got.Wall+20*time.Millisecond {
		t.Errorf("CPU %v of %v wall (%d)", got.CPU, got.Wall, x)
	}
	if r.CPU()[Sample] != spans[0].CPU {
		t.Errorf("the stage's CPU time is %v", r.CPU()[Sample])
	}
	r.AddCPU(Compute, time.Second)
	if r.CPU()[Compute] != time.Second {
		t.Error("AddCPU does not add")
	}
}

// broken is a writer that fails.
type broken struct{}

var errBroken = errors.New("no room")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestTraceReportsWriteErrors(t *testing.T) {
	var r Recorder
	r.Keep(10)
	r.Begin(Sample).End("x")
	if err := r.WriteTrace(broken{}); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

func BenchmarkSpan(b *testing.B) {
	var off, on Recorder
	on.Keep(1 << 20)
	b.Run("off", func(b *testing.B) {
		for b.Loop() {
			off.BeginThread(Compute).End("")
		}
	})
	b.Run("kept", func(b *testing.B) {
		for b.Loop() {
			on.BeginThread(Compute).End("train/e0/b0")
		}
	})
}
