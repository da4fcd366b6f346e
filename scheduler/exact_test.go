package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What Refine says and does at its thresholds: a stage that is busy for 90 % of the time
// holds the others up, one that is for less waits.
func TestRefineAtItsThresholds(t *testing.T) {
	const ms = time.Millisecond
	disk := sizes()
	disk.Source, disk.RowBytes, disk.Inputs = "disk", 512, 100_000
	at := func(samplers, credits, ahead, loaders int) Tuning {
		return Tuning{Samplers: samplers, Credits: credits, Ahead: ahead, Loaders: loaders, Threads: 8}
	}
	for name, c := range map[string]struct {
		sizes                 Sizes
		request               Request
		now                   Tuning
		sample, load, compute time.Duration // of a second
		want                  Tuning
		why                   string
	}{
		"compute is busy, and samplers too":     {sizes(), Request{}, at(4, 2, 0, 0), 3600 * ms, 0, 900 * ms, at(4, 2, 0, 0), ""},
		"compute is busy, samplers for 2.6":     {sizes(), Request{}, at(4, 2, 0, 0), 2400 * ms, 0, 900 * ms, at(3, 3, 0, 0), "3 samplers in place of 4: compute is busy 90 % of the time, and they are for 60 %; 3 credits each in place of 2"},
		"compute is busy, samplers for 2.1":     {sizes(), Request{}, at(4, 2, 0, 0), 1850 * ms, 0, 900 * ms, at(3, 3, 0, 0), "3 samplers in place of 4: compute is busy 90 % of the time, and they are for 46 %; 3 credits each in place of 2"},
		"nothing is loaded, and just so long":   {sizes(), Request{}, at(4, 2, 0, 0), 0, 900 * ms, 0, at(4, 2, 0, 0), ""},
		"as many credits in all":                {sizes(), Request{}, at(4, 3, 0, 0), 1700 * ms, 0, 1000 * ms, at(2, 6, 0, 0), "2 samplers in place of 4: compute is busy 100 % of the time, and they are for 42 %; 6 credits each in place of 3"},
		"compute is busy, credits fixed":        {sizes(), Request{Credits: 2}, at(4, 2, 0, 0), 2400 * ms, 0, 900 * ms, at(4, 2, 0, 0), ""},
		"compute is busy, samplers fixed":       {sizes(), Request{Samplers: 4}, at(4, 2, 0, 0), 2400 * ms, 0, 900 * ms, at(4, 2, 0, 0), ""},
		"nobody is quite busy":                  {sizes(), Request{}, at(4, 2, 0, 0), 3599 * ms, 899 * ms, 899 * ms, at(4, 3, 0, 0), "3 credits each in place of 2: no stage is busy for 90 % of the time"},
		"nobody is busy, but has 4 credits":     {sizes(), Request{}, at(8, 4, 0, 0), 3599 * ms, 0, 899 * ms, at(8, 4, 0, 0), ""},
		"sampling is busy":                      {sizes(), Request{}, at(4, 2, 0, 0), 3600 * ms, 0, 899 * ms, at(5, 2, 0, 0), "5 samplers in place of 4: they are busy 90 % of the time, and compute for 90 %"},
		"sampling is busy, by one credit":       {sizes(), Request{}, at(3, 1, 0, 0), 2700 * ms, 0, 0, at(4, 2, 0, 0), "4 samplers in place of 3: they are busy 90 % of the time, and compute for 0 %; 2 credits each in place of 1"},
		"sampling is busy, credits fixed":       {sizes(), Request{Credits: 1}, at(3, 1, 0, 0), 2700 * ms, 0, 0, at(4, 1, 0, 0), "4 samplers in place of 3: they are busy 90 % of the time, and compute for 0 %"},
		"sampling is busy, with all":            {sizes(), Request{}, at(8, 2, 0, 0), 8000 * ms, 0, 0, at(8, 2, 0, 0), ""},
		"sampling is busy, samplers fixed":      {sizes(), Request{Samplers: 4}, at(4, 2, 0, 0), 4000 * ms, 0, 0, at(4, 2, 0, 0), ""},
		"load is busy":                          {disk, Request{}, at(4, 2, 4, 2), 400 * ms, 900 * ms, 500 * ms, at(4, 2, 6, 4), "4 reads under way in place of 2: load is busy 90 % of the time and compute 50 %"},
		"load is busy, and needs credits":       {disk, Request{}, at(3, 2, 4, 2), 400 * ms, 900 * ms, 500 * ms, at(3, 3, 6, 4), "4 reads under way in place of 2: load is busy 90 % of the time and compute 50 %; 3 credits each in place of 2, for the batches ahead"},
		"load is busy, credits fixed":           {disk, Request{Credits: 2}, at(3, 2, 4, 2), 400 * ms, 900 * ms, 500 * ms, at(3, 2, 6, 4), "4 reads under way in place of 2: load is busy 90 % of the time and compute 50 %"},
		"load is busy, with many reads":         {disk, Request{}, at(4, 3, 7, 5), 400 * ms, 1000 * ms, 0, at(4, 3, 10, 8), "8 reads under way in place of 5: load is busy 100 % of the time and compute 0 %"},
		"load is busy, with all reads":          {disk, Request{}, at(4, 3, 10, 8), 400 * ms, 1000 * ms, 0, at(4, 3, 10, 8), ""},
		"load is busy, loaders fixed":           {disk, Request{Loaders: 2}, at(4, 2, 4, 2), 400 * ms, 1000 * ms, 0, at(4, 2, 4, 2), ""},
		"load and sampling are busy alike":      {disk, Request{}, at(4, 2, 4, 2), 3600 * ms, 900 * ms, 0, at(4, 2, 6, 4), "4 reads under way in place of 2: load is busy 90 % of the time and compute 0 %"},
		"load is busy, and sampling more":       {disk, Request{}, at(4, 2, 4, 2), 3700 * ms, 900 * ms, 0, at(5, 2, 4, 2), "5 samplers in place of 4: they are busy 92 % of the time, and compute for 0 %"},
		"nothing is loaded, whatever it says":   {sizes(), Request{}, at(4, 2, 0, 0), 0, 1000 * ms, 0, at(4, 2, 0, 0), ""},
		"more than the peak has credit for":     {sizes(), Request{}, at(4, 99, 0, 0), 4000 * ms, 0, 0, at(4, 99, 0, 0), ""},
		"nobody is busy, credits fixed already": {sizes(), Request{Credits: 2}, at(4, 2, 0, 0), 0, 0, 0, at(4, 2, 0, 0), ""},
	} {
		c.request.Threads = 8
		p := Build(c.sizes, c.request)
		next, why := p.Refine(c.now, Measured{Batches: 1, Wall: time.Second, Sample: c.sample, Load: c.load, Compute: c.compute}, c.request)
		if text := strings.Join(why, "; "); next != c.want || text != c.why {
			t.Errorf("%s: %+v, %q; want %+v, %q", name, next, text, c.want, c.why)
		}
	}
	p := Build(sizes(), Request{Threads: 8})
	for _, m := range []Measured{{Batches: 0, Wall: time.Second, Sample: 4 * time.Second}, {Batches: 1, Sample: time.Second}} {
		if next, why := p.Refine(p.Tuning(), m, Request{}); next != p.Tuning() || why != nil {
			t.Errorf("%+v was measured: %+v, %q", m, next, why)
		}
		if next, why := p.NewTuner(Request{}).Next(m); next != p.Tuning() || why != nil {
			t.Errorf("%+v was measured: %+v, %q", m, next, why)
		}
	}
}

