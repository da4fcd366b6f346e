package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/runtime"
)

func newEval(a *app) *cobra.Command {
	var (
		config  *configFlags
		c       clusterFlags
		scratch string
		f       confusionFlags
	)
	cmd := &cobra.Command{
		Use:   "eval --params FILE",
		Short: "Measure saved parameters on a data set's splits",
		Long: `Measure saved parameters on a data set's splits, by exact inference: every layer
over all neighbours, nothing sampled.

Of a model that was trained with --task link it measures the links of each split:
the area under the ROC curve, average precision, the mean reciprocal rank of each link among 100
pairs that no edge joins, and the share of ranks up to 10. Held-out links (5 % for
validation, 10 % for the test, chosen by the pair of nodes) are no edges then.

The accuracy of nodes with several labels is the micro-F1 score. AUC and AP (average
precision) are means over the classes, each against the rest, that some nodes have and others do not. --confusion counts,
for each class of the test nodes (without splits, of all), which were predicted; --plot draws it. Of numbers (--task regression) it measures the mean absolute error, the root
of the mean squared one and R².

The file says which model it was saved from, and for which task; flags that
contradict it are refused. For one that does not, written by PyG say, name --model,
--layers and --hidden. A directory of checkpoints stands for the newest in it.

The data may be other than what the model was trained on: its nodes may have no label (of which
none is measured), no splits (all nodes that have one are), or fewer classes, whose names are the
model's. Tables are made to features as those of the training were; a store must have been.

` + overPieces,
		Example: `  gnnactor train --data DIR --save model.safetensors
  gnnactor eval --data DIR --params model.safetensors --output json`,
		Args: a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := f.check(); err != nil {
				return err
			}
			cfg, err := savedConfig(cmd, a, config)
			if err != nil {
				return err
			}
			if f.asked() && pieces.IsSet(cfg.Data.Path) {
				return usagef("--confusion and --plot are counted over a store; name one")
			}
			if pieces.IsSet(cfg.Data.Path) {
				return c.overPieces(cmd, a, cfg, config, scratch, nil, func(d *runtime.Divided, o *runtime.Outputs) error { return a.evaluateDivided(cmd.Context(), d, o) })
			}
			if len(c.store) > 0 {
				return usagef("--cluster: nodes infer together over a partition set ('gnnactor partition --out DIR' makes one)")
			}
			rt, err := startSaved(cmd, cfg, scratch)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, rt.Stop()) }()
			return a.evaluate(cmd, rt, &f)
		},
	}
	config = addInferenceFlags(cmd)
	cmd.Flags().BoolVar(&f.table, "confusion", false, "count for each class of the test nodes which were predicted")
	cmd.Flags().StringVar(&f.plot, "plot", "", "`FILE`.svg or .png to draw the confusion to, or .csv for its counts")
	addScratchFlag(cmd, &scratch)
	c.addInferFlags(cmd)
	a.addOutputFlag(cmd)
	return cmd
}

// savedConfig returns the settings for inference with the parameters of --params.
func savedConfig(cmd *cobra.Command, a *app, config *configFlags) (runtime.Config, error) {
	cfg, err := config.load(cmd, a)
	if err != nil {
		return cfg, err
	}
	if cfg.Model.Params == "" {
		return cfg, usagef("there are no parameters to use; name a file or a directory of checkpoints with --params ('gnnactor train --save FILE' writes one)")
	}
	cfg.Sampling.Sampler, cfg.Sampling.Fanouts, cfg.Execution.SampleOn = "khop", nil, "cpu" // inference samples nothing
	cfg.Training.Epochs, cfg.Training.Warmup = 0, 0                                         // nor does it train, and is not planned for that
	return cfg, nil
}

// startSaved starts a runtime for inference.
func startSaved(cmd *cobra.Command, cfg runtime.Config, scratch string) (*runtime.Runtime, error) {
	if scratch != "" {
		return nil, usagef("--scratch is read where --data is a partition set ('gnnactor partition --out DIR' makes one)")
	}
	rt, err := runtime.Start(cmd.Context(), cfg)
	if err == nil {
		setCollector(rt)
	}
	return rt, err
}

// splitResult is one split's figures in --output json.
type splitResult struct {
	Accuracy finite `json:"accuracy"`
	MicroF1  finite `json:"micro_f1"`
	MacroF1  finite `json:"macro_f1"`
	AUC      finite `json:"auc"`
	AP       finite `json:"average_precision"`
	Loss     finite `json:"loss"`
	Nodes    int    `json:"nodes"`
}

// linkResult is splitResult for links.
type linkResult struct {
	AUC    finite `json:"auc"`
	AP     finite `json:"average_precision"`
	MRR    finite `json:"mrr"`
	Hits10 finite `json:"hits_at_10"`
	Loss   finite `json:"loss"`
	Links  int    `json:"links"`
}

