package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/runtime"
)

func newPlan(a *app) *cobra.Command {
	var config *configFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show how a training run would be done, and why",
		Long: `Show how a training run would be done, and why: which actors, how many of each,
how many batches may be under way, and the memory that this takes at most. Where
control groups (v1 or v2) or GOMEMLIMIT bound the memory, or --memory-limit does, the
plan is made to fit; if it cannot be, it is shown and the exit code is 1. It
takes the settings of 'gnnactor train', and trains nothing. A run starts with this
plan; when it has measured its first batches it may change the number of samplers,
of batches under way and of reads at once, unless they were given.`,
		Example: `  gnnactor plan --data DIR --fanouts 15,10,5 --batch-size 1024`,
		Args:    a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := config.load(cmd, a)
			if err != nil {
				return err
			}
			rt, err := runtime.Start(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, rt.Stop()) }()
			if a.output == outputJSON {
				err = a.printJSON(rt.Plan())
			} else {
				_, err = fmt.Fprintf(a.stdout, "%s\n%s", describe(rt.Dataset()), rt.Plan())
			}
			return errors.Join(err, rt.Plan().Check())
		},
	}
	config = addConfigFlags(cmd, []group{dataGroup, modelGroup, samplingGroup, trainingGroup, executionGroup, checkpointGroup})
	a.addOutputFlag(cmd)
	return cmd
}