// A run with two trainers is busy when both are.
func TestRefineCountsTrainers(t *testing.T) {
	p := Build(sizes(), Request{Threads: 8, Trainers: 2})
	for compute, want := range map[time.Duration]int{1799: 4, 1800: 1} {
		next, _ := p.Refine(p.Tuning(), Measured{Batches: 1, Wall: time.Second, Sample: 900 * time.Millisecond / 2, Compute: compute * time.Millisecond}, Request{})
		if next.Samplers != want {
			t.Errorf("compute of %d ms a second: %+v", compute, next)
		}
	}
}

// What a Tuner tries, says and keeps at its thresholds.
func TestTunerAtItsThresholds(t *testing.T) {
	const ms = time.Millisecond
	disk := sizes()
	disk.Source, disk.RowBytes, disk.BatchSize, disk.Inputs, disk.NewRows = "disk", 512, 64, 60_000, 2_000
	all := Request{Threads: 8, Samplers: 2, Credits: 4, Loaders: 2}
	fused, both := all, all
	fused.Gather = "fused"
	both.Trainers = 2
	both.Gather = "fused"
	rest := func(sample, load, compute time.Duration) Measured {
		return Measured{Batches: 4, Wall: 1000 * ms, Sample: sample * ms, Load: load * ms, Compute: compute * ms, Rows: 1000}
	}
	for name, c := range map[string]struct {
		sizes    Sizes
		request  Request
		measured []Measured
		says     []string // after each; empty: nothing
	}{
		"copies": {sizes(), all, []Measured{rest(0, 0, 900), rest(0, 0, 873), rest(0, 0, 900)}, []string{
			"trying the copied gather: compute is busy 90 % of the time",
			"once more without the copied gather: compute takes 218.2 ms a batch in place of 225.0",
			"the copied gather stays: compute takes 218.2 ms a batch in place of 225.0"}},
		"copies that save 2.9 %": {sizes(), all, []Measured{rest(0, 0, 1000), rest(0, 0, 971)}, []string{
			"trying the copied gather: compute is busy 100 % of the time",
			"the copied gather did not pay: compute takes 242.8 ms a batch in place of 250.0"}},
		"compute is not quite busy": {sizes(), all, []Measured{rest(1000, 0, 899)}, []string{""}},
		"threads": {sizes(), fused, []Measured{rest(1500, 0, 900), {Batches: 4, Wall: 970 * ms}, {Batches: 4, Wall: 1200 * ms}}, []string{
			"trying 6 threads for compute: sampling keeps 2 of 8 busy",
			"once more without 6 threads for compute: a step takes 242.5 ms a batch in place of 250.0",
			"6 threads for compute stays: a step takes 242.5 ms a batch in place of 250.0"}},
		"sampling takes half a core":        {sizes(), fused, []Measured{rest(500, 0, 900)}, []string{"trying 7 threads for compute: sampling keeps 1 of 8 busy"}},
		"sampling takes less":               {sizes(), fused, []Measured{rest(499, 0, 900)}, []string{""}},
		"sampling takes half of all":        {sizes(), fused, []Measured{rest(4000, 0, 900)}, []string{"trying 4 threads for compute: sampling keeps 4 of 8 busy"}},
		"sampling takes more":               {sizes(), fused, []Measured{rest(4500, 0, 900)}, []string{""}},
		"compute is not busy: threads stay": {sizes(), fused, []Measured{rest(1500, 0, 899)}, []string{""}},
		"two trainers":                      {sizes(), both, []Measured{rest(1500, 0, 1800)}, []string{""}},
		"a cache with 2 %": {disk, all, []Measured{rest(0, 900, 0), {Batches: 1, Wall: ms, Rows: 1000, Hits: 20}, rest(0, 900, 0)}, []string{
			"trying a dynamic cache of N rows: load is busy 90 % of the time",
			"a dynamic cache of N rows stays: it holds 2.0 % of the rows asked for", ""}},
		"a cache with less": {disk, all, []Measured{rest(0, 900, 0), {Batches: 1, Wall: ms, Rows: 1000, Hits: 19}, rest(0, 900, 0)}, []string{
			"trying a dynamic cache of N rows: load is busy 90 % of the time",
			"a dynamic cache of N rows did not pay: it holds 1.9 % of the rows asked for", ""}},
		"a cache that nobody asked": {disk, all, []Measured{rest(0, 900, 0), {Batches: 1, Wall: ms}}, []string{
			"trying a dynamic cache of N rows: load is busy 90 % of the time",
			"a dynamic cache of N rows did not pay: it holds 0.0 % of the rows asked for"}},
		"load is not quite busy": {disk, all, []Measured{rest(0, 899, 0)}, []string{""}},
	} {
		p := Build(c.sizes, c.request)
		tuner := p.NewTuner(c.request)
		for i, m := range c.measured {
			want := strings.Replace(c.says[i], "N", fmt.Sprint(p.CacheRoom), 1)
			if _, why := tuner.Next(m); strings.Join(why, "; ") != want {
				t.Errorf("%s, after %d: %q, want %q", name, i+1, why, want)
			}
		}
	}
	// One that is sampled together leaves no threads to samplers.
	large := sizes()
	large.BatchSize, large.Parallel = togetherFrom, true
	r := fused
	r.Samplers = 1
	if _, why := Build(large, r).NewTuner(r).Next(rest(900, 0, 900)); why != nil {
		t.Errorf("all threads sample one batch: %q", why)
	}
}

