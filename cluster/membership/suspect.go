package membership

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// Suspect finds out whether nodes that do not answer have died, and takes those
// that have out of the cluster at once, rather than when their leases end. It
// returns when it knows, and when those that died are out, with their names.
//
// A node has died when its host refuses connections to its data plane: a
// process that lives, if frozen, listens. Of one that cannot be reached at all
// nothing is known; its lease decides. A node that was taken out by mistake,
// by a firewall that refuses in its name, is fenced when it reads of it, or by
// its own count where it cannot: the groups count on there being none.
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
		if !in {
			info, in = find(v.Absent, node)
		}
		if !in || node == m.cfg.Info.Node {
			continue
		}
		wg.Go(func() {
			if !refused(ctx, info.Data, m.Patience()) {
				return
			}
			err2 := m.expel(ctx, node, info.Epoch, true, "nothing listens at "+info.Data+" any more")
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
func refused(ctx context.Context, address string, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = c.Close() // nothing was sent on it
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
