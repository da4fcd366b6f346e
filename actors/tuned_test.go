package actors

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/overlap"
)

// Samplers that rest sample nothing until they are told to, and none has more batches out
// than it may, however often it is told so.
func TestRestingSamplers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, system := pool.New(2), quiet()
		defer p.Close()
		defer system.Shutdown()
		seeds := make([]uint32, nodes)
		for i := range seeds {
			seeds[i] = uint32(i)
		}
		sampled := make([]int, 3)
		c := Config{System: system, Pool: p, Clock: new(clock.Recorder), Credits: 2, Resting: 2,
			Work: Work{Phase: "look", Nodes: seeds, BatchSize: 2, Micro: 1, Epochs: 2}}
		for i := range sampled {
			s, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{3}}, ring(nodes, 9))
			if err != nil {
				t.Fatal(err)
			}
			c.Samplers = append(c.Samplers, &witness{s, func(sampling.ID, rng.Key) { sampled[i]++ }})
		}
		pl, err := Start(c)
		if err != nil {
			t.Fatal(err)
		}
		defer pl.Stop()
		out := func(what string, want int, by ...int) {
			t.Helper()
			synctest.Wait()
			if n := pl.InFlight(); n != want || !slices.Equal(sampled, by) {
				t.Errorf("%s: %d batches are out, want %d; the samplers made %d, want %d", what, n, want, sampled, by)
			}
		}
		take := func(n int) {
			t.Helper()
			for range n {
				x, err := pl.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				pl.Release(x.(*Delivery))
				synctest.Wait()
			}
		}
		out("two rest", 2, 2, 0, 0)
		take(3)
		out("two rest", 2, 5, 0, 0)
		for range 3 {
			pl.Tune(messages.Tune{Samplers: 3, Credits: 2})
		}
		out("none rests", 6, 5, 2, 2)
		for range 2 {
			pl.Tune(messages.Tune{Samplers: 2, Credits: 1})
		}
		out("one rests, and has batches out", 6, 5, 2, 2)
		take(6)
		out("one rests", 2, 6, 3, 2)
		take(2)
		out("one rests", 2, 7, 4, 2)
	})
}

// As many batches hold slots as may, from when that was said: more at once, fewer when those
// that have some are released.
func TestTunedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, system := pool.New(2), quiet()
		defer p.Close()
		defer system.Shutdown()
		s, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{3}}, ring(nodes, 9))
		if err != nil {
			t.Fatal(err)
		}
		store := features.InMemory(featureTable())
		slab, err := features.NewSlab(store.Layout(), features.SlabOptions{Slots: nodes})
		if err != nil {
			t.Fatal(err)
		}
		defer slab.Close()
		seeds := make([]uint32, nodes)
		for i := range seeds {
			seeds[i] = uint32(i)
		}
		tune := messages.Tune{Samplers: 1, Credits: 20, Loaders: 1}
		pl, err := Start(Config{System: system, Pool: p, Clock: new(clock.Recorder), Samplers: []sampling.Sampler{s}, Credits: tune.Credits,
			Loading: &Loading{Store: store, Slab: slab, Ahead: 3, Loaders: 1},
			Work:    Work{Phase: "look", Nodes: seeds, BatchSize: 2, Micro: 1, Epochs: 1}})
		if err != nil {
			t.Fatal(err)
		}
		defer pl.Stop()
		taken := int64(0)
		for _, c := range []struct{ ahead, loaders, take, hold int }{
			{0, 1, 0, 3}, {5, 1, 0, 5}, {5, 1, 1, 5}, {1, 1, 0, 5}, {1, 1, 3, 2}, {1, 1, 1, 1}, {1, 1, 1, 1}, {2, 1, 0, 2}, {2, 1, 2, 2},
			{0, 1, 2, 2}, {1, 0, 2, 2}, // what loads is not told that it may not
		} {
			if tune.Ahead, tune.Loaders = c.ahead, c.loaders; taken > 0 || c.ahead > 0 {
				pl.Tune(tune)
			}
			for range c.take {
				x, err := pl.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				pl.Release(x.(*Delivery))
				taken++
			}
			synctest.Wait()
			if hold := slab.Stats().Batches - taken; hold != int64(c.hold) {
				t.Errorf("%+v: %d batches hold slots", c, hold)
			}
		}
	})
}

