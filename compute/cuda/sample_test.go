//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// graphOf returns a graph of n nodes: some without edges, two that most point to, and
// one with an edge to every node.
func (b *bench) graphOf(n, degree int) *graph.Graph {
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	for v := range n {
		d := b.r.IntN(2*degree + 1)
		switch v {
		case 0:
			d = n
		case 1:
			d = 0
		}
		for i := range d {
			u := b.r.IntN(n)
			if v == 0 {
				u = i
			} else if b.r.IntN(3) == 0 {
				u %= 2
			}
			g.Indices = append(g.Indices, uint32(u))
		}
		g.Indptr[v+1] = int64(len(g.Indices))
	}
	return g
}

// exponential is sampling's.
func exponential(bits uint64) float64 {
	x := math.Float64bits((float64(bits>>12) + 0.5) * 0x1p-52)
	e, m := int(x>>52)-1023, math.Float64frombits(x&(1<<52-1)|1023<<52)
	if m > math.Sqrt2 {
		m, e = m*0.5, e+1
	}
	f := m - 1
	s := f / (2 + f)
	s2 := s * s
	s4 := s2 * s2
	t1 := s2 * (0.6666666666666735130 + float64(s4*(0.2857142874366239149+float64(s4*(0.1818357216161805012+float64(s4*0.1479819860511658591))))))
	t2 := s4 * (0.3999999999940941908 + float64(s4*(0.2222219843214978396+float64(s4*0.1531383769920937332))))
	half := float64(0.5 * f * f)
	return -(float64(float64(e)*math.Ln2) - (float64(half-float64(s*float64(half+float64(t1+t2)))) - f))
}

// plainSampler draws a row's edges, with their weights, by a plain reading of package sampling.
type plainSampler struct {
	devices.Sampling
	g      *graph.Graph
	indptr []int64 // of the cache
	cached []uint64
}

// floyd returns k of d.
func floyd(key rng.Key, k, d int) (chosen []int) {
	for i := range min(k, d) {
		t := i
		if k < d {
			if t = int(key.Uintn(uint64(i), uint64(d-k+i)+1)); slices.Contains(chosen, t) {
				t = d - k + i
			}
		}
		chosen = append(chosen, t)
	}
	return chosen
}

