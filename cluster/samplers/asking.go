package samplers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/cluster/control"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// How a trainer asks. A sampler stays where it is until its next place has answered: what is
// cold there, connections and memory, nobody waits for. A node that is gone, fails or takes
// too long is shunned: its samplers are asked elsewhere, at once, until it answers again. A batch
// may be asked of two nodes at the same time; the first answer is taken.

// again is how long a sampler that is not there is left alone; it doubles up to a
// second, unless the members change.
const again = 2 * time.Millisecond

// patience is the least time after which a batch that a node does not answer is asked of another one, too. It is
// more where batches take long; too short a one costs a draw, and no more.
const patience = time.Second

// drawing is a micro-batch that is asked for.
type drawing struct {
	i    int // of which sampler
	body []byte
	m    *messages.Seeds

	mu   sync.Mutex      // held while b is made
	b    *sampling.Batch // nil: it is made
	by   string          // the node that made it
	size int             // of its bytes
}

// answer is what a node said to a drawing.
type answer struct {
	node string
	err  error // nil: the batch is made
}

// Draw implements actors.Elsewhere.
func (r *Remote) Draw(ctx context.Context, i int, m *messages.Seeds, b *sampling.Batch) (node string, err error) {
	body, err := r.question(m)
	if err != nil {
		return "", err
	}
	d := &drawing{i: i, body: body, m: m, b: b}
	var asks sync.WaitGroup
	defer asks.Wait() // nobody has b afterwards
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers := make(chan answer)
	open, failed := map[string]bool{}, map[string]error{}
	ask := func(node string) {
		open[node] = true
		asks.Go(func() {
			began := time.Now()
			err := r.drawAt(ctx, d, node)
			if err == nil {
				r.took.add(time.Since(began))
			}
			select {
			case answers <- answer{node, err}:
			case <-ctx.Done():
			}
		})
	}
	limit := r.took.limit(patience)
	late := time.NewTimer(limit) // for who is asked to answer
	defer late.Stop()
	last := "" // who was asked last, and is not there yet
	for wait := again; ; {
		at, changed := r.place(i)
		if at == r.node {
			cancel(nil)
			if asks.Wait(); d.b == nil { // just so
				return r.made(d), nil
			}
			return "", actors.ErrHere
		}
		var pause <-chan time.Time
		if len(open) == 0 {
			if at == "" || failed[at] != nil {
				at = r.another(i, failed)
			}
			switch {
			case at == "" && len(failed) > 0:
				return "", joined(failed)
			case at == "":
				r.tell(i)
			case at != last:
				r.waiting.Store(nil)
				ask(at)
				last = ""
				late.Reset(limit)
			}
			if len(open) == 0 {
				pause = time.After(wait)
				wait = min(2*wait, time.Second)
			}
		}
		select {
		case a := <-answers:
			delete(open, a.node)
			switch {
			case a.err == nil:
				return r.made(d), nil
			case ctx.Err() != nil:
			case errors.Is(a.err, control.ErrPeerGone) || errors.Is(a.err, dataplane.ErrPeerGone):
				r.shun(a.node, i, a.err)
				last = a.node
			case moved(a.err):
				r.leave(i, a.node)
				last = a.node
			default:
				for other, err := range failed {
					if reason(err) == reason(a.err) { // it is the data's
						return "", fmt.Errorf("samplers: nodes %s and %s: %w", other, a.node, a.err)
					}
				}
				failed[a.node] = a.err
				r.shun(a.node, i, a.err)
			}
		case <-late.C:
			for node := range open {
				r.shun(node, i, fmt.Errorf("it has not answered for %v", limit.Round(time.Millisecond)))
			}
			skip := maps.Clone(failed)
			for node := range open {
				skip[node] = errLate
			}
			if at := r.another(i, skip); at != "" {
				ask(at)
			}
			limit *= 2
			late.Reset(limit)
		case <-pause:
			last = ""
		case <-changed:
			last, wait = "", again
		case <-ctx.Done():
			return "", fmt.Errorf("samplers: %w", context.Cause(ctx))
		}
	}
}

// made counts what was drawn elsewhere, and returns where.
func (r *Remote) made(d *drawing) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.m.Want == "" {
		r.drawn.Add(1)
		r.bytes.Add(int64(d.size))
	}
	return d.by
}

