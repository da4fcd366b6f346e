package membership_test

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// sim is a cluster in one goroutine: all that happens in it follows from its seed.
type sim struct {
	rng   *rand.Rand
	now   time.Duration
	queue events
	seq   int64
	count int

	store *store
	nodes []*node
	cuts  [][]string // sets of nodes that reach each other only; "" is the store

	maxTrainers, minTrainers int
	steps, every             int64
	pace                     time.Duration
	slow                     time.Duration // the longest way of a message
	trace                    bool

	begins   []begin
	finished []finished
	steady   bool // nothing but the store fails: the newest group, which has all nodes, is the last
	done     bool
	fenced   int
	wrong    []string
}

type begin struct {
	group, step int64
	at          time.Duration
}

type finished struct {
	node  string
	group int64
	training
	at time.Duration
}

type event struct {
	at  time.Duration
	seq int64
	f   func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1].f = nil
	*q = old[:len(old)-1]
	return e
}

func (s *sim) after(d time.Duration, f func()) {
	s.seq++
	heap.Push(&s.queue, event{s.now + d, s.seq, f})
}

func (s *sim) between(from, to time.Duration) time.Duration {
	return from + time.Duration(s.rng.Int64N(int64(to-from)+1))
}

// delay is how long a message takes.
func (s *sim) delay() time.Duration {
	if s.rng.IntN(50) == 0 {
		return s.between(0, 20*s.slow)
	}
	return s.between(0, s.slow)
}

func (s *sim) node(name string) *node {
	i := slices.IndexFunc(s.nodes, func(n *node) bool { return n.name == name })
	return s.nodes[i]
}

// cut reports whether a does not reach b; "" is the store.
func (s *sim) cut(a, b string) bool {
	for _, n := range s.nodes {
		if n.down && (n.name == a || n.name == b) {
			return true
		}
	}
	for _, side := range s.cuts {
		if slices.Contains(side, a) != slices.Contains(side, b) {
			return true
		}
	}
	return false
}

func (s *sim) log(format string, args ...any) {
	if s.trace {
		fmt.Fprintf(os.Stderr, "%9.3f %s\n", s.now.Seconds(), fmt.Sprintf(format, args...))
	}
}

func (s *sim) fail(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf("at %.3f s: ", s.now.Seconds())+fmt.Sprintf(format, args...))
	s.log("WRONG "+format, args...)
}

// began books that all members of a group have entered it, and where it goes on.
func (s *sim) began(id, step int64, members []membership.Peer) {
	i := slices.IndexFunc(s.begins, func(b begin) bool { return b.group == id })
	if i < 0 {
		if s.steady && !s.done {
			s.fail("group %d of %v begins at step %d, although only the store was away", id, members, step)
		}
		s.begins = append(s.begins, begin{id, step, s.now})
		s.log("group %d of %v begins at step %d", id, members, step)
		return
	}
	if b := s.begins[i]; b.step != step {
		s.fail("group %d begins at step %d and at step %d", id, b.step, step)
	}
}

// madeStep checks that no group goes on beside a newer one: what it still makes is
// no more than the step at which the newer one began. Who was left behind when the run
// came to its end, and those that made it have left, makes the rest anew, alone.
func (s *sim) madeStep(n *node, id int64) {
	step := n.state.step - 1
	for _, b := range s.begins {
		if late := s.done && b.at > s.finished[0].at; b.group > id && step > b.step && !late {
			s.fail("node %s makes step %d in group %d, although group %d began at step %d", n.name, step, id, b.group, b.step)
		}
	}
	if n.stand.Phase() == membership.Fenced {
		s.fail("node %s is fenced and makes step %d", n.name, step)
	}
	if n.gate.Entered() > uint64(id) {
		s.fail("node %s makes step %d in group %d, and entered %d", n.name, step, id, n.gate.Entered())
	}
}

// decides checks that the lease of a node lives that does by itself what counts for others.
func (s *sim) decides(n *node) {
	if l := s.store.leases[n.by]; l == nil || s.now >= l.ends {
		s.fail("node %s decides, and its lease has ended", n.name)
	}
}

// finish books that a node has the run's last step.
func (s *sim) finish(n *node, in int64) {
	f := finished{n.name, in, n.state.clone(), s.now}
	s.log("node %s is done: %v", n.name, f.lineage)
	next := int64(0)
	for _, l := range f.lineage {
		if l.first != next || l.next <= l.first {
			s.fail("node %s ends with the lineage %v", n.name, f.lineage)
		}
		next = l.next
	}
	if next != s.steps {
		s.fail("node %s ends after step %d of %d", n.name, next, s.steps)
	}
	if s.done = true; len(s.finished) > 0 {
		first := s.finished[0]
		i := slices.IndexFunc(s.begins, func(b begin) bool { return b.group == in })
		if s.begins[i].at < first.at && !slices.Equal(first.lineage, f.lineage) {
			s.fail("node %s ends with the lineage %v, node %s with %v", first.node, first.lineage, f.node, f.lineage)
		}
	}
	s.finished = append(s.finished, f)
}