// A move of a sampler is worth more than a fifth, and says what it would gain.
func TestMoveSamplerSays(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		nodes []SamplerNode
		on    []string
		want  string
	}{
		{[]SamplerNode{{"a", ms, 1, 0, 0}, {"b", ms, 1, 0, 0}}, []string{"a", "a"}, "s0 to b: 2 samplers make 1e+03 micro-batches/s on a, and 1 could make 1e+03 on b"},
		{[]SamplerNode{{"a", 100 * ms, 1, 0, 0}, {"b", ms, 1, 0, 0}}, []string{"a"}, "s0 to b: 1 samplers make 10 micro-batches/s on a, and 1 could make 1e+03 on b"},
		{[]SamplerNode{{"b", 4 * ms, 2, 0, 0}, {"a", 2 * ms, 0.5, 0, 0}}, []string{"b", "a", "a"}, "s1 to b: 2 samplers make 250 micro-batches/s on a, and 2 could make 500 on b"},
		{[]SamplerNode{{"a", ms, 1, 0, 0}, {"b", ms, 4, 0, 0}}, []string{"a", "a", "b"}, "s0 to b: 2 samplers make 1e+03 micro-batches/s on a, and 2 could make 2e+03 on b"},
		{[]SamplerNode{{"a", ms, 1, 0, 0}, {"b", 3 * ms, 1, 0, 0}}, []string{"a", "a"}, ""},                                                                                                    // 2 ms each, and 3 ms after it
		{[]SamplerNode{{"a", ms, 1, 0, 0}, {"b", ms * 17 / 10, 1, 0, 0}}, []string{"a", "a"}, ""},                                                                                              // 2 ms each, and 1.7 then
		{[]SamplerNode{{"a", ms, 1, 0, 0}, {"b", ms * 8 / 5, 1, 0, 0}}, []string{"a", "a"}, "s0 to b: 2 samplers make 1e+03 micro-batches/s on a, and 1 could make 625 on b"},                  // 1.6
		{[]SamplerNode{{"a", 0, 1, 0, 0}, {"b", 0, 1, 0, 0}}, []string{"a", "a"}, "s0 to b: 2 samplers make 1e+09 micro-batches/s on a, and 1 could make 1e+09 on b"},                          // nothing was measured
		{[]SamplerNode{{"a", ms, 1, 0, 0}, {"b", ms, 1, 0, 0}, {"c", 100 * ms, 1, 0, 0}}, []string{"c", "a"}, "s0 to b: 1 samplers make 10 micro-batches/s on c, and 1 could make 1e+03 on b"}, // 100 ms, and 1 then
	} {
		var places []SamplerPlace
		for i, n := range c.on {
			places = append(places, SamplerPlace{fmt.Sprintf("s%d", i), n})
		}
		to, why, ok := MoveSampler(c.nodes, places)
		got := ""
		if ok {
			got = fmt.Sprintf("%s to %s: %s", to.Sampler, to.Node, why)
		}
		if got != c.want {
			t.Errorf("%v on %v: %q, want %q", c.nodes, c.on, got, c.want)
		}
	}
}

