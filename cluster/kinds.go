package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/cluster/control"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/cluster/shard"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/messages"
)

// What actors and nodes are asked. To the coordinator a drain names the node.
const (
	askStatus = "status"
	askDrain  = "drain"
	askLoad   = "load"
)

// answers makes a handler of what an actor answers to those who want its status.
func answers[T any](of func(identity string) (T, error)) control.Handler {
	return func(_ context.Context, identity, _ string, body []byte) ([]byte, error) {
		if string(body) != askStatus {
			return nil, fmt.Errorf("it is not asked %.64q", body)
		}
		v, err := of(identity)
		if err != nil {
			return nil, err
		}
		return msgpack.Marshal(&v)
	}
}

// answer sets what this node's actors answer, and what operators are answered.
func (n *Node) answer() {
	status := answers(func(string) (Status, error) { return n.status(), nil })
	n.Control.Handle(kindNode, func(ctx context.Context, identity, from string, body []byte) ([]byte, error) {
		switch string(body) {
		case askDrain:
			return nil, n.Drain(ctx)
		case askLoad:
			return n.load()
		}
		return status(ctx, identity, from, body)
	})
	n.Control.Handle(trainers.Kind, answers(func(string) (Training, error) { return n.training(), nil }))
	n.Control.Handle(samplers.Kind, func(ctx context.Context, identity, from string, body []byte) ([]byte, error) {
		if samplers.Of(identity) != from {
			return nil, fmt.Errorf("it is a sampler of another node than %s", from)
		}
		h := n.host.Load()
		if h == nil {
			return nil, samplers.ErrNotReady
		}
		return h.Answer(ctx, identity, body)
	})
	n.Control.Handle(kindParameters, answers(func(string) (Parameters, error) {
		t := n.training()
		return Parameters{Node: n.Plane.Node(), Group: t.Group, Step: t.Progress.Step, Late: t.Progress.Late, Bound: t.Progress.Bound}, nil
	}))
	n.Control.Handle(shard.Kind, answers(n.shard))
	n.Control.Handle(shard.PartKind, answers(n.shard))
	n.Control.Handle(kindCoordinator, func(ctx context.Context, _, from string, body []byte) ([]byte, error) {
		if node, ok := strings.CutPrefix(string(body), askDrain+" "); ok {
			return nil, n.drainOne(ctx, node, "node "+from)
		}
		return answers(func(string) (Overview, error) { return *n.gather(ctx), nil })(ctx, "", from, body)
	})

	n.Control.HandleOperator(askStatus, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		short, cancel := context.WithTimeout(ctx, asking)
		defer cancel()
		if b, err := n.Control.Ask(short, kindCoordinator, theRun, []byte(askStatus)); err == nil {
			return b, nil
		} // it is silent, or its answer larger than a message
		return msgpack.Marshal(n.gather(ctx))
	})
	n.Control.HandleOperator(askDrain, func(ctx context.Context, from string, body []byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, beginning)
		defer cancel()
		if v, _ := n.Member.View(); v.Leader == "" && !slices.ContainsFunc(v.Members, trains) { // nobody will lead
			return nil, n.drainOne(ctx, string(body), "operator "+from)
		}
		return n.Control.Request(ctx, kindCoordinator, theRun, append([]byte(askDrain+" "), body...))
	})
}

func trains(m membership.Info) bool { return slices.Contains(m.Kinds, trainers.Kind) }

func holdsRows(m membership.Info) bool { return shard.KindOf(&m) != "" }

// needsSamplers reports whether a node trains and does not sample.
func needsSamplers(m membership.Info) bool { return trains(m) && !m.Samples }