// newSim makes a cluster and what is going to happen to it.
func newSim(seed uint64, trace bool) *sim {
	s := &sim{rng: rand.New(rand.NewPCG(seed, 1)), trace: trace, maxTrainers: 8}
	s.store = newStore(s)
	ttl := s.between(time.Second, 4*time.Second)
	outage := s.between(2*ttl, 20*time.Second)
	if s.rng.IntN(8) == 0 {
		outage = 0
	}
	s.slow = s.between(time.Millisecond, ttl/16)
	s.pace = s.between(20*time.Millisecond, 400*time.Millisecond)
	s.steps, s.every = 20+s.rng.Int64N(100), 1+s.rng.Int64N(30)
	count := 1 + s.rng.IntN(4)
	s.minTrainers = 1 + s.rng.IntN(count)
	switch {
	case seed%8 == 5:
		s.loseStore(count, membership.Terms{TTL: ttl, Outage: max(outage, 6*ttl)})
		return s
	case seed%32 == 7: // what two clocks differ by in an outage is longer than a lease
		s.slow, s.pace = min(s.slow, 20*time.Millisecond), 400*time.Millisecond
		terms := membership.Terms{TTL: time.Second, Outage: s.between(200*time.Second, 256*time.Second)}
		for range 1 + count%2 {
			s.after(s.between(0, time.Second), s.add(terms, -0.49).start)
		}
		s.besiege(s.between(terms.Over(), terms.Over()+10*time.Second), 0.49)
		return s
	}
	terms := membership.Terms{TTL: ttl, Outage: outage}
	for i := range count + s.rng.IntN(3) {
		n := s.add(terms, s.rng.Float64()-0.5)
		n.spare = i >= 2
		if i < count {
			s.after(s.between(0, time.Second), n.start)
		} else {
			s.after(s.between(0, 40*time.Second), n.start)
		}
	}
	for range s.rng.IntN(6) {
		s.after(s.between(time.Second, 40*time.Second), s.fault)
	}
	if seed%8 == 3 {
		s.besiege(s.between(terms.Over()/2, 2*terms.Over()), s.rng.Float64()-0.5)
	}
	return s
}

// add returns a node more, whose clock is fast by rate parts in membership.Drift.
func (s *sim) add(terms membership.Terms, rate float64) *node {
	n := &node{s: s, name: string(rune('a' + len(s.nodes))), terms: terms, rate: 1 + rate/membership.Drift, off: s.between(0, time.Hour)}
	s.nodes = append(s.nodes, n)
	return n
}

// besiege lets the run last, and has all members of the newest group cut off from the
// store for a while, but not from each other, so long that others may take them to be
// over; a node that comes meanwhile, whose clock is fast by rate, has the store.
func (s *sim) besiege(d time.Duration, rate float64) {
	late := s.add(s.nodes[0].terms, rate)
	at := s.between(3*time.Second, 10*time.Second)
	s.minTrainers = 1
	s.pace = max(s.pace, 150*time.Millisecond)
	s.steps = int64((at + 2*d) / s.pace)
	s.after(at, func() {
		var side []string
		for _, m := range s.store.now.record.Members {
			side = append(side, m.Node)
		}
		s.cutOff(side, d)
	})
	s.after(at+s.between(0, late.terms.TTL), late.start)
}

// loseStore takes the store from count nodes, which are in one group, several times:
// nothing else fails, so that they stay in it, and their steps go on.
func (s *sim) loseStore(count int, terms membership.Terms) {
	for range count {
		s.after(s.between(0, time.Second), s.add(terms, s.rng.Float64()-0.5).start)
	}
	times := 1 + s.rng.IntN(3)
	s.pace = max(s.pace, 150*time.Millisecond)
	s.steps = int64(time.Duration(times) * (terms.Outage + 4*terms.TTL) / s.pace)
	var away func()
	away = func() {
		if i := len(s.begins) - 1; i < 0 || s.begins[i].group != s.store.now.record.ID || len(s.store.now.record.Members) < count {
			s.after(time.Second, away)
			return
		}
		s.steady = true
		d := s.between(0, terms.Outage-4*terms.TTL)
		switch s.rng.IntN(3) {
		case 0:
			s.freezeStore(d)
		case 1:
			s.killStore(d)
		default:
			s.cutOff([]string{""}, d)
		}
		if times--; times > 0 {
			s.after(d+s.between(4*terms.TTL, 6*terms.TTL), away)
		}
	}
	s.after(s.between(5*time.Second, 10*time.Second), away)
}

func (s *sim) freezeStore(d time.Duration) {
	s.log("the store is frozen for %v", d)
	s.store.frozen = true
	s.after(d, s.store.goOn)
}

func (s *sim) killStore(d time.Duration) {
	s.log("the store is killed for %v", d)
	s.store.killed, s.store.waiting = true, nil
	s.after(d, s.store.goOn)
}

