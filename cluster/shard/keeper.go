package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
)

// Kind is what a node that holds shards has among membership's kinds, and PartKind if they are the pieces of a
// partition set.
const (
	Kind     = "shard"
	PartKind = "part"
)

// Nobody is what a cluster lacks in which no node holds rows, and what to do.
const Nobody = "no node holds rows, and the features are shared out: add a node with --roles rows"

// KindOf returns which of them a node has; "": it holds none.
func KindOf(m *membership.Info) string {
	for _, k := range m.Kinds {
		if k == Kind || k == PartKind {
			return k
		}
	}
	return ""
}

// Options of a Keeper.
type Options struct {
	Member   *membership.Member
	Plane    *dataplane.Plane
	Map      *Map
	Layout   features.Layout // of a row; Rows does not matter
	Replicas int             // nodes that hold each shard, as far as there are so many
	All      features.Store  // all features, where this node has them; nil: it has none
	ReadOnly bool            // this node reads the others' shards and holds none

	// Bring, of a partition set, makes a piece be here that nodes have (which may be none), and returns its rows, which stay its; nil: it is nowhere.
	Bring func(ctx context.Context, piece int, from []string) (*graph.Features, error)
	// Pieces have their files here, in order: others hear of them together with the kind, or they would copy what this node is about to hold.
	Pieces []int
	// MinNodes nodes are waited for before pieces are brought.
	MinNodes int

	Logger *slog.Logger
}

// Keeper holds the shards that belong on this node, as nodes come and go.
//
// Which they are follows from who is there (Assign), so nobody has to tell. A
// node that should hold a shard copies it from one that does, or from one that
// has all features, and then says that it holds it; who holds it and should not
// lets go when all who should have said so, or, if all yield, when another one holds it.
// So a shard is always somewhere while one of its holders lives.
type Keeper struct {
	o      Options
	server *Server
	store  *Store
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	moving sync.Mutex // held while shards are brought or let go
	kind   string
	begun  atomic.Bool // MinNodes were there
	dealt  atomic.Bool // every shard lay somewhere

	passing sync.Mutex       // of what the store was told
	passed  [][]string       // who holds each shard
	known   map[string]int64 // nodes' epochs

	taken, left atomic.Int64
}

// Keep makes this node one that holds shards, or reads them.
func Keep(ctx context.Context, o Options) (*Keeper, error) {
	if o.Replicas < 1 {
		return nil, fmt.Errorf("shard: %d replicas; there must be at least 1", o.Replicas)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	server := NewServer(o.Plane, o.Map, o.Layout, o.All)
	k := &Keeper{o: o, server: server, store: NewStore(o.Plane, server), kind: Kind, known: map[string]int64{}}
	k.store.log, k.store.refresh = o.Logger, func() { k.pass() }
	if o.Bring != nil {
		k.kind, k.store.what, k.store.waiting = PartKind, "pieces", "waiting for pieces that no node holds: start the node again that had them, or one that has their files"
	}
	took, source := false, false // the kind is new, and what was said of the source before
	revision, err := o.Member.AnnounceAt(ctx, func(i *membership.Info) {
		if took = !o.ReadOnly && KindOf(i) == ""; took {
			i.Kinds = append(slices.Clone(i.Kinds), k.kind)
		}
		source, i.Source = i.Source, o.All != nil
		if o.Bring != nil {
			i.Pieces, i.Files = o.Pieces, true
		}
	})
	// Who asks what belongs here, or where something lies, must not be answered by a view from before.
	var v *membership.View
	if err == nil {
		v, err = o.Member.Until(ctx, func(v *membership.View) bool { return v.Revision >= revision })
	}
	if err == nil {
		err = k.store.SetHolders(holders(v, o.Map.Shards()))
	}
	if err != nil { // nobody is to deal shards to this node, or to ask it for rows
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Member.Patience())
		defer cancel()
		return nil, errors.Join(err, o.Member.Announce(back, func(i *membership.Info) {
			if took {
				i.Kinds = slices.DeleteFunc(slices.Clone(i.Kinds), func(kind string) bool { return kind == k.kind })
			}
			i.Source = source
		}))
	}
	var run context.Context
	run, k.cancel = context.WithCancel(context.Background())
	k.tasks.Go(func() { k.follow(run) })
	k.tasks.Go(func() { k.move(run) })
	return k, nil
}

// Store reads the rows of all shards. It ends with Close.
func (k *Keeper) Store() *Store { return k.store }

// Held returns the number of shards that lie here.
func (k *Keeper) Held() int { return len(k.List()) }

