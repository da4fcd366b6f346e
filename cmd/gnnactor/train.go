package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/training"
)

type trainCommand struct {
	*app
	config              *configFlags
	save, plot, metrics string
	tensorboard         string
	scratch             string
	baseline            bool
	cluster             clusterFlags
}

func newTrain(a *app) *cobra.Command {
	c := &trainCommand{app: a}
	cmd := &cobra.Command{
		Use:   "train",
		Short: "Train a model",
		Long: `Train a model. With nothing else, on a small built-in graph.

On a terminal a progress bar shows how it goes; elsewhere, plain lines. A table
at the end gives accuracies, the time of each stage, and how well the stages
overlapped. With --output json the last line of the standard output is an object
with test_accuracy, valid_accuracy, train_loss, epochs, best_epoch (where the parameters
are not the last epoch's), seconds, batches, parameters_sha256, stages (busy seconds of sample, load and compute), overlap and
peak_rss_bytes, and lineage_sha256, a hash chain over all batches that were applied;
an accuracy without a split to measure it on is null. With --task link there are
test_auc and valid_auc, and with labels that are numbers test_rmse and valid_rmse, and the accuracies are null. Where feature
rows are brought to memory batch by batch, rows counts those that were asked for,
there (shared with the batches before, pinned or cached), and loaded. With
--sync ssp:N, staleness counts the gradients that were 0, 1, … N steps late, on the
node that has the parameters, and each line of --steps has that of its step.

What files are to be written is tried before training begins, and one that fails in the end keeps
no other from being written. Interrupted (Ctrl-C), it writes them, too: --save has the
parameters that it came to, or the best so far. A node whose part others take over writes none.

With --patience the run ends with the parameters that are best by validation, and --save has them
(--keep last: the last ones). Checkpoints have both, so that a run that was killed after the
best epoch and resumed ends with the same bits.

The result is the same, bit for bit, for any --threads, --samplers, --trainers and
--credits, wherever --features lie, for any --match, --cache and --gather, and for a run that
was interrupted and resumed, unless --sync is ssp without --hybrid. --reorder changes the order of the batches, and so the
result, which is then the same for that --reorder.

With --cluster --data may be a partition set, of which DIR has all pieces or some, or, where
other nodes have them, what describes it: a node opens its share alone, copies what it
lacks of that, and asks others for rows that lie there. With --replicas 2 each piece lies on two nodes,
and a node may be lost with its disk.

With --sampler full --data may be a partition set ('gnnactor partition --out DIR',
wherever edges lie). Each epoch is then one step on the whole graph, computed on all
pieces in this process, which exchange rows and gradients: losses are those of one
process on the whole in float32's error, their bits a function of the partition.
It is evaluated at the end, and each epoch kept with --checkpoint; what is not there is refused by name.
Its JSON has no stages, overlap, rows and lineage_sha256.
With --cluster each node computes the pieces that it holds, with the same bits. If one is
lost the others wait until one that has its pieces is back, and all go on from the newest checkpoint,
or train again from the beginning. With --scratch activations lie in files, for which memory is
needed as far as there is some; with --recompute a layer's result is all that is kept of it, and the rest
computed again for the backward pass. Batches of --sampler khop with --hybrid go the same way: of --batch-size seeds each,
whose neighbourhoods all pieces compute where they lie, rather than one node for itself. Those of
the next batch are found while one is computed; with --sync ssp:N up to N+1 are computed at once, or
--trainers of them, which hold as much each: batch k of an epoch reads the parameters after its step k-N,
so that the bits depend on N alone, and where rows are long on the way, a node computes another batch meanwhile.

With --cluster it trains together with other nodes; 'gnnactor plan --nodes' shows
beforehand which would do what, and what a step would wait for.`,
		Example: `  gnnactor train
  gnnactor train --data DIR --model gcn --sampler full --epochs 200 --hidden 16
  gnnactor train --data DIR --fanouts 15,10,5 --checkpoint run1 --resume
  gnnactor train --data DIR --features disk --reorder 8 --cache hot:256MiB
  gnnactor train --data DIR --sync ssp:3 --trainers 4
  gnnactor train --data DIR --trace run.json
  gnnactor train --plot curves.svg --save model.safetensors`,
		Args: a.args(cobra.NoArgs),
		RunE: c.run,
	}
	c.config = addConfigFlags(cmd, []group{dataGroup, modelGroup, samplingGroup, trainingGroup, executionGroup, checkpointGroup})
	cmd.Flags().StringVar(&c.save, "save", "", "safetensors `FILE` to write the trained parameters to")
	cmd.Flags().StringVar(&c.scratch, "scratch", "", "of global batches over a partition set: new or empty `DIR` for what is computed of nodes, which is removed at the end (default: in memory)")
	c.cluster.addRunFlags(cmd)
	c.cluster.addFlags(cmd)
	cmd.Flags().StringVar(&c.plot, "plot", "", "`FILE`.svg or .png to draw loss, accuracy, and what the stages did to, or .csv for the figures of each epoch; of a run that was resumed, of the epochs since")
	cmd.Flags().StringVar(&c.metrics, "metrics", "", "`FILE`.jsonl or .csv to append a line to for each epoch: figures, steps, seconds; of a run that was killed just after a checkpoint the last may be missing")
	cmd.Flags().StringVar(&c.tensorboard, "tensorboard", "", "`DIR` to write the figures of each epoch to, for TensorBoard")
	cmd.Flags().BoolVar(&c.baseline, "baseline", false, "also train on the features alone, without the graph (default: on the built-in graph)")
	a.addOutputFlag(cmd)
	return cmd
}

