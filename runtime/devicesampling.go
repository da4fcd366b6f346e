package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/scheduler"
)

// What ExecutionConfig.SampleOn may name.
const onProcessor, onDevice = "cpu", "device"

// deviceSampler is a sampler whose batches a device draws. It may be shared by any goroutines.
type deviceSampler struct {
	on devices.Sampler
	of *sampling.Prepared
}

// Sample implements sampling.Sampler.
func (s deviceSampler) Sample(b *sampling.Batch, key rng.Key, seeds []uint32) error {
	id := b.ID
	b.Reset()
	b.ID = id
	var cache devices.Cache
	if caches := s.of.Caches(); caches != nil {
		cache.Generation = id.Epoch / s.of.Spec().CachePeriod
		cache.Rows = func() ([]int64, []uint64) {
			return cachedRows(caches.At(cache.Generation), s.of.Dataset().Graph.NumNodes())
		}
	}
	there, err := s.on.Sample(b, key, seeds, cache, b.Spent())
	if err != nil {
		return err
	}
	b.There = there
	b.Seeds = b.Inputs()[:len(seeds):len(seeds)]
	return nil
}

// cachedRows returns a cache's rows as devices.Cache has them.
func cachedRows(c *sampling.Cache, nodes int) (indptr []int64, entries []uint64) {
	indptr = make([]int64, nodes+1)
	for v := range nodes {
		for _, n := range c.Neighbors(uint32(v)) {
			entries = append(entries, uint64(n.Entry)|uint64(math.Float32bits(n.Weight))<<32)
		}
		indptr[v+1] = int64(len(entries))
	}
	return indptr, entries
}

// errNotDrawn is wrapped where no device draws what the run samples.
var errNotDrawn = errors.New("no device draws")

// newDeviceSampler returns a sampler on the run's device for its batches. The graph is
// checked first: what would be an error or a panic on a processor ends a device's context.
func (r *Runtime) newDeviceSampler(ctx context.Context) (devices.Sampler, error) {
	spec, g := r.sampler.Spec(), r.sampler.Dataset().Graph
	s := devices.Sampling{
		Fanouts: spec.Fanouts, EdgeIDs: spec.EdgeIDs || g.Weights != nil, Weighted: spec.Weighted,
		Cached: spec.Name == "gns", ByDegree: spec.Normalize == "degree", Only: spec.CacheOnly,
	}
	switch {
	case g.Away():
		return nil, fmt.Errorf("%w a graph that lies elsewhere", errNotDrawn)
	case spec.Temporal || spec.Replace:
		return nil, fmt.Errorf("%w with sampler-options temporal or replace", errNotDrawn)
	case spec.Name == "khop":
		s.Fanouts = make([]int, spec.Depth())
		for i := range s.Fanouts {
			s.Fanouts[i] = -1
		}
	case spec.Name != "neighbor" && spec.Name != "gns":
		return nil, fmt.Errorf("%w %s, but neighbor, khop and gns", errNotDrawn, spec.Name)
	}
	if err := graph.Guard(func() error { return g.Validate(ctx) }); err != nil {
		return nil, err
	}
	return r.device.Sampler(g, s)
}

