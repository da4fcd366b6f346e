package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/cluster/shard"
	"github.com/gnnactor/gnnactor/cluster/trainers"
)

// The kinds of actors that nodes ask each other's; of shard.Kind and shard.PartKind the identity is the
// shard's or piece's number, of samplers.Kind a trainer's sampler, of trainers.Kind and kindNode
// that of a node, and of the others the run.
const (
	kindCoordinator = "coordinator" // the leader's: it knows all others, and drains one node at a time
	kindParameters  = "parameters"  // where they count, if not all trainers have the same
	kindNode        = "node"
	theRun          = "run"
)

// place says where an actor is: that of a node on that, the coordinator on the leader,
// a sampler where package samplers says, the others where the leader's table has them.
func (n *Node) place(kind, identity string) string {
	v, _ := n.Member.View()
	switch kind {
	case kindCoordinator:
		if identity == theRun {
			return v.Leader
		}
	case kindNode, trainers.Kind:
		if m, ok := v.Member(identity); ok && (kind == kindNode || slices.Contains(m.Kinds, trainers.Kind)) {
			return identity
		}
	case samplers.Kind: // trainers ask by the node's name: it is about what this one answers
		h := n.host.Load()
		if h != nil && h.Has(identity) {
			return n.Plane.Node()
		}
		return n.samplerAt(v, identity)
	case kindParameters, shard.Kind, shard.PartKind:
		p, _ := n.Member.Place(kind, identity)
		return p.Node
	}
	return ""
}

// samplerAt returns where a sampler is to be.
func (n *Node) samplerAt(v *membership.View, name string) string {
	p, _ := n.Member.Place(samplers.Kind, name)
	return samplers.At(v, name, p.Node)
}

// The table waits for so long without a change before it is written, and at most for
// so long with changes: trainers stand still while shards move and a new group meets,
// and the store's disk is what they wait for.
const (
	settling  = 500 * time.Millisecond
	unsettled = 5 * time.Second
)

// keepPlaces writes the table down while this node leads, and ends the actors that
// are not here any more.
func (n *Node) keepPlaces(ctx context.Context) {
	var since time.Time // that the view has been changing
	for {
		v, changed := n.Member.View()
		n.leads(n.Member.Leads(v))
		n.Control.Settle()
		wait := settling
		if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > unsettled {
			wait = 0
		}
		select {
		case <-changed:
			continue
		case <-time.After(wait):
			since = time.Time{}
		case <-n.Member.Lost():
			return
		case <-ctx.Done():
			return
		}
		if n.Member.Leads(v) {
			err := n.writePlaces(ctx, v)
			if errors.Is(err, membership.ErrStale) {
				n.log.Debug("the table of places is another's by now", "error", err)
				err = nil
			}
			if err != nil {
				if n.patient(ctx, "the places of actors could not be written down yet", err) != nil {
					return
				}
				continue
			}
		}
		if n.Member.Wait(ctx, changed, 0) != nil {
			return
		}
	}
}

// leads notes since when this node leads.
func (n *Node) leads(now bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !now {
		n.led = time.Time{}
	} else if n.led.IsZero() {
		n.led = time.Now()
	}
}

func (n *Node) writePlaces(ctx context.Context, v *membership.View) error {
	node, epoch := trainers.First(n.Member)
	due := changes(v, n.Member.Places(), node, epoch)
	for some := range slices.Chunk(due, membership.MaxPlaces) {
		if err := n.Member.SetPlaces(ctx, v.Epoch, some); err != nil {
			return err
		}
	}
	return nil
}

// changes returns what of a table is to be written anew: a shard or piece is at one of those
// that hold it, at the same one for as long as that does and does not drain, and the
// parameters are at the first of the trainers.
func changes(v *membership.View, table []membership.Place, first string, epoch int64) (due []membership.Place) {
	type actor struct{ kind, id string }
	want, leaving := map[actor][]string{}, map[actor][]string{} // where it may be
	for _, m := range v.Members {
		at := want
		if m.Drains() {
			at = leaving
		}
		for _, s := range m.Shards {
			a := actor{cmp.Or(shard.KindOf(&m), shard.Kind), strconv.Itoa(s)}
			at[a] = append(at[a], m.Node)
		}
	}
	for a, nodes := range leaving {
		if want[a] == nil {
			want[a] = nodes
		}
	}
	if m, ok := v.Member(first); ok && m.Epoch == epoch {
		want[actor{kindParameters, theRun}] = []string{first}
	}
	put := map[string]string{}
	for _, p := range table {
		if p.Kind == samplers.Kind {
			put[p.ID] = p.Node
		}
	}
	put = samplers.Keep(v, put)
	for _, p := range table {
		if p.Kind == samplers.Kind && put[p.ID] != "" {
			continue // who put it there may move it (balance)
		}
		a := actor{p.Kind, p.ID}
		nodes, ok := want[a]
		delete(want, a)
		if ok && slices.Contains(nodes, p.Node) {
			continue
		}
		if p.Node = ""; ok {
			p.Node = nodes[0]
		}
		due = append(due, p)
	}
	for a, nodes := range want {
		due = append(due, membership.Place{Kind: a.kind, ID: a.id, Node: nodes[0]})
	}
	slices.SortFunc(due, func(a, b membership.Place) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	return due
}

// asking is how long the coordinator may take to say how all are, and beginning how long
// a node may take to begin to drain.
const (
	asking    = 2 * time.Second
	beginning = 10 * time.Second
)
