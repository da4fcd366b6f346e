package main

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/runtime"
)

// nodePrediction is one node's line in --output json.
type nodePrediction struct {
	ID uint32 `json:"id"`
	runtime.Prediction
}

func newPredict(a *app) *cobra.Command {
	var (
		config  *configFlags
		nodes   *nodeFlags
		scratch string
	)
	cmd := &cobra.Command{
		Use:   "predict --params FILE",
		Short: "Print the most probable class of nodes",
		Long: `Print the most probable class of nodes, by exact inference over their whole
neighbourhood: one line each with id, class and probability, tabs between.

` + overPieces,
		Example: `  gnnactor predict --data DIR --params model.safetensors --ids 0,5,10-19`,
		Args:    a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := savedConfig(cmd, a, config)
			if err != nil {
				return err
			}
			if pieces.IsSet(cfg.Data.Path) {
				return a.overPieces(cmd.Context(), cfg, scratch, func(d *runtime.Divided, o *runtime.Outputs) error { return a.predictDivided(d, o, nodes) })
			}
			rt, err := startSaved(cmd, cfg, scratch)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, rt.Stop()) }()
			ids, err := nodes.nodes(rt.Dataset())
			if err != nil {
				return err
			}
			found, err := rt.Predict(cmd.Context(), ids)
			if err == nil {
				err = rt.Verified(cmd.Context())
			}
			if err != nil {
				return err
			}
			return a.printPredictions(ids, found)
		},
	}
	config = addConfigFlags(cmd, []group{dataGroup, modelGroup}, "threads", "device", "eval-chunk", "verify-data")
	nodes = addNodeFlags(cmd)
	addScratchFlag(cmd, &scratch)
	a.addOutputFlag(cmd)
	return cmd
}

func (a *app) printPredictions(ids []uint32, found []runtime.Prediction) error {
	if a.output == outputJSON {
		list := make([]nodePrediction, len(ids))
		for i, id := range ids {
			list[i] = nodePrediction{id, found[i]}
		}
		return a.printJSON(map[string]any{"predictions": list})
	}
	w := bufio.NewWriter(a.stdout)
	for i, id := range ids {
		fmt.Fprintf(w, "%d\t%d\t%.3f\n", id, found[i].Class, found[i].Probability)
	}
	return w.Flush()
}
