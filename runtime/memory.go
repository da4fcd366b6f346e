package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/overlap"
	"github.com/gnnactor/gnnactor/scheduler"
)

// openRows readies what training reads feature rows from.
func (d *openData) openRows(ctx context.Context, cfg *settings) (err error) {
	spec, f := cfg.where, d.ds.NodeFeatures
	if f == nil {
		return nil
	}
	if d.file.Path == "" && (spec.Kind == features.Mapped || spec.Kind == features.Disk) || spec != (features.Spec{}) && !plain(spec) {
		d.rows, err = features.Open(ctx, spec, f, d.file, features.Options{})
		if err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
		d.copied = spec.Kind == features.RAM && d.file.Path != ""
		return nil
	}
	if spec.Kind != features.RAM || d.file.Path == "" {
		return nil
	}
	// A copy in memory, that compute reads where it lies.
	table, free, err := features.Copy(ctx, f)
	if err != nil {
		return err
	}
	d.free = free
	copied := *d.ds
	copied.NodeFeatures = table
	d.ds, d.file = &copied, features.File{}
	return nil
}

// cacheFraction has the sampler gns draw as many nodes as Cache keeps rows of,
// where sampler-options do not say how many.
func (c *settings) cacheFraction(s *sampling.Spec, ds *graph.Dataset) error {
	cache := c.cached
	if cache.Kind != features.CacheGNS || s.CacheFraction != 0 || ds.NodeFeatures == nil {
		return nil
	}
	s.CacheFraction = cache.Fraction
	if rows := cache.Rows(features.LayoutOf(ds.NodeFeatures)); cache.Fraction == 0 {
		if rows == 0 {
			return fmt.Errorf("%w: cache: %s holds no row; give it more", ErrConfig, c.Memory.Cache)
		}
		s.CacheFraction = float64(rows) / float64(ds.NodeFeatures.Rows)
	}
	return nil
}

// resident is the memory of one pipeline.
type resident struct {
	of       *Runtime
	slab     *features.Slab
	rowBytes int64
	rows     devices.Rows   // of the slab, if those are in a device's memory
	owned    features.Store // a store that nobody else uses
}

// table returns what slots are rows of; nil: there are no slots.
func (m *resident) table() *graph.Features {
	if m.slab == nil {
		return nil
	}
	return m.slab.Table()
}

// close waits for the reads of the store that is owned, which write to the slab,
// before it gives the slab's memory back.
func (m *resident) close() error {
	stats := m.stats()
	var err error
	if m.rows != nil {
		err = m.rows.Close()
	}
	if m.owned != nil {
		err = errors.Join(err, m.owned.Close())
	}
	if m.slab != nil {
		m.of.mu.Lock()
		delete(m.of.live, m)
		m.of.counted.Rows.add(stats)
		m.of.mu.Unlock()
		err = errors.Join(err, m.slab.Close())
	}
	return err
}

// RowStats counts feature rows, those of a slab: Asked = Shared + Pinned +
// Cached + Loaded. All are 0 where compute reads rows where they lie.
type RowStats struct {
	Batches  int64 `json:"batches"` // micro-batches
	Asked    int64 `json:"asked"`   // inputs of all batches
	Shared   int64 `json:"shared"`  // there because the batches before needed them
	Pinned   int64 `json:"pinned"`  // there because a static cache or GNS's holds them
	Cached   int64 `json:"cached"`  // there because the dynamic cache holds them
	Loaded   int64 `json:"loaded"`  // read
	Pins     int64 `json:"pins"`    // read for caches, besides
	RowBytes int64 `json:"row_bytes"`
	Bus      int64 `json:"bus_bytes,omitempty"`    // of rows that went to the slab in a device's memory
	Mapped   int64 `json:"mapped_bytes,omitempty"` // of Bus: those that the device gathered itself
	Peak     int64 `json:"peak"`                   // the most rows that a slab ever held
}

// Bytes returns how many bytes were read.
func (s RowStats) Bytes() int64 { return (s.Loaded + s.Pins) * s.RowBytes }

func (m *resident) stats() RowStats {
	if m == nil || m.slab == nil {
		return RowStats{}
	}
	s := m.slab.Stats()
	var bus, mapped int64
	if m.rows != nil {
		bus, mapped = m.rows.Moved()
	}
	return RowStats{
		Bus: bus, Mapped: mapped, Batches: s.Batches, Asked: s.Rows, Shared: s.Shared, Pinned: s.Pinned, Cached: s.Cached, Loaded: s.Loaded,
		Pins: s.Pins, RowBytes: m.rowBytes, Peak: int64(s.Peak),
	}
}

