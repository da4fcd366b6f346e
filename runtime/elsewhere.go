package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/links"
)

// A process that trains where others sample opens no topology (Config.Cluster.Away). It asks
// those nodes for what it would look up there: pure functions of the graph and the question, so
// that any of them can be asked, and another one again.

// NeedsTopology says why a process that trains reads the graph's rows itself, so that it has to sample, too; "": it does not need
// to, where others sample. ds is the data; nil: it is not known yet.
func (c *Config) NeedsTopology(ds *graph.Dataset) string {
	if c.Sampling.Sampler == "full" {
		return "sampler full: a batch is the whole graph"
	}
	for i := range c.Stages {
		if s := &c.Stages[i]; !s.SizesOnly {
			return fmt.Sprintf("stage %s may read the graph, as it does not say otherwise (SizesOnly)", s.Name)
		}
	}
	if part := c.Sampling.Inductive || c.Model.Task == "link"; part && ds != nil && c.readsEdges() && (ds.Graph.Weights != nil || c.Model.EdgeFeatures) {
		return fmt.Sprintf("model %s looks up what is known of edges, of which training sees only some (inductive, or task link)", c.Model.Name)
	}
	return ""
}

// checkAway reports that this process has to have the topology, and does not.
func (c *Config) checkAway(ds *graph.Dataset) error {
	if why := c.NeedsTopology(ds); c.Cluster.Away && why != "" {
		return fmt.Errorf("%w: Cluster.Away: this process trains and has no topology, as it does not sample: %s; give it the role sampler, too", ErrConfig, why)
	}
	return nil
}

// readsEdges reports whether the model reads weights or features of edges.
func (c *Config) readsEdges() bool {
	return c.Model.Name == "gcn" || c.Model.Name == "mixhop" || c.Model.EdgeFeatures
}

// Parts are those of a store that a process reads, but for the values of the nodes' features.
func (c *Config) Parts() store.Part {
	switch {
	case !c.Cluster.Away:
		return store.Topology | store.EdgeValues
	case c.readsEdges():
		return store.EdgeValues
	}
	return 0
}

// sizesOf returns a dataset without the graph's rows.
func (c *Config) sizesOf(ds *graph.Dataset) *graph.Dataset {
	copied := *ds
	copied.Graph, copied.EdgeTimes = graph.Elsewhere(ds.Graph.NumNodes(), ds.Graph.NumEdges()), nil
	if copied.EdgeFeatures = nil; c.readsEdges() {
		copied.Graph.Weights, copied.EdgeFeatures = ds.Graph.Weights, ds.EdgeFeatures
	}
	return &copied
}

// prepareElsewhere is sampling.Prepare where others sample: it asks one of them.
func (r *Runtime) prepareElsewhere(ctx context.Context, spec sampling.Spec) error {
	ds := r.data.ds
	if r.cfg.Cluster.Elsewhere == nil { // Check: there is nobody to ask yet
		r.sampler = sampling.PreparedElsewhere(sampling.Facts{Spec: spec}, ds)
		if r.cfg.Model.Task == "link" { // how many there are is not known
			r.links = links.Elsewhere([3]int{1, 1, 1})
		}
		return nil
	}
	m := &messages.Seeds{Want: messages.WantFacts}
	if r.model != nil {
		if needs, norm := r.model.NeedsFacts(); norm {
			m.Step = 2
		} else if needs {
			m.Step = 1
		}
	}
	x, err := r.askMessage(ctx, m, "facts")
	if err != nil {
		return err
	}
	f := x.(*messages.Facts)
	if has := f.Sampler.Spec; has.Name != spec.Name || has.Depth() != spec.Depth() || !slices.Equal(has.Fanouts, spec.Fanouts) || has.Inductive != spec.Inductive {
		return fmt.Errorf("%w: the nodes that sample draw by %s %v, and this one's run is of %s %v; start all with the same settings", ErrConfig, has.Name, has.Fanouts, spec.Name, spec.Fanouts)
	}
	r.sampler, r.told = sampling.PreparedElsewhere(f.Sampler, ds), f.Run
	if r.cfg.Model.Task == "link" {
		var counts [3]int
		all := int64(0)
		for i, n := range f.Links {
			counts[i%3] = int(n)
			all += int64(n)
		}
		if len(f.Links) != 3 || f.Links[links.Train] == 0 || all > ds.Graph.NumEdges() {
			return fmt.Errorf("runtime: asking those who sample for %s: links in splits of %d, of %d edges", m.Want, f.Links, ds.Graph.NumEdges())
		}
		r.links = links.Elsewhere(counts)
	}
	if r.model == nil {
		return nil
	}
	r.factBytes = 4 * int64(len(f.Degrees)+len(f.InvSqrt)+len(f.Loops))
	return r.model.BindElsewhere(&compute.Facts{Degrees: f.Degrees, InvSqrt: f.InvSqrt, Loops: f.Loops}, rowsElsewhere{r})
}