// cutOff cuts nodes off from all others, and from the store, for a while.
func (s *sim) cutOff(side []string, d time.Duration) {
	s.log("%q are cut off for %v", side, d)
	s.cuts = append(s.cuts, side)
	s.after(d, func() {
		i := slices.IndexFunc(s.cuts, func(o []string) bool { return slices.Equal(o, side) })
		s.cuts = slices.Delete(s.cuts, i, i+1)
	})
}

// calm is when all faults are over.
const calm = 80 * time.Second

// fault makes something go wrong for a while.
func (s *sim) fault() {
	n := s.nodes[s.rng.IntN(len(s.nodes))]
	d := s.between(100*time.Millisecond, 12*time.Second)
	if s.rng.IntN(3) == 0 {
		d = s.between(0, 35*time.Second)
	}
	switch s.rng.IntN(9) {
	case 0, 1:
		s.log("node %s is killed for %v", n.name, d)
		n.stop(false)
		s.after(d, n.start)
	case 2:
		s.log("host %s is down for %v", n.name, d)
		n.stop(false)
		n.down = true
		s.after(d, func() { n.down = false; n.start() })
	case 3:
		if n.up && !n.frozen {
			s.log("node %s is frozen for %v", n.name, d)
			n.frozen = true
			life := n.life
			s.after(d, func() {
				if n.life == life && n.frozen {
					s.log("node %s thaws", n.name)
					n.frozen = false
					all := n.backlog
					n.backlog = nil
					for _, f := range all {
						f()
					}
				}
			})
		}
	case 4:
		s.freezeStore(d)
	case 5:
		s.killStore(d)
	case 6, 7:
		var side []string
		for _, n := range s.nodes {
			if s.rng.IntN(2) == 0 {
				side = append(side, n.name)
			}
		}
		if s.rng.IntN(3) == 0 {
			side = []string{""} // the store from all
		}
		s.cutOff(side, d)
	default:
		if n.spare && n.up && n.part != nil && !n.info.drains {
			s.log("node %s drains", n.name)
			n.run(func() { n.info.drains = true; n.announce() })
		}
	}
}

// run lets it happen, and checks that the run comes to its end.
func (s *sim) run() {
	terms := s.nodes[0].terms
	// Whoever is over for others is so by then; the rest is training.
	limit := calm + 3*terms.Over() + 2*time.Duration(s.steps)*(2*s.pace+40*s.slow) + time.Minute
	for len(s.queue) > 0 {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		s.count++
		e.f()
		if len(s.wrong) > 0 {
			return
		}
		i := slices.IndexFunc(s.nodes, func(n *node) bool { return n.up })
		switch {
		case s.done && i < 0:
			return
		case s.done && s.now > s.finished[0].at+5*terms.Over()+10*time.Minute:
			s.fail("node %s has not ended, although node %s came to the end at %v", s.nodes[i].name, s.finished[0].node, s.finished[0].at)
			return
		}
		if !s.done && s.now > limit {
			break
		}
		if s.count > 1<<20 {
			s.fail("time stands still: %d events", s.count)
			return
		}
	}
	if len(s.finished) == 0 {
		s.fail("nobody comes to the end of %d steps: the groups began at %v; the newest is %+v", s.steps, s.begins, s.store.now.record)
		for _, n := range s.nodes {
			s.log("%s: up %v frozen %v out %v step %d in %d working %v waits %v broken %v probing %d", n.name, n.up, n.frozen, n.out, n.state.step, n.in, n.working, n.waits, n.broken, n.probing)
		}
	}
}

var seed = flag.Uint64("seed", 0, "of the one schedule that TestSchedules runs, and traces")

// schedules is the environment variable that says how many schedules TestSchedules runs.
const schedules = "GNNACTOR_SCHEDULES"

// Whatever goes wrong, there is one lineage with each step once, and the run comes to
// its end. go test -run Schedules -seed N shows one schedule.
func TestSchedules(t *testing.T) {
	if *seed != 0 {
		s := newSim(*seed, true)
		s.run()
		for _, w := range s.wrong {
			t.Error(w)
		}
		return
	}
	count := 1000 // .ci/long runs 100,000
	if testing.Short() {
		count = 300
	}
	if text := os.Getenv(schedules); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", schedules, err)
		}
	}
	// A schedule leaves 5 MB behind, and holds little.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	began := time.Now()
	var events, fenced, groups int
	var bad []string
	for i := range count {
		s := newSim(uint64(i+1), false)
		s.run()
		events, fenced, groups = events+s.count, fenced+s.fenced, groups+len(s.begins)
		if len(s.wrong) > 0 {
			bad = append(bad, strconv.Itoa(i+1))
			if len(bad) <= 10 {
				t.Errorf("seed %d: %s", i+1, s.wrong[0])
			}
		}
	}
	if len(bad) > 0 {
		t.Errorf("%d of %d schedules: seeds %s", len(bad), count, strings.Join(bad[:min(len(bad), 50)], " "))
	}
	t.Logf("%d schedules, %.0f a second: %d events, %d groups, %d nodes fenced", count, float64(count)/time.Since(began).Seconds(), events, groups, fenced)
}
