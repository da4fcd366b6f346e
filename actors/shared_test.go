package actors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/overlap"
)

// table is where the processes of a test add up their steps: who comes last does it.
type table struct {
	size  int
	mu    sync.Mutex
	came  int
	parts [][]float32
	metas [][]byte
	made  chan struct{} // closed when parts[0] is the sum
	told  map[int64]*gathered
}

// gathered is what the processes tell each other under a number.
type gathered struct {
	said [][]byte
	all  chan struct{} // closed when all have
}

// seat is one process's Reducer.
type seat struct {
	*table
	err error // that its second step ends with
	cut int   // bytes that are missing from what it says of its second step

	lie  func([]byte) []byte // what it tells of its second window; nil: the truth
	deaf error               // how it ends to hear of that
}

func (s seat) AllReduce(ctx context.Context, step int64, dst []float32, parts [][]float32, meta [][]byte) ([][]byte, error) {
	s.mu.Lock()
	if s.came == 0 {
		s.parts, s.metas, s.made = make([][]float32, len(parts)), make([][]byte, len(parts)), make(chan struct{})
	}
	for m := range parts {
		if parts[m] != nil {
			s.parts[m], s.metas[m] = slices.Clone(parts[m]), meta[m]
		}
	}
	sum, metas, made := s.parts, s.metas, s.made
	if s.came++; s.came == s.size {
		compute.SumTree(sum)
		s.came = 0
		close(made)
	}
	s.mu.Unlock()
	select {
	case <-made:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if step == 1 && s.err != nil {
		return nil, s.err
	}
	copy(dst, sum[0])
	if step == 1 {
		metas = slices.Clone(metas)
		metas[len(metas)-1] = metas[len(metas)-1][:len(metas[0])-s.cut]
	}
	return metas, nil
}

func (s seat) Gather(ctx context.Context, number int64, mine []byte) ([][]byte, error) {
	s.mu.Lock()
	g := s.told[number]
	if g == nil {
		g = &gathered{all: make(chan struct{})}
		s.told[number] = g
	}
	if number == 3 && s.lie != nil {
		mine = s.lie(mine)
	}
	if len(g.said) < s.size { // a stage that failed may ask once more before it is stopped
		if g.said = append(g.said, mine); len(g.said) == s.size {
			close(g.all)
		}
	}
	s.mu.Unlock()
	select {
	case <-g.all:
		if number == 3 && s.deaf != nil {
			return nil, s.deaf
		}
		return g.said, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// counting is a Gradienter whose statistics are all different.
type counting struct{ Gradienter }

func (c counting) Gradient(grad, params []float32, b *sampling.Batch, rows Rows, key rng.Key) (messages.Stats, error) {
	s, err := c.Gradienter.Gradient(grad, params, b, rows, key)
	s.Correct, s.Weight = 1+int(b.Seeds[0])%7, s.Weight+float64(b.ID.Micro)/3
	return s, err
}

// observing is an Updater that takes a value out of every gradient, and keeps what depends on
// all of them and their order.
type observing struct {
	descent
	seen uint64
}

func (o *observing) see(v float32) { o.seen = o.seen*1099511628211 + uint64(math.Float32bits(v)) }

func (o *observing) Observe(grad []float32) {
	o.see(grad[3])
	grad[3] = 0
}

func (o *observing) TakeStatistics(b []byte, grad []float32) []byte {
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(grad[3]))
	grad[3] = 0
	return b
}

func (o *observing) ObserveStatistics(b []byte) error {
	if len(b) != 4 {
		return fmt.Errorf("%d bytes of statistics", len(b))
	}
	o.see(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	return nil
}

// kept is an Updater that keeps the parameters after each step.
type kept struct {
	descent
	at [][]float32
}

func (k *kept) Apply(parts [][]float32, weight float64) {
	k.descent.Apply(parts, weight)
	k.at = append(k.at, slices.Clone(k.params))
}

// sharedJob is a run that several processes may share.
type sharedJob struct {
	window, micro, samplers, trainers int
	observes, loads                   bool
	first                             int64
	after                             int
	params                            []float32
}

// part is what a process has of a run at its end, or when it failed.
type part struct {
	params  []float32
	seen    uint64
	applied []messages.Applied
	at      [][]float32 // the parameters after each step
	after   []int       // Work.After of a run that goes on after it
	err     error
}

// run makes a job's steps, as one of several processes or, with no reducer, alone.
func (j sharedJob) run(t *testing.T, r Reducer, mine func(micro, of int) bool) (made part) {
	p, system := pool.New(2), quiet()
	defer p.Close()
	defer system.Shutdown()
	seeds := make([]uint32, nodes)
	for i := range seeds {
		seeds[i] = uint32(i)
	}
	var up Updater
	plain := &kept{descent: descent{slices.Clone(j.params)}}
	o := &observing{descent: plain.descent}
	if up = plain; j.observes {
		up = o
	}
	work := Work{Phase: "train", Seed: 5, Nodes: seeds, BatchSize: batchSize, Micro: j.micro, Epochs: epochs, Window: j.window, First: j.first, After: j.after, Mine: mine}
	c := Config{System: system, Pool: p, Clock: new(clock.Recorder), Updater: up, Work: work, Reducer: r, Credits: (max(j.window, 1) + 1) * j.micro}
	if j.window > 1 {
		order, err := overlap.NewOrderer(nodes, overlap.Exact)
		if err != nil {
			made.err = err
			return made
		}
		c.Order = order
	}
	for range j.samplers {
		s, err := sampling.New(context.Background(), sampling.Spec{Name: "neighbor", Fanouts: []int{3, 2}}, ring(nodes, 9))
		if err != nil {
			made.err = err
			return made
		}
		c.Samplers = append(c.Samplers, s)
	}
	var slab *features.Slab
	if j.loads {
		store := features.InMemory(featureTable())
		var err error
		if slab, err = features.NewSlab(store.Layout(), features.SlabOptions{Slots: nodes, Keep: 2, Poison: true}); err != nil {
			made.err = err
			return made
		}
		defer slab.Close()
		c.Loading = &Loading{Store: store, Slab: slab, Ahead: 2, Loaders: 2}
	}
	for range j.trainers {
		r := &reader{table: featureTable()}
		if slab != nil {
			r.slab = slab.Table()
		}
		c.Trainers = append(c.Trainers, counting{r})
	}
	pl, err := Start(c)
	if err != nil {
		made.err = err
		return made
	}
	defer pl.Stop()
	after := j.after
	pl.Proceed(j.first)
	for step := j.first; step < work.Steps()*epochs; step++ {
		x, err := pl.Next(t.Context())
		if err != nil {
			made.err = err
			return made
		}
		a := x.(*messages.Applied)
		made.applied = append(made.applied, *a)
		after = work.NextAfter(step, a.ID.Batch, after)
		made.after = append(made.after, after)
		if a.Last {
			pl.Proceed(step + 1)
		}
	}
	made.params, made.seen, made.at = up.Params(), o.seen, plain.at
	return made
}

// share runs a job in several processes.
func (j sharedJob) share(t *testing.T, n int, change func(i int, s *seat), mine func(i, micro, of int) bool) []part {
	at := &table{size: n, told: map[int64]*gathered{}}
	all := make([]part, n)
	var wg sync.WaitGroup
	for i := range n {
		s := seat{table: at}
		if change != nil {
			change(i, &s)
		}
		wg.Go(func() { all[i] = j.run(t, s, func(micro, of int) bool { return mine(i, micro, of) }) })
	}
	wg.Wait()
	return all
}

func inTurn(n int) func(i, micro, of int) bool {
	return func(i, micro, _ int) bool { return micro%n == i }
}

// Metamorphic: however a run's micro-batches are shared among processes, each ends with the
// bits and the statistics of one alone, and says the same of every step.
func TestSharedBits(t *testing.T) {
	for _, window := range []int{0, 3} {
		for _, micro := range []int{1, 3} {
			for _, observes := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					j := sharedJob{window: window, micro: micro, samplers: 2, trainers: 1, observes: observes, params: ones()}
					want := j.run(t, nil, nil)
					if want.err != nil {
						t.Fatal(want.err)
					}
					if observes == (want.seen == 0) {
						t.Errorf("statistics of %x were seen", want.seen)
					}
					for _, a := range want.applied {
						if a.ID.Micro != 0 || a.ID.Of != 0 || a.Stats.Correct == 0 || a.Stats.Count != min(batchSize, nodes-a.ID.Batch*batchSize) {
							t.Errorf("alone, step %d is reported as %+v", a.Step, a)
						}
					}
					shares := map[string]func(i, micro, of int) bool{
						"in turn": inTurn(2), "all to the second": func(i, _, _ int) bool { return i == 1 },
						"the last to the first": func(i, micro, of int) bool { return (micro == of-1) == (i == 0) },
					}
					for name, mine := range shares {
						j.trainers, j.loads = 3-j.trainers, j.trainers == 1
						for i, got := range j.share(t, 2, nil, mine) {
							if got.err != nil || !slices.Equal(got.params, want.params) || got.seen != want.seen {
								t.Fatalf("%+v, %s, process %d: other bits, or %v", j, name, i, got.err)
							}
							if !slices.Equal(got.applied, want.applied) {
								t.Errorf("%+v, %s, process %d: the steps are reported as %+v", j, name, i, got.applied)
							}
						}
					}
				})
			}
		}
	}
}

