// Package node puts a cluster's parts together for one process: its store, its
// data plane, its membership.
package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gnnactor/gnnactor/cluster/certs"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/reduce"
	"github.com/gnnactor/gnnactor/cluster/trainers"
)

// Options of a node.
type Options struct {
	Cluster string
	Node    string
	Dir     string   // what the node keeps between restarts
	Store   []string // addresses of the store
	Listen  string   // host:port of the data plane; port 0: any
	// Advertise is where others reach the data plane; empty: where it listens.
	Advertise string
	Certs     *certs.Files // nil: plaintext
	Insecure  bool         // plaintext off loopback
	TTL       time.Duration
	Logger    *slog.Logger
}

// Node is a member of a cluster.
type Node struct {
	Plane  *dataplane.Plane
	Member *membership.Member
	Reduce *reduce.Service
	store  *etcd.Client
}

// Home returns the identity of a node's directory, which it makes if need be: a
// node that comes back with it takes its own place.
func Home(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("node: %w", err)
	}
	path := filepath.Join(dir, "home")
	b, err := os.ReadFile(path)
	if err == nil {
		if home := strings.TrimSpace(string(b)); len(home) == 32 {
			return home, nil
		}
		return "", fmt.Errorf("node: %s is damaged; remove it if no other process uses the directory", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("node: %w", err)
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", fmt.Errorf("node: %w", err)
	}
	home := hex.EncodeToString(id[:])
	if err := os.WriteFile(path, []byte(home+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("node: %w", err)
	}
	return home, nil
}

// Enter makes this process a member.
func Enter(ctx context.Context, o Options) (_ *Node, err error) {
	home, err := Home(o.Dir)
	if err != nil {
		return nil, err
	}
	n := new(Node)
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Leave(context.WithoutCancel(ctx)))
		}
	}()
	var keeper *certs.Keeper
	if o.Certs != nil {
		if keeper, err = certs.Load(*o.Certs); err != nil {
			return nil, err
		}
	}
	if n.store, err = etcd.Dial(ctx, o.Store, o.Certs); err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := n.store.Ready(wait); err != nil {
		return nil, fmt.Errorf("node: the store at %v does not answer: %w", o.Store, err)
	}
	n.Plane, err = dataplane.Listen(dataplane.Options{
		Cluster: o.Cluster, Node: o.Node, Listen: o.Listen, Advertise: o.Advertise, Certs: keeper, AllowPlaintext: o.Insecure, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	n.Reduce = reduce.NewService(n.Plane)
	n.Member, err = membership.Join(wait, n.store, membership.Config{
		Cluster: o.Cluster, TTL: o.TTL, Logger: o.Logger,
		Info: membership.Info{Node: o.Node, Home: home, Data: n.Plane.Address()},
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// Train makes the node a trainer of a run of micros micro-batches, which begins
// when least trainers are there.
func (n *Node) Train(ctx context.Context, micros, least int, log *slog.Logger) (*trainers.Trainers, error) {
	return trainers.Join(ctx, trainers.Options{Member: n.Member, Plane: n.Plane, Reduce: n.Reduce, Micros: micros, Least: least, Logger: log})
}

// Leave ends the membership and closes everything.
func (n *Node) Leave(ctx context.Context) error {
	var errs []error
	if n.Member != nil {
		errs = append(errs, n.Member.Leave(ctx))
	}
	if n.Plane != nil {
		n.Plane.Close()
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(errs...)
}