// drainOne makes a node drain unless nobody would be left to train, or to sample or hold rows for those who do. One at a
// time: two that both think that the other stays would both go.
func (n *Node) drainOne(ctx context.Context, node, who string) error {
	ctx, cancel := context.WithTimeout(ctx, beginning) // who asked hears no more then
	defer cancel()
	select {
	case n.drains <- struct{}{}:
		defer func() { <-n.drains }()
	case <-ctx.Done():
		return fmt.Errorf("cluster: another drain takes long: %w", ctx.Err())
	}
	v, _ := n.Member.View()
	m, ok := v.Member(node)
	switch {
	case v.Leader != "" && !n.Member.Leads(v):
		return fmt.Errorf("%w: %s leads by now", control.ErrElsewhere, v.Leader)
	case !ok:
		return fmt.Errorf("cluster: the cluster has no node %.64q", node)
	case trains(m) && !slices.ContainsFunc(v.Members, func(o membership.Info) bool { return o.Node != m.Node && !o.Drains() && trains(o) }):
		return fmt.Errorf("cluster: %s is the last that trains: nobody would take over; interrupt it to end the run", node)
	case shard.KindOf(&m) == shard.PartKind && !slices.ContainsFunc(v.Members, func(o membership.Info) bool { return o.Node != m.Node && holdsRows(o) && !o.Drains() }):
		return fmt.Errorf("cluster: %s is the last that holds pieces: nobody would take them; start another node before, or interrupt it to end the run", node)
	case m.Samples && slices.ContainsFunc(v.Members, needsSamplers) && !slices.ContainsFunc(v.Members, func(o membership.Info) bool { return o.Node != m.Node && o.Samples && !o.Drains() }):
		return fmt.Errorf("cluster: %s is the last that samples, and trainers need one; start another with --roles sampler before, or interrupt it: they wait for one then", node)
	case samplers.Can(&m) && samplers.Fit(v, "") && !samplers.Fit(v, node):
		return fmt.Errorf("cluster: the samplers that %s takes fit on no other node, and trainers need all; start another with --roles sampler before, or the others with a larger --capacity, or interrupt it", node)
	case len(m.Shards) > 0 && slices.ContainsFunc(v.Members, func(o membership.Info) bool { return trains(o) && !o.Drains() }) &&
		!slices.ContainsFunc(v.Members, func(o membership.Info) bool { return o.Node != m.Node && holdsRows(o) && !o.Drains() }):
		return fmt.Errorf("cluster: %s is the last that holds rows of the features, and trainers need them; start another with --roles rows before, or interrupt it: they wait for one then", node)
	}
	n.log.Info("a node is to drain", "node", node, "by", who)
	drains := func(v *membership.View) bool {
		now, ok := v.Member(node)
		return !ok || now.Epoch != m.Epoch || now.Drains()
	}
	for {
		_, err := n.Control.Ask(ctx, kindNode, node, []byte(askDrain))
		if err != nil && !errors.Is(err, control.ErrPeerGone) && !errors.Is(err, control.ErrElsewhere) {
			return fmt.Errorf("cluster: %s does not drain: %w", node, err)
		}
		if err == nil {
			break
		}
		// It has left before its answer, or one of the two has not heard of the other's coming yet.
		if v, _ := n.Member.View(); drains(v) {
			return nil
		}
		if n.patient(ctx, "", err) != nil {
			return fmt.Errorf("cluster: %s does not drain: %w", node, err)
		}
	}
	if _, err := n.Member.Until(ctx, drains); err != nil {
		return fmt.Errorf("cluster: %s does not drain: %w", node, err)
	}
	return nil
}

func (n *Node) howFar() Progress {
	n.mu.Lock()
	progress := n.progress
	n.mu.Unlock()
	if progress == nil {
		return Progress{}
	}
	return progress()
}

// status is what this node says of itself.
func (n *Node) status() Status {
	f, h, r := n.features.Load(), n.host.Load(), n.remote.Load()
	n.mu.Lock()
	moves, led := slices.Clone(n.moves), n.led
	n.mu.Unlock()
	stats := n.Plane.Stats()
	s := Status{Answered: true, Traffic: Traffic{Sent: stats.Sent, Received: stats.Received, Asked: stats.Asked, Answered: stats.Answered}}
	s.Moved, s.Actors, s.Messages = moves, actorNames(n.Control.System()), n.messages()
	if !led.IsZero() {
		s.Leads = led.Unix()
	}
	if h != nil {
		s.Drawn, s.DrawnBytes = h.Drawn()
	}
	if r != nil {
		s.Samplers = r.Where()
		s.SamplersSince = r.Since(len(s.Samplers))
		s.SamplerMoves = r.Moves()
		s.Shunned = r.Shunned()
	}
	if f != nil {
		s.Shards = f.keeper.List()
		s.Wanted, s.Moving = f.keeper.Wanted()
		s.ShardMove[0], s.ShardMove[1] = f.keeper.Moves()
		s.Traffic.RowRounds, s.Traffic.Rows = f.keeper.Store().Stats()
	}
	return s
}