// plotSpans is how many spans a run keeps for the time line.
const plotSpans = 1 << 20

// trainResult is what --output json prints.
type trainResult struct {
	TestAccuracy     finite             `json:"test_accuracy"`
	ValidAccuracy    finite             `json:"valid_accuracy"`
	TestAUC          *finite            `json:"test_auc,omitempty"` // of links, in the place of accuracies
	ValidAUC         *finite            `json:"valid_auc,omitempty"`
	TestRMSE         *finite            `json:"test_rmse,omitempty"` // of numbers, in the place of accuracies
	ValidRMSE        *finite            `json:"valid_rmse,omitempty"`
	TrainLoss        finite             `json:"train_loss"`
	Epochs           int                `json:"epochs"`               // that were trained, by this process or those before
	BestEpoch        int                `json:"best_epoch,omitempty"` // after which the parameters were made; left out: after the last
	Seconds          float64            `json:"seconds"`
	Batches          int64              `json:"batches"`
	ParametersSHA256 string             `json:"parameters_sha256"`
	Stages           map[string]float64 `json:"stages"`
	Overlap          float64            `json:"overlap"`
	Rows             *runtime.RowStats  `json:"rows,omitempty"`
	PeakRSSBytes     int64              `json:"peak_rss_bytes"`
	Cluster          *teamResult        `json:"cluster,omitempty"`
	LineageSHA256    string             `json:"lineage_sha256"`
	Staleness        []int64            `json:"staleness,omitempty"` // of --sync ssp: how many gradients were 0, 1, … steps late
}

// run trains, and says so when the run has ended without this node: that is no failure.
func (c *trainCommand) run(cmd *cobra.Command, _ []string) error {
	err := c.runNode(cmd)
	if errors.Is(err, cluster.ErrDrained) || errors.Is(err, cluster.ErrEnded) {
		c.logf("%v", err)
		return nil
	}
	return err
}