func (w *plainSampler) row(key rng.Key, v uint32, k int, only bool) (chosen []int, weights []float32) {
	d := w.g.Degree(v)
	all := d
	if k >= 0 {
		all = min(k, d)
	}
	switch {
	case w.Cached && (only || all < d):
		cached := w.cached[w.indptr[v]:w.indptr[v+1]]
		in := map[int]bool{}
		for _, c := range cached {
			in[int(uint32(c))] = true
		}
		n := all
		if only {
			if n = len(cached); k >= 0 {
				n = min(k, n)
			}
		}
		for _, i := range floyd(key.With(0), min(n, len(cached)), len(cached)) {
			chosen = append(chosen, int(uint32(cached[i])))
			weight := float32(1)
			if only || len(cached) >= n {
				weight = float32(len(cached)) / float32(n) * math.Float32frombits(uint32(cached[i]>>32))
			}
			weights = append(weights, weight)
		}
		if rest := n - len(cached); rest > 0 {
			var others []int
			for i := range d {
				if !in[i] {
					others = append(others, i)
				}
			}
			for _, i := range floyd(key.With(1), rest, len(others)) {
				chosen, weights = append(chosen, others[i]), append(weights, float32(float64(len(others))/float64(rest)))
			}
		}
		total := float64(d)
		if !w.ByDegree {
			total = 0
			for _, x := range weights {
				total += float64(x)
			}
		}
		for i := range weights {
			weights[i] = float32(float64(weights[i]) * (float64(len(weights)) / total))
		}
		return chosen, weights
	case w.Weighted:
		keys := make([]float64, d)
		for i := range d {
			if x := w.g.Weights[w.g.Indptr[v]+int64(i)]; x > 0 {
				keys[i] = exponential(key.Uint64(uint64(i))) / float64(x)
				chosen = append(chosen, i)
			}
		}
		if all < d && len(chosen) > all {
			slices.SortFunc(chosen, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
			chosen = chosen[:all]
			slices.Sort(chosen)
		}
		return chosen, nil
	}
	chosen = floyd(key, all, d)
	if w.Cached {
		for range chosen {
			weights = append(weights, 1)
		}
	}
	return chosen, weights
}

// sampled are the blocks of one batch, with ids in the order of their first occurrence.
func (w *plainSampler) sampled(key rng.Key, seeds []uint32) []graph.Block {
	nodes, local := slices.Clone(seeds), map[uint32]uint32{}
	for i, u := range seeds {
		local[u] = uint32(i)
	}
	blocks := make([]graph.Block, len(w.Fanouts))
	for hop, k := range w.Fanouts {
		rows := len(nodes)
		out := graph.Block{NumDst: rows, Indptr: []int64{0}}
		for _, v := range nodes[:rows] {
			chosen, weights := w.row(key.With(uint64(hop)).With(uint64(v)), v, k, w.Only && hop == len(w.Fanouts)-1)
			for _, t := range chosen {
				e := w.g.Indptr[v] + int64(t)
				u := w.g.Indices[e]
				id, known := local[u]
				if !known {
					id = uint32(len(nodes))
					local[u] = id
					nodes = append(nodes, u)
				}
				out.Indices, out.EdgeIDs = append(out.Indices, id), append(out.EdgeIDs, e)
			}
			out.Weights = append(out.Weights, weights...)
			out.Indptr = append(out.Indptr, int64(len(out.Indices)))
		}
		out.NumSrc = len(nodes)
		blocks[len(w.Fanouts)-1-hop] = out
	}
	for i := range blocks {
		blocks[i].SrcIDs = nodes[:blocks[i].NumSrc]
	}
	return blocks
}

// uniform returns one that draws uniformly.
func uniform(g *graph.Graph, fanouts ...int) *plainSampler {
	return &plainSampler{Sampling: devices.Sampling{Fanouts: fanouts}, g: g}
}

// fetch returns d with its arrays in the host's memory.
func (b *bench) fetch(d graph.Block) graph.Block {
	h := graph.Block{NumDst: d.NumDst, NumSrc: d.NumSrc, Indptr: make([]int64, len(d.Indptr)), Indices: make([]uint32, len(d.Indices)), SrcIDs: make([]uint32, len(d.SrcIDs))}
	cuda.Download(b.q, h.Indptr, d.Indptr)
	cuda.Download(b.q, h.Indices, d.Indices)
	cuda.Download(b.q, h.SrcIDs, d.SrcIDs)
	if d.EdgeIDs != nil {
		h.EdgeIDs = make([]int64, len(d.EdgeIDs))
		cuda.Download(b.q, h.EdgeIDs, d.EdgeIDs)
	}
	if d.Weights != nil {
		h.Weights = make([]float32, len(d.Weights))
		cuda.Download(b.q, h.Weights, d.Weights)
	}
	return h
}

func (b *bench) sameBlocks(what string, got, want []graph.Block) {
	b.t.Helper()
	for i := range want {
		g, w := b.fetch(got[i]), want[i]
		if g.NumDst != w.NumDst || g.NumSrc != w.NumSrc || !slices.Equal(g.Indptr, w.Indptr) || !slices.Equal(g.Indices, w.Indices) || !slices.Equal(g.SrcIDs, w.SrcIDs) ||
			g.EdgeIDs != nil && !slices.Equal(g.EdgeIDs, w.EdgeIDs) || !slices.Equal(g.Weights, w.Weights) {
			b.t.Fatalf("%s: block %d is\n%+v, not\n%+v", what, i, g, w)
		}
	}
}

func TestNeighborSampler(t *testing.T) {
	b := newBench(t)
	g := b.graphOf(1500, 12)
	device := b.q.UploadGraph(g)
	for _, fanouts := range [][]int{{3}, {5, 3}, {-1, 2}, {0, 4}, {40, 1}, {70}, {2, -1, 3}} {
		for _, edgeIDs := range []bool{false, true} {
			s := cuda.NewNeighborSampler(b.q, device, devices.Sampling{Fanouts: fanouts, EdgeIDs: edgeIDs})
			for batch := range 5 {
				seeds := make([]uint32, []int{1, 0, 3, 20, 9}[batch])
				for i, u := range b.r.Perm(g.NumNodes())[:len(seeds)] {
					seeds[i] = uint32(u)
				}
				if batch == 4 {
					seeds[3] = 0
					if i := slices.Index(seeds[4:], 0); i >= 0 {
						seeds[4+i] = 1
					}
				}
				key := rng.New(7, uint64(batch))
				blocks, err := s.Sample(key, seeds)
				if err != nil {
					t.Fatal(err)
				}
				b.sameBlocks(fmt.Sprint("fan-outs ", fanouts, ", batch ", batch), blocks, uniform(g, fanouts...).sampled(key, seeds))
			}
			s.Close()
		}
	}
	s := cuda.NewNeighborSampler(b.q, device, devices.Sampling{Fanouts: []int{2}})
	defer s.Close()
	for want, seeds := range map[string][]uint32{
		"seed 1 is node 1500; it is out of range [0, 1500)":  {3, 1500},
		"seeds 1 and 3 are both node 5; give each node once": {4, 5, 6, 5},
	} {
		if _, err := s.Sample(1, seeds); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("seeds %v: %v, not %q", seeds, err, want)
		}
	}
	blocks, err := s.Sample(9, []uint32{5, 6})
	if err != nil {
		t.Fatal(err)
	}
	b.sameBlocks("after errors", blocks, uniform(g, 2).sampled(9, []uint32{5, 6}))
}