// messages are what this node sent, by what messages are called; of the control plane by the kind of actor
// that is asked, but for samplers.
func (n *Node) messages() []transport.Sent {
	all := n.Control.Traffic()
	for i := range all {
		switch all[i].Type {
		case samplers.Kind:
			all[i].Type = new(messages.Seeds).Kind()
		case samplers.Kind + " answered":
			all[i].Type = new(messages.Sampled).Kind()
		}
	}
	return transport.Sum(all, n.Plane.Traffic())
}

// actorNames returns Status.Actors of a system, leaving out what has no name of ours.
func actorNames(system *actor.ActorSystem) (names []string) {
	numbered := map[string][]int{}
	for _, some := range system.ProcessRegistry.LocalPIDs.LocalPIDs {
		some.IterCb(func(name string, _ any) {
			i := strings.LastIndexByte(name, '/')
			if i < 0 {
				return
			}
			last, _, _ := strings.Cut(name[i+1:], "#") // how often there was one, behind it
			if n, err := strconv.Atoi(last); err == nil {
				numbered[name[:i+1]] = append(numbered[name[:i+1]], n)
			} else {
				names = append(names, name[:i+1]+last)
			}
		})
	}
	for kind, all := range numbered {
		slices.Sort(all)
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n] == all[0]+n {
				n++
			}
			name := kind + strconv.Itoa(all[0])
			if n > 1 {
				name += "-" + strconv.Itoa(all[n-1])
			}
			names, all = append(names, name), all[n:]
		}
	}
	slices.Sort(names)
	return names
}

func (n *Node) training() Training {
	t := n.trainers.Load()
	s := Training{Progress: n.howFar()}
	if t != nil {
		if runs := t.Runs(); len(runs) > 0 {
			s.Group = runs[len(runs)-1].Group
		}
		s.MicroBatches, s.State, s.Since = t.Made(), t.State().String(), t.Since().Unix()
		p := t.Pauses()
		s.Pauses, s.Pause, s.MostPause = p.Count, p.Newest.Seconds(), p.Most.Seconds()
	}
	return s
}

// load is what this node says of what sampling takes here.
func (n *Node) load() ([]byte, error) {
	h := n.host.Load()
	var l samplers.Load // nothing is known
	if h != nil {
		l, _ = h.Load()
	}
	return msgpack.Marshal(&l)
}

// shard is what this node says of a shard that lies here.
func (n *Node) shard(identity string) (Shard, error) {
	f := n.features.Load()
	id, err := strconv.Atoi(identity)
	if err == nil && f != nil {
		if rows, bytes, ok := f.keeper.Shard(id); ok {
			return Shard{ID: id, Node: n.Plane.Node(), Rows: rows, Bytes: bytes}, nil
		}
	}
	return Shard{}, fmt.Errorf("%w: shard %s does not lie here", control.ErrElsewhere, identity)
}

