package scheduler

import (
	"strings"
	"testing"
	"time"
)

// What no figure of the present tuning can decide is tried, and kept if it paid.
func TestTunerTries(t *testing.T) {
	const ms = time.Millisecond
	disk := sizes()
	disk.Source, disk.RowBytes, disk.BatchSize, disk.Inputs, disk.NewRows = "disk", 512, 64, 60_000, 2_000
	// Measured at rest: compute is busy, and sampling takes a core of eight.
	busy := Measured{Batches: 10, Wall: 1000 * ms, Sample: 950 * ms, Compute: 990 * ms}
	loading := Measured{Batches: 10, Wall: 1000 * ms, Sample: 400 * ms, Load: 1000 * ms, Compute: 500 * ms, Rows: 1000}
	with := func(m Measured, change func(*Measured)) Measured {
		change(&m)
		return m
	}
	all := Request{Threads: 8, Samplers: 2, Credits: 4, Loaders: 2}
	copied := func(n Tuning) bool { return n.Copied }
	threads := func(n Tuning) bool { return n.Threads == 7 }
	caches := func(n Tuning) bool { return n.Cache > 0 }
	change := func(f func(*Request)) Request {
		r := all
		f(&r)
		return r
	}
	for name, c := range map[string]struct {
		sizes   Sizes
		request Request
		rest    Measured
		tried   func(Tuning) bool
		then    Measured
		again   Measured // without it
		kept    bool
		says    string
	}{
		"copies pay":           {sizes(), all, busy, copied, with(busy, func(m *Measured) { m.Compute = 900 * ms }), busy, true, "the copied gather stays: compute takes 90.0 ms a batch in place of 99.0"},
		"copies do not":        {sizes(), all, busy, copied, with(busy, func(m *Measured) { m.Compute = 980 * ms }), Measured{}, false, "the copied gather did not pay"},
		"copies seemed to pay": {sizes(), all, busy, copied, with(busy, func(m *Measured) { m.Compute = 900 * ms }), with(busy, func(m *Measured) { m.Compute = 910 * ms }), false, "compute takes 90.0 ms a batch in place of 91.0"},
		"fewer threads pay":    {sizes(), change(func(r *Request) { r.Gather = "fused" }), busy, threads, with(busy, func(m *Measured) { m.Wall = 900 * ms }), busy, true, "7 threads for compute stays: a step takes 90.0 ms a batch in place of 100.0"},
		"fewer threads do not": {sizes(), change(func(r *Request) { r.Gather = "copied" }), busy, threads, with(busy, func(m *Measured) { m.Wall = 1100 * ms }), Measured{}, false, "7 threads for compute did not pay"},
		"a cache pays":         {disk, all, loading, caches, with(loading, func(m *Measured) { m.Hits = 300 }), Measured{}, true, "it holds 30.0 % of the rows"},
		"a cache does not":     {disk, all, loading, caches, with(loading, func(m *Measured) { m.Hits = 10 }), Measured{}, false, "it holds 1.0 % of the rows"},
	} {
		p := Build(c.sizes, c.request)
		if p.SlabLimit < p.SlabRows+p.CacheRoom || p.CacheRoom > p.SlabRows/4 {
			t.Errorf("%s: room for a cache of %d rows in a slab of %d up to %d", name, p.CacheRoom, p.SlabRows, p.SlabLimit)
		}
		tuner := p.NewTuner(c.request)
		next, why := tuner.Next(c.rest)
		if !c.tried(next) || len(why) != 1 || !strings.Contains(why[0], "trying ") {
			t.Errorf("%s: %+v is tried: %q", name, next, why)
			continue
		}
		next, why = tuner.Next(c.then)
		if c.again.Batches > 0 {
			if next != p.Tuning() {
				t.Errorf("%s: without it %+v is %+v", name, p.Tuning(), next)
			}
			next, why = tuner.Next(c.again)
		}
		if c.tried(next) != c.kept || len(why) != 1 || !strings.Contains(why[0], c.says) {
			t.Errorf("%s: then %+v: %q, want %q", name, next, why, c.says)
		}
		if !c.kept && next != p.Tuning() {
			t.Errorf("%s: %+v was taken back to %+v", name, p.Tuning(), next)
		}
		for range 20 {
			if _, why = tuner.Next(c.rest); c.tried(tuner.now) != c.kept && tuner.trial == nil {
				t.Errorf("%s: it was changed again: %q", name, why)
			}
		}
		if len(why) > 0 {
			t.Errorf("%s: it does not come to rest: %q", name, why)
		}
	}
}

