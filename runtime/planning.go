package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/overlap"
	"github.com/gnnactor/gnnactor/scheduler"
)

func (r *Runtime) sizes() scheduler.Sizes {
	c := &r.cfg
	ds := r.data.ds
	s := scheduler.Sizes{
		Nodes: int64(ds.Graph.NumNodes()), Edges: ds.Graph.NumEdges(), FeaturesMap: r.data.file.Path != "", GraphMap: r.data.mapped && r.links == nil, TrainNodes: len(r.seeds()),
		Hidden: c.Model.Hidden, Layers: c.Blocks(), Sampler: c.Sampling.Sampler, Fanouts: r.sampler.Spec().Fanouts, LayerNodes: c.Sampling.Sampler == "fastgcn" || c.Sampling.Sampler == "ladies",
		BatchSize: c.Sampling.BatchSize, Micro: c.Sampling.MicroBatches, Kernels: r.kernels(), Optimizer: c.Training.Optimizer,
		OnAverage: c.Sampling.Sampler == "labor", Parallel: r.links == nil && r.sampler.Parallel(), Temporal: r.sampler.Spec().Temporal, Batches: r.ownBatches(),
		Audits: c.Cluster.Peers != nil && !c.Cluster.Away, Own: c.ownSizes(), GraphAway: c.Cluster.Away,
	}
	if c.Sampling.Inductive {
		s.Inductive, s.SeenEdges = true, r.sampler.Dataset().Graph.NumEdges()
	}
	if r.device != nil {
		s.Device, s.DeviceRows, s.Pinned, s.Resident = r.device.Bytes(), !c.ownRows() && len(r.others) == 0, c.pinned, r.resident()
		s.Devices, s.Workspace = 1+len(r.others), r.blasBytes
		if p := r.cfg.precision; p != cpu.Float32 {
			s.TensorCores = p.String()
		}
		for _, d := range r.others {
			s.Device = min(s.Device, d.Bytes())
		}
	}
	if c.method == overlap.Sketch {
		s.Sketch = overlap.SketchSize
	}
	held := r.sampler.Footprint()
	s.SamplerShared, s.SamplerOwn = held.Shared+r.factBytes, held.Sampler
	if r.links != nil { // a link brings two nodes, and each of its negatives one
		s.BatchSize *= 2 + c.negatives()
	}
	if f := ds.NodeFeatures; f != nil {
		l := features.LayoutOf(f)
		s.InDim, s.FeatureBytes, s.RowBytes, s.Source = f.Cols, int64(len(f.Data)), int64(l.RowBytes()), r.data.source(c)
		if s.FeaturesAway = absent(f); s.FeaturesAway && r.data.set != nil && c.Cluster.Parts == nil {
			s.FeatureBytes, s.FeaturesMap = s.Nodes*s.RowBytes, true
		}
		if s.FeaturesCopy = r.data.copied; s.DeviceRows && r.data.rows == nil && !s.FeaturesAway {
			s.Registrable = int64(len(f.Data))
		}
	}
	s.NoTraining = c.Training.Epochs == 0
	s.NoInference = c.Cluster.Parts != nil && len(ds.Valid)+len(ds.Test) == 0
	if r.model != nil {
		s.SparseInput, s.SparseBytes = r.model.SparseInput(), r.model.SparseBytes()
		r.activations(&s)
		s.KeepsBest = c.Training.keepsBest()
		s.OutDim, s.Parameters = r.model.Spec().OutDim, int64(r.model.Layout().Len())
	}
	return s
}

// activations says what the model keeps of a batch, besides what every model does.
func (r *Runtime) activations(s *scheduler.Sizes) {
	c := &r.cfg
	switch c.Model.Name {
	case "gat", "gatv2":
		s.Heads = max(c.Model.Heads, c.Model.OutputHeads, 1)
	case "gcn":
		s.Wide += max(c.Model.Hidden, s.InDim)
	case "gin": // its norm, too, which is there unless it is taken away
		s.Wide += 8 * c.Model.Hidden
	case "mixhop": // a block's values are those of several powers
		s.Wide += max(c.Model.Hidden, s.InDim) * c.Blocks() / max(c.Model.Layers, 1)
	}
	if c.Model.Norm == "batch" || c.Model.Norm == "layer" {
		s.Wide += 4 * c.Model.Hidden
	}
	if c.Model.JumpingKnowledge != "" {
		s.Wide += 4 * c.Model.Hidden * c.Model.Layers
	}
}

