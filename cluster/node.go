package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gnnactor/gnnactor/cluster/control"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
	"github.com/gnnactor/gnnactor/scheduler"
)

// NodeOptions are those of Enter.
type NodeOptions struct {
	Cluster string
	Node    string
	Dir     string   // what the node keeps between restarts
	Store   []string // addresses of the store
	Listen  string   // host:port of the data plane; port 0: any
	// Advertise is where others reach the data plane; empty: where it listens.
	Advertise string
	// Control is host:port of the control plane; empty: the host of Listen, any
	// port. Others reach it at the host of Advertise.
	Control  string
	Certs    *transport.CertFiles // nil: plaintext
	Insecure bool                 // plaintext off loopback
	TTL      time.Duration
	Outage   time.Duration // membership.Config's
	Leaving  time.Duration // membership.Config's
	// TrustData takes data that lies here for what it was, without reading it.
	TrustData bool
	// MoveSampler is asked each second where a sampler is better moved, while this node leads; nil: a scheduler.Balancer is.
	MoveSampler func(nodes []scheduler.SamplerNode, places []scheduler.SamplerPlace) (to scheduler.SamplerPlace, why string, ok bool)
	Logger      *slog.Logger
}

// Node is a member of a cluster.
type Node struct {
	Plane    *dataplane.Plane
	Control  *control.Plane
	Member   *membership.Member
	Replicas *dataplane.ReplicaServer // of other nodes' checkpoints
	files    *dataplane.Directories   // of the run's data, that others may copy
	store    *etcd.Client
	log      *slog.Logger
	dir      string
	release  func() error // the directory
	trust    bool         // NodeOptions.TrustData
	// moveSampler is NodeOptions.MoveSampler.
	moveSampler func([]scheduler.SamplerNode, []scheduler.SamplerPlace) (scheduler.SamplerPlace, string, bool)

	cancel context.CancelFunc
	tasks  sync.WaitGroup

	// nil: this node has none, not yet, or not any more.
	trainers atomic.Pointer[trainers.Trainers]
	features atomic.Pointer[Features]
	host     atomic.Pointer[samplers.Host]   // samples for others
	remote   atomic.Pointer[samplers.Remote] // has others sample for this node

	mu       sync.Mutex
	run      *Run      // that it takes part in
	revision int64     // at which it was written down
	moves    []string  // of samplers, that this node made as the leader, and why
	led      time.Time // since when it leads; zero: it does not
	progress func() Progress
	draining chan struct{} // closed by the first Drain

	drains chan struct{} // has room for the drain that the coordinator is about

	computing atomic.Bool // over pieces, with others
}

// Home returns the identity of a node's directory, which it makes if need be: a
// node that comes back with it takes its own place.
func Home(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cluster: %w", err)
	}
	path := filepath.Join(dir, "home")
	b, err := os.ReadFile(path)
	if err == nil {
		home := strings.TrimSuffix(string(b), "\n")
		if id, err := hex.DecodeString(home); err == nil && len(id) == 16 {
			return home, nil
		}
		return "", fmt.Errorf("cluster: %s is damaged; remove it if no other process uses the directory", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cluster: %w", err)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // it cannot fail
	home := hex.EncodeToString(id[:])
	if err := atomicfile.Write(path, 0o600, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, home)
		return err
	}); err != nil {
		return "", fmt.Errorf("cluster: %w", err)
	}
	return home, nil
}

// Enter makes this process a member.
func Enter(ctx context.Context, o NodeOptions) (_ *Node, err error) {
	release, err := hold(o.Dir, o.Node)
	if err != nil {
		return nil, err
	}
	home, err := Home(o.Dir)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.MoveSampler == nil {
		o.MoveSampler = new(scheduler.Balancer).Move
	}
	n := &Node{log: o.Logger, dir: o.Dir, release: release, trust: o.TrustData, moveSampler: o.MoveSampler, draining: make(chan struct{}), drains: make(chan struct{}, 1), cancel: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Leave(context.WithoutCancel(ctx)))
		}
	}()
	var reloader *transport.Reloader
	if o.Certs != nil {
		if reloader, err = transport.LoadCerts(*o.Certs, o.Logger); err != nil {
			return nil, err
		}
	}
	wait, cancel := context.WithTimeout(ctx, patience(&o))
	defer cancel()
	if n.store, err = dial(wait, &o); err != nil {
		return nil, err
	}
	n.Plane, err = dataplane.Listen(dataplane.Options{
		Cluster: o.Cluster, Node: o.Node, Listen: o.Listen, Advertise: o.Advertise, Certs: reloader, AllowPlaintext: o.Insecure, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	if err := n.listenControl(&o, reloader); err != nil {
		return nil, err
	}
	n.files = dataplane.ServeDirectories(n.Plane)
	if n.Replicas, err = dataplane.ServeReplicas(n.Plane, filepath.Join(o.Dir, "copies")); err != nil {
		return nil, err
	}
	n.Member, err = membership.Join(wait, n.store, membership.Config{
		Cluster: o.Cluster, TTL: o.TTL, Outage: o.Outage, Leaving: o.Leaving, Logger: o.Logger, Waits: true, // for being a trainer: the leader deals with those
		Info: membership.Info{Node: o.Node, Home: home, Data: n.Plane.Address(), Control: n.Control.Address(), Kinds: []string{dataplane.ReplicaKind}},
	})
	if err != nil {
		return nil, err
	}
	n.answer()
	n.Control.Begin(n.Member.Epoch())
	follow, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = stop
	n.tasks.Go(func() { n.follow(follow) })
	n.tasks.Go(func() { n.keepPlaces(follow) })
	n.tasks.Go(func() { n.drain(follow) })
	n.tasks.Go(func() { n.balance(follow) })
	return n, nil
}

// patience is how long the store may take to answer a node that comes.
func patience(o *NodeOptions) time.Duration { return max(10*time.Second, o.TTL) }

// dial returns a client of the store, which answers.
func dial(ctx context.Context, o *NodeOptions) (*etcd.Client, error) {
	store, err := etcd.Dial(ctx, o.Store, o.Certs)
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, patience(o))
	defer cancel()
	if err := store.Ready(wait); err != nil {
		return nil, errors.Join(fmt.Errorf("cluster: the store at %v does not answer: %w", o.Store, err), store.Close())
	}
	return store, nil
}

