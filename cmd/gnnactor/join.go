package main

import (
	"strings"

	"github.com/spf13/cobra"
)

func newClusterJoin(a *app) *cobra.Command {
	c := &trainCommand{app: a}
	cmd := &cobra.Command{
		Use:   "join HOST:PORT[,HOST:PORT…]",
		Short: "Take part in the run of a cluster, as one more node",
		Long: `Take part in the run of the cluster whose store is at HOST:PORT, as one more
node: copy the data's topology from another node if --node-dir has none, hold a
part of the features if they are shared out, and train. Without a run it waits for
one: 'gnnactor train --cluster HOST:PORT --data DIR' begins it, and says what it is.

Interrupted, the node hands what it does and holds to the others, and ends; a
second time, it stops at once. Either way the others go on, and it may come back.`,
		Example: `  gnnactor cluster join 10.0.0.1:7400 --node b --certs certs --listen 0.0.0.0:7410 --control 0.0.0.0:7411 --advertise 10.0.0.2:7410`,
		Args:    a.args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.cluster.store, c.cluster.joins = strings.Split(args[0], ","), true
			return c.run(cmd, nil)
		},
	}
	c.cluster.addFlags(cmd)
	cmd.Flags().StringVar(&c.save, "save", "", "safetensors `FILE` to write the trained parameters to")
	c.config = addConfigFlags(cmd, []group{executionGroup, checkpointGroup})
	a.addOutputFlag(cmd)
	return cmd
}