// Many batches of one sampler, whose table is cleared by its base alone, but for where
// values would no longer fit: for the nodes, or for a layer's entries.
func TestNeighborSamplerBatches(t *testing.T) {
	b := newBench(t)
	g := b.graphOf(300, 6)
	s := cuda.NewNeighborSampler(b.q, b.q.UploadGraph(g), devices.Sampling{Fanouts: []int{3, 2}})
	defer s.Close()
	for batch := range 80 {
		if past := []uint32{2500, 2000, 1500, 1024, 200, 100}; batch >= 60 && batch < 60+len(past) {
			s.SkipTo(math.MaxUint32 - past[batch-60])
		}
		key := rng.New(11, uint64(batch))
		seeds := make([]uint32, 8)
		for i, u := range b.r.Perm(300)[:8] {
			seeds[i] = uint32(u)
		}
		blocks, err := s.Sample(key, seeds)
		if err != nil {
			t.Fatal(err)
		}
		b.sameBlocks(fmt.Sprint("batch ", batch), blocks, uniform(g, 3, 2).sampled(key, seeds))
	}
}

// A batch takes no memory of the device and gives none back where there was one as large: for that the driver
// waits for what others compute.
func TestNeighborSamplerKeepsMemory(t *testing.T) {
	d := fakecuda.Use(t)
	b := newBench(t)
	s := cuda.NewNeighborSampler(b.q, b.q.UploadGraph(b.graphOf(300, 6)), devices.Sampling{Fanouts: []int{3, 2}})
	defer s.Close()
	var calls [2]int
	for i := range calls {
		taken, given := d.Count("cuMemAlloc_v2"), d.Count("cuMemFree_v2")
		if _, err := s.Sample(5, []uint32{7, 3, 0, 12}); err != nil {
			t.Fatal(err)
		}
		calls[i] = d.Count("cuMemAlloc_v2") - taken + d.Count("cuMemFree_v2") - given
	}
	if calls[0] == 0 || calls[1] != 0 {
		t.Errorf("memory is taken or given back %d times in two batches that are the same", calls)
	}
}

