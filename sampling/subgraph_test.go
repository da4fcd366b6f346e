package sampling

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

var subgraphSpecs = []Spec{
	{Name: "node", Layers: 2, Budget: 300},
	{Name: "edge", Layers: 2, Budget: 150},
	{Name: "walk", Layers: 2, Roots: 60, WalkLength: 4},
	{Name: "frontier", Layers: 2, Frontier: 40, Budget: 250},
	{Name: "frontier", Layers: 2, Frontier: 40, Budget: 200, DegreeCap: 5, Distinct: true, Clip: 16},
}

// checkInduced compares a subgraph with its definition.
func checkInduced(t *testing.T, g *graph.Graph, b *Batch) {
	t.Helper()
	blk := &b.Blocks[0]
	nodes := blk.SrcIDs
	if blk.NumDst != blk.NumSrc || len(nodes) != blk.NumSrc || !slices.IsSorted(nodes) || len(slices.Compact(slices.Clone(nodes))) != len(nodes) {
		t.Fatalf("the nodes are not a sorted set, or the block is not square")
	}
	for r, v := range nodes {
		var ids []uint32
		var edges []int64
		for i, u := range nodes { // by increasing local id, then by position
			for p := g.Indptr[v]; p < g.Indptr[v+1]; p++ {
				if g.Indices[p] == u {
					ids, edges = append(ids, uint32(i)), append(edges, p)
				}
			}
		}
		begin, end := blk.Indptr[r], blk.Indptr[r+1]
		if !slices.Equal(blk.Indices[begin:end], ids) {
			t.Fatalf("node %d: row %v, want %v", v, blk.Indices[begin:end], ids)
		}
		if blk.EdgeIDs != nil && !slices.Equal(blk.EdgeIDs[begin:end], edges) {
			t.Fatalf("node %d: edges %v, want %v", v, blk.EdgeIDs[begin:end], edges)
		}
	}
}

// shuffled returns g with its rows in random order.
func shuffled(g *graph.Graph) *graph.Graph {
	s := &graph.Graph{Indptr: g.Indptr, Indices: slices.Clone(g.Indices)}
	for v := range g.NumNodes() {
		rng.New(3, uint64(v)).Shuffle(s.InNeighbors(uint32(v)))
	}
	return s
}

func TestInducedSubgraphs(t *testing.T) {
	for _, g := range []*graph.Graph{skewed(400, 60, 1), shuffled(skewed(400, 60, 2)), symmetric(skewed(400, 30, 3))} {
		var train []uint32
		for u := uint32(0); u < 400; u += 3 {
			train = append(train, u)
		}
		for _, spec := range subgraphSpecs {
			spec.EdgeIDs = true
			p, err := Prepare(t.Context(), spec, &graph.Dataset{Graph: g, Train: train}, 1)
			if err != nil {
				t.Fatal(err)
			}
			if !p.ChoosesSeeds() {
				t.Error("a subgraph sampler does not say that it chooses the seeds")
			}
			s := p.NewSampler()
			var b Batch
			for i := range 5 {
				if err := s.Sample(&b, rng.New(1, uint64(i)), nil); err != nil {
					t.Fatal(err)
				}
				checkInduced(t, g, &b)
				if n := b.NumInputs(); n == 0 || spec.Clip > 0 && n%spec.Clip != 0 {
					t.Fatalf("%s: %d nodes", spec.Name, n)
				}
				if len(b.Blocks) != 2 || &b.Blocks[0].Indices[0] != &b.Blocks[1].Indices[0] {
					t.Fatalf("%s: the layers do not share one block", spec.Name)
				}
				want := 0
				for _, u := range b.Inputs() {
					if u%3 == 0 {
						want++
					}
				}
				if len(b.Seeds) != want || len(b.Targets) != want {
					t.Fatalf("%d seeds and %d targets, want %d", len(b.Seeds), len(b.Targets), want)
				}
				for j, r := range b.Targets {
					if b.Inputs()[r] != b.Seeds[j] {
						t.Fatalf("target %d is node %d, its seed %d", r, b.Inputs()[r], b.Seeds[j])
					}
				}
			}
		}
	}
}

func TestSubgraphsSameBits(t *testing.T) {
	g := skewed(2000, 60, 1)
	for _, spec := range subgraphSpecs {
		spec.Normalization = 20
		sameBits(t, mustPrepare(t, spec, g), allNodes(g), 100)
	}
}