// What the user fixed, and what others' time is in, is not tried.
func TestTunerLeaves(t *testing.T) {
	const ms = time.Millisecond
	disk := sizes()
	disk.Source, disk.RowBytes, disk.Inputs, disk.NewRows = "disk", 512, 10_000, 2_000
	all := Request{Threads: 8, Samplers: 2, Credits: 4, Loaders: 2, Gather: "copied", FixedThreads: true, Cached: true}
	for name, c := range map[string]struct {
		sizes   Sizes
		request Request
	}{
		"fixed":  {sizes(), all},
		"loads":  {disk, all},
		"shared": {sizes(), Request{Threads: 8, Samplers: 2, Credits: 4, Shared: true}},
	} {
		p := Build(c.sizes, c.request)
		tuner := p.NewTuner(c.request)
		for _, m := range []Measured{
			{Batches: 10, Wall: 1000 * ms, Sample: 950 * ms, Compute: 990 * ms},
			{Batches: 10, Wall: 1000 * ms, Sample: 400 * ms, Load: 1000 * ms, Compute: 500 * ms, Rows: 1000},
		} {
			if next, why := tuner.Next(m); next != p.Tuning() || why != nil {
				t.Errorf("%s: %+v becomes %+v: %q", name, p.Tuning(), next, why)
			}
		}
		if p.Copied != (c.request.Gather == "copied") || p.CacheRoom != 0 {
			t.Errorf("%s: copied %v, room for a cache of %d", name, p.Copied, p.CacheRoom)
		}
	}
}

// A machine that is now slow in one and now in another is followed twelve times.
func TestTunerFollows(t *testing.T) {
	r := Request{Threads: 8}
	tuner := Build(sizes(), r).NewTuner(r)
	changes := 0
	for i := range 40 {
		m := Measured{Batches: 10, Wall: time.Second, Sample: 8 * time.Second}
		if i%2 == 1 {
			m = Measured{Batches: 10, Wall: time.Second, Sample: time.Second, Compute: time.Second}
		}
		before := tuner.now
		next, why := tuner.Next(m)
		if (next != before) != (why != nil) || (why != nil) != (i < 12) {
			t.Errorf("%d: %+v becomes %+v: %q", i, before, next, why)
		}
		if why != nil {
			changes++
		}
	}
	if changes != 12 {
		t.Errorf("%d changes", changes)
	}
}

// After many changes nothing new is tried, and what is being tried is measured to its
// end all the same.
func TestTunerEnds(t *testing.T) {
	busy := Measured{Batches: 10, Wall: time.Second, Sample: 950 * time.Millisecond, Compute: 990 * time.Millisecond}
	r := Request{Threads: 8, Samplers: 2, Credits: 4}
	p := Build(sizes(), r)
	tuner := p.NewTuner(r)
	tuner.changes = maxChanges - 1
	if next, why := tuner.Next(busy); !next.Copied {
		t.Fatalf("%+v: %q", next, why)
	}
	better := busy
	better.Compute /= 2
	for _, x := range []struct {
		m      Measured
		copied bool
		says   string
	}{{better, false, "once more"}, {busy, true, "stays"}, {better, true, ""}} {
		if next, why := tuner.Next(x.m); next.Copied != x.copied || !strings.Contains(strings.Join(why, "; "), x.says) || (x.says == "") != (why == nil) {
			t.Errorf("%+v: %q, want %q", next, why, x.says)
		}
	}
}
