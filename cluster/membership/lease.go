package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// now is this node's clock.
func (m *Member) now() Time { return time.Since(m.born) }

// step takes an event into this node's standing. The lock is held.
func (m *Member) step(e Event) []Action {
	before := m.standing.Phase()
	do := m.standing.Step(m.now(), e)
	if after := m.standing.Phase(); after != before {
		close(m.stood)
		m.stood = make(chan struct{})
		switch after {
		case Attached:
			m.cfg.Logger.Info("this node has a lease again")
		case Detached:
			m.cfg.Logger.Warn("the lease may have ended; what takes the store waits", "outage", m.cfg.Outage)
		}
	}
	return do
}

// keep makes the calls that keep this node a member.
func (m *Member) keep() {
	var e Event = Tick{}
	for {
		m.mu.Lock()
		do := m.step(e)
		m.mu.Unlock()
		e = m.do(do)
		if e != nil {
			continue
		}
		m.mu.Lock()
		next := time.NewTimer(m.standing.Next() - m.now())
		m.mu.Unlock()
		select {
		case <-next.C:
		case <-m.woken: // something else is due
		case <-m.lost:
		case <-m.ctx.Done():
		}
		next.Stop()
		if m.Err() != nil || m.ctx.Err() != nil {
			return
		}
		e = Tick{}
	}
}

// do carries out what the standing wants, and returns what came of a call to the store;
// nil: there was none.
func (m *Member) do(all []Action) (e Event) {
	for _, a := range all {
		switch a := a.(type) {
		case Renew:
			sent := m.now()
			e = Renewed{Sent: sent, Outcome: m.call(a.Within, "the lease could not be renewed yet", func(ctx context.Context) error {
				return m.store.Renew(ctx, m.held())
			})}
		case Return:
			sent := m.now()
			e = Returned{Sent: sent, Outcome: m.call(a.Within, "there is no new lease yet", m.comeBack)}
		case Fence:
			m.fence(m.reason(a.Why))
		case Changed:
			m.mu.Lock()
			m.show(m.view.Revision)
			m.mu.Unlock()
		case Remove:
			m.tasks.Go(func() { m.remove(a) })
		}
	}
	return e
}

func (m *Member) call(within time.Duration, what string, f func(context.Context) error) Outcome {
	ctx, cancel := context.WithTimeout(m.ctx, within)
	defer cancel()
	err := f(ctx)
	refused := errors.Is(err, ErrLeaseGone) || errors.Is(err, ErrFenced)
	m.mu.Lock()
	if m.trouble = err; refused {
		m.trouble = nil
	}
	m.mu.Unlock()
	switch {
	case err == nil:
		return Done
	case refused:
		return Refused
	}
	// It is made again at once, and so by way of another of the store's servers.
	level := slog.LevelWarn
	if m.ctx.Err() != nil || !m.MayDecide() { // it leaves, or that was said
		level = slog.LevelDebug
	}
	m.cfg.Logger.Log(m.ctx, level, what, "error", err)
	return Failed
}

// held returns the lease that this node lives by.
func (m *Member) held() Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lease
}

// comeBack lives by a new lease, in the place that this node had, if it has it still:
// ErrFenced when it has not.
func (m *Member) comeBack(ctx context.Context) error {
	lease, err := m.another(ctx)
	if err != nil {
		return err
	}
	select {
	case m.announced.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-m.announced.turn }()
	// The place is written, too: who counts how long this node was away sees it.
	err = m.writePlace(ctx, Change{Key: m.aliveKey(m.cfg.Info.Node), Value: []byte(m.cfg.Info.Home), Lease: lease})
	if errors.Is(err, ErrLeaseGone) {
		return fmt.Errorf("membership: the new lease: %v", err) // and not the one that this node had
	} else if err != nil {
		return err
	}
	m.mu.Lock()
	m.lease, m.spare = lease, 0
	m.mu.Unlock()
	m.cfg.Logger.Info("this node is back, in the place that it had", "epoch", m.epoch)
	return nil
}

// another returns a lease to come back with, of its full time: that of the try before, if it lives.
func (m *Member) another(ctx context.Context) (Lease, error) {
	if m.spare != 0 {
		if err := m.store.Renew(ctx, m.spare); !errors.Is(err, ErrLeaseGone) {
			return m.spare, err
		}
	}
	var err error
	m.spare, err = m.store.Grant(ctx, m.cfg.TTL)
	return m.spare, err
}

// remove takes the place of a node away that is over.
func (m *Member) remove(a Remove) {
	m.mu.Lock()
	ifs, do, err := m.departing(m.entries, a.Node, a.Epoch, true, fmt.Sprintf("it was not heard of for %v", a.After.Round(time.Second)))
	m.mu.Unlock()
	if err == nil {
		ifs[0].Modified = a.Modified // it was not back meanwhile
		_, _, err = m.store.Commit(m.ctx, append(ifs, If{Key: m.aliveKey(a.Node)}), do)
	}
	if err != nil && m.ctx.Err() == nil {
		m.cfg.Logger.Warn("a node that is gone still has its place", "node", a.Node, "error", err)
	}
}

// reason returns why this node is no member any more.
func (m *Member) reason(why string) error {
	m.mu.Lock()
	d, departed := departure(m.prefix, m.entries, m.cfg.Info.Node)
	trouble := m.trouble
	m.mu.Unlock()
	if departed && d.Epoch == m.epoch {
		return fmt.Errorf("%w: %w: %s", ErrFenced, ErrExpelled, d.Reason)
	}
	if trouble != nil {
		why += fmt.Sprintf(" (of the store it heard last: %v)", trouble)
	}
	return fmt.Errorf("%w: node %s: %s; start it again, with a longer --lease if its network or machine is often slow, a longer --outage if the store is often away", ErrFenced, m.cfg.Info.Node, why)
}

// Patience is how long a call to the store may take before it is better made
// again, by way of another server of the store: a quarter of the lease.
func (m *Member) Patience() time.Duration { return m.cfg.TTL / 4 }

func (m *Member) fence(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
		close(m.lost)
		m.cfg.Logger.Error("this node is fenced", "error", err)
	}
}

// MayStep reports whether this node may take part in a step that all members of its
// group make: it is a member, or the store does not say for less than Config.Outage.
func (m *Member) MayStep() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err == nil && m.standing.MayStep(m.now())
}

// MayDecide reports whether this node may do by itself what counts for others: its
// lease lives.
func (m *Member) MayDecide() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err == nil && m.standing.MayDecide(m.now())
}

// Decides waits until this node may decide. It returns an error when it is fenced, or
// ctx ends.
func (m *Member) Decides(ctx context.Context) error {
	for {
		m.mu.Lock()
		stood, may := m.stood, m.err == nil && m.standing.MayDecide(m.now())
		m.mu.Unlock()
		if may {
			return nil
		}
		// A process that was frozen may know of no change yet.
		if err := m.Wait(ctx, stood, m.Patience()); err != nil {
			return err
		}
	}
}