// Bounds do not overflow, and stay at what is more than any machine has.
func TestBounds(t *testing.T) {
	for _, c := range []struct{ a, b, product, sum int64 }{
		{0, 0, 0, 0}, {7, 0, 0, 7}, {0, 7, 0, 7}, {6, 7, 42, 13}, {enough, 1, enough, enough}, {enough / 2, 2, enough, enough/2 + 2},
		{enough/2 + 1, 2, enough, enough/2 + 3}, {1 << 40, 1 << 40, enough, 1 << 41}, {enough, enough, enough, enough}, {enough - 1, 1, enough - 1, enough},
		{enough / 3, 3, enough - 1, enough/3 + 3},
	} {
		if p, s := times(c.a, c.b), plus(c.a, c.b); p != c.product || s != c.sum {
			t.Errorf("%d and %d: product %d, sum %d; want %d and %d", c.a, c.b, p, s, c.product, c.sum)
		}
	}
	for _, c := range [][3]int{{0, 4, 0}, {1, 4, 1}, {4, 4, 1}, {5, 4, 2}, {7, 0, 6}} {
		if got := share(c[0], c[1]); got != c[2] {
			t.Errorf("%d things for %d: %d each", c[0], c[1], got)
		}
	}
	for rows, want := range map[int64]int64{0: 1, 1: 2, 4: 6, 100: 126} {
		if got := margin(rows); got != want {
			t.Errorf("margin of %d: %d", rows, got)
		}
	}
	if err := Within(Limit{10, "here"}, "a thing", 10); err != nil {
		t.Error(err)
	}
	if err := Within(Limit{}, "a thing", 11); err != nil {
		t.Error(err)
	}
	err := Within(Limit{1 << 20, "here"}, "a thing", 1<<20+1<<19)
	if want := "scheduler: more memory than the limit: a thing is 1.5 MiB, and here allows 1.0 MiB; what helps is " + remedy; !errors.Is(err, ErrMemory) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := WithinOfPieces(Limit{10, "here"}, "a thing", 10); err != nil {
		t.Error(err)
	}
	for _, unread := range []string{"--fanouts", "--batch-size", "--samplers", "--credits", "--features"} {
		if err := WithinOfPieces(Limit{1 << 20, "here"}, "a thing", 1<<21); !errors.Is(err, ErrMemory) || strings.Contains(err.Error(), unread) || !strings.Contains(err.Error(), "more pieces") {
			t.Errorf("of pieces that are computed in place: %v", err)
		}
	}
	if err := Within(Limit{1 << 10, "here"}, "a thing", 1<<10+1); !strings.Contains(err.Error(), "is 1025 bytes, and here allows 1024;") {
		t.Errorf("what differs by less than is shown: %v", err)
	}
}