func (c *trainCommand) runNode(cmd *cobra.Command) (err error) {
	cfg, err := c.config.load(cmd, c.app)
	if err == nil {
		err = c.config.unread(cmd, &cfg)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(checkPlot(c.plot, ".svg", ".png", ".csv"), checkReplaceable("--save", c.save), checkReplaceable("--trace", cfg.Execution.Trace), checkWritable("--steps", c.cluster.steps), checkWritable("--metrics", c.metrics)); err != nil {
		return err
	}
	if err := checkDistinct(outputFile{"--save", c.save}, outputFile{"--plot", c.plot}, outputFile{"--trace", cfg.Execution.Trace}, outputFile{"--steps", c.cluster.steps}, outputFile{"--metrics", c.metrics}); err != nil {
		return err
	}
	steps, err := openLines("--steps", c.cluster.steps)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, steps.close()) }() // what was trained is saved all the same
	run := &dividedRun{steps: steps}
	if cfg.InPieces() && pieces.IsSet(cfg.Data.Path) && len(c.cluster.store) == 0 {
		return c.trainDivided(cmd.Context(), cmd, cfg, run)
	}
	if c.plot != "" {
		cfg.Execution.Spans = plotSpans
	}
	metrics, err := openMetrics(c.metrics)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, metrics.close()) }()
	events, err := openEvents(c.tensorboard)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.close()) }()
	p, err := c.cluster.enter(cmd, c.app, &cfg, c.config.given)
	if err != nil {
		return err
	}
	ctx, start := cmd.Context(), func() (*runtime.Runtime, error) { return runtime.Start(cmd.Context(), cfg) }
	if p != nil {
		defer func() { err = p.Leave(err) }()
		if p.Spreads() {
			return p.Compute(ctx, func(ctx context.Context, cfg runtime.Config) error { return c.trainDivided(ctx, cmd, cfg, run) })
		}
		ctx, start = p.Context(), p.Start
	}
	if c.scratch != "" {
		return usagef("--scratch is read where --sampler is full, or khop with --hybrid, and --data a partition set ('gnnactor partition --out DIR' makes one)")
	}
	rt, err := start()
	if err != nil {
		return err
	}
	var reports iter.Seq2[runtime.Event, error]
	if p != nil {
		reports = p.Train()
	} else {
		defer func() { err = errors.Join(err, rt.Stop()) }()
		reports = rt.Train(ctx)
	}
	evaluated := func() {}
	if rt != nil { // else this node holds rows alone
		evaluated = setCollector(rt)
		c.logf("%s", describe(rt.Dataset()))
	}
	if metrics != nil {
		metrics.figure = figureOf(cfg, rt)
	}
	if events != nil {
		events.figure = figureOf(cfg, rt)
	}
	var t *table
	done, drawn, err := c.train(ctx, reports, cfg, figureOf(cfg, rt), func(e runtime.Event) (err error) {
		steps.writeStep(e, cfg.Training.Sync.Asynchronous())
		metrics.event(e)
		events.event(e)
		if e.Kind == runtime.EventEpoch {
			evaluated()
		}
		if e.Kind == runtime.EventDone && c.output != outputJSON { // now, as rows may lie on nodes that leave
			t, err = c.table(ctx, rt, e, c.baseline || cfg.Data.Path == "" && cfg.Model.Task != "link" && !cmd.Flags().Changed("baseline"))
		}
		return err
	})
	if err == nil && p != nil && (p.Drained() || !p.Roles().Train) {
		return c.parted(p)
	}
	if rt == nil || !drawn.begun {
		return err
	}
	return errors.Join(err, c.outputs(ctx, rt, cfg, drawn, err), c.result(ctx, rt, cfg, done, newTeamResult(p), t))
}

// outputs writes the files that were asked for, those of a run that ended with why, too: one that cannot be written keeps no other
// from it.
func (c *trainCommand) outputs(ctx context.Context, rt *runtime.Runtime, cfg runtime.Config, drawn *curves, why error) (err error) {
	if c.save != "" && !errors.Is(why, runtime.ErrDamaged) {
		switch failed := rt.Save(context.WithoutCancel(ctx), c.save); {
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("--save: %w", failed))
		default:
			c.logf("parameters saved to %s", c.save)
		}
	}
	if c.plot != "" && (why == nil || drawn.epochs != nil) {
		if failed := drawn.save(c.plot, newTimeline(rt.Spans())); failed != nil {
			err = errors.Join(err, fmt.Errorf("--plot: %w", failed))
		} else {
			c.logf("curves written to %s", c.plot)
		}
	}
	if cfg.Execution.Trace != "" && why == nil {
		c.logf("trace written to %s: open it at https://ui.perfetto.dev", cfg.Execution.Trace)
	}
	return err
}