// gather asks all actors.
func (n *Node) gather(ctx context.Context) *Overview {
	ctx, cancel := context.WithTimeout(ctx, asking*3/4) // those who wait for all wait for asking
	defer cancel()
	v, _ := n.Member.View()
	all := &Overview{By: n.Plane.Node(), Nodes: make([]Status, len(v.Members)), Shards: []Shard{}}
	var wg sync.WaitGroup
	for i := range v.Members {
		wg.Go(func() { n.askNode(ctx, v, &v.Members[i], &all.Nodes[i]) })
	}
	places := n.Member.Places()
	shards := make([]Shard, len(places))
	for i, p := range places {
		wg.Go(func() {
			switch p.Kind {
			case shard.Kind, shard.PartKind:
				at, err := status[Shard](ctx, n.Control.Request, p.Kind, p.ID)
				if err != nil { // it has its place all the same
					at.ID, _ = strconv.Atoi(p.ID)
					if _, ok := v.Member(p.Node); ok {
						at.Node = p.Node
					}
				}
				shards[i] = at
			case kindParameters: // there is one
				if at, err := status[Parameters](ctx, n.Control.Request, p.Kind, p.ID); err == nil {
					all.Parameters = &at
				}
			}
		})
	}
	wg.Wait()
	all.Actors = actorsOf(all.Nodes, places)
	f := n.features.Load()
	for i, p := range places {
		if p.Kind != shard.Kind && p.Kind != shard.PartKind {
			continue
		}
		for _, m := range v.Members {
			if slices.Contains(m.Shards, shards[i].ID) {
				shards[i].Nodes = append(shards[i].Nodes, m.Node)
			}
		}
		if shards[i].Nodes == nil { // its rows are lost, or it is of a run before this one
			if f == nil {
				continue
			}
			if shards[i].Rows, shards[i].Bytes = f.keeper.Size(shards[i].ID); shards[i].Bytes == 0 {
				continue
			}
		}
		all.Shards = append(all.Shards, shards[i])
	}
	if f != nil { // who leads has taken them out of the table by now
		for _, s := range f.keeper.Gone(v) {
			if !slices.ContainsFunc(all.Shards, func(h Shard) bool { return h.ID == s }) {
				rows, bytes := f.keeper.Size(s)
				all.Shards = append(all.Shards, Shard{ID: s, Rows: rows, Bytes: bytes})
			}
		}
	}
	slices.SortFunc(all.Shards, func(a, b Shard) int { return a.ID - b.ID })
	return all
}

// actorsOf returns where all are: what the table has, and what nodes say of themselves and their samplers.
func actorsOf(nodes []Status, places []membership.Place) (all []Actor) {
	for _, s := range nodes {
		if s.Leader {
			all = append(all, Actor{kindCoordinator, theRun, s.Node, s.Leads})
		}
		if slices.Contains(s.Kinds, trainers.Kind) {
			all = append(all, Actor{trainers.Kind, s.Node, s.Node, s.Training.Since})
		}
		for i, at := range s.Samplers {
			a := Actor{Kind: samplers.Kind, ID: samplers.Name(s.Node, i), Node: at}
			if at != "" && i < len(s.SamplersSince) {
				a.Since = s.SamplersSince[i]
			}
			all = append(all, a)
		}
	}
	for _, p := range places {
		if p.Kind != samplers.Kind { // of those it has exceptions alone
			all = append(all, Actor{p.Kind, p.ID, p.Node, p.Since})
		}
	}
	order := []string{kindCoordinator, kindParameters, trainers.Kind, samplers.Kind, shard.Kind, shard.PartKind}
	slices.SortFunc(all, func(a, b Actor) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// askNode asks the actors of a node.
func (n *Node) askNode(ctx context.Context, v *membership.View, m *membership.Info, s *Status) {
	var err error
	if *s, err = status[Status](ctx, n.Control.Ask, kindNode, m.Node); err == nil && slices.Contains(m.Kinds, trainers.Kind) {
		s.Training, err = status[Training](ctx, n.Control.Ask, trainers.Kind, m.Node)
		if errors.Is(err, control.ErrElsewhere) {
			err = nil // it trains no longer
		}
	}
	if err != nil {
		*s = Status{Problem: err.Error()}
	}
	s.member(m, v)
}

// status asks an actor for its own.
func status[T any](ctx context.Context, ask func(ctx context.Context, kind, identity string, body []byte) ([]byte, error), kind, identity string) (v T, err error) {
	b, err := ask(ctx, kind, identity, []byte(askStatus))
	if err != nil {
		return v, err
	}
	return decode[T](b)
}
