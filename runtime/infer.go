package runtime

import (
	"context"
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// Metrics compare predictions with labels.
type Metrics = compute.Metrics

// Embedding is a matrix with one row per asked-for node: the model's output.
type Embedding struct {
	Rows, Cols int
	Data       []float32 // row-major
}

// Prediction is a node's most probable class.
type Prediction struct {
	Class       int     `json:"class"`
	Probability float32 `json:"probability"`
}

// Evaluate compares the model's predictions for nodes with their labels, by
// exact inference: every layer over all neighbours, nothing sampled. The
// result does not depend on EvalChunk or Threads. Nodes without a label are
// left out. With a temporal sampler, all neighbours means those that are no newer
// than the node. The program's own stages after load change the nodes' rows here, too; those
// after sample have no part in inference.
func (r *Runtime) Evaluate(ctx context.Context, nodes []uint32) (Metrics, error) {
	return r.measure(ctx, nodes, false)
}

// EvaluateAUC is Evaluate with AUC, which sorts the nodes once per class.
func (r *Runtime) EvaluateAUC(ctx context.Context, nodes []uint32) (Metrics, error) {
	return r.measure(ctx, nodes, true)
}

func (r *Runtime) measure(ctx context.Context, nodes []uint32, auc bool) (Metrics, error) {
	if err := r.nodesOnly("accuracies"); err != nil {
		return Metrics{}, err
	}
	if r.model != nil && r.data.ds.Labels == nil {
		return Metrics{}, errUnlabelled(r.data.ds)
	}
	var m Metrics
	err := r.call(ctx, nil, func(ctx context.Context) error {
		params, err := r.current(ctx)
		if err != nil {
			return err
		}
		if m, err = r.evaluate(ctx, params, nodes, auc); err != nil {
			return err
		}
		return r.Verified(ctx)
	})
	return m, err
}

// Embed returns the model's output for ids; it computes only their L-hop
// neighbourhood, and its rows equal those of the whole graph bit for bit. Of any number
// of calls as many compute at once as the plan has room for (Plan.Inferences); the
// others wait, as long as their ctx lets them, in the order in which they came.
// A node that there is not is an error that wraps ErrNode. While a run trains it uses the parameters of the last applied batch.
func (r *Runtime) Embed(ctx context.Context, ids []uint32) (*Embedding, error) {
	return r.embed(ctx, ids, nil)
}

// EmbedSampled is Embed over sampled neighbourhoods: of each node of a layer at most so many neighbours, from the seeds outward, drawn
// uniformly without replacement, or all for -1. It costs what a batch costs, in place of whole neighbourhoods. What is drawn for a node depends
// on Config.Training.Seed and the layer alone, not on what else is asked for. Under a temporal constraint nothing newer than the node is drawn.
func (r *Runtime) EmbedSampled(ctx context.Context, ids []uint32, fanouts []int) (*Embedding, error) {
	if r.model == nil {
		return nil, r.noModel
	}
	if r.cfg.Cluster.Away || r.data.set != nil || r.links != nil && r.cfg.Cluster.Peers != nil {
		return nil, fmt.Errorf("%w: neighbours are sampled for inference where this process has the whole graph", ErrConfig)
	}
	if len(fanouts) != r.model.Blocks() {
		return nil, fmt.Errorf("%w: %d fan-outs given, and the model has %d layers; give one each, from the seeds outward", ErrConfig, len(fanouts), r.model.Blocks())
	}
	for _, k := range fanouts {
		if k < 1 && k != -1 {
			return nil, fmt.Errorf("%w: a fan-out of %d; give 1 or more, or -1 for all neighbours", ErrConfig, k)
		}
	}
	spec := sampling.Spec{Name: "neighbor", Fanouts: fanouts, Temporal: r.sampler.Spec().Temporal, EdgeIDs: r.sampler.Spec().EdgeIDs}
	return r.embed(ctx, ids, func(ctx context.Context) (makeBatch, error) {
		p, err := sampling.Prepare(ctx, spec, r.data.ds, r.cfg.Training.Seed)
		if err != nil {
			return nil, err
		}
		s := p.NewSampler()
		return func(b *sampling.Batch, seeds []uint32) error {
			return s.Sample(b, rng.New(r.cfg.Training.Seed, inferenceDomain), seeds)
		}, nil
	})
}

// inferenceDomain separates what is drawn for inference from all other draws.
const inferenceDomain = 0x696e666572 // "infer"

// embed is Embed over batches that begin returns the maker of; nil: exact.
func (r *Runtime) embed(ctx context.Context, ids []uint32, begin func(context.Context) (makeBatch, error)) (*Embedding, error) {
	if d := r.data.set; d != nil && d.Set().Renumbered() {
		return nil, fmt.Errorf("%w: %s gives nodes other ids than the data has: ask a set divided by --method contiguous, or the store", ErrConfig, r.cfg.Data.Path)
	}
	var out cpu.Matrix[float32]
	err := r.call(ctx, nil, func(ctx context.Context) error {
		params, err := r.current(ctx)
		if err != nil {
			return err
		}
		out, err = r.inferBy(ctx, params, ids, begin)
		return err
	})
	if err != nil {
		return nil, err
	}
	e := &Embedding{Rows: out.Rows, Cols: out.Cols, Data: out.Data}
	if out.Stride != out.Cols {
		e.Data = make([]float32, 0, out.Rows*out.Cols)
		for i := range out.Rows {
			e.Data = append(e.Data, out.Row(i)...)
		}
	}
	return e, nil
}

// Predict returns the most probable class of each node of ids, ties to the
// lower class; Embedding.Predictions chooses several. It costs what Embed costs.
func (r *Runtime) Predict(ctx context.Context, ids []uint32) ([]Prediction, error) {
	if err := r.classesOnly("predictions"); err != nil {
		return nil, err
	}
	e, err := r.Embed(ctx, ids)
	if err != nil {
		return nil, err
	}
	p := make([]Prediction, e.Rows)
	for i := range p {
		p[i] = predict(e.Data[i*e.Cols:(i+1)*e.Cols], r.cfg.multi)
	}
	return p, nil
}

// predict is the prediction that a model's output says.
func predict(row []float32, multi bool) Prediction {
	class := compute.ArgMax(row)
	return Prediction{class, compute.Probability(row, multi)(class)}
}

// current returns the parameters to infer with.
func (r *Runtime) current(ctx context.Context) ([]float32, error) {
	if r.model == nil {
		return nil, r.noModel
	}
	r.mu.Lock()
	p, over, params := r.training, r.over, r.params
	r.mu.Unlock()
	if p == nil {
		return params, nil
	}
	s, err := p.Snapshot(ctx)
	if err == nil {
		return s.Params, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select { // training is ending
	case <-over:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.params, nil
}

// admit waits until the plan has room for a call that infers, or ctx ends.
func (r *Runtime) admit(ctx context.Context) (release func(), err error) {
	r.mu.Lock()
	r.waiting++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.waiting--
		r.mu.Unlock()
	}()
	select {
	case r.inference <- struct{}{}:
		return func() { <-r.inference }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (r *Runtime) infer(ctx context.Context, params []float32, nodes []uint32) (cpu.Matrix[float32], error) {
	return r.inferBy(ctx, params, nodes, nil)
}

// inferBy is infer over batches that begin returns the maker of; nil: exact.
func (r *Runtime) inferBy(ctx context.Context, params []float32, nodes []uint32, begin func(context.Context) (makeBatch, error)) (cpu.Matrix[float32], error) {
	if r.plan.Inferences == 0 {
		return cpu.Matrix[float32]{}, fmt.Errorf("%w: of a partition set on several nodes without validation and test nodes no memory is kept for inference: save the parameters, and have 'gnnactor eval', 'embed' or 'predict' infer", ErrConfig)
	}
	n := r.data.ds.Graph.NumNodes()
	for _, v := range nodes {
		if int(v) >= n {
			return cpu.Matrix[float32]{}, fmt.Errorf("%w: node %d is out of range [0, %d)", ErrNode, v, n)
		}
	}
	release, err := r.admit(ctx)
	if err != nil {
		return cpu.Matrix[float32]{}, err
	}
	defer release()
	ds, rows := r.data.ds, r.inferenceRows
	if absent(ds.NodeFeatures) && len(r.stages.transforms) == 0 {
		rows = r.fetchedRows
	} else if ds, err = r.readable(ctx); err != nil {
		return cpu.Matrix[float32]{}, err
	}
	x := r.modelExec()
	defer r.releaseModelExec(x)
	var out cpu.Matrix[float32]
	err = graph.Guard(func() (err error) {
		if begin == nil && r.sampler.Spec().Temporal && nodes != nil {
			begin = r.newHops
		}
		if begin != nil {
			out, err = r.inferBatches(ctx, x, params, ds, nodes, rows(ctx, ds), begin)
			return err
		}
		if err := r.plan.CheckInference(); err != nil {
			return err
		}
		out, err = r.model.InferRows(ctx, x, params, ds, nodes, r.plan.EvalChunk, rows(ctx, ds))
		return err
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, err
}

// inferenceRows returns what makes the rows of nodes for exact inference; nil: they are
// read where they lie.
func (r *Runtime) inferenceRows(ctx context.Context, ds *graph.Dataset) func([]uint32) (*graph.Features, error) {
	if len(r.stages.transforms) == 0 {
		return nil
	}
	return func(nodes []uint32) (*graph.Features, error) { return r.stages.rows(ctx, ds.NodeFeatures, nodes) }
}

// fetchedRows is inferenceRows where the features lie elsewhere: those of the nodes alone are read.
func (r *Runtime) fetchedRows(ctx context.Context, _ *graph.Dataset) func([]uint32) (*graph.Features, error) {
	return func(nodes []uint32) (*graph.Features, error) {
		table, err := features.Table(ctx, r.data.rows, nodes)
		if err != nil {
			return nil, fmt.Errorf("runtime: features for inference: %w", err)
		}
		return table, nil
	}
}

func (r *Runtime) evaluate(ctx context.Context, params []float32, nodes []uint32, auc bool) (Metrics, error) {
	if len(nodes) == 0 {
		return compute.NoMetrics(), nil
	}
	out, err := r.infer(ctx, params, nodes)
	if err != nil {
		return Metrics{}, err
	}
	return r.score(out, nodes, auc), nil
}

// score compares row i of out with the label of nodes[i]; auc: with AUC.
func (r *Runtime) score(out cpu.Matrix[float32], nodes []uint32, auc bool) Metrics {
	if r.Regression() {
		var values []float32
		for _, v := range nodes {
			values = append(values, r.data.ds.Labels.Values[v])
		}
		return r.cfg.target.Measure(out, values)
	}
	return score(r.data.ds.Labels, out, nodes, auc)
}

// Confusion counts, in row i and column j, the nodes of class i of which class j is predicted, by inference as Evaluate's. Nodes without a
// label are left out. With several labels a node, and tasks without classes, it is an error that wraps ErrTask.
func (r *Runtime) Confusion(ctx context.Context, nodes []uint32) ([][]int, error) {
	if err := r.classesOnly("confusions"); err != nil {
		return nil, err
	}
	if r.cfg.multi {
		return nil, fmt.Errorf("%w: confusions are of nodes with one class each, and these have several labels", ErrTask)
	}
	l := r.data.ds.Labels
	if r.model != nil && l == nil {
		return nil, errUnlabelled(r.data.ds)
	}
	var counts [][]int
	err := r.call(ctx, nil, func(ctx context.Context) error {
		params, err := r.current(ctx)
		if err != nil {
			return err
		}
		out, err := r.infer(ctx, params, nodes)
		if err != nil {
			return err
		}
		counts = compute.Confusion(out, l.AppendClasses(nil, nodes))
		return r.Verified(ctx)
	})
	return counts, err
}

// score is Runtime.score of classes.
func score(l *graph.Labels, out cpu.Matrix[float32], nodes []uint32, auc bool) Metrics {
	if l.IsMulti() {
		return compute.MeasureLabels(out, l.AppendMulti(nil, nodes), auc)
	}
	return compute.MeasureClasses(out, l.AppendClasses(nil, nodes), auc)
}

// accuracies returns those of the validation and the test set, in one pass
// over the graph.
func (r *Runtime) accuracies(ctx context.Context, params []float32) (valid, test float64, err error) {
	if r.links != nil {
		out, err := r.infer(ctx, params, nil)
		if err != nil {
			return 0, 0, err
		}
		v, err := r.measureLinks(ctx, params, out, ValidLinks)
		if err != nil {
			return 0, 0, err
		}
		t, err := r.measureLinks(ctx, params, out, TestLinks)
		return v.AUC, t.AUC, err
	}
	ds := r.data.ds
	nodes := append(append(make([]uint32, 0, len(ds.Valid)+len(ds.Test)), ds.Valid...), ds.Test...)
	if len(nodes) == 0 {
		return math.NaN(), math.NaN(), nil
	}
	out, err := r.infer(ctx, params, nodes)
	if err != nil {
		return 0, 0, err
	}
	v := len(ds.Valid)
	on := r.score(out.View(0, v, 0, out.Cols), ds.Valid, false)
	off := r.score(out.View(v, len(nodes), 0, out.Cols), ds.Test, false)
	if r.Regression() {
		return on.RMSE, off.RMSE, nil
	}
	return on.Accuracy, off.Accuracy, nil
}
