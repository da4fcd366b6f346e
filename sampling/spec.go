package sampling

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// Spec describes a sampler. It is part of a run's identity: two runs with
// different specs give different results. A field that the named sampler does
// not use is left at its zero value.
type Spec struct {
	Name    string `json:"name" yaml:"name"`                           // one of Names, but for PrepareOwn
	Version string `json:"version,omitempty" yaml:"-"`                 // of what PrepareOwn readies
	Fanouts []int  `json:"fanouts,omitempty" yaml:"fanouts,omitempty"` // per layer, from the seeds outward: neighbours of a node (-1: all), or the layer's nodes for "fastgcn" and "ladies"
	Layers  int    `json:"layers,omitempty" yaml:"layers,omitempty"`   // blocks of a batch; 0: len(Fanouts)
	EdgeIDs bool   `json:"edge-ids,omitempty" yaml:"edge-ids,omitempty"`
	// Inductive has the sampler see the training nodes and the edges between them, and
	// nothing else of the graph: see Prepared.Dataset.
	Inductive bool `json:"inductive,omitempty" yaml:"inductive,omitempty"`

	// Weighted has "neighbor" choose edges in proportion to their weights.
	Weighted bool `json:"weighted,omitempty" yaml:"weighted,omitempty"`
	// Replace has "neighbor" draw with replacement.
	Replace bool `json:"replace,omitempty" yaml:"replace,omitempty"`
	// Temporal has "neighbor" and "khop" use no edge newer than the seed; the data
	// set must have times, or Prepare WithTimes.
	Temporal bool `json:"temporal,omitempty" yaml:"temporal,omitempty"`
	// Dependency is over how many consecutive batches "labor" keeps its random
	// numbers; 0 and 1: each batch has its own.
	Dependency int `json:"dependency,omitempty" yaml:"dependency,omitempty"`

	// MiniBatch is how many seeds of a mega-batch "lazy" trains on in a step. MegaBatch is
	// how many seeds a mega-batch has; 0: Recycle mini-batches. Recycle is for how many steps
	// the first mega-batch serves, 0: 2; RecycleGrowth is by what this grows from each to the
	// next, at least 1, 0: 1.1.
	MiniBatch     int     `json:"mini-batch,omitempty" yaml:"mini-batch,omitempty"`
	MegaBatch     int     `json:"mega-batch,omitempty" yaml:"mega-batch,omitempty"`
	Recycle       int     `json:"recycle,omitempty" yaml:"recycle,omitempty"`
	RecycleGrowth float64 `json:"recycle-growth,omitempty" yaml:"recycle-growth,omitempty"`

	// CacheFraction is the share of nodes that "gns" caches; 0: 0.01.
	CacheFraction float64 `json:"cache-fraction,omitempty" yaml:"cache-fraction,omitempty"`
	// CachePeriod is for how many epochs a cache is used; 0: 1.
	CachePeriod int `json:"cache-period,omitempty" yaml:"cache-period,omitempty"`
	// CacheBy is what the chance to be cached follows: "degree", or "walks"
	// from the training nodes when those are few; empty: degree.
	CacheBy string `json:"cache-by,omitempty" yaml:"cache-by,omitempty"`
	// CacheOnly has the input layer take cached neighbours only.
	CacheOnly bool `json:"cache-only,omitempty" yaml:"cache-only,omitempty"`
	// CacheApproximate takes the source's formula (Dong et al., eq. 13) for the
	// chance to be cached, which is for drawing with replacement.
	CacheApproximate bool `json:"cache-approximate,omitempty" yaml:"cache-approximate,omitempty"`
	// Normalize is what importance weights are divided by: "sum", their sum over
	// the row, or "degree"; empty: sum. By degree a row that takes cached neighbours
	// only (CacheOnly) is unbiased over caches and draws, if every neighbour can be
	// cached and CacheApproximate is off. A row of more neighbours than the fan-out,
	// but fewer cached, is unbiased either way. All others are biased: in a test with
	// a fan-out of 4, a fifth of the nodes cached, and features that follow popularity
	// by up to 5 % by degree, and up to 16 % by sum, which varies less; on three graphs
	// by less by sum (docs/benchmarks.md).
	Normalize string `json:"normalize,omitempty" yaml:"normalize,omitempty"`

	// Budget is the number of nodes that "node" draws, of edges that "edge"
	// draws, and of pops of "frontier".
	Budget int `json:"budget,omitempty" yaml:"budget,omitempty"`
	// Roots is the number of walks of "walk", Walks that of the walks "pinsage"
	// runs from each node, WalkLength their steps, Restart the probability that
	// a step of "pinsage" goes back to where the walk began.
	Roots      int     `json:"roots,omitempty" yaml:"roots,omitempty"`
	Walks      int     `json:"walks,omitempty" yaml:"walks,omitempty"`
	WalkLength int     `json:"walk-length,omitempty" yaml:"walk-length,omitempty"`
	Restart    float64 `json:"restart,omitempty" yaml:"restart,omitempty"`
	// Frontier is the number of nodes on the frontier; DegreeCap bounds what a
	// node weighs there, 0: 256; Distinct has the budget count distinct nodes.
	Frontier  int  `json:"frontier,omitempty" yaml:"frontier,omitempty"`
	DegreeCap int  `json:"degree-cap,omitempty" yaml:"degree-cap,omitempty"`
	Distinct  bool `json:"distinct,omitempty" yaml:"distinct,omitempty"`
	// EpochSubgraphs is how many subgraphs an epoch of "node", "edge", "walk" and
	// "frontier" has. Prepare fills it in where it is 0: as many as have, by the mean of
	// the subgraphs that are sampled beforehand, as many nodes as there are to draw from.
	EpochSubgraphs int `json:"epoch-subgraphs,omitempty" yaml:"epoch-subgraphs,omitempty"`
	// Normalization is the number of subgraphs that are sampled beforehand to
	// estimate how often nodes and edges occur (GraphSAINT); 0: no weights. But for
	// the error of those estimates, a row's weighted sum is then unbiased given that
	// its node is in the subgraph (where weights are not capped), and so is the sum
	// of the weighted losses over the nodes that can be drawn. What a step follows is
	// that sum divided by the batch's sum of weights: it varies less, and is biased,
	// by less than 1 % on graphs of a hundred nodes.
	Normalization int `json:"normalization,omitempty" yaml:"normalization,omitempty"`
	// Clusters is into how many clusters "cluster" divides the graph, by
	// PartitionBy, one of partition.Methods. A partition that is saved with the data
	// set and is of this kind is used; else one is computed. Empty and 0 mean any
	// saved one; empty, where one is computed, metis. PerBatch is how many of
	// them make a batch, 0: 1. Boundary has targets see their neighbours outside
	// of the batch's clusters too.
	Clusters    int    `json:"clusters,omitempty" yaml:"clusters,omitempty"`
	PartitionBy string `json:"partition-by,omitempty" yaml:"partition-by,omitempty"`
	PerBatch    int    `json:"per-batch,omitempty" yaml:"per-batch,omitempty"`
	// PartitionSHA256 is of the clusters of all nodes, 4 bytes each, little-endian.
	// Prepare fills it in; given, it refuses another partition.
	PartitionSHA256 string `json:"partition-sha256,omitempty" yaml:"partition-sha256,omitempty"`
	Boundary        bool   `json:"boundary,omitempty" yaml:"boundary,omitempty"`
	// Clip has subgraphs drop random nodes down to a multiple of it; 0: none.
	Clip int `json:"clip,omitempty" yaml:"clip,omitempty"`
}

