package trainers

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/sampling"
)

// agreed reports whether the last vote is that of another one.
func agreed(votes []Vote) bool {
	last := votes[len(votes)-1].Digest
	return last != 0 && slices.ContainsFunc(votes[:len(votes)-1], func(v Vote) bool { return v.Digest == last })
}

// odd returns the nodes that voted otherwise than the last one.
func odd(votes []Vote) (nodes []string) {
	for _, v := range votes {
		if v.Digest != votes[len(votes)-1].Digest {
			nodes = append(nodes, v.Node)
		}
	}
	return nodes
}

// audit asks other nodes about what was sampled here, one micro-batch at a time.
func (a *auditor) audit() {
	for {
		a.mu.Lock()
		group, members, changed := a.group, a.members, a.changed
		var x sampled
		due := len(a.queue) > 0 && group != nil && group.Err() == nil && a.verdict == nil
		if due {
			x = a.queue[0]
		}
		a.mu.Unlock()
		if due && a.ask(group, members, x) {
			a.mu.Lock()
			if len(a.queue) > 0 && a.queue[0] == x {
				a.queue = a.queue[1:]
				a.settled++
				a.notify()
			}
			a.mu.Unlock()
			continue
		}
		if due { // nobody could answer
			if !sleep(group, again) && a.ctx.Err() != nil {
				return
			}
			continue
		}
		select {
		case <-changed:
		case <-a.ctx.Done():
			return
		}
	}
}

// ask has one micro-batch audited by a group, first by this node if it was not sampled here. It returns true when that is done, and
// false when it has to be done again, in the same group or the next one, or never,
// because there is a verdict.
func (a *auditor) ask(ctx context.Context, members []string, x sampled) bool {
	votes := []Vote{{x.by, x.digest}}
	silent := false // somebody is there who did not answer
	others, able := a.others(members, x), 0
	if x.by != a.me && a.o.Again != nil {
		d, err := a.sampleAgain(ctx, x.id)
		if err != nil || d == x.digest && d != 0 {
			return err == nil
		}
		votes = append(votes, Vote{a.me, d})
	}
	for _, node := range others {
		q := question{a.run, x.id.Epoch, x.id.Batch, x.id.Micro, x.id.Of, votes}
		body, err := q.encode()
		if err != nil {
			a.o.Logger.Error("audit", "batch", x.id, "error", err)
			return true
		}
		b, err := a.o.Plane.Ask(ctx, dataplane.Call{Node: node, Method: dataplane.MethodAudit, Body: [][]byte{body}, Max: answerSize})
		if err == nil && len(b) == 0 { // it cannot sample
			continue
		}
		able++
		var d sampling.Digest
		var decided bool
		if err == nil {
			d, decided, err = parseAnswer(b)
		}
		if err != nil {
			v, _ := a.o.Member.View()
			_, there := v.Member(node)
			silent = silent || there
			a.o.Logger.Debug("a node could not be asked to sample again", "node", node, "batch", x.id, "error", err)
			continue
		}
		if len(votes) == 1 && d == x.digest && d != 0 {
			return true
		}
		if decided {
			return false // the verdict comes by the store
		}
		votes = append(votes, Vote{node, d})
	}
	for _, node := range a.samplers(members, x) {
		var b sampling.Batch
		later, err := a.o.Samplers.DrawAt(ctx, node, x.id, &b)
		if err != nil && !later {
			a.o.Logger.Warn("a node could not sample again", "node", node, "batch", x.id, "error", err)
			continue
		}
		able++
		if err != nil {
			silent = silent || slices.Contains(a.o.Samplers.Nodes(), node)
			continue
		}
		d := b.Digest()
		if len(votes) == 1 && d == x.digest {
			return true
		}
		if votes = append(votes, Vote{node, d}); agreed(votes) {
			_ = a.judge(ctx, x.id, votes)
			return false // the verdict comes by the store
		}
	}
	if len(votes) > 1 && !silent { // no two agree
		_ = a.judge(ctx, x.id, votes) // it fails when ctx ends, and the group with it
	}
	return able == 0 && len(votes) == 1 // else there is another group soon, if nobody is there
}

// samplers returns the nodes outside of a group that sample for others, but for the one that drew a micro-batch, in the
// order in which they are asked about it.
func (a *auditor) samplers(members []string, x sampled) []string {
	if a.o.Samplers == nil {
		return nil
	}
	return a.others(slices.DeleteFunc(a.o.Samplers.Nodes(), func(n string) bool { return slices.Contains(members, n) }), x)
}

// others returns the other members of a group in the order in which they are asked
// about a micro-batch.
func (a *auditor) others(members []string, x sampled) []string {
	others := slices.DeleteFunc(slices.Clone(members), func(n string) bool { return n == a.me || n == x.by })
	order := make([]uint32, len(others))
	a.key(x.id).With(1).Perm(order)
	all := make([]string, len(others))
	for i, j := range order {
		all[i] = others[j]
	}
	return all
}

