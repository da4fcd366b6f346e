package sampling

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// No block of an inductive sampler has a node outside of the training set, whatever the
// sampler draws; and its edges, with what belongs to them, are the graph's between
// training nodes.
func TestInductive(t *testing.T) {
	const n = 600
	g := skewed(n, 40, 1)
	g.Weights = make([]float32, g.NumEdges())
	times := Times{Node: make([]int64, n), Edge: make([]int64, g.NumEdges())}
	features := &graph.Features{Rows: len(g.Indices), Cols: 1, DType: graph.Float32, Stride: 8, Data: make([]byte, 8*len(g.Indices)), RowScale: g.Weights}
	for e := range g.Weights {
		g.Weights[e] = float32(1 + e)
		times.Edge[e] = int64(e % 5)
		binary.LittleEndian.PutUint32(features.Data[8*e:], math.Float32bits(float32(e)))
	}
	for v := range times.Node {
		times.Node[v] = 4
	}
	var train []uint32
	for u := uint32(2); u < n; u += 3 {
		train = append(train, u)
	}
	slices.Reverse(train)
	ds := &graph.Dataset{Graph: g, Train: train, EdgeFeatures: features, EdgeTimes: times.Edge, NodeTimes: times.Node}
	for _, spec := range everySpec() {
		spec.Inductive, spec.EdgeIDs = true, spec.Name != "pinsage"
		given := ds
		if !spec.EdgeIDs { // pinsage does without weights
			bare := *ds
			bare.Graph = &graph.Graph{Indptr: g.Indptr, Indices: g.Indices}
			given = &bare
		}
		p, err := Prepare(t.Context(), spec, given, 1, WithTimes(times))
		if err != nil {
			t.Fatalf("%+v: %v", spec, err)
		}
		seen := p.Dataset()
		s := p.NewSampler()
		nodes := 0
		for i := range 20 {
			b := &Batch{ID: ID{Phase: "train", Epoch: i / 10, Batch: i % 10}}
			if err := s.Sample(b, b.ID.Key(1), Cut(Order(train, 1, i/10), 20, 1, i%10, 0)); err != nil {
				t.Fatalf("%+v: %v", spec, err)
			}
			checkSizes(t, seen.Graph, b, spec)
			for k := range b.Blocks {
				if len(b.Blocks[k].SrcIDs) != b.Blocks[k].NumSrc {
					t.Fatalf("%+v: block %d does not list its nodes", spec, k)
				}
				for _, u := range b.Blocks[k].SrcIDs {
					if u%3 != 2 {
						t.Fatalf("%+v: block %d has node %d, which is not a training node", spec, k, u)
					}
				}
			}
			nodes += b.NumInputs()
		}
		if nodes == 0 {
			t.Errorf("%+v: no nodes at all", spec)
		}
		if c := p.Caches(); c != nil && slices.ContainsFunc(c.At(0).Nodes, func(u uint32) bool { return u%3 != 2 }) {
			t.Errorf("%+v: the cache has nodes that are not training nodes", spec)
		}
	}
	p, err := Prepare(t.Context(), Spec{Name: "khop", Layers: 1, Inductive: true}, ds, 1)
	if err != nil {
		t.Fatal(err)
	}
	seen := p.Dataset()
	kept, row := 0, make([]float32, 1)
	for v := range uint32(n) {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			if v%3 != 2 || g.Indices[e]%3 != 2 {
				continue
			}
			seen.EdgeFeatures.Row(row, kept)
			if kept >= int(seen.Graph.Indptr[v+1]) || seen.Graph.Indices[kept] != g.Indices[e] || seen.Graph.Weights[kept] != g.Weights[e] ||
				seen.EdgeTimes[kept] != times.Edge[e] || row[0] != float32(e) || seen.EdgeFeatures.RowScale[kept] != g.Weights[e] {
				t.Fatalf("edge %d into %d is not the %d-th between training nodes", e, v, kept)
			}
			kept++
		}
	}
	small := p.compact()
	for i := range small.NumNodes() {
		var row []uint32
		for _, u := range small.InNeighbors(uint32(i)) {
			row = append(row, p.node(int(u)))
		}
		if !slices.Equal(row, seen.Graph.InNeighbors(p.node(i))) {
			t.Fatalf("node %d has the neighbours %v in the graph of training nodes alone, want %v", p.node(i), row, seen.Graph.InNeighbors(p.node(i)))
		}
	}
	if kept == 0 || small.NumNodes() != len(train) || kept != int(seen.Graph.NumEdges()) || kept != seen.EdgeFeatures.Rows {
		t.Errorf("%d edges are kept, want %d", seen.Graph.NumEdges(), kept)
	}
	if _, err := Prepare(t.Context(), Spec{Name: "khop", Layers: 1, Inductive: true}, &graph.Dataset{Graph: g}, 1); err == nil {
		t.Error("inductive sampling of data without training nodes is not refused")
	}
}

// An epoch has as many subgraphs as cover the nodes by the mean of those sampled
// beforehand, micro-batches being subgraphs; of inductive sampling the training nodes.
func TestEpochOfSubgraphs(t *testing.T) {
	g := skewed(2000, 60, 1)
	train := allNodes(g)[:700]
	for _, spec := range subgraphSpecs {
		if spec.Name == "walk" { // small ones: the epoch's length follows closely what the mean is
			spec.Roots = 5
		} else {
			spec.Budget, spec.Frontier, spec.Clip = 20, min(spec.Frontier, 5), 0
		}
		for _, c := range []struct {
			normalization, first int
			inductive            bool
		}{{0, measured, false}, {7, 7, false}, {0, measured, true}} {
			spec.Normalization, spec.Inductive = c.normalization, c.inductive
			p, err := Prepare(t.Context(), spec, &graph.Dataset{Graph: g, Train: train}, 3)
			if err != nil {
				t.Fatal(err)
			}
			total, s := 0, p.NewSampler()
			for i := range c.first {
				var b Batch
				if err := s.Sample(&b, rng.New(3, purposeNorm, uint64(i)), nil); err != nil {
					t.Fatal(err)
				}
				total += b.NumInputs()
			}
			nodes := g.NumNodes()
			if c.inductive {
				nodes = len(train)
			}
			want := (nodes*c.first + total - 1) / total
			if got := p.Spec().EpochSubgraphs; got != want || p.BatchesPerEpoch(5, 1, 1) != want || p.BatchesPerEpoch(5, 1, 3) != (want+2)/3 {
				t.Errorf("%+v: an epoch has %d subgraphs in %d and, three a batch, %d batches; want %d", spec, got, p.BatchesPerEpoch(5, 1, 1), p.BatchesPerEpoch(5, 1, 3), want)
			}
		}
		spec.Inductive, spec.EpochSubgraphs = false, 5
		if p := mustPrepare(t, spec, g); p.Spec().EpochSubgraphs != 5 || p.BatchesPerEpoch(100, 10, 1) != 5 {
			t.Errorf("%s: an epoch has %d subgraphs, want the 5 asked for", spec.Name, p.BatchesPerEpoch(100, 10, 1))
		}
	}
}
