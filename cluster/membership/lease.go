package membership

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// renew keeps the lease and fences the node when it cannot.
func (m *Member) renew(counted time.Time) {
	every := m.cfg.TTL / 8
	// The store may end the lease TTL after it heard of it; this node ends its
	// own counting an eighth earlier, from when it spoke.
	until := func() time.Duration { return time.Until(counted.Add(m.cfg.TTL - m.cfg.TTL/8)) }
	wait := every
	for {
		next := time.NewTimer(min(wait, until()))
		select {
		case <-m.ctx.Done():
			next.Stop()
			return
		case <-next.C:
		}
		left := until()
		if left <= 0 {
			m.fence(fmt.Errorf("%w: node %s could not renew it for %v; the others go on without it: start it again, with a longer --lease if its network or machine is often so slow",
				ErrFenced, m.cfg.Info.Node, m.cfg.TTL))
			return
		}
		sent := time.Now()
		ctx, cancel := context.WithTimeout(m.ctx, min(left, m.Patience()))
		err := m.store.Renew(ctx, m.lease)
		cancel()
		switch {
		case err == nil:
			counted, wait = sent, every
		case errors.Is(err, ErrLeaseGone):
			m.fence(fmt.Errorf("%w: %w", ErrFenced, err))
			return
		default:
			// At once, and so by way of another of the store's servers.
			m.cfg.Logger.Warn("the lease could not be renewed yet", "error", err)
			wait = every / 4
		}
	}
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