// judge writes down who is to blame: those that the last of votes disagrees with, if it
// agrees with one, and else all. It returns when that is written; when ctx ends
// earlier, it is written all the same.
func (a *auditor) judge(ctx context.Context, id sampling.ID, votes []Vote) error {
	v := &Verdict{Run: a.run, Batch: id.String()}
	blamed := odd(votes)
	if !agreed(votes) {
		blamed = append(blamed, votes[len(votes)-1].Node)
	}
	view, _ := a.o.Member.View()
	votes = slices.SortedFunc(slices.Values(votes), func(a, b Vote) int { return strings.Compare(a.Node, b.Node) })
	for _, vote := range votes {
		if slices.Contains(blamed, vote.Node) {
			info, _ := view.Member(vote.Node)
			v.Lying = append(v.Lying, Suspect{vote.Node, info.Epoch})
		} else {
			v.Agree = append(v.Agree, vote.Node)
		}
	}
	a.o.Logger.Error("nodes sample a micro-batch differently", "batch", id, "votes", votes, "verdict", v.Error())
	written := make(chan struct{})
	a.mu.Lock()
	if a.ctx.Err() != nil {
		a.mu.Unlock()
		return a.ctx.Err()
	}
	a.judging++
	a.tasks.Go(func() {
		defer close(written)
		a.write(v)
		a.mu.Lock()
		a.judging--
		a.notify()
		a.mu.Unlock()
	})
	a.mu.Unlock()
	select {
	case <-written:
		return a.ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write puts a verdict into the store, unless one on a node that it names is there that
// the state here has not seen, or one on all that it names, of which it is a late finding.
func (a *auditor) write(v *Verdict) {
	value, err := json.Marshal(v)
	if err != nil {
		a.o.Logger.Error("audit", "error", err)
		return
	}
	for {
		a.mu.Lock()
		known := a.known
		a.mu.Unlock()
		_, revision := a.o.Member.Value(verdictKey)
		if now := a.newest(); now != nil && now.Revision > known && slices.ContainsFunc(v.Lying, func(s Suspect) bool { return now.Names(s.Node) }) || now.covers(v) {
			return
		}
		call, cancel := context.WithTimeout(a.ctx, a.o.Member.Patience())
		_, err := a.o.Member.Propose(call, verdictKey, revision, value)
		cancel()
		switch {
		case err == nil || a.ctx.Err() != nil || errors.Is(err, membership.ErrFenced):
			return
		case !errors.Is(err, membership.ErrStale):
			a.o.Logger.Warn("a verdict could not be written down yet", "verdict", v, "error", err)
		}
		if !sleep(a.ctx, again) { // until the view has what was written meanwhile
			return
		}
	}
}

// newest returns the newest verdict on this run; nil: there is none.
func (a *auditor) newest() *Verdict {
	b, revision := a.o.Member.Value(verdictKey)
	return parseVerdict(b, revision, a.run)
}

// hear takes notice of a verdict that this node's state has not seen, and ends the
// group.
func (a *auditor) hear() {
	v := a.newest()
	a.mu.Lock()
	defer a.mu.Unlock()
	if v == nil || v.Revision <= a.known || a.verdict != nil && a.verdict.Revision >= v.Revision {
		return
	}
	a.verdict = v
	a.o.Logger.Error("the audit came to a verdict", "verdict", v.Error())
	if a.group != nil {
		a.endGroup()
		a.leave()
	}
	a.notify()
	if a.o.Expel == nil || !v.Decided() || v.Names(a.me) {
		return
	}
	if a.ctx.Err() == nil {
		a.tasks.Go(func() { a.expel(v) })
	}
}

// expel takes the nodes that a verdict names out of the cluster. All that hear of it
// do: one may have died.
func (a *auditor) expel(v *Verdict) {
	for _, s := range v.Lying {
		for {
			view, _ := a.o.Member.View()
			if now, in := view.Member(s.Node); !in || now.Epoch != s.Epoch {
				break
			}
			err := a.o.Expel(a.ctx, s.Node, s.Epoch, v.Error())
			if err != nil && a.o.Member.Err() == nil {
				a.o.Logger.Warn("a node could not be expelled yet", "node", s.Node, "error", err)
			}
			if err == nil || a.o.Member.Err() != nil || !sleep(a.ctx, again) {
				break
			}
		}
	}
}

// follow hears of verdicts.
func (a *auditor) follow() {
	for {
		_, changed := a.o.Member.View()
		a.hear()
		if a.o.Member.Wait(a.ctx, changed, 0) != nil {
			return
		}
	}
}