// add adds what another pipeline counted.
func (s *RowStats) add(o RowStats) {
	s.Batches += o.Batches
	s.Asked += o.Asked
	s.Shared += o.Shared
	s.Pinned += o.Pinned
	s.Cached += o.Cached
	s.Loaded += o.Loaded
	s.Pins += o.Pins
	s.Bus += o.Bus
	s.Mapped += o.Mapped
	s.RowBytes, s.Peak = max(s.RowBytes, o.RowBytes), max(s.Peak, o.Peak)
}

// pipelineConfig returns what every pipeline of the plan has, without its
// consumers, with the slab in the device's memory if that is where they compute.
// The caller closes the resident memory after the pipeline.
func (r *Runtime) pipelineConfig(ctx context.Context, work actors.Work, onDevice bool, rec *clock.Recorder) (c actors.Config, m *resident, err error) {
	work.Window = r.plan.Reorder
	c = actors.Config{
		System: r.system, Pool: r.pool, Clock: rec, Work: work, Samplers: r.samplers(), Credits: r.plan.Credits,
		Resting: r.plan.MaxSamplers - r.plan.Samplers,
	}
	m = &resident{of: r}
	defer func() {
		if err == nil {
			c.AfterSample, c.AfterLoad = r.stages.inserted(m.table())
		}
	}()
	if work.Window > 1 {
		if c.Order, err = overlap.NewOrderer(r.data.ds.Graph.NumNodes(), r.cfg.method); err != nil {
			return c, nil, err
		}
	}
	if !r.plan.Load {
		return c, m, nil
	}
	cache, store := r.cfg.cached, r.data.rows
	if store == nil {
		store = features.InMemory(r.data.ds.NodeFeatures)
		m.owned = store
	}
	o := features.SlabOptions{Slots: int(r.plan.SlabRows), MaxSlots: int(r.plan.SlabLimit), Cache: int(r.plan.CacheRows)}
	if r.plan.Match {
		o.Keep = r.plan.MaxAhead
	}
	l := store.Layout()
	if onDevice {
		options := devices.RowsOptions{Rows: o.MaxSlots, Pinned: int(r.plan.RowsPinned), Copied: func(n int, begin, end time.Time) {
			rec.Record(clock.Copy, fmt.Sprintf("%d rows, %d bytes", n, n*l.RowBytes()), begin, end)
		}}
		if r.plan.Registered > 0 {
			options.Host = r.data.ds.NodeFeatures
		}
		m.rows, err = r.device.Rows(store, options)
		if err != nil {
			return c, nil, errors.Join(fmt.Errorf("runtime: a slab of %d rows: %w", o.MaxSlots, err), m.close())
		}
		r.log.Info("rows for the device", "are", m.rows.Way())
		store, o.Table = m.rows, m.rows.Table()
	}
	if m.slab, err = features.NewSlab(l, o); err != nil {
		return c, nil, errors.Join(err, m.close())
	}
	m.rowBytes = int64(l.RowBytes())
	r.mu.Lock()
	r.live[m] = struct{}{}
	r.mu.Unlock()
	c.Loading = &actors.Loading{Store: store, Slab: m.slab, Ahead: r.plan.Ahead, Loaders: r.plan.Loaders}
	if cache.Kind == features.CacheGNS {
		c.Loading.Cache = r.generations()
	}
	if err := r.pin(ctx, cache, m.slab, store, work.Nodes, rec); err != nil {
		return c, nil, errors.Join(err, m.close())
	}
	return c, m, nil
}

// generations are those of GNS's cache.
func (r *Runtime) generations() *actors.Generations {
	g := &actors.Generations{Period: r.sampler.Spec().CachePeriod}
	if r.cfg.Cluster.Away {
		g.Nodes = func(ctx context.Context, generation int) ([]uint32, error) {
			return r.askNodes(ctx, messages.WantCache, generation)
		}
		return g
	}
	caches := r.sampler.Caches()
	g.Nodes = func(ctx context.Context, generation int) ([]uint32, error) {
		c, err := caches.Drawn(ctx, generation)
		if err != nil {
			return nil, err
		}
		return c.Nodes, nil
	}
	if !caches.Divided() {
		g.Advance, g.Pieces = caches.Advance, caches.Pieces()
	}
	return g
}

