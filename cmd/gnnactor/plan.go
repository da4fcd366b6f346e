package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/scheduler"
)

func newPlan(a *app) *cobra.Command {
	var config *configFlags
	var machines machineFlags
	var parts partsFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show how a training run would be done, and why",
		Long: `Show how a training run would be done, and why: which actors, how many of each,
how many batches may be under way, and the memory that this takes, by samples and
trials (of twenty runs that were measured it was 1.06 to 1.29 times what they took; the program
itself has some 30 MiB resident besides, and a process's peak counts those). Where
control groups (v1 or v2) or GOMEMLIMIT bound the memory, or --memory-limit does, the
plan is made to fit; if it cannot be, it is shown and the exit code is 1. It
takes the settings of 'gnnactor train', and trains nothing. A run starts with this
plan; when it has measured its first batches it may change the number of samplers,
of batches under way and of reads at once, unless they were given.

With --nodes it also shows which node of a cluster would do what, and why: where the
samplers of each trainer go, by the rule that places and moves them in a cluster, who
holds which --shards, and what a step takes of each node's cores and, with
--bandwidth, of its link. What a micro-batch takes is measured on this machine, so
that figures are those of nodes like it; waits are left out, so that a step takes
longer.

With --parts, which needs --sampler full, it says what global batches over a partition
set take of --nodes alike: memory of a node, bytes of each exchange between them, and
times. It reads what 'gnnactor inspect SET --output json' printed, or the set, and no
other data; gradients of pieces like the set's are computed here, on one core. More
--memory than a node has is refused, with the number of nodes that fit.`,
		Example: `  gnnactor plan --data DIR --fanouts 15,10,5 --batch-size 1024
  gnnactor plan --data DIR --micro-batches 4 --shards 8 --bandwidth 10Gbit/s --nodes 2:trainer,rows:16 --nodes 2:sampler:8
  gnnactor plan --parts REPORT.json --sampler full --model gcn --nodes 16 --bandwidth 25Gbit/s --memory 64GiB`,
		Args: a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := config.load(cmd, a)
			if err != nil {
				return err
			}
			if parts.report != "" {
				return a.planParts(cmd, cfg, &machines, &parts)
			}
			if cmd.Flags().Changed("memory") {
				return usagef("--memory is of the nodes that a partition set is planned for; give its report with --parts (of this machine it is --memory-limit)")
			}
			if cfg.InPieces() && pieces.IsSet(cfg.Data.Path) {
				return usagef("what all pieces of a partition set compute together is planned with --parts %s in the place of --data, of global batches (--sampler full) alone", shellQuoted(cfg.Data.Path))
			}
			rt, err := runtime.Start(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, rt.Stop()) }()
			placed, err := machines.plan(cmd, cfg, rt)
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				err = a.printJSON(struct {
					*scheduler.Plan
					Cluster *cluster.ClusterPlan `json:"cluster,omitempty"`
				}{rt.Plan(), placed})
			} else {
				_, err = fmt.Fprintf(a.stdout, "%s\n%s", describe(rt.Dataset()), rt.Plan())
				err = errors.Join(err, printPlaces(a.stdout, placed))
			}
			return errors.Join(err, rt.Plan().Check())
		},
	}
	config = addConfigFlags(cmd, []group{dataGroup, modelGroup, samplingGroup, trainingGroup, executionGroup, checkpointGroup})
	for _, name := range unplanned {
		cmd.Flags().Lookup(name).Hidden = true
	}
	machines.addFlags(cmd)
	parts.addFlags(cmd)
	a.addOutputFlag(cmd)
	return cmd
}
