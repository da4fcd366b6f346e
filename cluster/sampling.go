package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/scheduler"
)

func (n *Node) samplersOptions() samplers.Options {
	return samplers.Options{Member: n.Member, Control: n.Control, Plane: n.Plane, Logger: n.log}
}

// Sample makes this node sample for the run's trainers. Leave ends it.
func (n *Node) Sample(ctx context.Context, run samplers.Run) error {
	only := n.trainers.Load() == nil
	h := samplers.Serve(n.samplersOptions(), run, only)
	n.host.Store(h)
	err := n.Member.Announce(ctx, func(i *membership.Info) {
		if !slices.Contains(i.Kinds, samplers.Kind) {
			i.Kinds = append(slices.Clone(i.Kinds), samplers.Kind)
		}
	})
	if err == nil && only {
		n.log.Info("this node samples for the trainers")
	}
	return err
}

// EndSampling ends what Sample began: what it draws with may be closed then.
func (n *Node) EndSampling() {
	h := n.host.Load()
	if h != nil {
		h.Close()
	}
}

// Samplers returns what has this node's samplers sample where they are; local: also
// here.
func (n *Node) Samplers(local bool) *samplers.Remote {
	r := samplers.NewRemote(n.samplersOptions(), local)
	n.remote.Store(r)
	return r
}

// idle is how long nobody asks a node that drains for a batch before it leaves.
const idle = 300 * time.Millisecond

// lonely is how long nobody trains before those say so that do the rest: at a run's end trainers leave first.
const lonely = 2 * time.Second

// Attend is what a node does that does not train: it waits until the run has come to
// its end, or it has drained, which is reported.
//
// It waits for nodes that train, too, and says so: nodes of a run come in any order, and may all be away for a while.
func (n *Node) Attend(ctx context.Context) (drained bool, err error) {
	alone := time.NewTimer(lonely)
	defer alone.Stop()
	for was := false; ; {
		v, changed := n.Member.View()
		if now := slices.ContainsFunc(v.Members, trains); now != was {
			was = now
			if alone.Stop(); !now {
				alone.Reset(lonely)
			}
		}
		if err := n.over(); errors.Is(err, ErrEnded) {
			return false, n.forgetRun()
		} else if err != nil {
			return false, err
		}
		select {
		case <-changed:
		case <-alone.C:
			n.log.Warn("waiting: " + trainers.Nobody + "; one that has come may still be reading its data")
		case <-n.draining:
			if _, err := n.Member.Until(ctx, func(v *membership.View) bool { // its shards are with others
				me, in := v.Member(n.Plane.Node())
				return !in || me.Drain
			}); err != nil {
				return true, err
			}
			return true, n.quiet(ctx)
		case <-n.Member.Lost():
			return false, n.Member.Err()
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// quiet waits until what this node was to give away is with others.
func (n *Node) quiet(ctx context.Context) error {
	h := n.host.Load()
	if h == nil {
		return nil
	}
	for before := int64(-1); ; {
		drawn, _ := h.Drawn()
		if drawn == before {
			return nil
		}
		before = drawn
		if err := n.Member.Wait(ctx, nil, idle); err != nil {
			return err
		}
	}
}

// How often samplers are looked at, and how long one that was moved stays before the next
// is: as long as it takes to measure what it came to.
const (
	looking = time.Second
	moving  = 3 * time.Second
)

// remembered is how many moves, with their reasons, the leader's status has.
const remembered = 8

// balance moves samplers, while this node leads, to where they make more.
func (n *Node) balance(ctx context.Context) {
	tick := time.NewTicker(looking)
	defer tick.Stop()
	var moved time.Time
	for {
		select {
		case <-tick.C:
		case <-n.Member.Lost():
			return
		case <-ctx.Done():
			return
		}
		v, _ := n.Member.View()
		if !n.Member.Leads(v) || time.Since(moved) < moving {
			continue
		}
		place, why, ok := n.moveSampler(n.loads(ctx, v), away(v, func(name string) string { return n.samplerAt(v, name) }))
		if !ok {
			continue
		}
		if err := n.put(ctx, v, place); err != nil {
			if !errors.Is(err, membership.ErrStale) && ctx.Err() == nil { // else another node leads by now
				n.log.Warn("a sampler could not be moved yet", "sampler", place.Sampler, "to", place.Node, "error", err)
			}
			continue
		}
		moved = time.Now()
		n.mu.Lock()
		n.moves = append(n.moves[max(0, len(n.moves)-remembered+1):], fmt.Sprintf("%s %s to %s: %s", moved.Format(time.TimeOnly), place.Sampler, place.Node, why))
		n.mu.Unlock()
		n.log.Info("a sampler is better elsewhere", "sampler", place.Sampler, "to", place.Node, "because", why)
	}
}

// away returns where the samplers are of trainers that do not sample for themselves.
func away(v *membership.View, placed func(name string) string) (all []scheduler.SamplerPlace) {
	for _, m := range v.Members {
		if slices.Contains(m.Kinds, samplers.Kind) {
			continue
		}
		for i := range samplers.Count(&m) {
			name := samplers.Name(m.Node, i)
			if at := placed(name); at != "" {
				all = append(all, scheduler.SamplerPlace{Sampler: name, Node: at})
			}
		}
	}
	return all
}

// loads asks the nodes that take samplers what those take there.
func (n *Node) loads(ctx context.Context, v *membership.View) (all []scheduler.SamplerNode) {
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, m := range v.Members {
		if !samplers.Can(&m) {
			continue
		}
		wg.Go(func() {
			b, err := n.Control.Ask(ctx, kindNode, m.Node, []byte(askLoad))
			load, bad := decode[samplers.Load](b)
			if err != nil || bad != nil || load.Work <= 0 || load.Cores <= 0 {
				return // nothing is known of it
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, scheduler.SamplerNode{Name: m.Node, Work: load.Work, Cores: load.Cores, Most: m.Most})
		})
	}
	wg.Wait()
	return all
}

// put writes down where a sampler is from now on.
func (n *Node) put(ctx context.Context, v *membership.View, p scheduler.SamplerPlace) error {
	was, _ := n.Member.Place(samplers.Kind, p.Sampler)
	return n.Member.SetPlaces(ctx, v.Epoch, []membership.Place{{Kind: samplers.Kind, ID: p.Sampler, Node: p.Node, Epoch: was.Epoch}})
}
