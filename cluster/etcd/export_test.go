package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const TurnKey = turnKey

// Turns changes how long a server's turn is, and returns how long it was.
func Turns(long time.Duration) (was time.Duration) {
	was, turn = turn, long
	return was
}

// Granted returns for how many seconds a key was granted; 0: it is gone.
func (c *Client) Granted(ctx context.Context, key string) (int64, error) {
	r, err := c.c.Get(ctx, key)
	if err != nil || len(r.Kvs) == 0 {
		return 0, err
	}
	lease, err := c.c.TimeToLive(ctx, clientv3.LeaseID(r.Kvs[0].Lease))
	if err != nil {
		return 0, err
	}
	return lease.GrantedTTL, nil
}
