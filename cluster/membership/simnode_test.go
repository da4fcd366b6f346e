package membership_test

import (
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// node is a host, and the process on it: what packages membership and trainers
// do with the decisions of a Standing and a Trainer.
type node struct {
	s       *sim
	name    string
	rate    float64 // of its clock
	off     time.Duration
	terms   membership.Terms
	down    bool // the host: nobody refuses in its name
	frozen  bool
	backlog []func()
	spare   bool // it may drain
	disk    training
	out     bool // it left for good

	// Of the process.
	life    int
	up      bool
	epoch   int64
	by      int64 // its lease
	fresh   int64 // that it does not live by yet
	info    info
	stand   *membership.Standing
	part    *membership.Trainer
	gate    membership.Gate
	view    *snapshot
	seen    *snapshot // the newest that the Trainer has seen
	wrote   *snapshot // what this asked for is written
	writing bool
	bids    bool // for the lead
	awaits  bool // looks again later
	state   training
	ended   bool

	in      int64 // the group that it is in; 0: none
	mates   []membership.Peer
	working bool // in is met, or makes steps
	number  int64
	given   map[int64]training // what it gives to the sums of in
	got     map[string]training
	waits   map[string]*wanted
	late    int64 // an ended group, whose last sum others may still get
	lates   map[int64]training
	broken  bool
	broke   int64
	probing int
}

// local is what the node's clock shows.
func (n *node) local() time.Duration {
	return n.off + time.Duration(float64(n.s.now)*n.rate)
}

// after runs f on the process after a time by its clock.
func (n *node) after(d time.Duration, f func()) {
	life := n.life
	n.s.after(time.Duration(float64(max(d, 0))/n.rate)+1, func() {
		if n.life == life {
			n.run(f)
		}
	})
}

// run runs f on the process, when that is not frozen.
func (n *node) run(f func()) {
	switch {
	case !n.up:
	case n.frozen:
		life := n.life
		n.backlog = append(n.backlog, func() {
			if n.life == life {
				n.run(f)
			}
		})
	default:
		f()
	}
}

// start begins the process, which resumes from its disk.
func (n *node) start() {
	if n.up || n.down || n.out || n.s.done {
		return
	}
	n.life++
	n.up, n.frozen, n.backlog = true, false, nil
	n.state = n.disk.clone()
	n.epoch, n.by, n.fresh, n.stand, n.part, n.view, n.seen, n.wrote = 0, 0, 0, nil, nil, nil, nil, nil
	n.gate, n.writing, n.bids, n.awaits, n.ended = membership.Gate{}, false, false, false, false
	n.in, n.late, n.working, n.broken, n.probing = 0, 0, false, false, 0
	n.given, n.lates, n.waits = map[int64]training{}, nil, nil
	n.info = info{terms: n.terms, trainer: true}
	n.register()
}

// stop ends the process; saved: it writes its state.
func (n *node) stop(saved bool) {
	if !n.up {
		return
	}
	if saved {
		n.disk = n.state.clone()
	}
	n.leaveGroup(false)
	n.up, n.frozen, n.backlog = false, false, nil
	n.life++
}

func (n *node) register() {
	sent := n.local()
	var epoch, by int64
	n.s.store.call(n, n.terms.TTL, func() { epoch, by = n.s.store.register(n.name, n.info) }, func(ok bool) {
		if !ok {
			n.after(n.terms.TTL/8, n.register)
			return
		}
		n.epoch, n.by = epoch, by
		n.stand = membership.NewStanding(n.terms, sent, n.local())
		n.part = membership.NewTrainer(membership.Peer{Node: n.name, Epoch: epoch}, n.s.maxTrainers, n.s.minTrainers, max(300*time.Millisecond, n.terms.TTL/8))
		n.list()
		n.decide()
		n.keep(membership.Tick{})
	})
}

// decide does now and then what takes a lease, whatever else the node is at.
func (n *node) decide() {
	if n.stand.MayDecide(n.local()) {
		n.s.decides(n)
	}
	n.after(n.s.between(0, n.terms.TTL/2), n.decide)
}

// keep keeps the lease.
func (n *node) keep(e membership.Event) {
	calls := n.doStanding(n.stand.Step(n.local(), e))
	if n.up && !calls {
		n.wake()
	}
}

func (n *node) wake() {
	due := n.stand.Next()
	n.after(due-n.local(), func() {
		if n.stand.Next() <= n.local() && n.stand.Phase() != membership.Fenced {
			n.keep(membership.Tick{})
		}
	})
}

func (n *node) doStanding(do []membership.Action) (calls bool) {
	for _, a := range do {
		switch a := a.(type) {
		case membership.Renew:
			calls = true
			sent, refused := n.local(), false
			n.s.store.call(n, a.Within, func() { refused = !n.s.store.renew(n.by) }, func(ok bool) {
				n.keep(membership.Renewed{Sent: sent, Outcome: outcome(ok, refused)})
			})
		case membership.Return:
			calls = true
			n.comeBack(a.Within)
		case membership.Fence:
			n.s.fenced++
			if n.s.steady && !n.s.done {
				n.s.fail("node %s is fenced, although only the store was away: %s", n.name, a.Why)
			}
			n.stop(true)
			n.again()
			return true
		case membership.Changed:
			n.look()
		case membership.Remove:
			n.s.store.call(n, n.terms.TTL/4, func() { n.s.store.depart(a.Node, a.Epoch, a.Modified, true) }, func(bool) {})
		}
	}
	return calls
}

// comeBack has the node live by a new lease, which is that of the try before while it
// lives: a write that comes late is under the same one.
func (n *node) comeBack(within time.Duration) {
	sent, said, by := n.local(), n.info, n.fresh
	n.s.store.call(n, within, func() {
		if by == 0 || !n.s.store.renew(by) {
			by = n.s.store.grant(n.terms.TTL)
		}
	}, func(ok bool) {
		if !ok {
			n.keep(membership.Returned{Sent: sent, Outcome: membership.Failed})
			return
		}
		n.fresh = by
		gone, refused := false, false
		n.s.store.call(n, sent+within-n.local(), func() {
			if gone = n.s.store.leases[by] == nil; !gone {
				refused = !n.s.store.announce(n.name, n.epoch, said, by)
			}
		}, func(ok bool) {
			if ok = ok && !gone; ok && !refused {
				n.by, n.fresh = by, 0
			}
			n.keep(membership.Returned{Sent: sent, Outcome: outcome(ok, refused)})
		})
	})
}

func outcome(ok, refused bool) membership.Outcome {
	switch {
	case !ok:
		return membership.Failed
	case refused:
		return membership.Refused
	}
	return membership.Done
}

// again starts the process anew, as a supervisor would.
func (n *node) again() { n.s.after(n.s.between(500*time.Millisecond, 5*time.Second), n.start) }

// list reads the store every half lease.
func (n *node) list() {
	sent := n.local()
	var now *snapshot
	n.s.store.call(n, n.terms.TTL/4, func() { now = n.s.store.now }, func(ok bool) {
		if ok {
			n.read(sent, now)
		}
	})
	n.after(n.terms.TTL/2, n.list)
}

// watched hears of a change of the store, or does not.
func (n *node) watched(now *snapshot) {
	if !n.up || n.stand == nil || n.s.rng.IntN(8) == 0 || n.s.cut(n.name, "") {
		return
	}
	life := n.life
	n.s.after(n.s.delay(), func() {
		if n.life == life && !n.s.cut(n.name, "") {
			n.run(func() { n.read(membership.Unsent, now) })
		}
	})
}

func (n *node) read(sent time.Duration, now *snapshot) {
	if n.view == nil || now.revision > n.view.revision {
		n.view = now
	}
	p, ok := n.view.places[n.name]
	_, lives := n.view.lives[n.name]
	e := membership.Read{Sent: sent, Place: ok && p.created == n.epoch, Lives: lives, Absent: n.view.absent(n.name)}
	n.doStanding(n.stand.Step(n.local(), e))
	if n.up {
		n.wake()
		n.look()
	}
}

// look shows the view to the Trainer.
func (n *node) look() {
	if n.view == nil || !n.up {
		return
	}
	n.seen = n.view
	do := n.part.Step(n.local(), membership.Seen{Record: n.view.record, Peers: n.view.peers(n.stand.Held), Over: n.view.over(), Leads: n.view.leader == n.name})
	n.doTrainer(do)
	if !n.up {
		return
	}
	if n.view.leader == "" && !n.bids && !n.info.drains && n.stand.MayDecide(n.local()) {
		n.bids = true
		by := n.by
		n.s.store.call(n, n.terms.TTL/4, func() { n.s.store.elect(n.name, n.epoch, by) }, func(ok bool) {
			if n.bids = false; !ok {
				n.look()
			}
		})
	}
	if n.in == 0 || n.broken {
		n.goOn()
	}
}

// goOn wants a group, when what came of the last one is over.
func (n *node) goOn() {
	if n.broken {
		if n.probing > 0 && n.part.Newest() <= n.broke {
			return
		}
		if due, waits := n.part.Next(); waits && n.part.Newest() <= n.broke && n.local() < due {
			return
		}
		n.broken = false
	}
	if n.in == 0 && !n.ended {
		n.doTrainer(n.part.Step(n.local(), membership.Want{}))
	}
}

func (n *node) doTrainer(do []membership.Action) {
	for _, a := range do {
		if !n.up {
			return
		}
		switch a := a.(type) {
		case membership.Enter:
			n.enter(a.Group)
		case membership.Close:
			n.leaveGroup(false)
		case membership.End:
			n.leaveGroup(true)
		case membership.Drained:
			n.leave()
		case membership.Last:
			n.stop(true)
			n.again()
		case membership.Suspect:
			n.probe(a.Members)
		case membership.Tell:
			n.info.failed = max(n.info.failed, a.ID)
			n.announce()
		case membership.Retire:
			n.write(func() {}, func() { n.info.trainer, n.info.left = false, a.ID; n.announce() })
		case membership.Write:
			lead := n.view.lead
			n.write(func() { n.s.store.write(n.name, lead, a.Record) }, func() {})
		case membership.Await:
			n.write(func() {}, func() { n.probe(a.Members) })
			if !n.awaits {
				n.awaits = true
				n.after(n.terms.TTL/4, func() { n.awaits, n.wrote = false, nil; n.look() })
			}
		}
	}
}

// write has one write to the store at a time, and one for each view.
func (n *node) write(f, before func()) {
	if n.writing || n.wrote == n.view {
		return
	}
	n.writing, n.wrote = true, n.view
	before()
	n.s.store.call(n, n.terms.TTL/4, f, func(ok bool) {
		if n.writing = false; !ok {
			n.wrote = nil
		}
		n.after(300*time.Millisecond, n.look)
		if n.wrote != n.view {
			n.look()
		}
	})
}

func (n *node) announce() {
	said := n.info
	n.s.store.call(n, n.terms.TTL/4, func() { n.s.store.announce(n.name, n.epoch, said, 0) }, func(ok bool) {
		if !ok {
			n.after(n.terms.TTL/32, n.announce)
		}
	})
}

// leave ends the membership and the process for good.
func (n *node) leave() {
	epoch := n.epoch
	n.s.store.call(n, time.Second, func() { n.s.store.depart(n.name, epoch, 0, true) }, func(bool) {
		n.stop(true)
		n.out = true
	})
}

// probe finds out who has died, and puts those out.
func (n *node) probe(members []membership.Peer) {
	for _, m := range members {
		if m.Node == n.name {
			continue
		}
		n.probing++
		done := func() {
			if n.probing--; n.probing == 0 {
				n.look()
			}
		}
		var expel func()
		expel = func() {
			n.s.store.call(n, n.terms.TTL/4, func() { n.s.store.depart(m.Node, m.Epoch, 0, true) }, func(ok bool) {
				if ok {
					done()
				} else {
					n.after(n.terms.TTL/32, expel)
				}
			})
		}
		n.after(n.s.delay(), func() {
			peer := n.s.node(m.Node)
			p, ok := n.view.places[m.Node]
			if ok && p.created == m.Epoch && !peer.up && !peer.down && !n.s.cut(n.name, m.Node) {
				expel()
				return
			}
			n.after(n.terms.TTL/8, done)
		})
	}
}
