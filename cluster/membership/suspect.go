package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// Suspect finds out whether nodes that do not answer have died, and takes those
// that have out of the cluster at once, rather than when their leases end. It
// returns when it knows, and when those that died are out, with their names.
//
// A node has died when its host refuses connections to its data plane: a
// process that lives, if frozen, listens. Of one that cannot be reached at all
// nothing is known; its lease decides. A node that was taken out by mistake,
// by a firewall that refuses in its name, is fenced by its next renewal, or by
// its own count where that fails.
func (m *Member) Suspect(ctx context.Context, nodes []string) (died []string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(m.ctx, func() { cancel(context.Canceled) })
	defer stop()
	var wg sync.WaitGroup
	var mu sync.Mutex
	v, _ := m.View()
	for _, node := range nodes {
		info, in := v.Member(node)
		if !in || node == m.cfg.Info.Node || info.Lease == 0 {
			continue
		}
		wg.Go(func() {
			if !m.refused(ctx, info.Data) {
				return
			}
			err2 := m.expel(ctx, info)
			mu.Lock()
			defer mu.Unlock()
			if err = errors.Join(err, err2); err2 == nil {
				died = append(died, node)
			}
		})
	}
	wg.Wait()
	return died, err
}

// refused reports whether nothing listens at an address.
func (m *Member) refused(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, m.Patience())
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = c.Close() // nothing was sent on it
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// expel ends a node's lease, and with it its entry and its lead. The store may
// be in an election itself, if one of its servers died with the node.
func (m *Member) expel(ctx context.Context, info Info) error {
	m.cfg.Logger.Warn("a node has died", "node", info.Node, "epoch", info.Epoch)
	gone := func(v *View) bool {
		now, in := v.Member(info.Node)
		return !in || now.Epoch != info.Epoch
	}
	for {
		if v, _ := m.View(); gone(v) {
			return nil
		}
		if err := m.Err(); err != nil {
			return err
		}
		call, cancel := context.WithTimeout(ctx, m.Patience())
		err := m.store.Revoke(call, Lease(info.Lease))
		if err == nil || errors.Is(err, ErrLeaseGone) {
			_, err = m.Until(call, gone)
		}
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("membership: node %s, which died, is still a member: %w", info.Node, context.Cause(ctx))
		case !m.pause(m.cfg.TTL / 32):
			return context.Canceled
		}
	}
}