// request returns what the user fixed.
func (r *Runtime) request() scheduler.Request {
	c, m, e := &r.cfg, &r.cfg.Memory, &r.cfg.Execution
	return scheduler.Request{
		Threads: c.threads(), Samplers: e.Samplers, Trainers: e.Trainers, Credits: e.Credits,
		EvalChunk: m.EvalChunk, Loaders: m.Loaders, Reorder: c.Sampling.Reorder, Match: m.Match,
		Gather: m.Gather, Cached: m.Cache != "", FixedThreads: e.Threads > 0, Shared: c.Cluster.Peers != nil, Late: c.lateTrainers(),
	}
}

// makePlan plans the run. Where rows are brought to a slab, some batches are
// sampled first, to know how large they are.
func (r *Runtime) makePlan(ctx context.Context) (*scheduler.Plan, error) {
	s := r.sizes()
	request := r.request()
	if r.cfg.precision == cpu.BFloat16 && r.device == nil {
		s.BF16Rate = cpu.BF16Rate(r.set, request.Threads)
	}
	if err := r.checkMemory(&s); err != nil {
		return nil, err
	}
	if err := r.planSampling(ctx, &s, request); err != nil {
		return nil, err
	}
	if err := r.planCache(&s); err != nil {
		return nil, err
	}
	if err := r.measureSizes(ctx, &s, request); err != nil {
		return nil, err
	}
	p := scheduler.Fit(s, request, r.data.limit)
	if over := p.DevicePeak - p.DeviceBytes; s.SampledByDevice && r.cfg.Execution.SampleOn == "" && over > 0 {
		s.SampledByDevice, s.Parallel = false, r.links == nil && r.sampler.Parallel()
		s.WhereSampled = fmt.Sprintf("on the processor, as on the device the plan would take %.1f MiB more than it has", float64(over)/(1<<20))
		if err := r.drawn.Close(); err != nil {
			return nil, err
		}
		r.drawn = nil
		p = scheduler.Fit(s, request, r.data.limit)
	}
	return p, nil
}

// planCache finds out how many rows are cached.
func (r *Runtime) planCache(s *scheduler.Sizes) error {
	spec := r.cfg.cached
	if spec.Kind == "" || r.data.ds.NodeFeatures == nil {
		return nil
	}
	rows := spec.Rows(features.LayoutOf(r.data.ds.NodeFeatures))
	s.Cache, s.CachedRows = spec.String(), int64(rows)
	if spec.Kind != features.CacheGNS {
		return nil
	}
	drawn := r.sampler.Facts().CacheNodes
	if drawn == 0 {
		return fmt.Errorf("%w: cache: %s keeps the rows that the sampler gns prefers, and the sampler is %s; choose --sampler gns, or degree, hot or dynamic", ErrConfig, spec, r.cfg.Sampling.Sampler)
	}
	if d := drawn - rows; d > rows/100+1 || -d > rows/100+1 {
		return fmt.Errorf("%w: cache: %s is %d rows, but the sampler draws %d nodes; set cache-fraction of sampler-options to the same", ErrConfig, spec, rows, drawn)
	}
	s.CachedRows = 2 * int64(drawn)
	return nil
}

// probes is how many batches are sampled to plan with.
const probes = 3

// sampled is what batches that were sampled beforehand have.
type sampled struct {
	blocks  []compute.BlockSize // the most of each
	targets int64
	square  bool // they are subgraphs
}

