package membership_test

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// info is what a node says of itself in its place.
type info struct {
	trainer, drains bool
	failed, left    int64
	terms           membership.Terms
}

type place struct {
	info
	created, modified int64
}

type departed struct {
	epoch, since int64
	dead         bool
}

// snapshot is what the store holds at a revision. It is not changed.
type snapshot struct {
	revision int64
	places   map[string]place
	lives    map[string]int64 // the leases that say so
	leader   string
	lead     int64 // revision at which it was elected
	leadBy   int64 // its lease
	record   membership.Record
	departed map[string]departed
}

// peers is what a Trainer sees of it.
func (s *snapshot) peers(held func(string) bool) (all []membership.PeerView) {
	for node, p := range s.places {
		_, lives := s.lives[node]
		all = append(all, membership.PeerView{Peer: membership.Peer{Node: node, Epoch: p.created}, Lives: lives, Held: !lives && held(node),
			Trainer: p.trainer, Drains: p.drains, Failed: p.failed, Left: p.left})
	}
	slices.SortFunc(all, func(a, b membership.PeerView) int { return strings.Compare(a.Node, b.Node) })
	return all
}

func (s *snapshot) over() map[string]membership.Over {
	all := map[string]membership.Over{}
	for node, d := range s.departed {
		if d.dead {
			all[node] = membership.Over{From: d.since, To: d.epoch}
		}
	}
	return all
}

func (s *snapshot) absent(but string) map[string]membership.Absent {
	var all map[string]membership.Absent
	for node, p := range s.places {
		if _, lives := s.lives[node]; lives || node == but {
			continue
		}
		if all == nil {
			all = map[string]membership.Absent{}
		}
		all[node] = membership.Absent{Epoch: p.created, Modified: p.modified, Terms: p.terms}
	}
	return all
}

// store is a linearizable store with leases: what package membership keeps in etcd.
type store struct {
	s       *sim
	now     *snapshot
	leases  map[int64]*lease
	last    int64
	frozen  bool
	killed  bool
	waiting []func() // calls that came while it was frozen
	life    int      // how often it was killed
}

type lease struct {
	ttl, ends time.Duration
}

func newStore(s *sim) *store {
	return &store{s: s, leases: map[int64]*lease{}, now: &snapshot{places: map[string]place{}, lives: map[string]int64{}, departed: map[string]departed{}}}
}

// change makes a revision.
func (st *store) change(f func(*snapshot)) int64 {
	next := *st.now
	next.places, next.lives, next.departed = maps.Clone(st.now.places), maps.Clone(st.now.lives), maps.Clone(st.now.departed)
	next.revision++
	f(&next)
	st.now = &next
	for _, n := range st.s.nodes {
		n.watched(&next)
	}
	return next.revision
}

func (st *store) grant(ttl time.Duration) int64 {
	st.last++
	id := st.last
	st.leases[id] = &lease{ttl, st.s.now + ttl}
	st.s.after(ttl, func() { st.expire(id) })
	return id
}

// expire ends a lease whose time is over, when the store gets to it.
func (st *store) expire(id int64) {
	l := st.leases[id]
	switch {
	case l == nil || st.frozen || st.killed: // it is looked at when the store goes on
	case st.s.now < l.ends:
		st.s.after(l.ends-st.s.now, func() { st.expire(id) })
	default:
		delete(st.leases, id)
		st.change(func(c *snapshot) {
			for node, by := range c.lives {
				if by == id {
					delete(c.lives, node)
				}
			}
			if c.leadBy == id {
				c.leader, c.lead, c.leadBy = "", 0, 0
			}
		})
	}
}

func (st *store) renew(id int64) bool {
	l := st.leases[id]
	if l == nil || st.s.now >= l.ends {
		return false
	}
	l.ends = st.s.now + l.ttl
	return true
}

// depart ends a membership, if it is that of an epoch.
func (st *store) depart(node string, epoch, modified int64, dead bool) bool {
	p, ok := st.now.places[node]
	if _, lives := st.now.lives[node]; !ok || p.created != epoch || modified != 0 && (p.modified != modified || lives) {
		return false
	}
	d := departed{epoch: epoch, dead: dead}
	if before, ok := st.now.departed[node]; ok {
		if d.since = epoch; before.dead {
			d.since = before.since
		}
	}
	st.change(func(c *snapshot) {
		delete(c.places, node)
		delete(c.lives, node)
		c.departed[node] = d
		if c.leader == node {
			c.leader, c.lead, c.leadBy = "", 0, 0
		}
	})
	return true
}

// register takes a node's place for a process of its directory.
func (st *store) register(node string, i info) (epoch, by int64) {
	if p, ok := st.now.places[node]; ok {
		st.depart(node, p.created, 0, true)
	}
	by = st.grant(i.terms.TTL)
	return st.change(func(c *snapshot) {
		c.places[node] = place{i, c.revision, c.revision}
		c.lives[node] = by
	}), by
}

// announce writes a node's place, if it is that of an epoch; by 0: not that it lives.
func (st *store) announce(node string, epoch int64, i info, by int64) bool {
	if p, ok := st.now.places[node]; !ok || p.created != epoch {
		return false
	}
	st.change(func(c *snapshot) {
		p := c.places[node]
		p.info, p.modified = i, c.revision
		if c.places[node] = p; by != 0 {
			c.lives[node] = by
		}
	})
	return true
}

func (st *store) elect(node string, epoch, by int64) {
	if st.now.leader == "" && st.now.places[node].created == epoch && st.leases[by] != nil {
		st.change(func(c *snapshot) { c.leader, c.lead, c.leadBy = node, c.revision, by })
	}
}

func (st *store) write(node string, lead int64, r membership.Record) {
	if st.now.leader != node || st.now.lead != lead || st.now.record.ID != r.ID {
		return
	}
	st.change(func(c *snapshot) {
		r.ID = c.revision
		c.record = r
	})
}

// call has the store carry out f, for a node; reply is called on the node with
// whether f was, or with false when the node has waited for too long: f may have
// been carried out all the same.
func (st *store) call(n *node, within time.Duration, f func(), reply func(ok bool)) {
	life, of, over := st.life, n.life, false
	end := func(ok bool) {
		if !over && n.life == of {
			over = true
			reply(ok)
		}
	}
	n.after(within, func() { end(false) })
	if st.s.cut(n.name, "") {
		return
	}
	st.s.after(st.s.delay(), func() {
		do := func() {
			if st.killed || st.life != life {
				return
			}
			f()
			st.s.after(st.s.delay(), func() {
				if !st.s.cut(n.name, "") {
					n.run(func() { end(true) })
				}
			})
		}
		if st.frozen {
			st.waiting = append(st.waiting, do)
			return
		}
		do()
	})
}

// goOn lets a store that was frozen or killed go on; one that was killed knows what
// it held, and gives all leases their time anew.
func (st *store) goOn() {
	if st.killed {
		for _, l := range st.leases {
			l.ends = st.s.now + l.ttl
		}
		st.life++
	}
	st.frozen, st.killed = false, false
	waiting := st.waiting
	st.waiting = nil
	first := st.s.rng.IntN(2) == 0 // calls that wait, or leases that ended
	if first {
		for _, f := range waiting {
			f()
		}
	}
	for _, id := range slices.Sorted(maps.Keys(st.leases)) {
		st.expire(id)
	}
	if !first {
		for _, f := range waiting {
			f()
		}
	}
}