// A reordered run goes on from any step, alone or shared, to the same bits.
func TestReorderedResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, window := range []int{2, 3} {
			j := sharedJob{window: window, micro: 2, samplers: 1, trainers: 1, params: ones()}
			want := j.run(t, nil, nil)
			if want.err != nil {
				t.Fatal(want.err)
			}
			if slices.IsSortedFunc(want.applied, func(a, b messages.Applied) int { return a.ID.Batch - b.ID.Batch + 100*(a.ID.Epoch-b.ID.Epoch) }) {
				t.Fatal("no batch changed its place: nothing is tested")
			}
			for k, params := range want.at[:len(want.at)-1] {
				again := j
				again.first, again.after, again.params = int64(k+1), want.after[k], params
				all := append(again.share(t, 2, nil, inTurn(2)), again.run(t, nil, nil))
				for i, got := range all {
					if got.err != nil || !slices.Equal(got.params, want.params) || !slices.Equal(got.applied, want.applied[k+1:]) {
						t.Errorf("on from step %d, after batch %d, process %d: other bits, or %v; it made %+v", k+1, want.after[k], i, got.err, got.applied)
					}
				}
			}
		}
	})
}

// A step that could not be shared ends the run with the reason; so does one of which another
// process says what makes no sense.
func TestSharedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := sharedJob{micro: 2, samplers: 1, trainers: 1, params: ones()}
		for what, c := range map[string]struct {
			cut      int
			err      error
			observes bool
			want     string
		}{
			"the reducer fails":          {err: errBroken, want: "train/e0/b1: parameters: actors: the step could not be shared: " + errBroken.Error()},
			"too few bytes":              {cut: 1, want: "train/e0/b1: parameters: actors: micro-batch 1 of step 1: statistics of 31 bytes"},
			"too few bytes of a model's": {cut: 1, observes: true, want: "train/e0/b1: parameters: actors: micro-batch 1 of step 1: 3 bytes of statistics"},
		} {
			j.observes = c.observes
			all := j.share(t, 2, func(i int, s *seat) { s.cut, s.err = c.cut, c.err }, inTurn(2))
			for i, got := range all {
				if got.err == nil || !strings.HasPrefix(got.err.Error(), c.want) || errors.Is(got.err, ErrReduce) != (c.err != nil) || len(got.applied) != 1 {
					t.Errorf("%s, process %d: after %d steps %v", what, i, len(got.applied), got.err)
				}
			}
		}
	})
}