// tell says, once until that changes or is over, that no node samples, and which are to and do not yet: they may
// copy data first; or that those that do take no more samplers. It says nothing if sampler i has a place by now.
func (r *Remote) tell(i int) {
	v, _ := r.o.Member.View()
	if name := Name(r.node, i); !known(v, name) || At(v, name, "") != "" {
		return
	}
	var nodes, full []string
	for _, m := range v.Members {
		switch {
		case Can(&m):
			full = append(full, m.Node)
		case m.Samples && !m.Drains():
			nodes = append(nodes, m.Node)
		}
	}
	what, level := "waiting: "+Nobody, slog.LevelWarn
	if full != nil {
		what = "waiting: " + Full + ": " + strings.Join(full, ", ")
	}
	if nodes != nil {
		what, level = what+", or see why those with that role do not begin to: "+strings.Join(nodes, ", "), slog.LevelInfo
	}
	if said := r.waiting.Swap(&what); said == nil || *said != what { // once, and not by every sampler
		r.o.Logger.Log(r.ctx, level, what)
	}
}

var errLate = errors.New("late")

// reason returns what a node said, without its name.
func reason(err error) string {
	var there *control.RemoteError
	if errors.As(err, &there) {
		return there.Text
	}
	return err.Error()
}

// joined is the error of nodes that all failed.
func joined(failed map[string]error) error {
	var all []error
	for _, node := range slices.Sorted(maps.Keys(failed)) {
		all = append(all, fmt.Errorf("samplers: node %s: %w", node, failed[node]))
	}
	return errors.Join(all...)
}

// wanted returns where sampler i is to be, and a channel that is closed when that may have changed.
func (r *Remote) wanted(i int) (node string, v *membership.View, changed <-chan struct{}) {
	v, changed = r.o.Member.View()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen != v {
		r.seen, r.wants = v, map[int]string{}
	}
	node, ok := r.wants[i]
	if !ok {
		name := Name(r.node, i)
		p, _ := r.o.Member.Place(Kind, name)
		if node = at(v, name, p.Node, r.shuns); node == "" { // better one of those than nobody
			node = At(v, name, p.Node)
		}
		if r.local && (p.Node == "" || node != p.Node) {
			node = r.node
		}
		r.wants[i] = node
	}
	return node, v, changed
}

// shuns reports whether a node is not asked for now. The lock is held.
func (r *Remote) shuns(node string) bool { return r.shunned[node] != nil && r.shunned[node].now }

// place returns where sampler i is asked, and a channel that is closed when that may have changed. One that
// is to move stays for as long as it is answered, until it is where it is to be, too.
func (r *Remote) place(i int) (node string, changed <-chan struct{}) {
	to, v, changed := r.wanted(i)
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.at[i]
	if is == "" || to == r.node || !r.answers(v, is) {
		r.asks(i, to)
		return to, changed
	}
	if is != to && to != "" && r.next[i] != to {
		r.next[i] = to
		r.start(func() { r.move(i, to) })
	}
	return is, changed
}

// start runs f in a goroutine that Close waits for. The lock is held.
func (r *Remote) start(f func()) {
	if r.ctx.Err() == nil {
		r.tasks.Go(f)
	}
}

// answers reports whether a node is one to ask, if none better is known. The lock is held.
func (r *Remote) answers(v *membership.View, node string) bool {
	m, in := v.Member(node)
	p := r.peers[node]
	return node == r.node && r.local || in && slices.Contains(m.Kinds, Kind) && !r.shuns(node) && (p == nil || p.Err() == nil)
}

// another returns a node to ask in place of those that failed; "": there is none.
func (r *Remote) another(i int, failed map[string]error) string {
	v, _ := r.o.Member.View()
	name := Name(r.node, i)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, shuns := range []bool{true, false} {
		node := at(v, name, "", func(node string) bool { return failed[node] != nil || shuns && r.shuns(node) })
		if node != "" && node != r.node {
			return node
		}
	}
	return ""
}

// asks books at which node sampler i is asked from now on. The lock is held.
func (r *Remote) asks(i int, node string) {
	if is := r.at[i]; is != "" && node != "" && is != node {
		r.moves++
		r.o.Logger.Info("a sampler moved", "sampler", Name(r.node, i), "from", is, "to", node)
	}
	if node != "" {
		if r.at[i] != node {
			r.since[i] = time.Now()
		}
		r.at[i] = node
	}
	delete(r.next, i)
}

// leave has sampler i be asked where it is to be, as a node does not know it any more.
func (r *Remote) leave(i int, node string) {
	to, _, _ := r.wanted(i)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at[i] == node && to != "" {
		r.asks(i, to)
	}
}