// listenControl opens the control plane, on the data plane's host if nothing
// else was said.
func (n *Node) listenControl(o *NodeOptions, reloader *transport.Reloader) error {
	listen, advertise := o.Control, ""
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if listen == "" {
		listen = net.JoinHostPort(host, "0")
	}
	if o.Advertise != "" {
		if advertise, _, err = net.SplitHostPort(o.Advertise); err != nil {
			return fmt.Errorf("cluster: %w", err)
		}
	}
	n.Control, err = control.Listen(control.Options{
		Cluster: o.Cluster, Node: o.Node, Listen: listen, Host: advertise, Certs: reloader, AllowPlaintext: o.Insecure, Place: n.place, Logger: o.Logger,
	})
	return err
}

// follow tells the planes where the members are.
func (n *Node) follow(ctx context.Context) {
	known := map[string]int64{}
	for {
		v, changed := n.Member.View()
		peers := map[string]control.Peer{}
		for _, m := range v.Members {
			peers[m.Node] = control.Peer{Address: m.Control, Epoch: m.Epoch}
			if m.Node != n.Plane.Node() && known[m.Node] != m.Epoch {
				known[m.Node] = m.Epoch
				n.Plane.SetPeer(m.Node, m.Data)
			}
		}
		n.Control.SetPeers(peers)
		if n.Member.Wait(ctx, changed, 0) != nil {
			return
		}
	}
}

// Train makes the node a trainer of a run of at most maxTrainers, which begins
// when minTrainers are there; Samplers is called before, if others sample for it.
func (n *Node) Train(ctx context.Context, maxTrainers, minTrainers int) (*trainers.Trainers, error) {
	o := trainers.Options{Member: n.Member, Plane: n.Plane, MaxTrainers: maxTrainers, MinTrainers: minTrainers, Replicas: n.Replicas, Logger: n.log}
	if r := n.remote.Load(); r != nil {
		o.Samplers = r
	}
	t, err := trainers.Join(ctx, o)
	if err != nil {
		return nil, err
	}
	n.trainers.Store(t)
	return t, nil
}

// Drain makes this node give what it does and has to the others: its shards
// first, and then its part in the training. It returns when the others will hear that
// it began; training ends with training.ErrDrained when all is theirs.
func (n *Node) Drain(ctx context.Context) error {
	if err := n.Member.Announce(ctx, func(i *membership.Info) { i.Yield = true }); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.draining:
	default:
		close(n.draining)
	}
	return nil
}

// drain does what Drain began. A change of trainers stops all of them for as long
// as their first step together takes, so shards do not move at the same time.
func (n *Node) drain(ctx context.Context) {
	select {
	case <-n.draining:
	case <-ctx.Done():
		return
	}
	for {
		err := n.giveAway(ctx)
		if err == nil {
			return
		}
		if err := n.patient(ctx, "the node could not be drained yet", err); err != nil {
			return // fenced, or it leaves
		}
	}
}

func (n *Node) giveAway(ctx context.Context) error {
	f := n.features.Load()
	if f != nil {
		if err := f.keeper.Drain(ctx); err != nil {
			return err
		}
	}
	return n.Member.Announce(ctx, func(i *membership.Info) { i.Drain = true })
}

// Done says that this node came to the end of the run, and waits until the
// others that did so with it have, too, or are gone: until then they may read
// feature rows that lie here.
func (n *Node) Done(ctx context.Context) error {
	if err := n.Member.Announce(ctx, func(i *membership.Info) { i.Done = true }); err != nil {
		return err
	}
	t := n.trainers.Load()
	mates := t.Mates()
	_, err := n.Member.Until(ctx, func(v *membership.View) bool {
		return !slices.ContainsFunc(v.Members, func(m membership.Info) bool { return mates[m.Node] == m.Epoch && !m.Done && !m.Drain })
	})
	return err
}

// Draining is closed when this node drains.
func (n *Node) Draining() <-chan struct{} { return n.draining }

// Leave ends the membership and closes everything. The trainers must be closed.
func (n *Node) Leave(ctx context.Context) error {
	n.cancel()
	n.tasks.Wait()
	var errs []error
	f, h, r := n.features.Swap(nil), n.host.Swap(nil), n.remote.Swap(nil)
	if r != nil {
		r.Close()
	}
	if f != nil {
		errs = append(errs, f.close())
	}
	if h != nil {
		h.Close()
	}
	if n.Member != nil {
		errs = append(errs, n.Member.Leave(ctx))
	}
	if n.Control != nil {
		n.Control.Close()
	}
	if n.Plane != nil {
		n.Plane.Close()
	}
	if f != nil && f.parts != nil { // others read them until now
		errs = append(errs, f.parts.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(append(errs, n.release())...)
}
