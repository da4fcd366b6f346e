package runtime

import (
	"context"
	"fmt"
	"sync"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
)

// NewDraw returns what answers a process that trains and samples elsewhere: it makes b the training's
// micro-batch of m.ID, or, if m wants something else, b that, or returns a message that is. It
// is the same in every process of one identity. One goroutine at a time may call it. After Stop, which waits
// for it, it returns ErrStopped.
func (r *Runtime) NewDraw() func(b *sampling.Batch, m *messages.Seeds) (messages.Message, error) {
	d := &drawing{r: r, draw: r.newDraw(&epochOrders{work: r.work()})}
	return func(b *sampling.Batch, m *messages.Seeds) (answer messages.Message, err error) {
		err = r.call(context.Background(), nil, func(ctx context.Context) error {
			answer, err = d.answer(ctx, b, m)
			return err
		})
		return answer, err
	}
}

// drawing answers one goroutine's questions.
type drawing struct {
	r       *Runtime
	draw    func(*sampling.Batch, sampling.ID) error
	sampler sampling.Sampler
	hops    map[hops]sampling.Sampler
}

// hops are what exact inference asks for.
type hops struct {
	layers          int
	edges, temporal bool
}

// mostHops bounds the blocks of a batch that is asked for.
const mostHops = MaxLayers * MaxLayers

func (d *drawing) answer(ctx context.Context, b *sampling.Batch, m *messages.Seeds) (messages.Message, error) {
	r := d.r
	g, caches := r.data.ds.Graph, r.sampler.Caches()
	switch m.Want {
	case "":
		return nil, d.draw(b, m.ID)
	case messages.WantDraw:
		if d.sampler == nil {
			d.sampler = sampling.Within(ctx, r.newSampler())
		}
		seeds := m.Seeds
		if r.links != nil { // who asks knows them by their places
			if err := placed(len(r.seeds()), seeds); err != nil {
				return nil, err
			}
			seeds = nil
			for _, i := range m.Seeds {
				seeds = append(seeds, r.seeds()[i])
			}
		}
		b.Reset()
		b.ID = m.ID
		return nil, d.sampler.Sample(b, m.ID.Key(r.cfg.Training.Seed), seeds)
	case messages.WantRows, messages.WantEdges:
		return nil, d.exact(ctx, b, m, hops{1, m.Want == messages.WantEdges, false})
	case messages.WantHops:
		if m.Step < 1 || m.Step > mostHops {
			return nil, fmt.Errorf("runtime: %d hops", m.Step)
		}
		return nil, d.exact(ctx, b, m, hops{int(m.Step), r.sampler.Spec().EdgeIDs, true})
	case messages.WantCache:
		if caches == nil || m.Step < 0 || m.Step >= int64(r.cfg.Training.Epochs) {
			return nil, fmt.Errorf("runtime: the run has no generation %d of a cache", m.Step)
		}
		return &messages.Nodes{Nodes: caches.At(int(m.Step)).Nodes}, nil
	case messages.WantTop:
		return &messages.Nodes{Nodes: features.ByDegree(g, int(min(max(m.Step, 0), int64(g.NumNodes()))))}, nil
	case messages.WantLinks:
		if r.links == nil || m.Step < 0 || m.Step > int64(TestLinks) || len(m.Seeds) != 2 || m.Seeds[0] > m.Seeds[1] || int(m.Seeds[1]) > len(r.links.Of(Links(m.Step))) || m.Seeds[1]-m.Seeds[0] > rankedLinks {
			return nil, fmt.Errorf("runtime: the run has no links %d of split %d, or not so many at once", m.Seeds, m.Step)
		}
		ranked, err := r.appendRanked(ctx, nil, Links(m.Step), int(m.Seeds[0]), int(m.Seeds[1]))
		return &messages.Nodes{Nodes: ranked}, err
	case messages.WantFacts:
		f := &messages.Facts{Run: r.SamplingID(), Sampler: r.sampler.Facts()}
		if r.links != nil {
			for s := TrainLinks; s <= TestLinks; s++ {
				f.Links = append(f.Links, uint32(len(r.links.Of(s))))
			}
		}
		if m.Step > 0 {
			if m.Step > 2 {
				g = r.sampler.Dataset().Graph
			}
			is := compute.FactsOf(g, m.Step%2 == 0)
			f.Degrees, f.InvSqrt, f.Loops = is.Degrees, is.InvSqrt, is.Loops
		}
		return f, nil
	}
	return nil, fmt.Errorf("runtime: nobody knows what %.64q is; run one version of gnnactor on all nodes", m.Want)
}

