package runtime

import (
	"context"
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/scheduler"
)

func (r *Runtime) sizes() scheduler.Sizes {
	ds := r.data.ds
	s := scheduler.Sizes{
		Nodes: int64(ds.Graph.NumNodes()), Edges: ds.Graph.NumEdges(), FeaturesMap: r.data.file.Path != "", GraphMap: r.data.mapped && r.links == nil, TrainNodes: len(r.seeds()),
		Hidden: r.cfg.Hidden, Layers: r.cfg.Blocks(), Sampler: r.cfg.Sampler, Fanouts: r.sampler.Spec().Fanouts, LayerNodes: r.cfg.Sampler == "fastgcn" || r.cfg.Sampler == "ladies",
		BatchSize: r.cfg.BatchSize, Micro: r.cfg.MicroBatches, Kernels: r.set.String(), Optimizer: r.cfg.Optimizer,
		OnAverage: r.cfg.Sampler == "labor", Temporal: r.sampler.Spec().Temporal, Batches: r.ownBatches(),
		Audits: r.cfg.Cluster != nil,
	}
	if r.cfg.Inductive {
		s.Inductive, s.SeenEdges = true, r.sampler.Dataset().Graph.NumEdges()
	}
	held := r.sampler.Footprint()
	s.SamplerShared, s.SamplerOwn = held.Shared, held.Sampler
	if r.links != nil { // a link brings two nodes, and each of its negatives one
		s.BatchSize *= 2 + r.cfg.negatives()
	}
	if f := ds.NodeFeatures; f != nil {
		l := features.LayoutOf(f)
		s.InDim, s.FeatureBytes, s.RowBytes, s.Source = f.Cols, int64(len(f.Data)), int64(l.RowBytes()), r.data.source(&r.cfg)
		s.FeaturesAway = absent(f)
		s.FeaturesCopy = r.data.copied
	}
	if r.model != nil {
		s.SparseInput, s.SparseBytes = r.model.SparseInput(), r.model.SparseBytes()
		r.activations(&s)
		s.OutDim, s.Parameters = r.cfg.outputs(ds), int64(r.model.Layout().Len())
	}
	return s
}

// activations says what the model keeps of a batch, besides what every model does.
func (r *Runtime) activations(s *scheduler.Sizes) {
	c := &r.cfg
	switch c.Model {
	case "gat", "gatv2":
		s.Heads = max(c.Heads, 1)
	case "gcn":
		s.Wide += max(c.Hidden, s.InDim)
	case "gin": // its norm, too, which is there unless it is taken away
		s.Wide += 8 * c.Hidden
	case "mixhop": // a block's values are those of several powers
		s.Wide += max(c.Hidden, s.InDim) * c.Blocks() / max(c.Layers, 1)
	}
	if c.Norm == "batch" || c.Norm == "layer" {
		s.Wide += 4 * c.Hidden
	}
	if c.JumpingKnowledge != "" {
		s.Wide += 4 * c.Hidden * c.Layers
	}
}

// request returns what the user fixed.
func (r *Runtime) request() scheduler.Request {
	if r.cfg.asynchronous { // each trainer samples the next batch meanwhile
		n := r.cfg.staleTrainers()
		return scheduler.Request{
			Threads: r.cfg.threads(), Samplers: n, Trainers: n, Credits: 2,
			EvalChunk: r.cfg.EvalChunk, LocalCodec: r.cfg.LocalCodec, Loaders: r.cfg.Loaders, Match: r.cfg.Match,
			Gather: r.cfg.Gather, Cached: true, FixedThreads: true, Shared: true, // nothing is measured
		}
	}
	return scheduler.Request{
		Threads: r.cfg.threads(), Samplers: r.cfg.Samplers, Trainers: r.cfg.Trainers, Credits: r.cfg.Credits,
		EvalChunk: r.cfg.EvalChunk, LocalCodec: r.cfg.LocalCodec, Loaders: r.cfg.Loaders, Reorder: r.cfg.Reorder, Match: r.cfg.Match,
		Gather: r.cfg.Gather, Cached: r.cfg.Cache != "", FixedThreads: r.cfg.Threads > 0, Shared: r.cfg.Cluster != nil,
	}
}

// makePlan plans the run. Where rows are brought to a slab, some batches are
// sampled first, to know how large they are.
func (r *Runtime) makePlan(ctx context.Context) (*scheduler.Plan, error) {
	s := r.sizes()
	request := r.request()
	if r.cfg.precision == cpu.BFloat16 {
		s.BF16Rate = bf16Rate(r.set, request.Threads)
	}
	if err := r.checkMemory(&s); err != nil {
		return nil, err
	}
	if err := r.planCache(&s); err != nil {
		return nil, err
	}
	if loads, _ := scheduler.Loads(&s, request); loads {
		if err := r.probe(ctx, &s); err != nil {
			return nil, err
		}
	}
	return scheduler.Fit(s, request, r.data.limit), nil
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
	caches := r.sampler.Caches()
	if caches == nil {
		return fmt.Errorf("%w: cache: %s keeps the rows that the sampler gns prefers, and the sampler is %s; choose --sampler gns, or degree, hot or dynamic", ErrConfig, spec, r.cfg.Sampler)
	}
	drawn := len(caches.At(0).Nodes)
	if d := drawn - rows; d > rows/100+1 || -d > rows/100+1 {
		return fmt.Errorf("%w: cache: %s is %d rows, but the sampler draws %d nodes; set cache-fraction of sampler-options to the same", ErrConfig, spec, rows, drawn)
	}
	s.CachedRows = 2 * int64(drawn)
	return nil
}

// probes is how many batches are sampled to plan with.
const probes = 3

// probe samples some batches, whose draws no run uses.
func (r *Runtime) probe(ctx context.Context, s *scheduler.Sizes) error {
	seeds := r.seeds()
	if len(seeds) == 0 {
		return nil
	}
	order := sampling.Order(seeds, r.cfg.Seed, 0)
	size := r.sampler.Spec().BatchSize(r.cfg.BatchSize, len(seeds))
	sampler, b := r.newSampler(), new(sampling.Batch)
	last, now := map[uint32]struct{}{}, map[uint32]struct{}{}
	for i := range min(probes, sampling.NumBatches(len(seeds), size)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b.Reset()
		b.ID = sampling.ID{Phase: "plan", Batch: i, Of: 1}
		if err := sampler.Sample(b, b.ID.Key(r.cfg.Seed), sampling.Cut(order, size, r.cfg.MicroBatches, i, 0)); err != nil {
			return fmt.Errorf("runtime: %v: %w", b.ID, err)
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
	return nil
}

// plain reports whether rows are read from the table as it lies.
func plain(spec features.Spec) bool {
	return spec.Throttle == (features.Throttle{}) && spec.Kind != features.Disk
}

// source names where training reads rows.
func (d *openData) source(cfg *settings) string {
	switch {
	case cfg.Rows != nil:
		return "elsewhere"
	case !plain(cfg.where):
		return cfg.where.String()
	case d.file.Path != "":
		return string(features.Mapped)
	}
	return string(features.RAM)
}
