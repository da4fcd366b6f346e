package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
)

// errNobodySamples: a run cannot begin for anyone.
var errNobodySamples = errors.New(samplers.Nobody)

// untilNobodySamples returns a context that ends with an error of Options if the run cannot begin, as no node samples, and stop, which
// ends it. Once the first group of trainers was there they wait for as long as it takes, as who samples may have died.
func (s *Session) untilNobodySamples(ctx context.Context) (_ context.Context, stop func()) {
	return watched(ctx, func(ctx context.Context, end context.CancelCauseFunc) {
		limit := 8 * s.node.Member.Patience() // two leases: nodes that are started together come in any order
		for since := time.Now(); ; {
			v, changed := s.node.Member.View()
			left := time.Duration(0)
			if !s.nobodySamples(v) {
				since = time.Now()
			} else if left = limit - time.Since(since); left <= 0 {
				end(optionsf("the run cannot begin: %w, before those that train or at most %v after the last of the %d that its first step waits for", errNobodySamples, limit, s.o.WaitFor))
				return
			}
			if s.node.Member.Wait(ctx, changed, left) != nil {
				return
			}
		}
	})
}

// nobodySamples reports whether the run has had no group, all trainers that the first one waits for are there, no node has the role
// sampler, and it is for this node to say so: of those trainers the one that began the run, or else the first that came.
func (s *Session) nobodySamples(v *membership.View) bool {
	n := s.node
	n.mu.Lock()
	run, at := n.run, n.revision
	n.mu.Unlock()
	group, _ := n.Member.Value(groupKey)
	if group != nil || slices.ContainsFunc(slices.Concat(v.Members, v.Absent), func(m membership.Info) bool { return m.Samples }) {
		return false
	}
	var wait []int64
	for _, m := range v.Members {
		if m.Run == at && m.Samplers > 0 && !m.Drains() { // it says so before it trains (start)
			wait = append(wait, m.Epoch)
		}
	}
	if len(wait) == 0 || len(wait) < s.o.WaitFor {
		return false
	}
	says := slices.Min(wait)
	if slices.Contains(wait, run.Epoch) {
		says = run.Epoch
	}
	return says == n.Member.Epoch()
}