// result prints what a run came to that has reached its end.
func (c *trainCommand) result(ctx context.Context, rt *runtime.Runtime, cfg runtime.Config, done runtime.Event, team *teamResult, t *table) error {
	switch {
	case done.Kind != runtime.EventDone:
		return nil
	case c.output == outputJSON:
		result, err := jsonResult(ctx, rt, cfg, done, team)
		if err != nil {
			return err
		}
		return c.printJSON(result)
	case t != nil:
		return t.write(c.stdout)
	}
	return nil
}

// train runs the training and returns its last event, and the curves of what it has come to.
func (c *trainCommand) train(ctx context.Context, events iter.Seq2[runtime.Event, error], cfg runtime.Config, figure splitFigure, each func(runtime.Event) error) (done runtime.Event, drawn *curves, err error) {
	show := newProgress(c.stderr, cfg.Training.Epochs)
	defer show.clear()
	show.figure = figure
	drawn = &curves{figure: figure}
	for ev, err := range events {
		if err != nil {
			return done, drawn, c.resumeHint(err, ctx, cfg.Checkpoint.Dir)
		}
		drawn.begun = drawn.begun || ev.Kind != runtime.EventStart || ev.Resumed
		show.event(ev)
		drawn.event(ev)
		if ev.Kind == runtime.EventDone {
			done = ev
			show.clear()
		}
		if err := each(ev); err != nil {
			return done, drawn, err
		}
	}
	return done, drawn, nil
}

// resumeHint adds to the error of an interrupted run how to go on.
func (c *trainCommand) resumeHint(err error, ctx context.Context, checkpoint string) error {
	switch {
	case ctx.Err() == nil && !errors.Is(err, training.ErrLast) || !errors.Is(err, context.Canceled):
		return err
	case checkpoint == "" && c.save != "":
		return err
	case checkpoint == "":
		return fmt.Errorf("%w; nothing was kept: --checkpoint DIR keeps what was done", err)
	}
	return fmt.Errorf("%w; go on with --checkpoint %s --resume", err, shellQuoted(checkpoint))
}

func jsonResult(ctx context.Context, rt *runtime.Runtime, cfg runtime.Config, done runtime.Event, team *teamResult) (trainResult, error) {
	sum, err := rt.ParametersSHA256(ctx)
	if err != nil {
		return trainResult{}, err
	}
	stages := map[string]float64{}
	for name, busy := range done.Stages {
		stages[name] = busy.Seconds()
	}
	var rows *runtime.RowStats
	if done.Rows.Asked > 0 {
		rows = &done.Rows
	}
	result := trainResult{
		Rows: rows, Cluster: team,
		TestAccuracy: finite(done.TestAccuracy), ValidAccuracy: finite(done.ValidAccuracy), TrainLoss: finite(done.Loss),
		Epochs: done.Epoch + 1, BestEpoch: done.Best, Seconds: done.Wall.Seconds(), Batches: done.Applied,
		ParametersSHA256: sum, Stages: stages, Overlap: done.Overlap, PeakRSSBytes: peakRSS(), LineageSHA256: done.Lineage, Staleness: done.Late,
	}
	if f := figureOf(cfg, rt); f != accuracyFigure {
		test, valid := result.TestAccuracy, result.ValidAccuracy
		if f == aucFigure {
			result.TestAUC, result.ValidAUC = &test, &valid
		} else {
			result.TestRMSE, result.ValidRMSE = &test, &valid
		}
		result.TestAccuracy, result.ValidAccuracy = finite(math.NaN()), finite(math.NaN())
	}
	return result, nil
}

