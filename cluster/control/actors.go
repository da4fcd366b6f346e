package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/remote"
)

// The cluster of Proto.Actor is told who the members are (provider) and where actors
// are (lookup), and what they say to actors on other nodes travels as the plane's
// messages (link). Why these three are not that library's own is in
// docs/decisions.md.

// request asks an actor, which answers its sender with a reply. Between two nodes it
// is an envelope.
type request struct {
	ask  uint64 // the asker's number
	body []byte
	ctx  context.Context // on the asker's node how long that waits, on the other until the asker's goes
	peer *peer           // the other node; nil: it is this one
}

// reply answers a request.
type reply struct {
	ask  uint64
	from string // the actor
	body []byte
	err  error
	peer *peer // on the node that answers: the asker's
}

// asker is the name of the actor that takes the answers to a node's asks.
const asker = "asks"

// actorID is what nodes call the actor of a kind and an identity.
func actorID(kind, identity string) string { return kind + "/" + identity }

// startActors starts the node's actors.
func (p *Plane) startActors() {
	p.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	p.system.ProcessRegistry.Address = p.pidAddress(p.o.Node)
	p.system.ProcessRegistry.RegisterAddressResolver(func(*actor.PID) (actor.Process, bool) { return link{p}, true })
	p.provider = new(provider)
	p.cluster = cluster.New(p.system, cluster.Configure(p.o.Cluster, p.provider, lookup{p}, remote.Configure("", 0)))
	// In place of StartMember, which listens, gossips, and sleeps a second.
	p.cluster.IdentityLookup = p.cluster.Config.IdentityLookup
	p.provider.cluster = p.cluster
	pid, err := p.system.Root.SpawnNamed(actor.PropsFromFunc(func(c actor.Context) {
		if r, ok := c.Message().(*reply); ok {
			p.answered(r)
		}
	}), asker)
	if err != nil {
		panic(fmt.Sprintf("control: %v", err)) // the system is new
	}
	p.asker = pid
}

// give gives a request to an actor of this node, which it starts if it is to be here.
func (p *Plane) give(id string, sender *actor.PID, r *request) {
	kind, identity, _ := strings.Cut(id, "/")
	at := p.o.Place(kind, identity)
	p.mu.Lock()
	var err error
	switch {
	case p.closed:
		p.mu.Unlock()
		return
	case p.handlers[kind] == nil:
		err = fmt.Errorf("node %s does not know %.64q", p.o.Node, kind)
	case at != p.o.Node:
		err = fmt.Errorf("%w: it is on node %q", ErrElsewhere, at)
	default:
		if p.actors[id] == nil {
			p.spawn(id, kind, identity)
		}
		// Under the lock, so that the actor has what was sent to it before it ends.
		p.system.Root.RequestWithCustomSender(p.actors[id], r, sender)
	}
	p.mu.Unlock()
	if err != nil {
		p.start(func() { p.answer(sender, id, &reply{ask: r.ask, peer: r.peer, err: err}) })
	}
}

// spawn starts an actor; the lock is held.
func (p *Plane) spawn(id, kind, identity string) {
	k := cluster.NewKind(kind, actor.PropsFromFunc(func(c actor.Context) {
		if r, ok := c.Message().(*request); ok {
			sender := c.Sender()
			p.mu.Lock()
			h := p.handlers[kind]
			p.mu.Unlock()
			p.start(func() { p.handle(id, h, sender, r) })
		}
	})).Build(p.cluster)
	p.spawned++ // an actor that ends may have the id still
	pid, err := p.system.Root.SpawnNamed(cluster.WithClusterIdentity(k.Props, cluster.NewClusterIdentity(identity, kind)), fmt.Sprintf("%s#%d", id, p.spawned))
	if err != nil {
		panic(fmt.Sprintf("control: actor %s: %v", id, err)) // the name is new
	}
	p.actors[id] = pid
}

// Settle ends the actors of this node that are placed elsewhere by now. What they were
// asked before is answered.
func (p *Plane) Settle() {
	p.mu.Lock()
	ids := slices.Collect(maps.Keys(p.actors))
	p.mu.Unlock()
	for _, id := range ids {
		kind, identity, _ := strings.Cut(id, "/")
		if p.o.Place(kind, identity) == p.o.Node {
			continue
		}
		p.mu.Lock()
		if pid := p.actors[id]; pid != nil && !p.closed {
			delete(p.actors, id)
			p.system.Root.Poison(pid)
		}
		p.mu.Unlock()
	}
}

