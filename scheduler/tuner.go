package scheduler

import (
	"fmt"
	"math"
)

// Tuner looks for a better tuning while a run goes on. It is told what was measured
// and says what to do next: first what Refine finds, and then trials of what no
// figure of the present tuning can decide. A trial is measured like anything else,
// and taken back unless it paid; one that seems to save time has to be faster than
// what was measured before it and than what is measured without it once more, for
// a machine that others use is now slower and now faster by itself.
type Tuner struct {
	plan    *Plan
	request Request
	now     Tuning
	changes int
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
	name         string
	before, with Tuning
	// pays reports whether it does, by what was measured with it; again, if not nil,
	// by what was measured without it after that.
	pays, again func(m Measured) (ok bool, why string)
	over        bool // it is measured without it
}

const (
	// maxChanges is after how many changes nothing new is begun.
	maxChanges = 12
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
	if m.Batches < 1 || m.Wall <= 0 || t.trial == nil && t.changes >= maxChanges {
		return t.now, nil
	}
	t.changes++
	if x := t.trial; x != nil {
		pays := x.pays
		if x.over {
			pays = x.again
		}
		ok, figures := pays(m)
		switch {
		case !ok:
			t.trial, t.now = nil, x.before
			return t.now, []string{fmt.Sprintf("%s did not pay: %s", x.name, figures)}
		case x.again != nil && !x.over:
			x.over, t.now = true, x.before
			return t.now, []string{fmt.Sprintf("once more without %s: %s", x.name, figures)}
		}
		t.trial, t.now = nil, x.with
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
		x.before, x.with, t.trial, t.now = t.now, next, x, next
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
		return next, &trial{name: fmt.Sprintf("a dynamic cache of %d rows", next.Cache), pays: func(m Measured) (bool, string) {
			share := float64(m.Hits) / float64(max(m.Rows, 1))
			return share >= hitShare, fmt.Sprintf("it holds %.1f %% of the rows asked for", 100*share)
		}}, fmt.Sprintf("load is busy %.0f %% of the time", 100*load)
	case tryGather:
		if r.Gather != "" || p.CopyRows == 0 || compute < busyShare {
			return next, nil, ""
		}
		next.Copied = !t.now.Copied
		return next, faster(gatherName(next.Copied), "compute", m, func(m Measured) float64 { return m.Compute.Seconds() }),
			fmt.Sprintf("compute is busy %.0f %% of the time", 100*compute)
	case tryThreads:
		// As many threads as samplers and the like take are left to them.
		others := int(math.Round(m.Sample.Seconds() / m.Wall.Seconds()))
		if r.FixedThreads || r.Shared || p.Together || p.Trainers > 1 || compute < busyShare || others < 1 || 2*(p.Threads-others) < p.Threads {
			return next, nil, ""
		}
		next.Threads = p.Threads - others
		return next, faster(fmt.Sprintf("%d threads for compute", next.Threads), "a step", m, func(m Measured) float64 { return m.Wall.Seconds() }),
			fmt.Sprintf("sampling keeps %d of %d busy", others, p.Threads)
	}
	return next, nil, ""
}

// faster returns a trial that pays if what takes seconds takes fewer of them than it
// did in before.
func faster(name, what string, before Measured, seconds func(Measured) float64) *trial {
	batch := func(m Measured) float64 { return 1e3 * seconds(m) / float64(m.Batches) }
	with, without := 0.0, batch(before)
	pays := func() (bool, string) {
		return with <= (1-payShare)*without, fmt.Sprintf("%s takes %.1f ms a batch in place of %.1f", what, with, without)
	}
	return &trial{
		name:  name,
		pays:  func(m Measured) (bool, string) { with = batch(m); return pays() },
		again: func(m Measured) (bool, string) { without = min(without, batch(m)); return pays() },
	}
}

// gatherName says how compute gets at a batch's rows.
func gatherName(copied bool) string {
	if copied {
		return "the copied gather"
	}
	return "the fused gather"
}
