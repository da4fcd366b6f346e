//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cuda"
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

// sampled are the blocks of one batch by a plain reading of package sampling: Floyd's
// method over the row of each node, and ids in the order of their first occurrence.
func sampled(g *graph.Graph, fanouts []int, key rng.Key, seeds []uint32) []graph.Block {
	nodes, local := slices.Clone(seeds), map[uint32]uint32{}
	for i, u := range seeds {
		local[u] = uint32(i)
	}
	blocks := make([]graph.Block, len(fanouts))
	for hop, k := range fanouts {
		rows := len(nodes)
		out := graph.Block{NumDst: rows, Indptr: []int64{0}}
		for _, v := range nodes[:rows] {
			begin, d := g.Indptr[v], g.Degree(v)
			var chosen []int64
			for i := range d {
				if k < 0 || d <= k {
					chosen = append(chosen, int64(i))
				}
			}
			if chosen == nil && d > 0 {
				draws := key.With(uint64(hop)).With(uint64(v))
				for i := range k {
					t := int64(draws.Uintn(uint64(i), uint64(d-k+i)+1))
					if slices.Contains(chosen, t) {
						t = int64(d - k + i)
					}
					chosen = append(chosen, t)
				}
			}
			for _, t := range chosen {
				u := g.Indices[begin+t]
				id, known := local[u]
				if !known {
					id = uint32(len(nodes))
					local[u] = id
					nodes = append(nodes, u)
				}
				out.Indices, out.EdgeIDs = append(out.Indices, id), append(out.EdgeIDs, begin+t)
			}
			out.Indptr = append(out.Indptr, int64(len(out.Indices)))
		}
		out.NumSrc = len(nodes)
		blocks[len(fanouts)-1-hop] = out
	}
	for i := range blocks {
		blocks[i].SrcIDs = nodes[:blocks[i].NumSrc]
	}
	return blocks
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
	return h
}

func (b *bench) sameBlocks(what string, got, want []graph.Block) {
	b.t.Helper()
	for i := range want {
		g, w := b.fetch(got[i]), want[i]
		if g.NumDst != w.NumDst || g.NumSrc != w.NumSrc || !slices.Equal(g.Indptr, w.Indptr) || !slices.Equal(g.Indices, w.Indices) || !slices.Equal(g.SrcIDs, w.SrcIDs) ||
			g.EdgeIDs != nil && !slices.Equal(g.EdgeIDs, w.EdgeIDs) {
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
			s := cuda.NewNeighborSampler(b.q, device, fanouts, edgeIDs)
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
				b.sameBlocks(fmt.Sprint("fan-outs ", fanouts, ", batch ", batch), blocks, sampled(g, fanouts, key, seeds))
			}
			s.Close()
		}
	}
	s := cuda.NewNeighborSampler(b.q, device, []int{2}, false)
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
	b.sameBlocks("after errors", blocks, sampled(g, []int{2}, 9, []uint32{5, 6}))
}

// Many batches of one sampler, whose table is cleared by its base alone, but for where
// values would no longer fit: for the nodes, or for a layer's entries.
func TestNeighborSamplerBatches(t *testing.T) {
	b := newBench(t)
	g := b.graphOf(300, 6)
	s := cuda.NewNeighborSampler(b.q, b.q.UploadGraph(g), []int{3, 2}, false)
	defer s.Close()
	for batch := range 300 {
		if past := []uint32{2500, 2000, 1500, 1024, 200, 100}; batch >= 200 && batch < 200+len(past) {
			s.SkipTo(math.MaxUint32 - past[batch-200])
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
		b.sameBlocks(fmt.Sprint("batch ", batch), blocks, sampled(g, []int{3, 2}, key, seeds))
	}
}

// A layer of more entries and new nodes than thread blocks scan at a time.
func TestNeighborSamplerLarge(t *testing.T) {
	b := newBench(t)
	g := b.graphOf(9000, 20)
	s := cuda.NewNeighborSampler(b.q, b.q.UploadGraph(g), []int{6}, false)
	defer s.Close()
	seeds := make([]uint32, 3000)
	for i, u := range b.r.Perm(9000)[:len(seeds)] {
		seeds[i] = uint32(u)
	}
	blocks, err := s.Sample(5, seeds)
	if err != nil {
		t.Fatal(err)
	}
	b.sameBlocks("3000 seeds", blocks, sampled(g, []int{6}, 5, seeds))
}

// A row whose draws take a warp two turns, and a layer for whose nodes the table grows.
func TestNeighborSamplerTable(t *testing.T) {
	b := newBench(t)
	g := b.graphOf(700, 6)
	s := cuda.NewNeighborSampler(b.q, b.q.UploadGraph(g), []int{33, 8}, true)
	defer s.Close()
	seeds := []uint32{5, 0, 1, 699}
	for u := range uint32(24) {
		seeds = append(seeds, 100+u)
	}
	blocks, err := s.Sample(2, seeds)
	if err != nil {
		t.Fatal(err)
	}
	b.sameBlocks("28 seeds", blocks, sampled(g, []int{33, 8}, 2, seeds))
}