// System returns the system that the node's actors are in. It ends with the plane.
func (p *Plane) System() *actor.ActorSystem { return p.system }

// Actors returns how many actors run on this node.
func (p *Plane) Actors() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.actors)
}

// stopActors ends what runs.
func (p *Plane) stopActors() {
	_ = p.provider.Shutdown(true) // it cannot fail
	p.actors[asker] = p.asker
	for _, pid := range p.actors {
		_ = p.system.Root.StopFuture(pid).Wait() // its error is a time-out; they are idle
	}
	p.system.Shutdown()
}

// provider tells Proto.Actor's cluster what the plane is told: who the members are.
type provider struct{ cluster *cluster.Cluster }

func (v *provider) StartMember(c *cluster.Cluster) error { v.cluster = c; return nil }
func (v *provider) StartClient(c *cluster.Cluster) error { return v.StartMember(c) }
func (v *provider) Shutdown(bool) error {
	v.update(nil)
	return nil
}

// update sets the members, by what they are called: one that comes anew is to be
// called something new.
func (v *provider) update(peers map[string]string) {
	var all cluster.Members
	for id, address := range peers {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			continue // it cannot be reached
		}
		n, _ := strconv.ParseInt(port, 10, 32) // 0 cannot be reached either
		all = append(all, &cluster.Member{Id: id, Host: host, Port: int32(n)})
	}
	// A remote that is never started, for its list of those who left: one that stayed
	// would grow for as long as members come and go.
	v.cluster.Remote = remote.NewRemote(v.cluster.ActorSystem, v.cluster.Config.RemoteConfig)
	v.cluster.MemberList.UpdateClusterTopology(all)
}

// lookup finds actors where they are placed.
type lookup struct{ p *Plane }

func (l lookup) Get(id *cluster.ClusterIdentity) *actor.PID {
	node := l.p.o.Place(id.Kind, id.Identity)
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if node == l.p.o.Node || l.p.peers[node] != nil {
		return actor.NewPID(l.p.pidAddress(node), actorID(id.Kind, id.Identity))
	}
	return nil
}

func (lookup) RemovePid(*cluster.ClusterIdentity, *actor.PID) {}
func (lookup) Setup(*cluster.Cluster, []string, bool)         {}
func (lookup) Shutdown()                                      {}

// nodeOf returns the node that a PID of lookup is on.
func (p *Plane) nodeOf(pid *actor.PID) string {
	return strings.TrimPrefix(pid.Address, p.o.Cluster+"/")
}

// link is the way to actors on other nodes: an actor.Process for all of them.
type link struct{ p *Plane }

// SendUserMessage sends a request or a reply on its way. A request waits for room
// among those to its node as long as its asker does, and so does a reply until the
// node goes.
func (l link) SendUserMessage(pid *actor.PID, message any) {
	_, m, _ := actor.UnwrapEnvelope(message)
	switch m := m.(type) {
	case *request:
		if err := l.p.post(m.ctx, m.peer, pid.Id, asker, &envelope{Type: kindRequest, Ask: m.ask, Body: m.body}); err != nil {
			l.p.answered(&reply{ask: m.ask, err: err})
		}
	case *reply:
		e := &envelope{Type: kindReply, Ask: m.ask, Body: m.body, Elsewhere: errors.Is(m.err, ErrElsewhere)}
		if m.err != nil {
			text := m.err.Error()
			e.Body, e.Err = nil, text[:min(len(text), maxError)]
		}
		if l.p.post(m.peer.ctx, m.peer, pid.Id, m.from, e) != nil { // the peer is gone, here
			l.p.owe(m.peer, owed{m.ask, m.from})
		}
	}
}

// SendSystemMessage implements actor.Process: nobody stops or watches another node's
// actors.
func (link) SendSystemMessage(*actor.PID, any) {}

// Stop implements actor.Process.
func (link) Stop(*actor.PID) {}