// samplers lists each sampler's preparation and the settings of Spec that it reads
// besides Name, Fanouts, Layers, EdgeIDs and Inductive, in the order that Names lists.
var samplers = []struct {
	name    string
	prepare func(p *Prepared, stop *interrupt.Poll) error
	reads   []string
}{
	{"full", prepareFull, nil},
	{"khop", prepareKHop, []string{"temporal"}},
	{"neighbor", prepareNeighbor, []string{"weighted", "replace", "temporal"}},
	{"labor", prepareLabor, []string{"dependency"}},
	{"pinsage", preparePinSAGE, []string{"walks", "walk-length", "restart"}},
	{"fastgcn", prepareFastGCN, nil},
	{"ladies", prepareLadies, nil},
	{"lazy", prepareLazy, []string{"mini-batch", "mega-batch", "recycle", "recycle-growth"}},
	{"gns", prepareGNS, []string{"cache-fraction", "cache-period", "cache-by", "cache-only", "cache-approximate", "normalize"}},
	{"node", prepareNode, []string{"budget", "epoch-subgraphs", "normalization", "clip"}},
	{"edge", prepareEdge, []string{"budget", "epoch-subgraphs", "normalization", "clip"}},
	{"walk", prepareWalk, []string{"roots", "walk-length", "epoch-subgraphs", "normalization", "clip"}},
	{"frontier", prepareFrontier, []string{"frontier", "budget", "degree-cap", "distinct", "epoch-subgraphs", "normalization", "clip"}},
	{"cluster", prepareCluster, []string{"clusters", "per-batch", "partition-by", "partition-sha256", "boundary", "normalization", "clip"}},
}

