package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const TurnKey = turnKey

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
