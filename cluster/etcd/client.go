// Package etcd keeps a cluster's membership in etcd: one that runs inside the
// nodes, or one that is there already. It is the only package that imports it.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcdtransport "go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/transport"
)

// Client implements membership.Store.
type Client struct {
	c         *clientv3.Client
	endpoints []string
	reloader  *transport.Reloader
	full      atomic.Pointer[string] // whose disks, as the store said last
}

// Dial connects to an etcd at endpoints ("host:port"). files gives mutual TLS;
// nil: plaintext.
func Dial(ctx context.Context, endpoints []string, files *transport.CertFiles) (*Client, error) {
	cfg := clientv3.Config{
		Context: context.WithoutCancel(ctx), DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(), MaxCallRecvMsgSize: 16 << 20,
		// gRPC alone would wait longer and longer, up to 2 minutes, before it finds that a
		// store is back.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: 3 * time.Second,
		})},
	}
	scheme := "http://"
	var reloader *transport.Reloader
	if files != nil {
		var err error
		if reloader, err = transport.LoadCerts(*files, nil); err != nil {
			return nil, fmt.Errorf("etcd: %w", err)
		}
		scheme, cfg.TLS = "https://", reloader.Client("")
		// The client's own credentials would know today's authorities for ever.
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithTransportCredentials(reloader.Credentials()))
	}
	for _, e := range endpoints {
		cfg.Endpoints = append(cfg.Endpoints, scheme+e)
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd: %v: %w", endpoints, err)
	}
	return &Client{c: c, endpoints: endpoints, reloader: reloader}, nil
}

func tlsInfo(f *transport.CertFiles) etcdtransport.TLSInfo {
	return etcdtransport.TLSInfo{
		CertFile: f.Cert, KeyFile: f.Key, ClientCertFile: f.Cert, ClientKeyFile: f.Key,
		TrustedCAFile: f.CA, ClientCertAuth: true, Logger: zap.NewNop(),
	}
}

// calling is how long any call may take, whatever its context says: gRPC waits for a
// server that does not answer as long as it is let.
const calling = 10 * time.Second

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, calling)
}

// Close ends the connection.
func (c *Client) Close() error { return c.c.Close() }

// Ready waits until the store answers. When ctx runs out before, the error says
// why, as far as can be seen from here.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.c.Get(ctx, "ready", clientv3.WithCountOnly())
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("etcd: %w: %w", ctx.Err(), unanswered(context.WithoutCancel(ctx), c.endpoints, c.reloader))
	}
	return c.wrap(err)
}

// wrap says what a call came to.
func (c *Client) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return membership.ErrLeaseGone
	case errors.Is(err, rpctypes.ErrNoSpace):
		hosts := c.fullHosts()
		c.full.Store(&hosts)
		return fmt.Errorf("%w: free space on %s", ErrFull, hosts)
	}
	if hosts := c.full.Load(); hosts != nil { // it may have ended by that
		return fmt.Errorf("etcd: %w; the last that the store said is that its disk is full: free space on %s", err, *hosts)
	}
	return fmt.Errorf("etcd: %w", err)
}

// ErrFull: the store refuses what it would have to write down.
var ErrFull = errors.New("etcd: the store's disk is full")

// fullHosts names the store's servers whose disks are full, as far as the store says.
func (c *Client) fullHosts() string {
	ctx, cancel := context.WithTimeout(c.c.Ctx(), time.Second)
	defer cancel()
	alarms, failed := c.c.AlarmList(ctx)
	members, err := c.c.MemberList(ctx)
	if failed != nil || err != nil {
		return strings.Join(c.endpoints, ", ")
	}
	var hosts []string
	for _, m := range members.Members {
		if slices.ContainsFunc(alarms.Alarms, func(a *pb.AlarmMember) bool { return a.MemberID == m.ID }) {
			host := m.Name
			if len(m.ClientURLs) > 0 {
				if u, err := url.Parse(m.ClientURLs[0]); err == nil {
					host = fmt.Sprintf("%s (store %s)", u.Hostname(), m.Name)
				}
			}
			hosts = append(hosts, host)
		}
	}
	if hosts == nil { // there is room by now
		return strings.Join(c.endpoints, ", ")
	}
	return strings.Join(hosts, ", ")
}

// Grant implements membership.Store. etcd counts whole seconds.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (membership.Lease, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, err := c.c.Grant(ctx, int64(math.Ceil(ttl.Seconds())))
	if err != nil {
		return 0, c.wrap(err)
	}
	return membership.Lease(r.ID), nil
}

func (c *Client) Renew(ctx context.Context, l membership.Lease) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, err := c.c.KeepAliveOnce(ctx, clientv3.LeaseID(l))
	if err == nil && r.TTL <= 0 {
		return membership.ErrLeaseGone
	}
	return c.wrap(err)
}

func (c *Client) Revoke(ctx context.Context, l membership.Lease) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := c.c.Revoke(ctx, clientv3.LeaseID(l))
	return c.wrap(err)
}

func (c *Client) Commit(ctx context.Context, ifs []membership.If, do []membership.Change) (bool, int64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var cmps []clientv3.Cmp
	for _, i := range ifs {
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(i.Key), "=", i.Created))
		if i.Modified != 0 {
			cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(i.Key), "=", i.Modified))
		}
	}
	var ops []clientv3.Op
	for _, d := range do {
		switch {
		case d.Value == nil:
			ops = append(ops, clientv3.OpDelete(d.Key))
		case d.Lease != 0:
			ops = append(ops, clientv3.OpPut(d.Key, string(d.Value), clientv3.WithLease(clientv3.LeaseID(d.Lease))))
		default:
			ops = append(ops, clientv3.OpPut(d.Key, string(d.Value)))
		}
	}
	r, err := c.c.Txn(ctx).If(cmps...).Then(ops...).Commit()
	if err != nil {
		return false, 0, c.wrap(err)
	}
	if len(r.Responses) > 0 {
		c.full.Store(nil) // it writes
	}
	return r.Succeeded, r.Header.Revision, nil
}

func (c *Client) List(ctx context.Context, prefix string) ([]membership.Entry, int64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, err := c.c.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, c.wrap(err)
	}
	var all []membership.Entry
	for _, kv := range r.Kvs {
		all = append(all, entry(kv, false))
	}
	return all, r.Header.Revision, nil
}

func entry(kv *mvccpb.KeyValue, deleted bool) membership.Entry {
	return membership.Entry{Key: string(kv.Key), Value: kv.Value, Created: kv.CreateRevision, Modified: kv.ModRevision, Deleted: deleted}
}

// Watch implements membership.Store. It lives through an election: what it
// misses on a server that hangs, the member's reads find.
func (c *Client) Watch(ctx context.Context, prefix string, after int64, f func([]membership.Entry, int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	setUp := time.AfterFunc(calling, func() { cancel(errNoWatch) })
	changes := c.c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1))
	setUp.Stop()
	for r := range changes {
		if err := r.Err(); err != nil {
			return c.wrap(err)
		}
		var changed []membership.Entry
		for _, e := range r.Events {
			changed = append(changed, entry(e.Kv, e.Type == clientv3.EventTypeDelete))
		}
		if len(changed) > 0 {
			f(changed, changed[len(changed)-1].Modified)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New("etcd: the watch ended")
}

var errNoWatch = fmt.Errorf("etcd: the store did not begin a watch within %v", calling)