// bindLearner tells the learner what it looks up in the graph that inductive training sees, where others sample.
func (r *Runtime) bindLearner(ctx context.Context) error {
	needs, norm := r.learner.NeedsFacts()
	if !needs || r.cfg.Cluster.Elsewhere == nil {
		return nil
	}
	m := &messages.Seeds{Want: messages.WantFacts, Step: 3}
	if norm {
		m.Step = 4
	}
	x, err := r.askMessage(ctx, m, "facts")
	if err != nil {
		return err
	}
	f := x.(*messages.Facts)
	r.factBytes += 4 * int64(len(f.Degrees)+len(f.InvSqrt)+len(f.Loops))
	return r.learner.BindElsewhere(&compute.Facts{Degrees: f.Degrees, InvSqrt: f.InvSqrt, Loops: f.Loops}, nil)
}

// askMessage asks for a message of a kind.
func (r *Runtime) askMessage(ctx context.Context, m *messages.Seeds, kind string) (messages.Message, error) {
	m.Run = r.told
	data, err := r.cfg.Cluster.Elsewhere.Ask(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("runtime: asking those who sample for %s: %w", m.Want, err)
	}
	x, err := messages.Unmarshal(kind, data)
	if err != nil {
		return nil, fmt.Errorf("runtime: asking those who sample for %s: %w", m.Want, err)
	}
	return x, nil
}

// askNodes asks for nodes.
func (r *Runtime) askNodes(ctx context.Context, want messages.Want, step int) ([]uint32, error) {
	x, err := r.askMessage(ctx, &messages.Seeds{Want: want, Step: int64(step)}, "nodes")
	if err != nil {
		return nil, err
	}
	nodes, n := x.(*messages.Nodes).Nodes, r.data.ds.Graph.NumNodes()
	for _, v := range nodes {
		if int(v) >= n {
			return nil, fmt.Errorf("runtime: asking those who sample for %s: node %d of %d", want, v, n)
		}
	}
	return nodes, nil
}

// askBatch makes b the batch that m wants, whose seeds are m's.
func (r *Runtime) askBatch(ctx context.Context, b *sampling.Batch, m *messages.Seeds, g *graph.Graph) error {
	m.Run = r.told
	data, err := r.cfg.Cluster.Elsewhere.Ask(ctx, m)
	if err == nil {
		err = messages.ReadBatch(b, m.ID, data)
	}
	if err == nil {
		err = b.CheckOf(g, false)
	}
	if err == nil && m.Want != messages.WantDraw && !slices.Equal(b.Seeds, m.Seeds) {
		err = errors.New("it is of other nodes")
	}
	if err != nil {
		return fmt.Errorf("runtime: asking those who sample for %s: %w", m.Want, err)
	}
	return nil
}

// newTrial returns what draws batches that no run uses, for one goroutine.
func (r *Runtime) newTrial(ctx context.Context) func(b *sampling.Batch, id sampling.ID, seeds []uint32) error {
	if r.cfg.Cluster.Away {
		return func(b *sampling.Batch, id sampling.ID, seeds []uint32) error {
			return r.askBatch(ctx, b, &messages.Seeds{ID: id, Seeds: seeds, Want: messages.WantDraw}, r.sampler.Dataset().Graph)
		}
	}
	sampler := sampling.Within(ctx, r.newSampler())
	return func(b *sampling.Batch, id sampling.ID, seeds []uint32) error {
		b.Reset()
		b.ID = id
		return sampler.Sample(b, id.Key(r.cfg.Training.Seed), seeds)
	}
}

// Of the rows that exact inference needs pieces of at most so many nodes are asked for, a message being
// of at most 64 KiB, and so many at once.
const (
	rowPiece = 1 << 13
	rowAsks  = 4
)

// rowsElsewhere implements compute.RowSource.
type rowsElsewhere struct{ r *Runtime }

// piece is one that is asked for.
type piece struct {
	batch sampling.Batch
	err   error
	done  chan struct{}
}

// Rows implements compute.RowSource.
func (s rowsElsewhere) Rows(ctx context.Context, nodes []uint32, size int, edges bool, use func(int, *graph.Block) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	size = min(size, rowPiece)
	want := messages.WantRows
	if edges {
		want = messages.WantEdges
	}
	var ahead, free []*piece
	ask := func(from int) {
		p := new(piece)
		if n := len(free); n > 0 {
			p, free = free[n-1], free[:n-1]
		}
		p.done = make(chan struct{})
		ahead = append(ahead, p)
		asking.Go(func() {
			defer close(p.done)
			m := &messages.Seeds{ID: sampling.ID{Phase: "rows"}, Seeds: nodes[from:min(from+size, len(nodes))], Want: want}
			p.err = pool.Recovered(func() error { return s.r.askBatch(ctx, &p.batch, m, s.r.data.ds.Graph) })
			if k := p.batch.Blocks; p.err == nil && (len(k) != 1 || k[0].SrcIDs == nil && k[0].NumSrc > 0 || k[0].NumDst != len(m.Seeds) || edges && k[0].EdgeIDs == nil && len(k[0].Indices) > 0) {
				p.err = fmt.Errorf("runtime: asking those who sample for %s: %d blocks, of which the first is of other rows", want, len(k))
			}
		})
	}
	for at, next := 0, 0; at < len(nodes); at += size {
		for ; next < len(nodes) && len(ahead) < rowAsks; next += size {
			ask(next)
		}
		p := ahead[0]
		ahead = ahead[1:]
		<-p.done
		if p.err != nil {
			return p.err
		}
		if err := use(at, &p.batch.Blocks[0]); err != nil {
			return err
		}
		free = append(free, p)
	}
	return nil
}