// List returns the shards that lie here, in order.
func (k *Keeper) List() []int { return k.server.List() }

// Shard returns how many rows a shard that lies here has, and their bytes; false: it
// does not.
func (k *Keeper) Shard(i int) (rows int, bytes int64, ok bool) {
	if i < 0 || i >= k.o.Map.Shards() || k.server.shard(i) == nil {
		return 0, 0, false
	}
	rows, bytes = k.Size(i)
	return rows, bytes, true
}

// Size returns how many rows a shard has, wherever they lie, and their bytes; none, if
// there is no such shard.
func (k *Keeper) Size(i int) (rows int, bytes int64) {
	if i < 0 || i >= k.o.Map.Shards() {
		return 0, 0
	}
	rows = k.o.Map.Rows(i)
	return rows, int64(rows) * int64(k.o.Layout.RowBytes())
}

// Wanted returns how many shards should lie here, and how many are still to come
// or to go.
func (k *Keeper) Wanted() (wanted, moving int) {
	v, _ := k.o.Member.View()
	for s, nodes := range k.assign(v) {
		want, held := slices.Contains(nodes, k.o.Plane.Node()), k.server.shard(s) != nil
		if want {
			wanted++
		}
		if want != held {
			moving++
		}
	}
	return wanted, moving
}

// Moves returns how many shards were brought here so far, and how many were let
// go when the others had them.
func (k *Keeper) Moves() (taken, left int64) { return k.taken.Load(), k.left.Load() }

// Ready waits until every shard lies somewhere, and says once that MinNodes are not there.
func (k *Keeper) Ready(ctx context.Context) error {
	if v, _ := k.o.Member.View(); len(keepers(v)) == 0 {
		k.o.Logger.Warn("waiting: " + Nobody)
	}
	var told []int
	short := false
	_, err := k.o.Member.Until(ctx, func(v *membership.View) bool {
		if here := len(keepers(v)); !short && !k.begun.Load() && here < k.o.MinNodes {
			short = true
			k.o.Logger.Info("waiting for nodes that are to hold the "+k.store.what+" with this one: add them with 'gnnactor cluster join', or begin with fewer (--wait-for)", "wait-for", k.o.MinNodes, "here", here)
		}
		if lost := k.lost(v); len(lost) > 0 && !slices.Equal(lost, told) {
			told = lost
			k.o.Logger.Warn(k.store.waiting, k.store.what, lost)
		}
		return !slices.ContainsFunc(holders(v, k.o.Map.Shards()), func(h []string) bool { return len(h) == 0 })
	})
	if err != nil {
		return fmt.Errorf("shard: not every shard has a node that holds it; start one that has the data: %w", err)
	}
	k.dealt.Store(true)
	return nil
}

// Gone returns the shards with rows that no node of a view holds, if each lay somewhere before (Ready).
func (k *Keeper) Gone(v *membership.View) (gone []int) {
	if !k.dealt.Load() {
		return nil
	}
	for s, nodes := range holders(v, k.o.Map.Shards()) {
		if len(nodes) == 0 && k.o.Map.Rows(s) > 0 {
			gone = append(gone, s)
		}
	}
	return gone
}

// lost returns the pieces that nobody holds, and of which nobody that is here has the files, when all are here that were waited for.
func (k *Keeper) lost(v *membership.View) (lost []int) {
	if k.o.Bring == nil || !k.begun.Load() && len(keepers(v)) < k.o.MinNodes {
		return nil
	}
	for s, nodes := range holders(v, k.o.Map.Shards()) {
		if len(nodes) == 0 && !slices.ContainsFunc(v.Members, func(m membership.Info) bool {
			_, has := slices.BinarySearch(m.Pieces, s)
			return has
		}) {
			lost = append(lost, s)
		}
	}
	return lost
}

// TellLost warns of pieces that are to be waited for, as nobody in a view has them, and of who had them: once until others hold any.
func (k *Keeper) TellLost(v *membership.View) {
	lost := k.lost(v)
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	k.store.tellLost(lost)
}