// linkTable measures the splits of links; it adds to t what it returns.
func linkTable(ctx context.Context, rt *runtime.Runtime, t *table) (map[string]linkResult, error) {
	results := map[string]linkResult{}
	t.row("", "links", "AUC", "AP", "MRR", "hits@10", "loss")
	for split, name := range []string{"train", "valid", "test"} {
		m, err := rt.EvaluateLinks(ctx, runtime.Links(split))
		if err != nil {
			return nil, err
		}
		results[name] = linkResult{finite(m.AUC), finite(m.AveragePrecision), finite(m.MRR), finite(m.Hits10), finite(m.Loss), m.Count}
		t.row(name, formatCount(m.Count), formatPercent(m.AUC), formatPercent(m.AveragePrecision), formatLoss(m.MRR), formatPercent(m.Hits10), formatLoss(m.Loss))
	}
	return results, nil
}

// regressionResult is splitResult for numbers.
type regressionResult struct {
	MAE   finite `json:"mae"`
	RMSE  finite `json:"rmse"`
	R2    finite `json:"r2"`
	Nodes int    `json:"nodes"`
}

// regressionTable measures the splits of nodes with numbers; it adds to t what it returns.
func regressionTable(ctx context.Context, rt *runtime.Runtime, t *table) (map[string]regressionResult, error) {
	results := map[string]regressionResult{}
	t.row("", "nodes", "MAE", "RMSE", "R²")
	splits, names := splitsOf(rt.Dataset())
	for i, name := range names {
		m, err := rt.Evaluate(ctx, splits[i])
		if err != nil {
			return nil, err
		}
		results[name] = regressionResult{finite(m.MAE), finite(m.RMSE), finite(m.R2), m.Count}
		t.row(name, formatCount(m.Count), formatNumber(m.MAE), formatNumber(m.RMSE), formatNumber(m.R2))
	}
	return results, nil
}

// splitsOf returns the splits with their names; where there are none, all nodes.
func splitsOf(ds *graph.Dataset) (splits [][]uint32, names []string) {
	if len(ds.Train)+len(ds.Valid)+len(ds.Test) == 0 {
		return [][]uint32{allNodes(ds.Graph.NumNodes())}, []string{"all"}
	}
	return [][]uint32{ds.Train, ds.Valid, ds.Test}, splitNames[:]
}

func (a *app) evaluate(cmd *cobra.Command, rt *runtime.Runtime, f *confusionFlags) error {
	ds := rt.Dataset()
	var counts *confusion
	if f.asked() {
		var err error
		if counts, err = a.confusion(cmd.Context(), rt, f); err != nil {
			return err
		}
		if !f.table {
			counts = nil
		}
	}
	if rt.NumLinks(runtime.TrainLinks) > 0 {
		var t table
		results, err := linkTable(cmd.Context(), rt, &t)
		if err != nil {
			return err
		}
		if a.output == outputJSON {
			return a.printJSON(results)
		}
		a.logf("%s", describe(ds))
		return t.write(a.stdout)
	}
	splits, names := splitsOf(ds)
	if l := ds.Labels; l != nil && !slices.ContainsFunc(slices.Concat(splits...), l.Known) {
		return fmt.Errorf("no node of %s has a label to compare predictions with; predict and embed need none", ds.Name)
	}
	if rt.Regression() {
		var t table
		results, err := regressionTable(cmd.Context(), rt, &t)
		if err != nil {
			return err
		}
		if a.output == outputJSON {
			return a.printJSON(results)
		}
		a.logf("%s", describe(ds))
		return t.write(a.stdout)
	}
	return a.showSplits(describe(ds), names, func(i int) (runtime.Metrics, error) { return rt.EvaluateAUC(cmd.Context(), splits[i]) }, counts)
}

// showSplits shows what measure says of splits and, unless it is nil, the confusion of the last.
func (a *app) showSplits(about string, names []string, measure func(split int) (runtime.Metrics, error), counts *confusion) error {
	results := map[string]any{}
	var t table
	t.row("", "nodes", "accuracy", "macro-F1", "AUC", "AP", "loss")
	for i, name := range names {
		m, err := measure(i)
		if err != nil {
			return err
		}
		results[name] = splitResult{finite(m.Accuracy), finite(m.F1.Micro), finite(m.F1.Macro), finite(m.AUC), finite(m.AveragePrecision), finite(m.Loss), m.Count}
		t.row(name, formatCount(m.Count), formatPercent(m.Accuracy), formatPercent(m.F1.Macro), formatPercent(m.AUC), formatPercent(m.AveragePrecision), formatLoss(m.Loss))
	}
	if a.output == outputJSON {
		if counts != nil {
			results["confusion"] = counts
		}
		return a.printJSON(results)
	}
	a.logf("%s", about)
	if err := t.write(a.stdout); err != nil || counts == nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	return counts.text().write(a.stdout)
}