// Reads returns the names, as in YAML, of the settings of Spec that the sampler of
// the given name reads besides those that all do; nil for an unknown one.
func Reads(name string) []string {
	for _, s := range samplers {
		if s.name == name {
			return s.reads
		}
	}
	return nil
}

// Names returns the names of the samplers.
func Names() []string {
	names := make([]string, len(samplers))
	for i, s := range samplers {
		names[i] = s.name
	}
	return names
}

// Depth returns the number of blocks of a batch.
func (s Spec) Depth() int {
	if s.Layers > 0 {
		return s.Layers
	}
	return len(s.Fanouts)
}

// BatchSize returns the size of a global batch when size is asked for and
// there are n seeds: for "full", which trains on all of them at once, n.
func (s Spec) BatchSize(size, n int) int {
	if s.Name == "full" {
		return max(n, 1)
	}
	return size
}

// Validate reports the problems of s, with their remedies, in one error.
func (s Spec) Validate() error {
	if !slices.Contains(Names(), s.Name) {
		return fmt.Errorf("sampling: there is no sampler %q; choose one of %s", s.Name, strings.Join(Names(), ", "))
	}
	var bad []string
	for i, k := range s.Fanouts {
		if k < 1 && k != -1 {
			bad = append(bad, fmt.Sprintf("fan-out %d is %d; it must be at least 1, or -1 for all neighbours", i+1, k))
		}
	}
	if unread := s.unread(); unread != nil {
		which := "no settings of its own"
		if reads := Reads(s.Name); reads != nil {
			which = strings.Join(reads, ", ")
		}
		bad = append(bad, fmt.Sprintf("%s does not read %s (it has %s); leave them out, or choose another sampler", s.Name, strings.Join(unread, ", "), which))
	}
	bad = append(bad, s.misgiven()...)
	if s.Layers < 0 {
		bad = append(bad, fmt.Sprintf("layers is %d; it must be at least 1", s.Layers))
	} else if s.Depth() == 0 {
		bad = append(bad, s.Name+" needs the number of layers")
	}
	if bad != nil {
		return fmt.Errorf("sampling: %s", strings.Join(bad, "; "))
	}
	return nil
}

// unread returns the settings that are not at their zero values and that the
// sampler does not read: they would be part of a run's identity and change nothing.
func (s Spec) unread() (names []string) {
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch name {
		case "name", "fanouts", "layers", "edge-ids", "inductive": // of all samplers
			continue
		}
		if !v.Field(i).IsZero() && !slices.Contains(Reads(s.Name), name) {
			names = append(names, name)
		}
	}
	return names
}

// Prepared is a sampler made ready for a graph. It is read-only and may be
// shared by any number of goroutines, each with its own Sampler.
type Prepared struct {
	spec    Spec
	seed    uint64
	given   *graph.Dataset
	data    *graph.Dataset // what the sampler sees of it
	g       *graph.Graph   // of data
	visible []uint32       // the nodes that it sees, in increasing order; nil: all
	factory func() Sampler
	caches  *Caches
	mega    *megaBatches
	times   *Times

	ownSeeds bool     // the sampler chooses the batch's seeds itself
	train    []uint64 // one bit per node: it may be such a seed; nil: all
	norm     *normalization

	partition []uint32
	batches   int // in an epoch; 0: as the seeds make them

	told *Facts // of who prepared it in another process
	rows *Rows  // whose graph g is; nil: a whole one

	// Of a divided graph, of which g has the size alone:
	here     *Drawers // those of the rows that are here, which know the columns; nil: it is whole
	draw     func(context.Context, []Ask, []Answer) error
	table    []uint16 // owner of every pieces.Border nodes
	weighted bool     // its edges have weights
}

