package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster/node"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/runtime"
)

// clusterFlags make `train` one of several nodes.
type clusterFlags struct {
	security
	store                        []string
	name, dir, listen, advertise string
	least                        int
	lease                        time.Duration
}

func (c *clusterFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&c.store, "cluster", nil, "train together with the other nodes of the cluster whose store is at `HOST:PORT`s")
	f.StringVar(&c.name, "cluster-name", "gnnactor", "the cluster's `NAME`; each run has one of its own")
	f.IntVar(&c.least, "wait-for", 1, "nodes to wait for before the first step, with --cluster")
	f.StringVar(&c.listen, "listen", "127.0.0.1:0", "`HOST:PORT` of this node's data plane, with --cluster")
	f.StringVar(&c.advertise, "advertise", "", "`HOST:PORT` where others reach the data plane (default: where it listens)")
	f.StringVar(&c.dir, "node-dir", "gnnactor-node", "`DIR` that tells the cluster that this node is back after a restart")
	f.DurationVar(&c.lease, "lease", 2*time.Second, "how long a node that is not heard of stays one, with --cluster; more on a slow network")
	c.security.addFlags(cmd)
}

// teamResult is this node's part in a run of several, in --output json.
type teamResult struct {
	MicroBatches int64          `json:"micro_batches"` // computed here since the process began
	Lineage      []trainers.Run `json:"lineage"`       // the steps that led to the parameters, by groups of nodes
}

func newTeamResult(t *trainers.Trainers) *teamResult {
	if t == nil {
		return nil
	}
	return &teamResult{t.Made(), t.Runs()}
}

// enter joins the cluster that the flags name, if they do; leave must be called.
func (c *clusterFlags) enter(ctx context.Context, a *app, cfg *runtime.Config) (leave func() error, err error) {
	if len(c.store) == 0 {
		return func() error { return nil }, nil
	}
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	if c.lease < time.Second {
		return nil, usagef("--lease %v: must be at least 1s", c.lease)
	}
	if c.least < 1 || c.least > cfg.MicroBatches {
		return nil, usagef("--wait-for %d: must be at least 1 and at most --micro-batches %d; each node needs one", c.least, cfg.MicroBatches)
	}
	log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	n, err := node.Enter(ctx, node.Options{
		Cluster: c.name, Node: c.node, Dir: c.dir, Store: c.store, Listen: c.listen, Advertise: c.advertise, Certs: files, Insecure: c.insecure, TTL: c.lease, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	team, err := n.Train(ctx, cfg.MicroBatches, c.least, log)
	if err != nil {
		return nil, errors.Join(err, n.Leave(context.WithoutCancel(ctx)))
	}
	cfg.Cluster = team
	return func() error {
		team.Close()
		return n.Leave(context.WithoutCancel(ctx))
	}, nil
}