// weightless is a Gradienter of batches without a training node.
type weightless struct{}

func (weightless) Gradient(grad, _ []float32, _ *sampling.Batch, _ Rows, _ rng.Key) (messages.Stats, error) {
	grad[0] = 7
	return messages.Stats{}, nil
}

// What jobs took is named by the batch that they were for, where somebody reads it; and a step
// without a training node is made with no gradient.
func TestSpansAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, keeps := range []bool{false, true} {
			p, system, up := pool.New(1), quiet(), new(recorder)
			s, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{3}}, ring(nodes, 9))
			if err != nil {
				t.Fatal(err)
			}
			slab, err := features.NewSlab(features.InMemory(featureTable()).Layout(), features.SlabOptions{Slots: nodes})
			if err != nil {
				t.Fatal(err)
			}
			r := new(clock.Recorder)
			if keeps {
				r.Keep(1000)
			}
			pl, err := Start(Config{System: system, Pool: p, Clock: r, Samplers: []sampling.Sampler{s}, Credits: 2, Trainers: []Gradienter{weightless{}}, Updater: up,
				Loading: &Loading{Store: features.InMemory(featureTable()), Slab: slab, Ahead: 1, Loaders: 1},
				Work:    Work{Phase: "train", Nodes: []uint32{1, 2, 3}, BatchSize: 1, Micro: 1, Epochs: 2}})
			if err != nil {
				t.Fatal(err)
			}
			for step := range int64(6) {
				if step%3 == 0 {
					pl.Proceed(step)
				}
				if _, err := pl.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			pl.Stop()
			system.Shutdown()
			p.Close()
			if err := slab.Close(); err != nil {
				t.Error(err)
			}
			if !slices.Equal(up.got, make([]float32, 6)) {
				t.Errorf("without a training node the steps are made with %v", up.got)
			}
			names := map[string]int{}
			spans, _ := r.Spans()
			for _, s := range spans {
				names[r.Name(s.Stage)+" "+s.Name]++
			}
			want := map[string]int{}
			if keeps {
				want["match release"] = names["match release"] // slots are given back with the next match, or alone
				for _, epoch := range []string{"train/e0", "train/e1"} {
					want["sample "+epoch+"/b0"]++ // the order of its seeds
					for _, batch := range []string{"/b0", "/b1", "/b2"} {
						for _, stage := range []string{"sample ", "match ", "load ", "compute ", "update "} {
							want[stage+epoch+batch]++
						}
					}
				}
			}
			if !maps.Equal(names, want) || keeps == (names["match release"] == 0) {
				t.Errorf("kept %t: spans are named %v, want %v", keeps, names, want)
			}
		}
	})
}