// table says what the run came to. The training set is evaluated here: what
// training reports of it was measured with dropout, batch by batch.
func (c *trainCommand) table(ctx context.Context, rt *runtime.Runtime, done runtime.Event, baseline bool) (*table, error) {
	ds, t := rt.Dataset(), new(table)
	if rt.NumLinks(runtime.TrainLinks) > 0 {
		if _, err := linkTable(ctx, rt, t); err != nil {
			return nil, err
		}
		t.gap()
		return t, c.stages(ctx, t, rt, done)
	}
	if rt.Plan().Inferences == 0 {
		return t, c.stages(ctx, t, rt, done)
	}
	if rt.Regression() {
		if _, err := regressionTable(ctx, rt, t); err != nil {
			return nil, err
		}
		t.gap()
		return t, c.stages(ctx, t, rt, done)
	}
	train, err := rt.Evaluate(ctx, ds.Train)
	if err != nil {
		return nil, err
	}
	t.row("", "nodes", "accuracy")
	t.row("train", formatCount(len(ds.Train)), formatPercent(train.Accuracy))
	t.row("valid", formatCount(len(ds.Valid)), formatPercent(done.ValidAccuracy))
	t.row("test", formatCount(len(ds.Test)), formatPercent(done.TestAccuracy))
	if baseline {
		accuracy, err := rt.BaselineAccuracy(ctx)
		if err != nil {
			return nil, fmt.Errorf("features-only baseline: %w", err)
		}
		t.row("test, features only", formatCount(len(ds.Test)), formatPercent(accuracy))
	}
	t.gap()
	return t, c.stages(ctx, t, rt, done)
}

// stages adds where the time went.
func (c *trainCommand) stages(ctx context.Context, t *table, rt *runtime.Runtime, done runtime.Event) error {
	t.row("stage", "busy", "of training")
	for _, name := range stageOrder {
		if busy, ok := done.Stages[name]; ok && name != "update" {
			t.row(name, formatDuration(busy), formatPercent(share(busy, done.Wall)))
		}
	}
	t.gap()
	addRows(t, done.Rows)
	t.row("training", formatDuration(done.Wall))
	t.row("epochs", formatCount(done.Epoch+1))
	if done.Best > 0 {
		t.row("parameters of epoch", formatCount(done.Best), "best by validation")
	}
	t.row("batches", formatCount(done.Applied))
	t.row("overlap", formatPercent(done.Overlap))
	if s := rt.Stats(); s.ToDevice > 0 {
		t.row("to the device", formatBytes(s.ToDevice))
		t.row("and back", formatBytes(s.ToHost))
		t.row("the device's peak memory", formatBytes(s.DevicePeak))
	}
	addStaleness(t, done.Late)
	t.row("peak memory", formatBytes(peakRSS()))
	t.row("parameters", formatCount(rt.NumParameters()))
	t.gap()
	sum, err := rt.ParametersSHA256(ctx)
	if err != nil {
		return err
	}
	t.row("parameters sha256", sum)
	return nil
}

// addRows adds where the feature rows came from, if they were moved at all.
func addRows(t *table, s runtime.RowStats) {
	if s.Asked == 0 {
		return
	}
	of := func(n int64) string { return formatPercent(float64(n) / float64(s.Asked)) }
	t.row("feature rows", "rows", "of those asked for")
	t.row("asked for", formatCount(s.Asked), of(s.Asked))
	t.row("shared with batches before", formatCount(s.Shared), of(s.Shared))
	if s.Pinned > 0 {
		t.row("pinned in a cache", formatCount(s.Pinned), of(s.Pinned))
	}
	if s.Cached > 0 {
		t.row("in the dynamic cache", formatCount(s.Cached), of(s.Cached))
	}
	t.row("loaded", formatCount(s.Loaded), of(s.Loaded), formatBytes(s.Loaded*s.RowBytes))
	if s.Pins > 0 {
		t.row("loaded to the cache", formatCount(s.Pins), "", formatBytes(s.Pins*s.RowBytes))
	}
	t.gap()
}

func share(part, whole time.Duration) float64 {
	if whole <= 0 {
		return math.NaN()
	}
	return float64(part) / float64(whole)
}

// describe says in one line what a data set holds.
func describe(ds *graph.Dataset) string {
	s := fmt.Sprintf("%s: %s, %s", ds.Name, countOf(ds.Graph.NumNodes(), "node"), countOf(ds.Graph.NumEdges(), "edge"))
	if f := ds.NodeFeatures; f != nil {
		s += fmt.Sprintf(", %s (%s)", countOf(f.Cols, "feature"), f.DType)
	}
	if l := ds.Labels; l != nil && l.Values != nil {
		s += ", labels that are numbers"
	} else if l != nil {
		s += ", " + countOf(l.NumClasses, "class")
	}
	return s
}
