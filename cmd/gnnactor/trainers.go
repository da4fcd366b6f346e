package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/training"
)

// clusterFlags make `train` one of several nodes.
type clusterFlags struct {
	security
	store                                 []string
	name, dir, listen, advertise, control string
	lease, outage, drain                  time.Duration
	steps                                 string // where this process writes a line for each step

	// What this node does.
	roles    rolesFlag
	capacity map[string]int

	// What the first node says for all; the others may leave it out.
	least, replicas int
	shards          string
	joins           bool   // takes part in a run that another node began
	infers          string // what the run infers; empty: it is training
}

// addFlags adds those of the node alone.
func (c *clusterFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.name, "cluster-name", "gnnactor", "the cluster's `NAME`; runs at the same time have one each")
	f.StringVar(&c.dir, "node-dir", "gnnactor-node", "`DIR` that tells the cluster that this node is back after a restart, and holds the data that it copies")
	f.StringVar(&c.listen, "listen", "127.0.0.1:0", "`HOST:PORT` of this node's data plane")
	f.StringVar(&c.advertise, "advertise", "", "`HOST:PORT` where others reach the data plane (default: where it listens)")
	f.StringVar(&c.control, "control", "", "`HOST:PORT` of this node's control plane (default: the host of --listen, any port)")
	f.DurationVar(&c.lease, "lease", 3*time.Second, "how long a node that is not heard of stays one; more on a slow network")
	f.DurationVar(&c.outage, "outage", membership.DefaultOutage, "how long nodes that all reach each other train on without the store; 0: as long as a lease")
	f.DurationVar(&c.drain, "drain-timeout", 4*time.Minute, "how long an interrupted node may take to hand what it does and holds to the others; less where the store does not answer, or nothing moves")
	c.roles.Roles = cluster.Roles{Sample: true, Train: true, Rows: true}
	f.Var(&c.roles, "roles", "what this node does for the run, of `sampler,trainer,rows`: sample, train, hold its part of --shards; a sampler needs no features, and samples for trainers that do not, which are refused without one; no other role needs the graph's edges")
	f.StringToIntVar(&c.capacity, "capacity", nil, "`samplers=N`: this node takes at most N samplers of other nodes; those that fit nowhere are waited for (default: any number)")
	f.StringVar(&c.steps, "steps", "", "`FILE` to append a line of JSON to for each step (a run that was killed and resumed makes those after its checkpoint again): epoch and batch from 0, loss, time, and with --sync ssp how many steps late its gradient was")
	c.security.addFlags(cmd)
}

// addRunFlags adds those of the run.
func (c *clusterFlags) addRunFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&c.store, "cluster", nil, "train together with the other nodes of the cluster whose store is at `HOST:PORT`s; settings that are not given are those of the run that is there")
	f.IntVar(&c.least, "wait-for", 1, "with --cluster: nodes to wait for before the first step")
	f.StringVar(&c.shards, "shards", "", "with --cluster: share the features out in `N` parts, or METHOD:N (as of 'gnnactor partition'), so that a node holds its part and the topology (default: every node has all)")
	f.IntVar(&c.replicas, "replicas", 1, "nodes that hold each of the --shards")
}

// addInferFlags adds those of a node that infers with others.
func (c *clusterFlags) addInferFlags(cmd *cobra.Command) {
	all := &cobra.Command{}
	c.addRunFlags(all)
	c.addFlags(all)
	all.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "cluster":
			f.Usage = "compute a partition set together with the other nodes of the cluster whose store is at `HOST:PORT`s"
		case "wait-for":
			f.Usage = "with --cluster: nodes to wait for before pieces are shared out"
		case "replicas", "shards", "roles", "capacity", "steps", "drain-timeout", "outage":
			return
		}
		cmd.Flags().AddFlag(f)
	})
}

// teamResult is this node's part in a run of several, in --output json.
type teamResult struct {
	MicroBatches int64          `json:"micro_batches"` // computed here since the process began
	Lineage      []training.Run `json:"lineage"`       // the steps that led to the parameters, by groups of nodes
	// Drawn are the micro-batches that other nodes sampled for this one, DrawnBytes what
	// they took on the data plane, SamplerMoves how often one of its samplers moved.
	Drawn        int64 `json:"drawn_elsewhere"`
	DrawnBytes   int64 `json:"drawn_bytes"`
	SamplerMoves int64 `json:"sampler_moves"`
	RowRounds    int64 `json:"row_rounds"` // in which feature rows were asked of other nodes
	// Messages are what this node sent, by type.
	Messages []transport.Sent `json:"messages"`
}

// newTeamResult returns nil for a process alone.
func newTeamResult(s *cluster.Session) *teamResult {
	if s == nil {
		return nil
	}
	r := teamResult(*s.Part())
	return &r
}

// drainResult is what --output json prints of a node that drained, or did not train.
type drainResult struct {
	Drained     bool        `json:"drained"`
	ShardsLeft  int         `json:"shards_left"`  // that it still held
	ShardsTaken int64       `json:"shards_taken"` // since it joined
	ShardsGiven int64       `json:"shards_given"`
	Cluster     *teamResult `json:"cluster"`
}

// parted says how a node's part ended that made no results.
func (a *app) parted(s *cluster.Session) error {
	r := drainResult{Drained: s.Drained(), Cluster: newTeamResult(s)}
	var err error
	r.ShardsLeft, r.ShardsTaken, r.ShardsGiven = s.Shards()
	switch {
	case !r.Drained:
		a.logf("the run has come to its end")
	case r.ShardsLeft > 0:
		err = fmt.Errorf("%w: no other node holds rows, and %d shards of the features are nowhere now: who trains waits for a node with --roles rows, and one that has the data", context.Canceled, r.ShardsLeft)
	default:
		a.logf("drained: the other nodes have what this one did and held")
	}
	if a.output == outputJSON {
		err = errors.Join(a.printJSON(r), err)
	}
	return err
}
