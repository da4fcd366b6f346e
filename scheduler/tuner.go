package scheduler

import (
	"fmt"
	"math"
)

// Tuner looks for a better tuning while a run goes on. It is told what was measured
// and says what to do next: first what Refine finds, and then trials of what no
// figure of the present tuning can decide. A trial is measured like anything else,
// and taken back unless it paid.
type Tuner struct {
	plan    *Plan
	request Request
	now     Tuning
	tried   [trials]bool
	trial   *trial // under way; nil: none
}

// NewTuner returns one that begins with p's tuning. Numbers that the user fixed in r
// stay.
func (p *Plan) NewTuner(r Request) *Tuner { return &Tuner{plan: p, request: r, now: p.Tuning()} }

// The trials, in the order in which they are made.
const (
	tryCache = iota
	tryGather
	tryThreads
	trials
)

// trial is a change that has to pay.
type trial struct {
	name   string
	before Tuning
	paid   func(m Measured) (ok bool, why string)
}

const (
	// A trial pays if it saves at least payShare of the time: what is measured is
	// a dozen batches, which differ.
	payShare = 0.03
	// A cache pays if it holds at least hitShare of the rows that batches ask for.
	hitShare = 0.02
)

// Next returns the tuning to go on with, given what was measured at the one it
// returned last, with a reason for each change. Without a reason there is nothing
// left to gain, and Next need not be called any more.
func (t *Tuner) Next(m Measured) (next Tuning, why []string) {
	if m.Batches < 1 || m.Wall <= 0 {
		return t.now, nil
	}
	if x := t.trial; x != nil {
		t.trial = nil
		ok, figures := x.paid(m)
		if !ok {
			t.now = x.before
			return t.now, []string{fmt.Sprintf("%s did not pay: %s", x.name, figures)}
		}
		return t.now, []string{fmt.Sprintf("%s stays: %s", x.name, figures)}
	}
	if next, why = t.plan.Refine(t.now, m, t.request); why != nil {
		t.now = next
		return next, why
	}
	for i := range trials {
		if t.tried[i] {
			continue
		}
		next, x, why := t.propose(i, m)
		if x == nil {
			continue
		}
		t.tried[i] = true
		x.before, t.trial, t.now = t.now, x, next
		return next, []string{"trying " + x.name + ": " + why}
	}
	return t.now, nil
}

// propose returns what trial i would change, and nil if there is no reason to.
func (t *Tuner) propose(i int, m Measured) (next Tuning, x *trial, why string) {
	p, r := t.plan, t.request
	next = t.now
	_, load, compute := m.shares(p, t.now)
	switch i {
	case tryCache:
		if room := p.CacheRoom; room == 0 || load < busyShare {
			return next, nil, ""
		}
		next.Cache = p.CacheRoom
		return next, &trial{name: fmt.Sprintf("a dynamic cache of %d rows", next.Cache), paid: func(m Measured) (bool, string) {
			share := float64(m.Hits) / float64(max(m.Rows, 1))
			return share >= hitShare, fmt.Sprintf("it holds %.1f %% of the rows asked for", 100*share)
		}}, fmt.Sprintf("load is busy %.0f %% of the time", 100*load)
	case tryGather:
		if r.Gather != "" || r.Shared || !p.gathers || compute < busyShare {
			return next, nil, ""
		}
		next.Copied = !t.now.Copied
		return next, &trial{name: gatherName(next.Copied), paid: faster(m, "compute", func(m Measured) float64 { return m.Compute.Seconds() })},
			fmt.Sprintf("compute is busy %.0f %% of the time", 100*compute)
	case tryThreads:
		// As many threads as samplers and the like take are left to them.
		others := int(math.Round((m.Sample).Seconds() / m.Wall.Seconds()))
		if r.FixedThreads || r.Shared || p.Together || p.Trainers > 1 || compute < busyShare || others < 1 || 2*(p.Threads-others) < p.Threads {
			return next, nil, ""
		}
		next.Threads = p.Threads - others
		return next, &trial{name: fmt.Sprintf("%d threads for compute", next.Threads), paid: faster(m, "a step", func(m Measured) float64 { return m.Wall.Seconds() })},
			fmt.Sprintf("sampling keeps %d of %d busy", others, p.Threads)
	}
	return next, nil, ""
}

// faster returns whether less of what takes seconds was measured than before.
func faster(before Measured, what string, seconds func(Measured) float64) func(Measured) (bool, string) {
	was := 1e3 * seconds(before) / float64(before.Batches)
	return func(m Measured) (bool, string) {
		is := 1e3 * seconds(m) / float64(m.Batches)
		return is <= (1-payShare)*was, fmt.Sprintf("%s takes %.1f ms a batch in place of %.1f", what, is, was)
	}
}

// gatherName says how compute gets at a batch's rows.
func gatherName(copied bool) string {
	if copied {
		return "the copied gather"
	}
	return "the fused gather"
}
