package membership_test

import (
	"slices"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// link is steps [first, next) that were made in a group.
type link struct{ group, first, next int64 }

// training is a node's state: how many steps it has, and how it came to them.
type training struct {
	step    int64
	lineage []link
}

func (t *training) made(in int64) {
	if n := len(t.lineage); n > 0 && t.lineage[n-1].group == in {
		t.lineage[n-1].next++
	} else {
		t.lineage = append(t.lineage, link{in, t.step, t.step + 1})
	}
	t.step++
}

func (t *training) clone() training { return training{t.step, slices.Clone(t.lineage)} }

// wanted is a part that a node waits for.
type wanted struct {
	peer   string
	number int64
	missed int
}

const hello = -1 // the number of the sum by which a group meets

// enter begins to meet the others of a group.
func (n *node) enter(g membership.Group) {
	if !n.gate.Enter(uint64(g.ID)) {
		return
	}
	n.in, n.mates, n.working = g.ID, g.Members, true
	n.given = map[int64]training{}
	n.sum(hello)
}

// sum gives this node's part of a sum and asks for the others'.
func (n *node) sum(number int64) {
	in, before := n.in, n.number
	n.number = number
	n.given[number] = training{}
	if number == hello {
		n.given[number] = n.state.clone()
	}
	for k := range n.given {
		if k != number && k != before { // a peer may still get that
			delete(n.given, k)
		}
	}
	n.got, n.waits = map[string]training{}, map[string]*wanted{}
	for _, m := range n.mates {
		if m.Node != n.name {
			w := &wanted{peer: m.Node, number: number}
			n.waits[m.Node] = w
			n.ask(in, w)
		}
	}
	for _, m := range n.mates { // who waits for it
		if peer := n.s.node(m.Node); peer != n {
			n.s.after(n.s.delay(), func() { peer.run(func() { peer.poke(in, number, n.name) }) })
		}
	}
	n.summed()
}

// poke asks again, because the peer may have the part now.
func (n *node) poke(in, number int64, peer string) {
	if w := n.waits[peer]; n.in == in && n.working && n.number == number && w != nil {
		n.ask(in, w)
	}
}

// ask asks a peer for its part, and looks now and then whether it is there.
func (n *node) ask(in int64, w *wanted) {
	peer := n.s.node(w.peer)
	current := func() bool { return n.in == in && n.working && n.waits[w.peer] == w }
	if n.s.cut(n.name, w.peer) || !peer.up {
		refused := !peer.down && !peer.up && !n.s.cut(n.name, w.peer)
		n.after(time.Second, func() {
			if !current() {
				return
			}
			if w.missed++; refused || w.missed > 2 {
				n.brokeOff(in)
				return
			}
			n.ask(in, w)
		})
		return
	}
	w.missed = 0
	n.s.after(n.s.delay(), func() {
		peer.run(func() {
			part, has, refuses := peer.answer(in, w.number)
			if !has && !refuses {
				return // it pokes when it has
			}
			n.s.after(n.s.delay(), func() {
				if n.s.cut(n.name, w.peer) {
					return
				}
				n.run(func() {
					switch {
					case !current():
					case refuses:
						n.brokeOff(in)
					default:
						delete(n.waits, w.peer)
						n.got[w.peer] = part
						n.summed()
					}
				})
			})
		})
	})
	n.after(2*time.Second, func() { // the question, the answer or the word that it is there may be lost
		if current() {
			n.ask(in, w)
		}
	})
}

// answer is what a node says to who asks for its part of a sum.
func (n *node) answer(in, number int64) (part training, has, refuses bool) {
	switch {
	case n.in == in && n.working:
		part, has = n.given[number]
		return part, has, false
	case n.late == in:
		part, has = n.lates[number]
		return part, has, !has
	case n.part == nil || !n.gate.Passed(uint64(in)):
		return part, false, false
	}
	return part, false, true
}

// summed goes on when all parts of a sum are there.
func (n *node) summed() {
	if len(n.waits) > 0 || !n.working {
		return
	}
	in := n.in
	switch {
	case n.number == hello:
		n.part.Step(n.local(), membership.Began{ID: in})
		best, from := n.state, n.name
		for _, m := range n.mates {
			if t, ok := n.got[m.Node]; ok && (t.step > best.step || t.step == best.step && m.Node < from) {
				best, from = t, m.Node
			}
		}
		n.state = best.clone()
		n.s.began(in, n.state.step, n.mates)
		n.late = 0
		n.next()
	case n.number == n.s.steps: // the run's last word
		n.ended = true
		n.s.finish(n, in)
		n.leaveGroup(true)
		n.doTrainer(n.part.Step(n.local(), membership.Ended{Is: true}))
		n.after(n.s.between(0, 2*time.Second), n.leave)
	default:
		if !n.stand.MayStep(n.local()) {
			n.brokeOff(in)
			return
		}
		n.state.made(in)
		n.late = 0
		n.s.madeStep(n, in)
		if n.state.step%n.s.every == 0 {
			n.disk = n.state.clone()
		}
		n.doTrainer(n.part.Step(n.local(), membership.Made{ID: in, More: n.state.step < n.s.steps}))
		if n.up && n.in == in && n.working {
			n.next()
		} else if n.up {
			n.goOn()
		}
	}
}

// next computes its part of the next step.
func (n *node) next() {
	in, step := n.in, n.state.step
	if step == n.s.steps {
		n.doTrainer(n.part.Step(n.local(), membership.Made{ID: in, More: false}))
		if n.up && n.in == in && n.working {
			n.sum(step)
		} else if n.up {
			n.goOn()
		}
		return
	}
	n.after(n.s.between(n.s.pace/2, n.s.pace*3/2), func() {
		if n.part.In(in) && n.working && n.number < step {
			n.sum(step)
		}
	})
}

// leaveGroup takes no part in the group any more.
func (n *node) leaveGroup(ended bool) {
	if n.in == 0 {
		return
	}
	in, was := n.in, n.working
	if n.working = false; ended {
		n.late, n.lates = in, n.given
	}
	n.in, n.waits = 0, nil
	for _, m := range n.mates {
		if peer := n.s.node(m.Node); peer != n && peer.in == in {
			n.s.after(n.s.delay(), func() {
				peer.run(func() {
					if w := peer.waits[n.name]; peer.in == in && w != nil {
						peer.ask(in, w)
					}
				})
			})
		}
	}
	if was && !ended && n.up {
		n.after(time.Millisecond, n.goOn)
	}
}

// brokeOff ends a group that does not work.
func (n *node) brokeOff(in int64) {
	n.leaveGroup(false)
	n.broken, n.broke = true, in
	n.doTrainer(n.part.Step(n.local(), membership.Aborted{ID: in}))
	if due, waits := n.part.Next(); waits {
		n.after(due-n.local()+1, func() {
			n.doTrainer(n.part.Step(n.local(), membership.Tick{}))
			n.goOn()
		})
		return
	}
	n.goOn()
}
