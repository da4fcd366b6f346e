package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/runtime"
)

func newEval(a *app) *cobra.Command {
	var config *configFlags
	cmd := &cobra.Command{
		Use:   "eval --params FILE",
		Short: "Measure saved parameters on a data set's splits",
		Long: `Measure saved parameters on a data set's splits, by exact inference: every layer
over all neighbours, nothing sampled.

The accuracy of nodes with several labels is the micro-F1 score. AUC is the mean
over the classes, each against the rest.

The file says which model it was saved from. For one that does not, written by
PyG say, name --model, --layers and --hidden.`,
		Example: `  gnnactor train --data DIR --save model.safetensors
  gnnactor eval --data DIR --params model.safetensors --output json`,
		Args: a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			rt, err := startSaved(cmd, a, config)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, rt.Stop()) }()
			return a.evaluate(cmd, rt)
		},
	}
	config = addConfigFlags(cmd, []group{dataGroup, modelGroup}, "threads", "eval-chunk")
	a.addOutputFlag(cmd)
	return cmd
}

// startSaved starts a runtime for inference with the parameters of --params.
func startSaved(cmd *cobra.Command, a *app, config *configFlags) (*runtime.Runtime, error) {
	cfg, err := config.load(cmd, a)
	if err != nil {
		return nil, err
	}
	if cfg.Params == "" {
		return nil, usagef("there are no parameters to use; name a file with --params ('gnnactor train --save FILE' writes one)")
	}
	cfg.Sampler, cfg.Fanouts = "khop", nil // inference samples nothing
	return runtime.Start(cfg)
}

// splitResult is one split's figures in --output json.
type splitResult struct {
	Accuracy finite `json:"accuracy"`
	MicroF1  finite `json:"micro_f1"`
	MacroF1  finite `json:"macro_f1"`
	AUC      finite `json:"auc"`
	Loss     finite `json:"loss"`
	Nodes    int    `json:"nodes"`
}

func (a *app) evaluate(cmd *cobra.Command, rt *runtime.Runtime) error {
	ds := rt.Dataset()
	results := map[string]splitResult{}
	var t table
	t.row("", "nodes", "accuracy", "macro-F1", "AUC", "loss")
	for _, split := range []struct {
		name  string
		nodes []uint32
	}{{"train", ds.Train}, {"valid", ds.Valid}, {"test", ds.Test}} {
		m, err := rt.EvaluateAUC(cmd.Context(), split.nodes)
		if err != nil {
			return err
		}
		results[split.name] = splitResult{finite(m.Accuracy), finite(m.F1.Micro), finite(m.F1.Macro), finite(m.AUC), finite(m.Loss), m.Count}
		t.row(split.name, formatCount(m.Count), formatPercent(m.Accuracy), formatPercent(m.F1.Macro), formatPercent(m.AUC), formatLoss(m.Loss))
	}
	if a.output == outputJSON {
		return a.printJSON(results)
	}
	a.logf("%s", describe(ds))
	return t.write(a.stdout)
}