// Whatever of a batch fails, unless the device is lost, the next one has nothing of it; fan-outs may be
// beyond what kernels count by.
func TestNeighborSamplerFails(t *testing.T) {
	if fakecuda.Real() {
		t.Skip("only the emulated driver does that")
	}
	d := fakecuda.Use(t)
	b := newBench(t)
	g := b.graphOf(2000, 6)
	s := cuda.NewNeighborSampler(b.q, b.q.UploadGraph(g), devices.Sampling{Fanouts: []int{3, 1 << 33}})
	defer s.Close()
	seeds := func(batch int) (ids []uint32) {
		for _, u := range b.r.Perm(2000)[:8+10*batch] {
			ids = append(ids, uint32(u))
		}
		return ids
	}
	for _, c := range []struct {
		call          string
		calls, larger int
	}{{"cuMemAlloc_v2", 3, 30}, {"cuLaunchKernel", 20, 1}} { // memory is taken for batches larger than any before
		for after := range c.calls {
			what := fmt.Sprintf("%s fails after %d others", c.call, after)
			d.Fail(c.call, after, 2)
			err := graph.Guard(func() error {
				_, err := s.Sample(3, seeds(10+c.larger*after))
				return err
			})
			if err == nil || !strings.Contains(err.Error(), c.call) {
				t.Fatalf("%s: %v", what, err)
			}
			ids := seeds(after)
			blocks, err := s.Sample(rng.Key(after), ids)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			b.sameBlocks(what, blocks, uniform(g, 3, -1).sampled(rng.Key(after), ids))
		}
	}
}

// A layer of more entries and new nodes than thread blocks scan at a time.
func TestNeighborSamplerLarge(t *testing.T) {
	b := newBench(t)
	g := b.graphOf(9000, 20)
	s := cuda.NewNeighborSampler(b.q, b.q.UploadGraph(g), devices.Sampling{Fanouts: []int{6}})
	defer s.Close()
	seeds := make([]uint32, 3000)
	for i, u := range b.r.Perm(9000)[:len(seeds)] {
		seeds[i] = uint32(u)
	}
	blocks, err := s.Sample(5, seeds)
	if err != nil {
		t.Fatal(err)
	}
	b.sameBlocks("3000 seeds", blocks, uniform(g, 6).sampled(5, seeds))
}

// Rows whose draws take a warp two turns, and a layer for whose nodes the table grows: drawn
// uniformly, by weights of which some are 0, and with caches.
func TestNeighborSamplerTable(t *testing.T) {
	b := newBench(t)
	g := b.graphOf(700, 6)
	seeds := []uint32{5, 0, 1, 699}
	for u := range uint32(24) {
		seeds = append(seeds, 100+u)
	}
	w := plainSampler{g: g, indptr: []int64{0}}
	for v := range g.NumNodes() {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			g.Weights = append(g.Weights, max(0, b.r.Float32()-0.2)*float32(v%5))
			if g.Indices[e]%3 == 0 {
				w.cached = append(w.cached, uint64(e-g.Indptr[v])|uint64(math.Float32bits(1+b.r.Float32()))<<32)
			}
		}
		w.indptr = append(w.indptr, int64(len(w.cached)))
	}
	device := b.q.UploadGraph(g)
	for _, w.Sampling = range []devices.Sampling{
		{Fanouts: []int{33, 8}, EdgeIDs: true},
		{Fanouts: []int{35, 4}, Weighted: true},
		{Fanouts: []int{5, -1}, Weighted: true, EdgeIDs: true},
		{Fanouts: []int{40, 4}, Cached: true, EdgeIDs: true},
		{Fanouts: []int{300, 2}, Cached: true, ByDegree: true, Only: true},
	} {
		s := cuda.NewNeighborSampler(b.q, device, w.Sampling)
		if w.Cached {
			s.UseCache(w.indptr, w.cached)
		}
		blocks, err := s.Sample(2, seeds)
		if err != nil {
			t.Fatal(err)
		}
		b.sameBlocks(fmt.Sprintf("%+v", w.Sampling), blocks, w.sampled(2, seeds))
		s.Close()
	}
}
