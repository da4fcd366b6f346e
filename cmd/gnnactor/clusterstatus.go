package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/cluster/shard"
	"github.com/gnnactor/gnnactor/cluster/transport"
)

// operator is what commands need that ask a cluster and are none of its nodes.
type operator struct {
	security
	name string
}

func (o *operator) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.name, "cluster-name", "gnnactor", "the cluster's `NAME`")
	o.security.addFlags(cmd)
	cmd.Flags().Lookup("node").Usage = "`NAME` of the certificate to show: of any node, or of one made for operators"
}

// look returns the members, as the store has them.
func (o *operator) look(ctx context.Context, endpoints string) (v *membership.View, reloader *transport.Reloader, err error) {
	files, err := o.files()
	if err != nil {
		return nil, nil, err
	}
	all := strings.Split(endpoints, ",")
	for _, e := range all {
		if _, _, err := net.SplitHostPort(e); err != nil {
			return nil, nil, usagef("%q: it is HOST:PORT of the store", e)
		}
	}
	if files != nil {
		if reloader, err = transport.LoadCerts(*files, nil); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	store, err := etcd.Dial(ctx, all, files)
	if err != nil {
		return nil, nil, err
	}
	if err = store.Ready(ctx); err != nil {
		err = fmt.Errorf("the store at %s does not answer: %w", endpoints, err)
	} else {
		v, err = membership.Look(ctx, store, o.name)
	}
	return v, reloader, errors.Join(err, store.Close())
}

// clusterStatus is what `cluster status --output json` prints.
type clusterStatus struct {
	Leader string           `json:"leader"`
	Shards int              `json:"shards"` // that lie at one node at least
	Nodes  []cluster.Status `json:"nodes"`
	// By is the node that asked the others; empty: none answered.
	By         string              `json:"by"`
	Actors     []cluster.Actor     `json:"actors"`
	Parameters *cluster.Parameters `json:"parameters,omitempty"`
	ShardsAt   []cluster.Shard     `json:"shards_at"`
	// Lost are shards that were placed and that no node holds now.
	Lost []int `json:"shards_lost,omitempty"`
}

func newClusterStatus(a *app) *cobra.Command {
	var o operator
	cmd := &cobra.Command{
		Use:   "status HOST:PORT[,HOST:PORT…]",
		Short: "Show a cluster's nodes, and what each does and holds",
		Long: `Show the nodes of the cluster whose store is at HOST:PORT. The leader asks them, or
another one if it is silent. In this order:

  nodes       what each is: sampler (with how many of other nodes' it takes, if that
              is limited: --capacity), trainer, rows (it holds its part of --shards),
              copies (of checkpoints, and nothing else), leader, data (it has all
              features), draining, silent. shards are those of the features that it
              holds, of those that it should, with how many are on their way; step is
              the run's; micro-batches are those that it computed, per second, and in
              flight; late is how many steps late the newest gradient was, of at most
              as many (--sync ssp:N, on the node that has the parameters)
  actors      of each node: run/sampler/0-3 are the four samplers of its part in the run
  messages    that all nodes sent since they joined, by type: headers are envelopes of
              the control plane and headers of the data plane's frames, bulk is what
              those carry
  actors of   wherever they are, each with its node, since when it is there, and how it
  the run     does: the coordinator, which the leader is, the parameters with their step,
              trainers with their group, each trainer's samplers, and shards with rows,
              size and the nodes that have copies
  samplers    where some are not on the node that they sample for: the batches that
              nodes drew for others, which nodes a trainer does not ask now, and why, and
              which samplers were moved to where they make more; then rows that are lost,
              with all nodes that held them`,
		Args: a.args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, reloader, err := o.look(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			c := cluster.Known(v)
			if len(v.Members) > 0 {
				if asked, err := cluster.Look(cmd.Context(), o.name, v, reloader); err != nil {
					a.logf("no node answers: %v", err)
				} else {
					c = asked
				}
			}
			s := clusterStatus{Leader: v.Leader, Nodes: c.Nodes, By: c.By, Actors: c.Actors, Parameters: c.Parameters, ShardsAt: c.Shards}
			held := map[int]bool{}
			for _, n := range s.Nodes {
				for _, i := range n.Shards {
					held[i] = true
				}
			}
			s.Shards = len(held)
			for _, h := range s.ShardsAt {
				if len(h.Nodes) == 0 {
					s.Lost = append(s.Lost, h.ID)
				}
			}
			if a.output == outputJSON {
				return a.printJSON(s)
			}
			if len(s.Nodes) == 0 {
				a.logf("the store serves, and no node is in cluster %s; 'gnnactor train --cluster %s' begins a run", o.name, args[0])
				return nil
			}
			return s.write(a)
		},
	}
	o.addFlags(cmd)
	a.addOutputFlag(cmd)
	return cmd
}

func (s *clusterStatus) write(a *app) error {
	t := new(table)
	t.row("node", "is", "shards", "step", "steps/s", "micro-batches", "per s", "in flight", "late", "sent", "data plane")
	for _, n := range s.Nodes {
		is := slices.Clone(n.Kinds)
		if i := slices.Index(is, shard.Kind); i >= 0 {
			is[i] = "rows" // as --roles has it
		}
		if len(is) > 1 { // every node keeps copies; some do nothing else
			is = slices.DeleteFunc(is, func(kind string) bool { return kind == dataplane.ReplicaKind })
		}
		if i := slices.Index(is, samplers.Kind); i >= 0 && n.Most > 0 {
			is[i] = fmt.Sprintf("%s (%d at most)", is[i], n.Most)
		}
		if n.Leader {
			is = append(is, "leader")
		}
		if n.Source {
			is = append(is, "data")
		}
		if n.Draining {
			is = append(is, "draining")
		}
		if !n.Answered {
			t.row(n.Node, strings.Join(append(is, "silent"), ","), fmt.Sprint(len(n.Shards)), "", "", "", "", "", "", "", n.Data)
			continue
		}
		shards := fmt.Sprintf("%d of %d", len(n.Shards), n.Wanted)
		if n.Moving > 0 {
			shards += fmt.Sprintf(", %d moving", n.Moving)
		}
		p, late := n.Training.Progress, ""
		if p.Bound > 0 {
			late = fmt.Sprintf("%d of %d", p.Late, p.Bound)
		}
		t.row(n.Node, strings.Join(is, ","), shards, formatCount(p.Step), significant(p.StepsPerSecond), formatCount(n.Training.MicroBatches),
			significant(p.MicroPerSecond), formatCount(p.InFlight), late, formatBytes(n.Traffic.Sent), n.Data)
	}
	if err := t.write(a.stdout); err != nil {
		return err
	}
	t = new(table)
	t.gap()
	t.row("node", "actors that run there")
	for _, n := range s.Nodes {
		if n.Answered {
			t.row(n.Node, strings.Join(n.Actors, " "))
		}
	}
	if err := t.write(a.stdout); err != nil {
		return err
	}
	if err := s.writeMessages(a); err != nil {
		return err
	}
	return s.writeActors(a)
}

// writeMessages says what all nodes sent, by type of message.
func (s *clusterStatus) writeMessages(a *app) error {
	var all [][]transport.Sent
	for _, n := range s.Nodes {
		all = append(all, n.Messages)
	}
	sums := transport.Sum(all...)
	if len(sums) == 0 {
		return nil
	}
	t := new(table)
	t.gap()
	t.row("messages of all nodes", "sent", "headers", "bulk")
	for _, m := range sums {
		t.row(m.Type, formatCount(m.Count), formatBytes(m.Header), formatBytes(m.Bulk))
	}
	return t.write(a.stdout)
}

// writeActors says where all actors of the run are, since when, and how they do, and then which nodes sample for others.
func (s *clusterStatus) writeActors(a *app) error {
	t := new(table)
	t.gap()
	t.row("actor", "node", "since", "")
	for _, x := range s.Actors {
		name, since := x.Kind+" "+x.ID, ""
		if x.ID == "run" { // there is one
			name = x.Kind
		}
		if x.Since != 0 {
			since = time.Unix(x.Since, 0).Format(time.DateTime)
		}
		node, is := s.about(x)
		t.row(name, cmp.Or(node, "nowhere"), since, is)
	}
	if len(s.Actors) > 0 {
		if err := t.write(a.stdout); err != nil {
			return err
		}
	}
	if err := s.writeSamplers(a); err != nil {
		return err
	}
	return s.writeLost(a)
}

// about returns where an actor is and how it does.
func (s *clusterStatus) about(x cluster.Actor) (node, is string) {
	node = x.Node
	switch x.Kind {
	case "parameters":
		if p := s.Parameters; p != nil {
			is = "at step " + formatCount(p.Step)
		}
	case "trainer":
		for _, n := range s.Nodes {
			if n.Node == x.Node && n.Answered {
				t := &n.Training
				is = fmt.Sprintf("%s in group %d", t.State, t.Group)
				if t.Pauses > 0 {
					seconds := func(s float64) string { return formatDuration(time.Duration(s * float64(time.Second))) }
					is += fmt.Sprintf(", %d pauses: %s, %s at most", t.Pauses, seconds(t.Pause), seconds(t.MostPause))
				}
			}
		}
	case shard.Kind:
		for _, h := range s.ShardsAt {
			if fmt.Sprint(h.ID) != x.ID {
				continue
			}
			if len(h.Nodes) == 0 {
				node = "nobody: lost"
			}
			var all []string
			if h.Rows > 0 { // it answered
				all = append(all, formatCount(h.Rows)+" rows", formatBytes(h.Bytes))
			}
			if others := slices.DeleteFunc(slices.Clone(h.Nodes), func(n string) bool { return n == h.Node }); len(others) > 0 {
				all = append(all, "copies on "+strings.Join(others, ","))
			}
			is = strings.Join(all, ", ")
		}
	}
	return node, is
}

// writeSamplers says which nodes sample for others, which of those are not asked, and what was moved, if any is.
func (s *clusterStatus) writeSamplers(a *app) error {
	away := func(n cluster.Status) bool {
		return slices.ContainsFunc(n.Samplers, func(at string) bool { return at != n.Node })
	}
	if !slices.ContainsFunc(s.Nodes, away) {
		return nil
	}
	t := new(table)
	t.gap()
	t.row("node", "moves of its samplers", "drew for others", "sent for that")
	for _, n := range s.Nodes {
		if len(n.Samplers) > 0 || n.Drawn > 0 {
			t.row(n.Node, formatCount(n.SamplerMoves), formatCount(n.Drawn), formatBytes(n.DrawnBytes))
		}
	}
	if err := t.write(a.stdout); err != nil {
		return err
	}
	for _, n := range s.Nodes {
		for _, m := range n.Shunned {
			if _, err := fmt.Fprintf(a.stdout, "%s does not ask %s\n", n.Node, m); err != nil {
				return err
			}
		}
		for _, m := range n.Moved {
			if _, err := fmt.Fprintf(a.stdout, "moved %s\n", m); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeLost says which rows no node has any more, and what helps.
func (s *clusterStatus) writeLost(a *app) error {
	if len(s.Lost) == 0 {
		return nil
	}
	rows, all := 0, 0
	for _, h := range s.ShardsAt {
		all += h.Rows
		if len(h.Nodes) == 0 {
			rows += h.Rows
		}
	}
	what := fmt.Sprintf("shards %s", strings.Trim(fmt.Sprint(s.Lost), "[]"))
	if rows > 0 {
		what += fmt.Sprintf(" (%s of %s rows of the features)", formatCount(rows), formatCount(all))
	}
	help := "start a node that has the data: training waits for them until then"
	holds := slices.ContainsFunc(s.Nodes, func(n cluster.Status) bool { return slices.Contains(n.Kinds, shard.Kind) })
	for _, n := range s.Nodes {
		switch {
		case n.Source && holds:
			help = "node " + n.Node + " has the data, and they are copied from it"
		case n.Source:
			help = "start a node with --roles rows, which copies them from node " + n.Node + ": training waits for them until then"
		}
	}
	_, err := fmt.Fprintf(a.stdout, "lost with all nodes that held them: %s; %s\n", what, help)
	return err
}

func newClusterDrain(a *app) *cobra.Command {
	var o operator
	cmd := &cobra.Command{
		Use:   "drain HOST:PORT[,HOST:PORT…] NODE",
		Short: "Make a node hand all that it does and holds to the others, and end",
		Long: `Make NODE of the cluster whose store is at HOST:PORT hand the shards that it
holds and its part of the training to the others; its command then ends with exit
code 0. This command waits for that. The last node that trains is refused, and so are
the last that samples while a node trains that does not sample, one whose samplers fit
on no other node for their --capacity, the last that holds rows of the features, and
the last that holds pieces of a partition set.`,
		Example: `  gnnactor cluster drain 10.0.0.1:7400 b --certs certs --node ops`,
		Args:    a.args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, reloader, err := o.look(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			m, ok := v.Member(args[1])
			if !ok {
				var names []string
				for _, m := range v.Members {
					names = append(names, m.Node)
				}
				if names == nil {
					return fmt.Errorf("cluster %s has no nodes; --cluster-name names another", o.name)
				}
				return fmt.Errorf("cluster %s has no node %s, but %s", o.name, args[1], strings.Join(names, ", "))
			}
			if err := cluster.AskToDrain(cmd.Context(), o.name, v, reloader, m.Node); err != nil {
				return err
			}
			for {
				v, _, err := o.look(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if now, ok := v.Member(m.Node); !ok || now.Epoch != m.Epoch {
					a.logf("%s is drained", m.Node)
					return nil
				}
				select {
				case <-time.After(100 * time.Millisecond):
				case <-cmd.Context().Done():
					return cmd.Context().Err()
				}
			}
		},
	}
	o.addFlags(cmd)
	return cmd
}