// pin reads the rows of a static cache.
func (r *Runtime) pin(ctx context.Context, cache features.CacheSpec, slab *features.Slab, store features.Store, seeds []uint32, rec *clock.Recorder) error {
	var nodes []uint32
	rows := cache.Rows(store.Layout())
	switch cache.Kind {
	case features.CacheDegree:
		var err error
		if nodes, err = r.byDegree(ctx, rows); err != nil {
			return err
		}
	case features.CacheHot:
		var err error
		if nodes, err = r.hottest(ctx, seeds, rows); err != nil {
			return err
		}
	default:
		return nil
	}
	span := rec.BeginThread(clock.Cache)
	defer span.End("cache")
	pin, err := slab.Pin(nodes)
	if err == nil {
		err = features.Read(ctx, store, pin.Request())
	}
	if err != nil {
		return fmt.Errorf("runtime: cache: %w", err)
	}
	slab.Publish(pin)
	return nil
}

// byDegree returns the k nodes of the most edges.
func (r *Runtime) byDegree(ctx context.Context, k int) ([]uint32, error) {
	if r.cfg.Cluster.Away {
		return r.askNodes(ctx, messages.WantTop, k)
	}
	return features.ByDegree(r.data.ds.Graph, k), nil
}

// hotBatches is how many batches are sampled to find the hottest nodes.
const hotBatches = 64

// hottest returns the k nodes that batches sampled beforehand need most, of the given
// seed nodes.
func (r *Runtime) hottest(ctx context.Context, seeds []uint32, k int) ([]uint32, error) {
	r.mu.Lock()
	found := r.hot
	r.mu.Unlock()
	if found.rows == k && slices.Equal(found.seeds, seeds) {
		return found.nodes, nil
	}
	order := sampling.Order(seeds, r.cfg.Training.Seed, 0)
	size := r.sampler.Spec().BatchSize(r.cfg.Sampling.BatchSize, len(seeds))
	n := min(hotBatches, sampling.NumBatches(len(seeds), size))
	hot := features.NewHotness(r.data.ds.Graph.NumNodes())
	draw, b := r.newTrial(ctx), new(sampling.Batch)
	for i := range n {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		id := sampling.ID{Phase: "hot", Batch: i, Of: 1}
		err := draw(b, id, sampling.Cut(order, size, 1, i, 0))
		if err == nil {
			err = hot.Add(b.Inputs())
		}
		if err != nil {
			return nil, fmt.Errorf("runtime: %v: %w", id, err)
		}
	}
	found = hottest{seeds: slices.Clone(seeds), rows: k, nodes: hot.Top(k)}
	r.mu.Lock()
	r.hot = found
	r.mu.Unlock()
	return found.nodes, nil
}

// hottest is what the last pipeline with such a cache found: the nodes follow
// from the seeds and their number.
type hottest struct {
	seeds []uint32
	rows  int
	nodes []uint32
}

// checkMemory reports what was asked for and cannot be done with this data.
func (r *Runtime) checkMemory(s *scheduler.Sizes) error {
	c := &r.cfg
	var why, remedy string
	if loads, _ := scheduler.Loads(s, r.request()); loads && s.DeviceRows && c.Memory.Gather == "copied" {
		return fmt.Errorf("%w: gather: copied cannot be done, for kernels read rows from the slab in the device's memory; leave it out", ErrConfig)
	}
	switch {
	case s.RowBytes == 0:
		why, remedy = "the data has no node features", ", or add them to the data"
	case s.Sampler == "full":
		why, remedy = "the sampler full reads the whole table where it lies", ", or choose another sampler"
	case s.SparseInput:
		why, remedy = "most feature values are zero, and the model holds the others in memory", ""
	default:
		return nil
	}
	for _, x := range []struct {
		asked         bool
		setting, what string
	}{
		{!plain(c.where) || s.RowBytes == 0 && c.Memory.Features != "", "features", c.Memory.Features},
		{c.Memory.Match == "on", "match", c.Memory.Match},
		{c.cached.Kind != "", "cache", c.Memory.Cache},
		{c.Memory.Loaders > 0 && s.RowBytes > 0, "loaders", fmt.Sprint(c.Memory.Loaders)},
		{c.Memory.Gather == "copied", "gather", c.Memory.Gather},
	} {
		if x.asked {
			return fmt.Errorf("%w: %s: %s cannot be done, for %s; leave it out%s", ErrConfig, x.setting, x.what, why, remedy)
		}
	}
	return nil
}
