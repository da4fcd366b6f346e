package etcd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// etcd reads a node's certificate anew for every connection, and the file of the
// authorities once. When that file changes a server must be started anew.

// Outdated is closed when the file of the authorities is not the one any more
// that the server began with, and the node's certificate is by one of them.
func (s *Server) Outdated() <-chan struct{} { return s.outdated }

// look closes outdated when the authorities' file does not have the bytes any
// more. Files that are of no use are on their way.
func (s *Server) look(ctx context.Context, files transport.CertFiles, began []byte) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if now, err := os.ReadFile(files.CA); err == nil && !bytes.Equal(now, began) {
			if _, err := transport.LoadCerts(files, nil); err == nil {
				close(s.outdated)
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

const turnKey = "/gnnactor-store/turn"

var turn = 5 * time.Second // tests have less

// Turn waits until no other server of the store has started anew for the last 5
// seconds, so that those that serve are enough, and reserves the next 5 for this
// one. A server that is alone needs not wait.
func (s *Server) Turn(ctx context.Context) error {
	if len(s.etcd.Server.Cluster().Members()) < 2 {
		return nil
	}
	c := v3client.New(s.etcd.Server)
	defer c.Close()
	for {
		taken, err := s.reserve(ctx, c)
		if taken {
			return nil
		}
		select {
		case <-time.After(turn / 10):
		case <-ctx.Done():
			return fmt.Errorf("etcd: wait for the store's other servers: %w", cmp.Or(err, ctx.Err()))
		}
	}
}

// reserve takes the turn, if nobody has it. The turn ends with its lease.
func (s *Server) reserve(ctx context.Context, c *clientv3.Client) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, turn)
	defer cancel()
	free := clientv3.Compare(clientv3.CreateRevision(turnKey), "=", 0)
	if r, err := c.Txn(ctx).If(free).Commit(); err != nil || !r.Succeeded {
		return false, err
	}
	lease, err := c.Grant(ctx, int64(turn.Seconds()))
	if err != nil {
		return false, err
	}
	r, err := c.Txn(ctx).If(free).Then(clientv3.OpPut(turnKey, s.node, clientv3.WithLease(lease.ID))).Commit()
	return err == nil && r.Succeeded, err
}
