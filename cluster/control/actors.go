package control

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/remote"
)

// Who answers messages of a kind is an actor of that kind of Proto.Actor's cluster, of
// which every node has one: its identity is the node's name. The cluster's members
// are the plane's (provider), it finds an actor where its node is (lookup), and what
// actors say to each other travels as the plane's messages (link). Why these three
// are not that library's own is in docs/decisions.md.

// request asks an actor of a kind, which answers its sender with a reply. Between two
// nodes it is an envelope.
type request struct {
	ask  uint64 // the asker's number
	body []byte
	ctx  context.Context // on the asker's node how long that waits, on the other until the asker's goes
	peer *peer           // the other node
}

// reply answers a request.
type reply struct {
	ask  uint64
	kind string
	body []byte
	err  error
	peer *peer // on the node that answers: the asker's
}

// asker is the name of the actor that takes the answers to a node's asks.
const asker = "asks"

// pidAddress is what PIDs call a node: its name, as the node that another one's socket
// belongs to may change. The prefix keeps it apart from the library's own names.
func pidAddress(node string) string { return "node/" + node }

// startActors starts the node's actors, once its address is known.
func (p *Plane) startActors() error {
	p.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	p.system.ProcessRegistry.Address = pidAddress(p.o.Node)
	p.system.ProcessRegistry.RegisterAddressResolver(func(*actor.PID) (actor.Process, bool) { return link{p}, true })
	p.provider = new(provider)
	p.cluster = cluster.New(p.system, cluster.Configure(p.o.Cluster, p.provider, lookup{p}, remote.Configure("", 0)))
	// In place of StartMember, which listens, gossips, and sleeps a second.
	p.cluster.IdentityLookup = p.cluster.Config.IdentityLookup
	if err := p.provider.StartMember(p.cluster); err != nil {
		return err
	}
	pid, err := p.system.Root.SpawnNamed(actor.PropsFromFunc(func(c actor.Context) {
		if r, ok := c.Message().(*reply); ok {
			p.answered(r)
		}
	}), asker)
	p.asker = pid
	return err
}

// spawn starts the actor of a kind on this node.
func (p *Plane) spawn(kind string) {
	k := cluster.NewKind(kind, actor.PropsFromFunc(func(c actor.Context) {
		if r, ok := c.Message().(*request); ok {
			p.asked(kind, c.Sender(), r)
		}
	})).Build(p.cluster)
	identity := cluster.NewClusterIdentity(p.o.Node, kind)
	pid, err := p.system.Root.SpawnNamed(cluster.WithClusterIdentity(k.Props, identity), kind)
	if err != nil {
		panic(fmt.Sprintf("control: kind %s: %v", kind, err)) // its name is the asks' own
	}
	p.actors[kind] = pid
}

// stopActors ends what startActors and spawn began.
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

// lookup finds the actor of a kind on the node that its identity names.
type lookup struct{ p *Plane }

func (l lookup) Get(id *cluster.ClusterIdentity) *actor.PID {
	if id.Identity == l.p.o.Node {
		return l.p.system.NewLocalPID(id.Kind)
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.p.peers[id.Identity] != nil {
		return actor.NewPID(pidAddress(id.Identity), id.Kind)
	}
	return nil
}

func (lookup) RemovePid(*cluster.ClusterIdentity, *actor.PID) {}
func (lookup) Setup(*cluster.Cluster, []string, bool)         {}
func (lookup) Shutdown()                                      {}

// link is the way to actors on other nodes: an actor.Process for all of them.
type link struct{ p *Plane }

// SendUserMessage sends a request or a reply on its way. A request waits for room
// among those to its node as long as its asker does, and so does a reply until the
// node goes.
func (l link) SendUserMessage(pid *actor.PID, message any) {
	_, m, _ := actor.UnwrapEnvelope(message)
	switch m := m.(type) {
	case *request:
		err := l.p.post(m.ctx, m.peer, &envelope{Type: kindRequest, Ask: m.ask, Kind: pid.Id, Body: m.body})
		if err != nil {
			l.p.answered(&reply{ask: m.ask, err: err})
		}
	case *reply:
		e := &envelope{Type: kindReply, Ask: m.ask, Kind: m.kind, Body: m.body}
		if m.err != nil {
			text := m.err.Error()
			e.Body, e.Err = nil, text[:min(len(text), maxError)]
		}
		// It fails only when the peer is gone, and then nobody waits for it.
		_ = l.p.post(m.peer.ctx, m.peer, e)
	}
}

// SendSystemMessage implements actor.Process: nobody stops or watches another node's
// actors.
func (link) SendSystemMessage(*actor.PID, any) {}

// Stop implements actor.Process.
func (link) Stop(*actor.PID) {}
