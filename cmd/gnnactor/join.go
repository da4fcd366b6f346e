package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster"
)

func newClusterJoin(a *app) *cobra.Command {
	c := &trainCommand{app: a}
	var copiesOnly bool
	cmd := &cobra.Command{
		Use:   "join HOST:PORT[,HOST:PORT…]",
		Short: "Take part in the run of a cluster, as one more node",
		Long: `Take part in the run of the cluster whose store is at HOST:PORT, as one more
node: copy what its --roles need of the data from another node if --node-dir has
none, hold a
part of the features if they are shared out, and train. Without a run it waits for
one: 'gnnactor train --cluster HOST:PORT --data DIR' begins it, and says what it is.

With --copies-only it does not train, and needs no data: it keeps, in --node-dir,
copies of the checkpoints of a node that trains alone (with several, each keeps its
own). If that one's machine is lost, 'gnnactor train' with the same settings,
--checkpoint and --resume goes on from the copy, on any machine of the cluster.

Interrupted, the node hands what it does and holds to the others, and ends: within
10 s if the store does not answer or nothing moves, else within --drain-timeout. A
second time, it stops at once. Either way the others go on, and it may come back; if
the run has ended meanwhile, or before this node had what it needs, it says so and ends.
When a run fails on the node that trains it, it waits for the next.`,
		Example: `  gnnactor cluster join 10.0.0.1:7400 --node b --certs certs --listen 0.0.0.0:7410 --control 0.0.0.0:7411 --advertise 10.0.0.2:7410`,
		Args:    a.args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.cluster.store, c.cluster.joins = strings.Split(args[0], ","), true
			if copiesOnly {
				return c.cluster.keepCopies(cmd.Context(), c.app)
			}
			for {
				err := c.run(cmd, nil)
				if !errors.Is(err, cluster.ErrWithdrawn) || cmd.Context().Err() != nil {
					return err
				}
				c.logf("%v; waiting for another", err)
			}
		},
	}
	c.cluster.addFlags(cmd)
	cmd.Flags().BoolVar(&copiesOnly, "copies-only", false, "do not train: keep copies of the checkpoints of a node that trains alone")
	cmd.Flags().StringVar(&c.save, "save", "", "safetensors `FILE` to write the trained parameters to")
	c.config = addConfigFlags(cmd, []group{executionGroup, checkpointGroup})
	a.addOutputFlag(cmd)
	return cmd
}