// A set without a bit per node gives the same subgraphs.
func TestNodeSetAboveBitsLimit(t *testing.T) {
	g := skewed(2000, 60, 1)
	for _, spec := range subgraphSpecs {
		p := mustPrepare(t, spec, g)
		bits, hash := p.factory().(*subgraphs), p.factory().(*subgraphs)
		hash.set = newNodeSet(2000, 0)
		var a, b Batch
		for i := range 4 {
			if err := bits.Sample(&a, rng.New(uint64(i)), nil); err != nil {
				t.Fatal(err)
			}
			if err := hash.Sample(&b, rng.New(uint64(i)), nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(a.Blocks[0].Indices, b.Blocks[0].Indices) || !slices.Equal(a.Inputs(), b.Inputs()) {
				t.Fatalf("%s: the hash set gives another subgraph than the bits", spec.Name)
			}
		}
	}
}

func TestSubgraphsAllocateNothing(t *testing.T) {
	g := skewed(2000, 60, 1)
	for _, spec := range subgraphSpecs {
		spec.Normalization = 5
		s := mustPrepare(t, spec, g).NewSampler()
		var b Batch
		i := 0
		sample := func() {
			i = (i + 1) % 10
			if err := s.Sample(&b, rng.New(uint64(i)), nil); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			sample()
		}
		if n := testing.AllocsPerRun(20, sample); n != 0 {
			t.Errorf("%s: %v allocations per batch", spec.Name, n)
		}
	}
}

// For other seeds this would fail with probability 1e-4.
func TestAlias(t *testing.T) {
	w := []float64{1, 0, 5, 2, 0.5, 3, 1e-9, 30}
	a := newAlias(nil, len(w), func(i int) float64 { return w[i] })
	const draws = 200000
	counts := make([]int, len(w))
	for i := range uint64(draws) {
		counts[a.draw(7, i)]++
	}
	if counts[1] != 0 || counts[6] > 1 {
		t.Errorf("items of weight 0 and 1e-9 were drawn %d and %d times", counts[1], counts[6])
	}
	var c []int
	var expected []float64
	for i, x := range w {
		if x > 1e-6 {
			c, expected = append(c, counts[i]), append(expected, x/41.5*draws)
		}
	}
	if p := pValue(c, expected, len(c)-1); p < 1e-4 {
		t.Errorf("p = %g", p)
	}
	if newAlias(nil, 3, func(int) float64 { return 0 }) != nil {
		t.Error("a table without weights")
	}
	for _, n := range []int{0, 1, 63, 64, 65, 128, 1000} { // draws works in groups
		all := make([]uint32, n)
		a.draws(all, 7)
		for i, u := range all {
			if u != a.draw(7, uint64(i)) {
				t.Fatalf("draw %d of %d is item %d alone and %d among the others", i, n, a.draw(7, uint64(i)), u)
			}
		}
	}
}

// The first node, or edge, of a subgraph has the distribution that docs/algorithms.md
// §5 states. Over other seeds each would fail with probability 1e-4.
func TestSubgraphDistributions(t *testing.T) {
	g := skewed(60, 25, 4)
	n := g.NumNodes()
	d := func(v int) float64 { return float64(g.Degree(uint32(v))) }
	node := make([]float64, n)
	edge := make(map[[2]uint32]float64)
	for v := range n {
		for _, u := range g.InNeighbors(uint32(v)) {
			node[u] += 1 / (d(v) * d(v))
			edge[[2]uint32{min(u, uint32(v)), max(u, uint32(v))}] += 1/max(1, d(int(u))) + 1/d(v)
		}
	}
	const draws = 100000
	draw := func(g *graph.Graph, spec Spec, each func(set []uint32)) {
		s := mustPrepare(t, spec, g).factory().(*subgraphs)
		for i := range draws {
			s.nodes(ID{}, rng.New(8, uint64(i)))
			each(s.set.nodes)
		}
	}
	check := func(name string, counts []int, weights []float64) {
		total := 0.0
		for _, w := range weights {
			total += w
		}
		var expected []float64
		var seen []int
		for i, w := range weights {
			if w > 0 {
				seen, expected = append(seen, counts[i]), append(expected, w/total*draws)
			} else if counts[i] > 0 {
				t.Errorf("%s: what has no weight was drawn", name)
			}
		}
		counts = seen
		if p := pValue(counts, expected, len(counts)-1); p < 1e-4 {
			t.Errorf("%s: p = %g", name, p)
		}
	}
	nodes := make([]int, n)
	draw(g, Spec{Name: "node", Layers: 1, Budget: 1}, func(set []uint32) { nodes[set[0]]++ })
	check("node", nodes, node)

	pairs := make(map[[2]uint32]int)
	draw(g, Spec{Name: "edge", Layers: 1, Budget: 1}, func(set []uint32) { pairs[[2]uint32{set[0], set[len(set)-1]}]++ })
	var counts []int
	var weights []float64
	for e, w := range edge {
		counts, weights = append(counts, pairs[e]), append(weights, w)
	}
	check("edge", counts, weights)

	both := symmetric(g)
	clear(pairs)
	counts, weights = nil, nil
	draw(both, Spec{Name: "edge", Layers: 1, Budget: 1}, func(set []uint32) { pairs[[2]uint32{set[0], set[1]}]++ })
	for v := range n {
		for _, u := range both.InNeighbors(uint32(v)) {
			if int(u) < v {
				counts = append(counts, pairs[[2]uint32{u, uint32(v)}])
				weights = append(weights, 1/float64(both.Degree(u))+1/float64(both.Degree(uint32(v))))
			}
		}
	}
	check("edge, symmetric", counts, weights)

	// One root, one step: the root is uniform, the step too.
	step := make(map[[2]uint32]float64)
	for v := range n {
		if d(v) == 0 {
			step[[2]uint32{uint32(v), uint32(v)}]++
		}
		for _, u := range g.InNeighbors(uint32(v)) {
			step[[2]uint32{min(u, uint32(v)), max(u, uint32(v))}] += 1 / d(v)
		}
	}
	clear(pairs)
	draw(g, Spec{Name: "walk", Layers: 1, Roots: 1, WalkLength: 1}, func(set []uint32) { pairs[[2]uint32{set[0], set[len(set)-1]}]++ })
	counts, weights = nil, nil
	for e, w := range step {
		counts, weights = append(counts, pairs[e]), append(weights, w)
	}
	check("walk", counts, weights)
}

// Weighted by C_v/C_uv, a row's sum estimates the whole row's, given that the
// node is in the subgraph, and the losses weighted by N/C_v estimate the sum of
// all losses. Both counts and test draws are random: with 2500 of each the
// standard error of the ratio is estimated from the test draws, doubled in
// variance for the counts; 5 standard errors fail with probability 6e-7 a check.
func TestNormalizationIsUnbiased(t *testing.T) {
	g := symmetric(skewed(120, 20, 6))
	x := func(u uint32) float64 { return 1 + float64(u%5) }
	for _, spec := range subgraphSpecs {
		spec.Budget /= 4
		spec.Roots /= 3
		spec.Normalization = 2500
		p := mustPrepare(t, spec, g)
		s := p.NewSampler()
		n := g.NumNodes()
		sum, square, count := make([]float64, n), make([]float64, n), make([]float64, n)
		var loss, loss2, ratio, ratio2 float64
		var b Batch
		const draws = 2500
		for i := range draws {
			if err := s.Sample(&b, rng.New(5, uint64(i)), nil); err != nil {
				t.Fatal(err)
			}
			blk := &b.Blocks[0]
			for r, v := range blk.SrcIDs {
				if g.Degree(v) == 0 {
					continue
				}
				y, size := 0.0, max(1, float64(blk.Indptr[r+1]-blk.Indptr[r]))
				for e := blk.Indptr[r]; e < blk.Indptr[r+1]; e++ {
					y += float64(blk.Weights[e]) * x(blk.SrcIDs[blk.Indices[e]]) / size
				}
				sum[v] += y
				square[v] += y * y
				count[v]++
			}
			total, weight := 0.0, 0.0
			for j, u := range b.Seeds {
				total += float64(b.LossWeights[j]) * x(u)
				weight += float64(b.LossWeights[j])
			}
			loss += total
			loss2 += total * total
			ratio += total / weight
			ratio2 += total / weight * total / weight
		}
		for v := range uint32(n) {
			if count[v] < 200 {
				continue
			}
			want := 0.0
			for _, u := range g.InNeighbors(v) {
				want += x(u) / float64(g.Degree(v))
			}
			mean := sum[v] / count[v]
			sigma := math.Sqrt(2 * (square[v]/count[v] - mean*mean) / count[v])
			// An edge that was seen rarely has an uncertain weight: allow for it.
			if math.Abs(mean-want) > 5*sigma+0.02*want {
				t.Errorf("%s: node %d aggregates to %.3f ± %.3f, want %.3f", spec.Name, v, mean, sigma, want)
			}
		}
		want, reached := 0.0, 0.0
		for v := range n {
			// Isolated nodes are reached by some samplers only.
			if p.norm.loss[v] < 10*2500 {
				want += x(uint32(v))
				reached++
			}
		}
		mean := loss / draws
		sigma := math.Sqrt(2 * (loss2/draws - mean*mean) / draws)
		if math.Abs(mean-want) > 5*sigma+0.01*want {
			t.Errorf("%s: the losses sum to %.1f ± %.1f, want %.1f", spec.Name, mean, sigma, want)
		}
		// What a step follows is the batch's loss divided by the batch's weight. That
		// is no unbiased estimate of the mean, but a consistent one, and varies less.
		mean /= reached
		sigma = math.Sqrt(loss2/draws-loss*loss/(draws*draws)) / reached
		r := ratio / draws
		spread := math.Sqrt(ratio2/draws - r*r)
		t.Logf("%s: mean loss %.4f; by sum %.4f, standard deviation %.4f; by ratio %.4f, standard deviation %.4f", spec.Name, want/reached, mean, sigma, r, spread)
		if spread > sigma || math.Abs(r*reached/want-1) > 0.01 {
			t.Errorf("%s: the ratio of loss and weight is %.4f with standard deviation %.4f, the mean loss %.4f, and the sum's deviation %.4f", spec.Name, r, spread, want/reached, sigma)
		}
	}
}

func TestSubgraphErrors(t *testing.T) {
	g := skewed(100, 10, 3)
	lonely := fromRows(nil, nil, nil)
	for _, c := range []struct {
		spec Spec
		g    *graph.Graph
		want string
	}{
		{Spec{Name: "node", Layers: 1}, g, "budget: node needs it"},
		{Spec{Name: "edge", Fanouts: []int{3}, Budget: 1}, g, "give the number of layers"},
		{Spec{Name: "walk", Layers: 1, Roots: 2}, g, "walk-length: walk needs it"},
		{Spec{Name: "walk", Layers: 1, Roots: 2, WalkLength: 2}, fromRows(), "no nodes"},
		{Spec{Name: "frontier", Layers: 1, Budget: 2}, g, "frontier: frontier needs it"},
		{Spec{Name: "frontier", Layers: 1, Budget: 2, Frontier: 1, DegreeCap: -1}, g, "degree-cap=-1"},
		{Spec{Name: "frontier", Layers: 1, Budget: 2, Frontier: 1}, lonely, "no node has a neighbour"},
		{Spec{Name: "node", Layers: 1, Budget: 2, Clip: -1}, g, "clip=-1: it takes"},
	} {
		if _, err := New(t.Context(), c.spec, c.g); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v, want one with %q", c.spec, err, c.want)
		}
	}
	// Samplers of edges find none.
	var b Batch
	for _, spec := range []Spec{{Name: "edge", Layers: 1, Budget: 5}, {Name: "walk", Layers: 1, Roots: 2, WalkLength: 2}} {
		s, err := New(t.Context(), spec, lonely)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Sample(&b, 1, nil); err != nil || b.NumEdges() != 0 {
			t.Errorf("%s: %d edges, error %v", spec.Name, b.NumEdges(), err)
		}
	}
}

func BenchmarkSubgraph(b *testing.B) {
	g := loadBenchGraph(b)
	for _, spec := range []Spec{
		{Name: "node", Layers: 3, Budget: 8000},
		{Name: "edge", Layers: 3, Budget: 4000},
		{Name: "walk", Layers: 3, Roots: 2000, WalkLength: 4},
		{Name: "frontier", Layers: 3, Frontier: 1000, Budget: 8000},
	} {
		p := mustPrepare(b, spec, g)
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", spec.Name, threads), func(b *testing.B) {
				benchSampler(b, p, benchSeeds(g), 1024, threads)
			})
		}
	}
}