// measureSizes finds out how large batches are, by samples, and what computing takes, by trials: on the processor, with a graph that is here.
func (r *Runtime) measureSizes(ctx context.Context, s *scheduler.Sizes, request scheduler.Request) error {
	here := r.model != nil && !r.cfg.Cluster.Away && r.data.set == nil && !r.data.ds.Graph.Away() && r.data.ds.Graph.NumEdges() > 0
	tries := here && r.cfg.Model.Layer == nil && r.device == nil
	loads, _ := scheduler.Loads(s, request)
	var b sampled
	var before []int64 // entries before each stretch of nodes
	n := int64(r.data.ds.Graph.NumNodes())
	err := graph.Guard(func() (err error) {
		switch {
		case s.Sampler == "full":
			b = sampled{slices.Repeat([]compute.BlockSize{{Dst: n, Src: n, Entries: r.sampler.Dataset().Graph.NumEdges()}}, s.Layers), int64(len(r.seeds())), true}
		case loads || tries && !s.NoTraining && !(r.drawsAll() && s.Edges > drawAll):
			b, err = r.probe(ctx, s, loads)
		}
		if err == nil && here {
			before = r.data.ds.Graph.Stretches()
		}
		return err
	})
	if before != nil {
		s.MostEntries = func(rows int64) int64 { return graph.MostEntries(before, n, rows) }
	}
	switch {
	case err != nil && (loads || ctx.Err() != nil):
		return err
	case err != nil || !tries:
		return nil // what is wrong with the data is for the run to say; bounds count
	}
	workers := pool.New(1)
	defer workers.Close()
	x := cpu.NewExec(workers, r.set)
	if s.Sampled = b.blocks; b.blocks != nil && !s.NoTraining {
		if size, err := r.model.GradientBytes(x, b.blocks, b.targets, b.square); err == nil { // else bounds count
			r.reserve = more(size.Values)
			s.Gradient = size.Bytes + int64(4*(r.reserve-size.Values))
		}
	}
	if s.Inference, err = r.model.InferenceBytes(ctx, x); err != nil {
		s.Inference = nil
	}
	return context.Cause(ctx)
}

// drawAll is of up to how many edges a graph is where batches of whole neighbourhoods, which may be nearly all of it, are sampled to plan with.
const drawAll = 1 << 22

// drawsAll reports whether a batch has all neighbours of its nodes.
func (r *Runtime) drawsAll() bool {
	return r.cfg.Sampling.Sampler == "khop" || slices.Contains(r.sampler.Spec().Fanouts, -1)
}

// more is what is held for batches larger than the probes: a sixteenth more.
func more(n int) int { return n + n/16 }

// probe samples some batches, whose draws no run uses; inputs: it counts the distinct ones, too.
func (r *Runtime) probe(ctx context.Context, s *scheduler.Sizes, inputs bool) (found sampled, err error) {
	seeds := r.seeds()
	if len(seeds) == 0 {
		return found, nil
	}
	order := sampling.Order(seeds, r.cfg.Training.Seed, 0)
	size := r.sampler.Spec().BatchSize(r.cfg.Sampling.BatchSize, len(seeds))
	draw, b := r.newTrial(ctx), new(sampling.Batch)
	last, now := map[uint32]struct{}{}, map[uint32]struct{}{}
	for i := range min(probes, sampling.NumBatches(len(seeds), size)) {
		if ctx.Err() != nil {
			return found, context.Cause(ctx)
		}
		id := sampling.ID{Phase: "plan", Batch: i, Of: 1}
		if err := draw(b, id, sampling.Cut(order, size, r.cfg.Sampling.MicroBatches, i, 0)); err != nil {
			return found, fmt.Errorf("runtime: %v: %w", id, err)
		}
		found.add(b)
		if !inputs {
			continue
		}
		fresh := int64(0)
		for _, u := range b.Inputs() {
			if _, ok := now[u]; ok {
				continue
			}
			now[u] = struct{}{}
			if _, ok := last[u]; !ok {
				fresh++
			}
		}
		s.Inputs = max(s.Inputs, int64(len(now)))
		if i > 0 {
			s.NewRows = max(s.NewRows, fresh)
		}
		last, now = now, last
		clear(now)
	}
	return found, nil
}

// add counts b in.
func (s *sampled) add(b *sampling.Batch) {
	s.targets = max(s.targets, int64(len(b.Seeds)))
	if s.blocks == nil {
		s.blocks, s.square = make([]compute.BlockSize, len(b.Blocks)), true
	}
	for l := range b.Blocks {
		c, most := &b.Blocks[l], &s.blocks[l]
		most.Dst, most.Src, most.Entries = max(most.Dst, int64(c.NumDst)), max(most.Src, int64(c.NumSrc)), max(most.Entries, int64(len(c.Indices)))
		s.square = s.square && c.NumDst == c.NumSrc
	}
}

// plain reports whether rows are read from the table as it lies.
func plain(spec features.Spec) bool {
	return spec.Throttle == (features.Throttle{}) && spec.Kind != features.Disk
}

// source names where training reads rows.
func (d *openData) source(cfg *settings) string {
	switch {
	case cfg.Data.Rows != nil || cfg.Cluster.Parts != nil && d.rows != nil:
		return "elsewhere"
	case d.set != nil && d.rows != nil:
		return "the pieces"
	case !plain(cfg.where):
		return cfg.where.String()
	case d.file.Path != "":
		return string(features.Mapped)
	}
	return string(features.RAM)
}