// placed reports places that are not among n.
func placed(n int, places []uint32) error {
	for _, i := range places {
		if int(i) >= n {
			return fmt.Errorf("runtime: seed %d of %d", i, n)
		}
	}
	return nil
}

// exact makes b all that seeds see.
func (d *drawing) exact(ctx context.Context, b *sampling.Batch, m *messages.Seeds, h hops) error {
	s := d.hops[h]
	if s == nil {
		p, err := sampling.Prepare(ctx, sampling.Spec{Name: "khop", Layers: h.layers, Temporal: h.temporal, EdgeIDs: h.edges}, d.r.data.ds, d.r.cfg.Training.Seed)
		if err != nil {
			return err
		}
		if d.hops == nil {
			d.hops = map[hops]sampling.Sampler{}
		}
		s = p.NewSampler()
		d.hops[h] = s
	}
	b.Reset()
	b.ID = m.ID
	return s.Sample(b, 0, m.Seeds)
}

// FirstBatch returns the ID of the training's first micro-batch.
func (r *Runtime) FirstBatch() sampling.ID {
	w := r.work()
	id := sampling.ID{Phase: w.Phase, Of: max(w.Micro, 1)}
	if w.Batches == 0 {
		id.Of = sampling.NumMicro(len(w.Nodes), w.BatchSize, w.Micro, 0)
	}
	return id
}

// epochOrders keeps the order of the newest epoch's seeds.
type epochOrders struct {
	work  actors.Work
	mu    sync.Mutex
	epoch int
	order []uint32
}

// of returns the order of an epoch.
func (o *epochOrders) of(epoch int) []uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order == nil || o.epoch != epoch {
		o.order, o.epoch = sampling.Order(o.work.Nodes, o.work.Seed, epoch), epoch
	}
	return o.order
}

// SamplingID returns a hash of what the micro-batches depend on (Identity.Sampling).
func (r *Runtime) SamplingID() string { return r.identity.Sampling() }

// newDraw samples from the graph on, with the sampler's tables of its own.
func (r *Runtime) newDraw(orders *epochOrders) func(*sampling.Batch, sampling.ID) error {
	work := &orders.work
	var s sampling.Sampler
	sample := func(b *sampling.Batch, id sampling.ID) error {
		var seeds []uint32
		if min(id.Epoch, id.Batch, id.Micro) < 0 || id.Epoch >= work.Epochs || int64(id.Batch) >= work.Steps() || id.Of > max(work.Micro, 1) {
			return fmt.Errorf("runtime: %v is no batch of the run", id)
		}
		if work.Batches == 0 {
			order := orders.of(id.Epoch)
			if of := sampling.NumMicro(len(order), work.BatchSize, max(id.Of, 1), id.Batch); of != max(id.Of, 1) {
				return fmt.Errorf("runtime: %v has %d micro-batches, not %d", id, of, id.Of)
			}
			seeds = sampling.Cut(order, work.BatchSize, max(id.Of, 1), id.Batch, id.Micro)
		}
		if s == nil {
			s = sampling.Within(r.ctx, r.newSampler())
		}
		b.Reset()
		b.ID = id
		return s.Sample(b, id.Key(r.cfg.Training.Seed), seeds)
	}
	return func(b *sampling.Batch, id sampling.ID) error {
		err := pool.Recovered(func() error { return sample(b, id) })
		if err != nil {
			s = nil // a panic may have left anything in it
		}
		return err
	}
}