// Prepare readies the sampler that spec describes: what is computed once per
// graph is computed here. seed keys the draws that preparation makes. ds is
// not changed, and must not be while the result is in use. When ctx ends first, the error
// wraps its cause.
func Prepare(ctx context.Context, spec Spec, ds *graph.Dataset, seed uint64, options ...Option) (*Prepared, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if ds == nil || ds.Graph == nil || len(ds.Graph.Indptr) == 0 {
		return nil, fmt.Errorf("sampling: %s needs a graph, and there is none", spec.Name)
	}
	p := &Prepared{spec: spec, seed: seed, given: ds, data: ds, g: ds.Graph}
	for _, o := range options {
		o(p)
	}
	stop := interrupt.New(ctx)
	if err := p.see(stop); err != nil {
		return nil, err
	}
	return p, p.prepare(stop)
}

// prepare readies p for its spec, which is valid, and its graph.
func (p *Prepared) prepare(stop *interrupt.Poll) error {
	for _, s := range samplers {
		if s.name == p.spec.Name {
			err := graph.Guard(func() error { return s.prepare(p, stop) })
			if over := stop.Err(); over != nil { // err may come of what was left half made
				err = over
			}
			if err != nil {
				return fmt.Errorf("sampling: %s: %w", p.spec.Name, err)
			}
		}
	}
	return nil
}

// see readies what the sampler sees of the data.
func (p *Prepared) see(stop *interrupt.Poll) error {
	if !p.spec.Inductive {
		return nil
	}
	if err := graph.Guard(func() error { return p.restrict(stop) }); err != nil {
		return fmt.Errorf("sampling: %w", err)
	}
	return nil
}

// Spec returns what p was prepared from.
func (p *Prepared) Spec() Spec { return p.spec }

// Dataset returns the data that p's batches refer to: what Prepare was given, or with
// Spec.Inductive a copy of it whose edges, with their features, weights and times, are
// those between training nodes. Ids of nodes are the same in both, those of edges not.
func (p *Prepared) Dataset() *graph.Dataset { return p.data }

// NewSampler returns a sampler over p's graph; it is cheap, and its scratch
// memory grows to what its largest batch needs.
func (p *Prepared) NewSampler() Sampler { return &guarded{p.factory(), uint32(p.g.NumNodes())} }

// ChoosesSeeds reports whether the sampler chooses each batch's seeds itself, as
// subgraph samplers do: the seeds given to Sample are not used.
func (p *Prepared) ChoosesSeeds() bool { return p.ownSeeds }

// BatchesPerEpoch returns how many global batches an epoch has that trains on n nodes
// with the given batch size, each cut into micro parts: as many as Cut makes, one for
// "full", and of samplers that choose the seeds as many as visit every cluster once, or
// as Spec.EpochSubgraphs makes, a micro-batch being a subgraph.
func (p *Prepared) BatchesPerEpoch(n, batchSize, micro int) int {
	switch {
	case p.batches > 0:
		return p.batches
	case p.spec.EpochSubgraphs > 0:
		return NumBatches(p.spec.EpochSubgraphs, max(micro, 1))
	}
	return NumBatches(n, p.spec.BatchSize(batchSize, n))
}

// Caches returns the caches of "gns", nil for other samplers.
func (p *Prepared) Caches() *Caches { return p.caches }

// New returns a sampler over g alone: Prepare and NewSampler in one step, for
// one goroutine and samplers that need no data set.
func New(ctx context.Context, spec Spec, g *graph.Graph) (Sampler, error) {
	p, err := Prepare(ctx, spec, &graph.Dataset{Graph: g}, 0)
	if err != nil {
		return nil, err
	}
	return p.NewSampler(), nil
}

// edgeIDs reports whether blocks list the edges' positions: asked for, or
// needed to look up edge weights.
func (p *Prepared) edgeIDs() bool { return p.spec.EdgeIDs || p.g.Weights != nil || p.weighted }
