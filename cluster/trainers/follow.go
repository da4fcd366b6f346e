package trainers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

func candidates(v *membership.View) []membership.Info {
	var all []membership.Info
	for _, m := range v.Members {
		if !m.Drain && slices.Contains(m.Kinds, Kind) {
			all = append(all, m)
		}
	}
	return all
}

// now is this node's clock.
func (t *Trainers) now() membership.Time { return time.Since(t.born) }

// step takes an event in, does what takes no time of what is to be done, and returns
// the rest.
func (t *Trainers) step(e membership.Event) (rest []membership.Action) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.part.Step(t.now(), e) {
		switch a.(type) {
		case membership.Close:
			t.quit((*reduceGroup).Close)
		case membership.End:
			t.quit((*reduceGroup).End)
		default:
			rest = append(rest, a)
		}
	}
	if _, seen := e.(membership.Seen); seen {
		close(t.looked)
		t.looked = make(chan struct{})
	}
	return rest
}

// quit leaves the newest group. The lock is held.
func (t *Trainers) quit(how func(*reduceGroup)) {
	if t.group != nil {
		how(t.group)
		t.over()
	}
}

// look returns what the newest view asks for.
func (t *Trainers) look(v *membership.View) []membership.Action {
	r, err := newestOf(t.o.Member)
	if err != nil {
		t.o.Logger.Error("trainers", "error", err)
	}
	s := membership.Seen{Record: r, Over: map[string]membership.Over{}, Leads: t.o.Member.Leads(v) && t.o.Member.Err() == nil}
	for _, all := range [][]membership.Info{v.Members, v.Absent} {
		for i := range all {
			m := &all[i]
			s.Peers = append(s.Peers, membership.PeerView{
				Peer: membership.Peer{Node: m.Node, Epoch: m.Epoch}, Lives: !m.Away, Trainer: slices.Contains(m.Kinds, Kind), Drains: m.Drain,
				Failed: m.Failed, Left: m.Left,
			})
		}
	}
	for i := range v.Members {
		s.Peers[i].Held = v.Members[i].Away
	}
	slices.SortFunc(s.Peers, func(a, b membership.PeerView) int { return strings.Compare(a.Node, b.Node) })
	for _, d := range v.Departed {
		if d.Dead {
			s.Over[d.Node] = membership.Over{From: d.Since, To: d.Epoch}
		}
	}
	return t.step(s)
}

// follow looks at each new view, and makes the writes to the store that follow on it,
// one at a time.
func (t *Trainers) follow(ctx context.Context) {
	written := make(chan error, 1)
	writing := false
	var done *membership.View // what was to be written by this one has been
	var again <-chan time.Time
	var awaited []membership.Peer
	short := time.After(time.Second)
	for {
		v, changed := t.o.Member.View()
		do := t.look(v)
		if v == done {
			do = nil
		}
		for _, a := range do {
			if writing {
				break
			}
			var write func() error
			switch a := a.(type) {
			case membership.Retire:
				write = func() error { return t.retire(ctx, a.ID) }
			case membership.Write:
				write = func() error { return t.write(ctx, v.Epoch, a.Record) }
			case membership.Await:
				if !slices.Equal(a.Members, awaited) {
					awaited = a.Members
					t.o.Logger.Warn("training waits for nodes that may have gone on with it: for them to come back, or until it is certain that they stopped", "nodes", names(a.Members))
				}
				again = time.After(t.o.Member.Patience())
				write = func() error { _, err := t.o.Member.Suspect(ctx, names(a.Members)); return err }
			default:
				panic(fmt.Sprintf("trainers: a leader does not know how to do %T", a))
			}
			writing, done = true, v
			t.tasks.Go(func() { written <- write() })
		}
		select {
		case <-changed:
		case <-t.wake:
			done = nil
		case <-again:
			done, again = nil, nil
		case <-short:
			if short = nil; !t.tellShort(v) {
				short = time.After(time.Second)
			}
		case err := <-written:
			if writing = false; err != nil && ctx.Err() == nil {
				t.o.Logger.Warn("the store could not be told yet what trainers are to do", "error", err)
				again = time.After(patience) // a store that changes its leader fails writes for a while
			}
		case <-t.o.Member.Lost():
			t.leave()
			return
		case <-ctx.Done():
			return
		}
	}
}

// tellShort says for how many trainers this one waits before the first group. It returns false while that is not known.
func (t *Trainers) tellShort(v *membership.View) (known bool) {
	if r, err := newestOf(t.o.Member); err != nil || r.ID != 0 {
		return true
	}
	here := candidates(v)
	if len(here) >= t.o.MinTrainers || !slices.ContainsFunc(here, func(m membership.Info) bool { return m.Node == t.o.Plane.Node() }) {
		return false
	}
	t.o.Logger.Info("waiting for nodes that are to train with this one: add them with 'gnnactor cluster join', or begin with fewer (--wait-for)", "wait-for", t.o.MinTrainers, "here", len(here))
	return true
}

// newestOf returns the newest group that is written down.
func newestOf(m *membership.Member) (membership.Record, error) {
	var r membership.Record
	b, id := m.Value(groupKey)
	if b == nil {
		return r, nil
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("trainers: the group at revision %d: %w", id, err)
	}
	r.ID = id
	return r, nil
}

// First returns the first node of the newest group of trainers, and since when that is a
// member: whose parameters count, where not all have the same. Empty: there is no group.
func First(m *membership.Member) (node string, epoch int64) {
	r, err := newestOf(m)
	if err != nil || len(r.Members) == 0 {
		return "", 0
	}
	return r.Members[0].Node, r.Members[0].Epoch
}

// write writes a group down, as leader of an epoch, in place of the one that it
// follows.
func (t *Trainers) write(ctx context.Context, leader int64, r membership.Record) error {
	newest := r.ID
	r.ID = 0 // the store's to give
	value, err := json.Marshal(&r)
	if err != nil {
		return fmt.Errorf("trainers: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, t.o.Member.Patience())
	defer cancel()
	_, err = t.o.Member.SetValue(ctx, leader, groupKey, newest, value)
	if errors.Is(err, membership.ErrStale) {
		return nil // the view that follows has what is newer
	}
	return err
}