// What a process tells of a window has to be of its batches, once, and all of it has to be told.
func TestLiesOfWindows(t *testing.T) {
	tell := func(change func(p []messages.InputPart) []messages.InputPart) func([]byte) []byte {
		return func(body []byte) []byte {
			m, err := messages.Unmarshal("inputs", body)
			if err == nil {
				in := m.(*messages.Inputs)
				in.Parts = change(in.Parts)
				body, err = messages.Marshal(in)
			}
			if err != nil {
				t.Error(err)
			}
			return body
		}
	}
	first := func(change func(p *messages.InputPart)) func([]byte) []byte {
		return tell(func(p []messages.InputPart) []messages.InputPart {
			change(&p[0])
			return p
		})
	}
	const of, without = "another process tells of micro-batch %d of step %d, which the window from step 3 has not, or twice", "nobody tells of %d micro-batches of the window from step 3"
	for what, c := range map[string]struct {
		lie  func([]byte) []byte
		deaf error
		want string
	}{
		"a step before the window":  {lie: first(func(p *messages.InputPart) { p.Step = 2 }), want: fmt.Sprintf(of, 1, 2)},
		"a step after it":           {lie: first(func(p *messages.InputPart) { p.Step = 6 }), want: fmt.Sprintf(of, 1, 6)},
		"less than a part":          {lie: first(func(p *messages.InputPart) { p.Micro = -1 }), want: fmt.Sprintf(of, -1, 3)},
		"more parts than there are": {lie: first(func(p *messages.InputPart) { p.Micro = 2 }), want: fmt.Sprintf(of, 2, 3)},
		"another's part":            {lie: first(func(p *messages.InputPart) { p.Micro = 0 }), want: fmt.Sprintf(of, 0, 3)},
		"a part twice":              {lie: tell(func(p []messages.InputPart) []messages.InputPart { return append(p, p[2]) }), want: fmt.Sprintf(of, 1, 5)},
		"not all":                   {lie: tell(func(p []messages.InputPart) []messages.InputPart { return p[1:] }), want: fmt.Sprintf(without, 1)},
		"nothing":                   {lie: tell(func(p []messages.InputPart) []messages.InputPart { return nil }), want: fmt.Sprintf(without, 3)},
		"no message":                {lie: func([]byte) []byte { return []byte{0xc1} }, want: "messages: "},
		"nothing is heard":          {deaf: errBroken, want: "actors: the step could not be shared: " + errBroken.Error()},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := sharedJob{window: 3, micro: 2, samplers: 1, trainers: 1, params: ones()}
			all := j.share(t, 2, func(i int, s *seat) {
				if s.deaf = c.deaf; i == 1 {
					s.lie = c.lie
				}
			}, inTurn(2))
			for i, got := range all {
				if got.err == nil || !strings.HasPrefix(got.err.Error(), "train/e0/b3: reorder: "+c.want) || errors.Is(got.err, ErrReduce) != (c.deaf != nil) {
					t.Errorf("%s, process %d: after %d steps %v", what, i, len(got.applied), got.err)
				}
			}
		})
	}
}