// The pieces of the next generation are spread over the steps until it is needed.
func TestPaceOfGenerations(t *testing.T) {
	const steps = 16
	rows := func(n int) *features.Pin { return &features.Pin{Load: make([]uint32, n)} }
	for _, c := range []struct {
		what         string
		period, next int
		lead, micro  int
		newest       int64
		pieces       int // of 28, that were drawn
		pin          *features.Pin
		read         int
		allowed      int
	}{
		{"rows are drawn until the last eighth", 1, 1, 0, 1, -1, 0, nil, 0, 2},                    // 28 over 14 steps
		{"fewer steps are left", 1, 1, 0, 1, 6, 0, nil, 0, 4},                                     // over 7
		{"some was drawn", 1, 1, 0, 1, 6, 20, nil, 0, 2},                                          // 8 over 7
		{"one step is left", 1, 1, 0, 1, 12, 20, nil, 0, 8},                                       // 8 at once
		{"it is late", 1, 1, 0, 1, 40, 20, nil, 0, 8},                                             //
		{"more than was thought", 1, 1, 0, 1, 0, 40, nil, 0, 1},                                   // one at least
		{"two epochs to draw it in", 2, 1, 0, 1, 13, 0, nil, 0, 2},                                // over 14 of 28
		{"the second", 1, 2, 0, 1, 15, 0, nil, 0, 2},                                              //
		{"samplers are ahead", 1, 1, 7, 1, -1, 0, nil, 0, 4},                                      // 28 over 7
		{"samplers are ahead with parts", 1, 1, 21, 3, -1, 0, nil, 0, 4},                          //
		{"samplers are ahead by all: a quarter, less an eighth", 1, 1, 100, 1, -1, 0, nil, 0, 14}, // over 2
		{"samplers of the second are ahead by all", 1, 2, 100, 1, 15, 0, nil, 0, 14},              //
		{"rows are read to the end", 1, 1, 0, 1, 11, 28, rows(8 * pieceRows), 0, 2},               // 8 over 4
		{"some were read", 1, 1, 0, 1, 11, 28, rows(8 * pieceRows), 3*pieceRows - 1, 2},           // 6 over 4
		{"a few are left", 1, 1, 0, 1, 14, 28, rows(2*pieceRows + 1), 2 * pieceRows, 1},           //
		{"a piece and one row", 1, 1, 0, 1, 14, 28, rows(2*pieceRows + 1), pieceRows, 2},          //
	} {
		s := &cache{work: Work{Nodes: make([]uint32, steps), BatchSize: 1, Micro: c.micro, Epochs: 4}, mem: &Loading{Cache: &Generations{Period: c.period, Pieces: 28}},
			lead: c.lead, next: c.next, newest: c.newest, due: true, pieces: c.pieces, pin: c.pin, read: c.read}
		if !s.may() || s.allowed != c.allowed || s.due {
			t.Errorf("%s: %d pieces, want %d; the step has had its share: %t", c.what, s.allowed, c.allowed, !s.due)
		}
		if !s.may() || s.allowed != c.allowed {
			t.Errorf("%s: asked again in the same step, %d pieces", c.what, s.allowed)
		}
		if s.allowed = 0; s.may() {
			t.Errorf("%s: a step has more than its share", c.what)
		}
	}
}

// What cannot work is refused, with the numbers that do not fit.
func TestStartRefusesNumbers(t *testing.T) {
	s, err := sampling.New(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{2}}, ring(nodes, 9))
	if err != nil {
		t.Fatal(err)
	}
	good := func() Config {
		return Config{Samplers: []sampling.Sampler{s, s, s}, Resting: 1, Credits: 6, Work: Work{BatchSize: 1, Micro: 3, Window: 3}, Order: unordered{}}
	}
	for want, change := range map[string]func(c *Config){
		"0 samplers with 6 credits, batch size 1 in 3":             func(c *Config) { c.Samplers, c.Resting = nil, 0 },
		"3 samplers with 6 credits, batch size 1 in 3":             func(c *Config) { c.Resting = 3 },
		"3 samplers with 0 credits, batch size 1 in 3":             func(c *Config) { c.Credits = 0 },
		"batch size 0 in 3 micro-batches":                          func(c *Config) { c.Work.BatchSize = 0 },
		"batch size 1 in 0 micro-batches":                          func(c *Config) { c.Work.Micro = 0 },
		"windows of 3 batches in 3 micro-batches need an order":    func(c *Config) { c.Order = nil },
		"credit for 12: there are 3 samplers with 5 credits":       func(c *Config) { c.Credits = 5 },
		"0 batches ahead and 1 loaders":                            func(c *Config) { c.Loading = &Loading{Loaders: 1} },
		"1 batches ahead and 0 loaders":                            func(c *Config) { c.Loading = &Loading{Ahead: 1} },
		"shared with other processes needs Work.Mine, and nothing": func(c *Config) { c.Work.Mine = func(int, int) bool { return true } },
	} {
		c := good()
		change(&c)
		if _, err := Start(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	c := good()
	p, system := pool.New(1), quiet()
	defer p.Close()
	defer system.Shutdown()
	c.System, c.Pool, c.Clock = system, p, new(clock.Recorder)
	pl, err := Start(c)
	if err != nil {
		t.Fatalf("the least that will do: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pl.Next(ctx); err == nil {
		t.Error("of no seeds there is a batch")
	}
	pl.Stop()
}

// unordered is an Orderer that orders nothing.
type unordered struct{}

func (unordered) Reset()                                               {}
func (unordered) Resume([]overlap.Part) error                          { return nil }
func (unordered) Order([]int, [][]overlap.Part) (order []int, _ error) { return nil, nil }
func (unordered) Part([]uint32) (p overlap.Part)                       { return p }