// Settled waits until the shards that belong here are here, or nobody has them.
func (k *Keeper) Settled(ctx context.Context) error {
	self := k.o.Plane.Node()
	_, err := k.o.Member.Until(ctx, func(v *membership.View) bool {
		where := holders(v, k.o.Map.Shards())
		for s, nodes := range k.assign(v) {
			if slices.Contains(nodes, self) && !slices.Contains(where[s], self) && len(where[s]) > 0 {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("shard: %w", err)
	}
	return nil
}

// Dealt reports whether every shard lies on all nodes that it belongs on.
func (k *Keeper) Dealt(v *membership.View) bool {
	where := holders(v, k.o.Map.Shards())
	for s, nodes := range k.assign(v) {
		if len(nodes) == 0 || slices.ContainsFunc(nodes, func(n string) bool { return !slices.Contains(where[s], n) }) {
			return false
		}
	}
	return true
}

// Drain hands all shards over: it returns when none is left here, or at once
// when nobody else is there to take them.
func (k *Keeper) Drain(ctx context.Context) error {
	self := k.o.Plane.Node()
	if err := k.o.Member.Announce(ctx, func(i *membership.Info) { i.Yield = true }); err != nil {
		return err
	}
	for {
		v, err := k.o.Member.Until(ctx, func(v *membership.View) bool {
			me, in := v.Member(self)
			return !in || me.Yield && len(me.Shards) == 0 || k.Last(v)
		})
		if err != nil {
			return fmt.Errorf("shard: drain: %w", err)
		}
		k.moving.Lock() // what is being let go is gone, or is held again
		held := k.Held()
		k.moving.Unlock()
		if _, in := v.Member(self); held == 0 || !in || len(keepers(v)) == 0 {
			return nil
		}
		if _, err := k.o.Member.Until(ctx, func(now *membership.View) bool { return now.Revision > v.Revision }); err != nil {
			return fmt.Errorf("shard: drain: %w", err)
		}
	}
}

// Last reports whether this node yields what it alone holds, and nobody is there to take it. Who holds nothing that others have not
// has given it away, even if they are all on their way out as well by now.
func (k *Keeper) Last(v *membership.View) bool {
	me, in := v.Member(k.o.Plane.Node())
	return in && me.Yield && len(keepers(v)) == 0 &&
		slices.ContainsFunc(holders(v, k.o.Map.Shards()), func(h []string) bool { return len(h) == 1 && h[0] == me.Node })
}

// elsewhere reports whether others than a node hold a shard.
func elsewhere(holders []string, node string) bool {
	return slices.ContainsFunc(holders, func(n string) bool { return n != node })
}

// Close ends the holding; the shards' other holders go on.
func (k *Keeper) Close() error {
	k.cancel()
	k.tasks.Wait()
	return k.store.Close()
}

// keepers are the nodes that shards are dealt to.
func keepers(v *membership.View) []string {
	var all []string
	for _, m := range v.Members {
		if !m.Yield && KindOf(&m) != "" {
			all = append(all, m.Node)
		}
	}
	return all
}

// assign deals the shards to the nodes of a view. Nothing is dealt before MinNodes are there.
func (k *Keeper) assign(v *membership.View) [][]string {
	nodes := keepers(v)
	if !k.begun.Load() {
		if len(nodes) < k.o.MinNodes {
			return make([][]string, k.o.Map.Shards())
		}
		k.begun.Store(true)
	}
	return assign(k.o.Map.Shards(), k.o.Replicas, nodes, func(node string, shard int) bool {
		m, _ := v.Member(node)
		_, has := slices.BinarySearch(m.Pieces, shard)
		return has
	})
}

// holders says by shard who holds it.
func holders(v *membership.View, shards int) [][]string {
	all := make([][]string, shards)
	for _, m := range v.Members {
		for _, s := range m.Shards {
			if s >= 0 && s < shards {
				all[s] = append(all[s], m.Node)
			}
		}
	}
	return all
}

// follow tells the store who holds what.
func (k *Keeper) follow(ctx context.Context) {
	for k.o.Member.Wait(ctx, k.pass(), 0) == nil {
	}
}

// pass tells the store who holds what in the newest view, whose next one closes changed.
func (k *Keeper) pass() (changed <-chan struct{}) {
	k.passing.Lock()
	defer k.passing.Unlock()
	v, changed := k.o.Member.View()
	if len(keepers(v)) >= k.o.MinNodes { // whoever deals may see them when some are gone
		k.begun.Store(true)
	}
	fresh := false
	for _, m := range v.Members {
		if m.Node != k.o.Plane.Node() && k.known[m.Node] != m.Epoch {
			k.o.Plane.SetPeer(m.Node, m.Data)
			k.known[m.Node], fresh = m.Epoch, true
		}
	}
	// A node that is back under its name is asked again, too.
	if now := holders(v, k.o.Map.Shards()); fresh || !slices.EqualFunc(now, k.passed, slices.Equal) {
		if err := k.store.SetHolders(now); err != nil {
			k.o.Logger.Error("shards", "error", err)
		}
		k.passed = now
	}
	return changed
}

// again is how long rows or a shard that could not be had are left until the
// next try.
const again = 300 * time.Millisecond

// move brings and drops shards.
func (k *Keeper) move(ctx context.Context) {
	for {
		v, changed := k.o.Member.View()
		retry := time.Duration(0) // when there is something new
		k.moving.Lock()
		done, err := k.step(ctx, v)
		k.moving.Unlock()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			k.o.Logger.Warn("shards could not be moved yet", "error", err)
			retry = again
		case done:
			continue // the view may be older than that
		}
		if k.o.Member.Wait(ctx, changed, retry) != nil {
			return
		}
	}
}

// step brings one shard that should be here, or drops those that are elsewhere,
// and reports whether it did.
func (k *Keeper) step(ctx context.Context, v *membership.View) (bool, error) {
	self, where := k.o.Plane.Node(), holders(v, k.o.Map.Shards())
	want := k.assign(v)
	me, in := v.Member(self)
	last := me.Yield && len(keepers(v)) == 0
	var drop []int
	for s, nodes := range want {
		held := k.server.shard(s) != nil
		switch {
		case slices.Contains(nodes, self) && !held:
			rows, err := k.bring(ctx, v, s, where[s])
			if err != nil {
				return false, err
			}
			if rows == nil {
				continue
			}
			if err := k.server.Hold(s, rows); err != nil {
				return false, err
			}
			k.taken.Add(1)
			return true, k.tell(ctx)
		case held && last && elsewhere(where[s], self),
			held && !slices.Contains(nodes, self) && len(nodes) > 0 &&
				!slices.ContainsFunc(nodes, func(n string) bool { return !slices.Contains(where[s], n) }):
			drop = append(drop, s)
		}
	}
	if in && !slices.Equal(me.Shards, k.server.List()) && drop == nil {
		return false, k.tell(ctx) // an earlier try to tell failed
	}
	if drop == nil {
		return false, nil
	}
	return true, k.leave(ctx, drop)
}

// leave lets go of shards that others hold. Two nodes that have seen different
// members may each think that the other one is to keep a shard: so the rows stay,
// and are served, until the withdrawal is in the store and somebody else still
// holds the shard there. Of two that withdraw, the later one sees that it is the
// last.
func (k *Keeper) leave(ctx context.Context, drop []int) error {
	self := k.o.Plane.Node()
	stay := slices.DeleteFunc(k.server.List(), func(s int) bool { return slices.Contains(drop, s) })
	revision, err := k.o.Member.AnnounceAt(ctx, func(i *membership.Info) { i.Shards = stay })
	if err != nil {
		return err
	}
	v, err := k.o.Member.Until(ctx, func(v *membership.View) bool { return v.Revision >= revision })
	if err != nil {
		return err
	}
	where, last := holders(v, k.o.Map.Shards()), false
	for _, s := range drop {
		if !elsewhere(where[s], self) {
			last = true
			continue
		}
		k.server.Drop(s)
		k.left.Add(1)
	}
	if last {
		return k.tell(ctx)
	}
	return nil
}

// tell announces the shards that are held here.
func (k *Keeper) tell(ctx context.Context) error {
	return k.o.Member.Announce(ctx, func(i *membership.Info) { i.Shards = k.server.List() })
}

// bring gets a shard's rows; nil: nobody has them yet.
func (k *Keeper) bring(ctx context.Context, v *membership.View, s int, from []string) (*graph.Features, error) {
	if k.o.All != nil {
		return k.o.Map.Cut(ctx, k.o.All, s)
	}
	from = slices.Clone(from)
	for _, m := range v.Members {
		_, has := slices.BinarySearch(m.Pieces, s)
		if (m.Source || has) && !slices.Contains(from, m.Node) {
			from = append(from, m.Node)
		}
	}
	from = slices.DeleteFunc(from, func(n string) bool { return n == k.o.Plane.Node() })
	if len(from) == 0 && k.o.Bring == nil {
		return nil, nil
	}
	for _, n := range from {
		if m, ok := v.Member(n); ok {
			k.o.Plane.SetPeer(n, m.Data)
		}
	}
	if k.o.Bring != nil {
		return k.o.Bring(ctx, s, from)
	}
	rows, err := Copy(ctx, k.o.Plane, k.o.Map, k.o.Layout, s, from)
	if err == nil {
		return rows, nil
	}
	return nil, errors.Join(err, ctx.Err())
}
