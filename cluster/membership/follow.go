package membership

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"
)

// follow keeps the view.
func (m *Member) follow() {
	for m.ctx.Err() == nil {
		err := m.followOnce()
		if m.ctx.Err() != nil || errors.Is(err, errLate) {
			continue
		}
		m.cfg.Logger.Warn("the store cannot be followed; trying again", "error", err)
		m.pause(m.cfg.TTL / 8)
	}
}

// pause waits; false: the membership is over.
func (m *Member) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-m.ctx.Done():
		return false
	}
}

// errLate: a watch that says nothing of what has changed.
var errLate = errors.New("membership: the watch of the store is late")

func (m *Member) followOnce() error {
	if _, err := m.list(m.ctx); err != nil {
		return err
	}
	v, _ := m.View()
	ctx, cancel := context.WithCancelCause(m.ctx)
	checks := make(chan struct{})
	go func() {
		defer close(checks)
		m.check(ctx, cancel)
	}()
	err := m.store.Watch(ctx, m.prefix, v.Revision, m.take)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(nil)
	<-checks
	return err
}

// check reads the store now and then: a watch may hang on a server that is
// frozen, or cut off, for as long as it takes the transport to notice.
func (m *Member) check(ctx context.Context, late context.CancelCauseFunc) {
	tick := time.NewTicker(m.cfg.TTL / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch changed, err := m.list(ctx); {
		case err != nil && ctx.Err() == nil:
			m.cfg.Logger.Debug("the store could not be read", "error", err)
		case changed:
			late(errLate)
			return
		}
	}
}

// list reads the view and reports whether it was new.
func (m *Member) list(ctx context.Context) (changed bool, err error) {
	sent := m.now()
	now, revision, err := m.all(ctx)
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	same := maps.EqualFunc(m.entries, now, func(a, b Entry) bool { return a.Modified == b.Modified })
	changed = revision >= m.view.Revision && (!same || m.view.Revision == 0)
	if changed {
		m.entries = now
	}
	m.read(sent, revision, changed)
	return changed, nil
}

// take brings the view up to what a watch says; what is older than the view is
// passed over.
func (m *Member) take(changed []Entry, revision int64) {
	m.mu.Lock()
	if revision <= m.view.Revision {
		m.mu.Unlock()
		return
	}
	for _, e := range changed {
		switch {
		case e.Modified <= m.view.Revision:
		case e.Deleted:
			delete(m.entries, e.Key)
		default:
			m.entries[e.Key] = e
		}
	}
	m.read(Unsent, revision, true)
}

// read takes in that the entries are those of the store, and shows them if they have
// changed. The lock is held, and given back.
func (m *Member) read(sent Time, revision int64, changed bool) {
	place, in := m.entries[m.key()]
	_, lives := m.entries[m.aliveKey(m.cfg.Info.Node)]
	do := m.step(Read{Sent: sent, Place: in && place.Created == m.epoch, Lives: lives, Absent: m.absent()})
	if changed {
		m.show(revision)
	}
	m.mu.Unlock()
	m.do(do)
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// absent returns the other nodes that have a place and do not live. The lock is held.
func (m *Member) absent() map[string]Absent {
	var all map[string]Absent
	for key, e := range m.entries {
		node, ok := strings.CutPrefix(key, m.prefix+"members/")
		if _, lives := m.entries[m.aliveKey(node)]; !ok || lives || node == m.cfg.Info.Node {
			continue
		}
		var info Info
		if json.Unmarshal(e.Value, &info) != nil || info.Node != node {
			continue
		}
		if all == nil {
			all = map[string]Absent{}
		}
		all[node] = Absent{Epoch: e.Created, Modified: e.Modified, Terms: Terms{TTL: info.TTL, Outage: info.Outage}}
	}
	return all
}

// show makes the view of the entries. The lock is held.
func (m *Member) show(revision int64) {
	m.view = viewOf(m.prefix, m.entries, revision, m.standing.Held)
	close(m.changed)
	m.changed = make(chan struct{})
}

// Stand lets this node stand for election from now on: whenever there is no
// leader. Leave must not have been called.
func (m *Member) Stand() { m.stands.Do(func() { m.tasks.Go(m.stand) }) }

func (m *Member) stand() {
	for {
		v, changed := m.View()
		me, in := v.Member(m.cfg.Info.Node)
		if v.Leader == "" && in && !me.Drains() && m.Err() == nil {
			if !m.bid() {
				if !m.pause(m.cfg.TTL / 32) {
					return
				}
				continue
			}
		}
		select {
		case <-changed:
		case <-m.lost:
			return
		case <-m.ctx.Done():
			return
		}
	}
}

// bid asks to lead. It returns false when that is to be done again: the lease may have ended, or the
// store did not answer. Who is not first hears of the winner by the watch.
func (m *Member) bid() bool {
	if !m.MayDecide() {
		return false
	}
	_, _, err := m.store.Commit(m.ctx, []If{{Key: m.leaderKey()}, {Key: m.key(), Created: m.epoch}},
		[]Change{{Key: m.leaderKey(), Value: []byte(m.cfg.Info.Node), Lease: m.held()}})
	if err != nil {
		m.cfg.Logger.Warn("election", "error", err)
	}
	return err == nil
}