// planSampling decides whether the processors or the device sample, which makes the same
// batches: what is faster for those that are sampled beforehand, unless the user says.
func (r *Runtime) planSampling(ctx context.Context, s *scheduler.Sizes, request scheduler.Request) error {
	asked := r.cfg.Execution.SampleOn
	switch {
	case r.device == nil && asked == onDevice:
		return fmt.Errorf("%w: sample-on: there is no device; choose one by --device cuda, or leave the setting out", ErrConfig)
	case r.device == nil:
		return nil
	case asked == onProcessor:
		s.WhereSampled = "on the processor, as asked for"
		return nil
	}
	on, err := r.newDeviceSampler(ctx)
	switch {
	case err == nil:
	case !errors.Is(err, errNotDrawn) && !errors.Is(err, devices.ErrRoom):
		return err
	case asked == onDevice:
		return fmt.Errorf("%w: sample-on: %w; choose cpu, or leave the setting out", ErrConfig, err)
	default:
		s.WhereSampled = fmt.Sprintf("on the processor: %v", err)
		return nil
	}
	why := "as asked for"
	if asked == "" {
		var faster bool
		if faster, why, err = r.fasterOn(ctx, on, request); err != nil || !faster {
			s.WhereSampled = "on the processor, " + why
			return errors.Join(err, on.Close())
		}
	}
	r.drawn = on
	s.SampledGraph, s.SampledEntry = r.sampledSizes()
	s.SampledByDevice, s.Parallel, s.WhereSampled = true, false, fmt.Sprintf("on %s, %s", r.device.Kernels(), why)
	return nil
}

// sampledSizes returns what the graph, with a cache of its nodes, takes in the memory of the device
// that samples, and an entry of a block.
func (r *Runtime) sampledSizes() (graph, entry int64) {
	spec, g := r.sampler.Spec(), r.sampler.Dataset().Graph
	graph, entry = 8*int64(g.NumNodes()+1)+4*g.NumEdges(), 4
	if spec.Weighted {
		graph += 4 * g.NumEdges()
	}
	if spec.EdgeIDs || g.Weights != nil {
		entry += 8
	}
	if spec.Name == "gns" { // each edge is cached at most
		graph, entry = graph+8*int64(g.NumNodes()+1)+8*g.NumEdges(), entry+4
	}
	return graph, entry
}

// fasterOn reports whether a device samples faster than the samplers on the processor that
// the plan would have, and how long a batch takes them.
func (r *Runtime) fasterOn(ctx context.Context, on devices.Sampler, request scheduler.Request) (faster bool, why string, err error) {
	if len(r.seeds()) == 0 {
		return false, "there is nothing to sample", nil
	}
	here, err := r.timeSampling(ctx, r.sampler.NewSampler())
	if err != nil {
		return false, "", err
	}
	there, err := r.timeSampling(ctx, deviceSampler{on, r.sampler})
	if errors.Is(err, devices.ErrRoom) {
		return false, fmt.Sprintf("as batches do not fit the device (%v)", err), nil
	}
	if err != nil {
		return false, "", err
	}
	samplers := cmp.Or(request.Late, request.Samplers, max(1, request.Threads/2))
	here /= float64(samplers)
	return there < here, fmt.Sprintf("as %d samplers on the processor take %.3g ms a batch, the device %.3g ms", samplers, 1e3*here, 1e3*there), nil
}

// enoughSampled is for how long a sampler is measured, in seconds: the batch that it is at is
// its last one then.
const enoughSampled = 0.3

// timeSampling returns the seconds in which s samples a batch, the least of some.
func (r *Runtime) timeSampling(ctx context.Context, s sampling.Sampler) (float64, error) {
	seeds := r.seeds()
	order := sampling.Order(seeds, r.cfg.Training.Seed, 0)
	size := r.sampler.Spec().BatchSize(r.cfg.Sampling.BatchSize, len(seeds))
	s = r.aroundLinks(s)
	b, best, all := new(sampling.Batch), math.Inf(1), 0.0
	for i := 0; i < min(probes, sampling.NumBatches(len(seeds), size)) && all < enoughSampled; i++ {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		b.Reset()
		b.ID = sampling.ID{Phase: "plan", Batch: i, Of: 1}
		began := time.Now()
		if err := s.Sample(b, b.ID.Key(r.cfg.Training.Seed), sampling.Cut(order, size, r.cfg.Sampling.MicroBatches, i, 0)); err != nil {
			return 0, fmt.Errorf("runtime: %v: %w", b.ID, err)
		}
		took := time.Since(began).Seconds()
		best, all = min(best, took), all+took
	}
	return best, nil
}