// A run that goes on is told which batch was last before the window that it goes on in.
func TestNextAfter(t *testing.T) {
	for window, want := range map[int][]int{
		0: {7, 7, 7, 7, 7, 7, 7, 7}, 1: {7, 7, 7, 7, 7, 7, 7, 7},
		2: {7, 101, 101, 103, 104, 104, 106, 106}, // of five batches the last is alone
		3: {7, 7, 102, 102, 104, 104, 104, 107},
	} {
		w := Work{Nodes: make([]uint32, 5), BatchSize: 1, Micro: 1, Epochs: 2, Window: window}
		after := 7
		for step := range int64(8) {
			if after = w.NextAfter(step, 100+int(step), after); after != want[step] {
				t.Errorf("windows of %d: after step %d it is %d, want %d", window, step, after, want[step])
			}
		}
	}
}

// A process's part of the micro-batches is known beforehand.
func TestOwn(t *testing.T) {
	third := func(micro, _ int) bool { return micro%3 == 1 }
	w := Work{Nodes: make([]uint32, 25), BatchSize: 10, Micro: 4, Mine: third}
	batches := Work{Batches: 2, Micro: 5, Mine: third}
	for i, c := range []struct {
		w    Work
		step int64
		of   int
		want int
	}{
		{w, 0, 4, 1}, {w, 2, 4, 1}, {w, 3, 4, 1},
		{Work{Nodes: make([]uint32, 23), BatchSize: 10, Micro: 5, Mine: third}, 0, 5, 2},
		{Work{Nodes: make([]uint32, 21), BatchSize: 10, Micro: 5, Mine: third}, 2, 1, 0},
		{Work{Nodes: make([]uint32, 21), BatchSize: 10, Micro: 5, Mine: third}, 3, 5, 2},
		{Work{Nodes: make([]uint32, 25), BatchSize: 10, Micro: 4}, 1, 4, 4},
		{batches, 0, 5, 2}, {batches, 7, 5, 2},
		{Work{Batches: 1, Mine: third}, 0, 1, 0},
	} {
		if of, own := c.w.numMicro(int(c.step%c.w.Steps())), c.w.Own(c.step); of != c.of || own != c.want {
			t.Errorf("%d: step %d has %d micro-batches, of which %d are its own; want %d of %d", i, c.step, of, own, c.want, c.of)
		}
	}
}
