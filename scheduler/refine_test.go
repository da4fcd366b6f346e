package scheduler

import (
	"strings"
	"testing"
	"time"
)

// Refine gives to the stage that holds the others up, says why, leaves what the
// user fixed, and comes to rest.
func TestRefine(t *testing.T) {
	const s = time.Second
	disk := sizes()
	disk.Source, disk.RowBytes, disk.Inputs = "disk", 512, 100_000
	plan := func(s Sizes, r Request) *Plan { r.Threads = 8; return Build(s, r) }
	for name, c := range map[string]struct {
		sizes   Sizes
		request Request
		m       Measured
		check   func(now, next Tuning) bool
		says    string
	}{
		"compute holds up":  {sizes(), Request{}, Measured{Batches: 10, Wall: 10 * s, Sample: 2 * s, Load: 0, Compute: 10 * s}, func(n, x Tuning) bool { return x.Samplers == 1 && x.Credits*x.Samplers >= n.Credits*n.Samplers }, "samplers in place of 4"},
		"samplers fixed":    {sizes(), Request{Samplers: 4}, Measured{Batches: 10, Wall: 10 * s, Sample: 2 * s, Load: 0, Compute: 10 * s}, func(n, x Tuning) bool { return x == n }, ""},
		"sampling holds up": {sizes(), Request{}, Measured{Batches: 10, Wall: 10 * s, Sample: 39 * s, Load: 0, Compute: 5 * s}, func(n, x Tuning) bool { return x.Samplers == n.Samplers+1 }, "5 samplers in place of 4"},
		"load holds up":     {disk, Request{}, Measured{Batches: 10, Wall: 10 * s, Sample: 4 * s, Load: 10 * s, Compute: 5 * s}, func(n, x Tuning) bool { return x.Loaders == 2*n.Loaders && x.Ahead > n.Ahead }, "reads under way"},
		"loaders fixed":     {disk, Request{Loaders: 2}, Measured{Batches: 10, Wall: 10 * s, Sample: 4 * s, Load: 10 * s, Compute: 5 * s}, func(n, x Tuning) bool { return x == n }, ""},
		"nobody is busy":    {sizes(), Request{}, Measured{Batches: 10, Wall: 10 * s, Sample: 8 * s, Load: 0, Compute: 7 * s}, func(n, x Tuning) bool { return x.Credits == n.Credits+1 }, "credits"},
		"credits fixed":     {sizes(), Request{Credits: 2}, Measured{Batches: 10, Wall: 10 * s, Sample: 8 * s, Load: 0, Compute: 7 * s}, func(n, x Tuning) bool { return x == n }, ""},
		"nothing measured":  {sizes(), Request{}, Measured{}, func(n, x Tuning) bool { return x == n }, ""},
	} {
		p := plan(c.sizes, c.request)
		next, why := p.Refine(p.Tuning(), c.m, c.request)
		if text := strings.Join(why, "; "); !c.check(p.Tuning(), next) || !strings.Contains(text, c.says) || (c.says == "") != (text == "") {
			t.Errorf("%s: %+v becomes %+v: %q", name, p.Tuning(), next, text)
		}
		for range 100 { // the same again: it comes to rest
			now := next
			if next, why = p.Refine(now, c.m, c.request); len(why) == 0 {
				break
			}
		}
		if len(why) > 0 {
			t.Errorf("%s: it still changes: %v", name, why)
		}
	}
}

// A window that is reordered keeps the credit that it needs.
func TestRefineKeepsTheWindow(t *testing.T) {
	s := sizes()
	s.Source, s.RowBytes, s.Micro = "disk", 512, 2
	r := Request{Threads: 8, Reorder: 16}
	p := Build(s, r)
	for _, m := range []Measured{{Batches: 10, Wall: 10 * time.Second, Sample: time.Second, Load: 0, Compute: 10 * time.Second}, {Batches: 10, Wall: 10 * time.Second, Sample: time.Second, Load: 10 * time.Second, Compute: 0}} {
		next, _ := p.Refine(p.Tuning(), m, r)
		if next.Samplers*next.Credits < 17*2 {
			t.Errorf("%+v: %d samplers with %d credits for windows of 16 batches in 2 micro-batches", m, next.Samplers, next.Credits)
		}
	}
}