// move has sampler i be asked at a node once that has answered.
func (r *Remote) move(i int, to string) {
	for wait := again; ; wait = min(2*wait, time.Second) {
		err := r.answer(r.ctx, i, to)
		if err != nil && !errors.Is(err, control.ErrElsewhere) && r.ctx.Err() == nil {
			r.shun(to, i, err)
		}
		wants, _, _ := r.wanted(i)
		r.mu.Lock()
		mine := r.next[i] == to
		switch {
		case mine && err == nil && wants == to:
			r.asks(i, to)
		case mine && (err == nil || wants != to):
			delete(r.next, i)
		}
		mine = mine && r.next[i] == to
		r.mu.Unlock()
		if !mine || !r.rest(r.ctx, wait) {
			return
		}
	}
}

// rest waits; false: ctx has ended.
func (r *Remote) rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// ready connects to a node, and returns when sampler i has drawn a batch there.
func (r *Remote) ready(ctx context.Context, i int, node string) error {
	body, err := messages.Marshal(&messages.Seeds{Run: *r.run.Load()})
	if err != nil {
		return err
	}
	return r.while(ctx, node, func(ctx context.Context) error {
		_, err := r.o.Control.AskAt(ctx, node, Kind, Name(r.node, i), body)
		return err
	})
}

// shunned is a node that did not do what it was asked for.
type shunned struct {
	epoch int64
	times int
	now   bool // it is not asked
	why   error
}

// The first time a node is shunned for at least so long, each further time for twice as
// long, up to the most.
const (
	shunning     = 500 * time.Millisecond
	shunningMost = 30 * time.Second
)

// shun has samplers not be asked at a node until it has answered one again, or is anew.
func (r *Remote) shun(node string, i int, why error) {
	v, _ := r.o.Member.View()
	m, in := v.Member(node)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !in || r.shuns(node) {
		return
	}
	s := r.shunned[node]
	if s == nil || s.epoch != m.Epoch {
		s = &shunned{epoch: m.Epoch}
		r.shunned[node] = s
	}
	s.now, s.why, r.seen = true, why, nil
	s.times++
	rest := min(shunning<<min(s.times-1, 16), shunningMost)
	if errors.Is(why, dataplane.ErrPeerGone) || errors.Is(why, control.ErrPeerGone) {
		r.o.Logger.Info("a sampler's node is gone", "node", node, "error", why)
	} else {
		r.o.Logger.Warn("a node is not asked for batches until it answers again", "node", node, "because", why)
	}
	r.start(func() {
		// Whether it died, so that the others need not wait for its lease.
		if _, err := r.o.Member.Suspect(r.ctx, []string{node}); err != nil && r.ctx.Err() == nil {
			r.o.Logger.Debug("samplers: a node that does not answer", "node", node, "error", err)
		}
		for {
			if !r.rest(r.ctx, rest) {
				return
			}
			v, _ := r.o.Member.View()
			m, in := v.Member(node)
			if !in || m.Epoch != s.epoch || r.answer(r.ctx, i, node) == nil {
				break
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		s.now, r.seen = false, nil
	})
}

// Shunned says which nodes are not asked for batches now, and why.
func (r *Remote) Shunned() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, node := range slices.Sorted(maps.Keys(r.shunned)) {
		if s := r.shunned[node]; s.now {
			all = append(all, fmt.Sprintf("%s: %v", node, s.why))
		}
	}
	return all
}

// Here implements actors.Elsewhere.
func (r *Remote) Here(i int) bool {
	at, _ := r.place(i)
	return at == r.node
}

// Moves returns how often a sampler was asked on another node than before.
func (r *Remote) Moves() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moves
}

// Where returns on which node each of this trainer's samplers is.
func (r *Remote) Where() []string {
	v, _ := r.o.Member.View()
	me, _ := v.Member(r.node)
	all := make([]string, Count(&me))
	for i := range all {
		all[i], _ = r.place(i)
	}
	return all
}

// Since returns since when each of so many samplers is where it is, in Unix seconds; 0: it is nowhere.
func (r *Remote) Since(n int) []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]int64, n)
	for i := range all {
		if t, ok := r.since[i]; ok {
			all[i] = t.Unix()
		}
	}
	return all
}

// took is how long batches took lately that other nodes drew. The zero value is ready.
type took struct {
	mu   sync.Mutex
	last [256]time.Duration
	n    int
	high time.Duration // that a hundredth of them took longer than
}

// times is how much longer than nearly all others a batch may take.
const times = 20

func (t *took) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last[t.n%len(t.last)] = d
	if t.n++; t.n > 16 && t.n%16 != 0 {
		return
	}
	all := slices.Clone(t.last[:min(t.n, len(t.last))])
	slices.Sort(all)
	t.high = all[len(all)*99/100]
}

// limit returns how long a node may take; it is no less than least.
func (t *took) limit(least time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(least, times*t.high)
}
