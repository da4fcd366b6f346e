package compute

import (
	"fmt"
	"math"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// denseGCN returns Â of g by the definition, duplicates and self-loops included.
func denseGCN(g *graph.Graph) [][]float64 {
	n := g.NumNodes()
	a := make([][]float64, n)
	for v := range a {
		a[v] = make([]float64, n)
		a[v][v] = 1
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			w := 1.0
			if g.Weights != nil {
				w = float64(g.Weights[e])
			}
			if u := g.Indices[e]; int(u) == v {
				a[v][v] = w // the self-loop keeps its weight; of several the last counts
			} else {
				a[v][u] += w
			}
		}
	}
	d := make([]float64, n)
	for v := range a {
		for _, w := range a[v] {
			d[v] += w
		}
	}
	for v := range a {
		for u := range a[v] {
			a[v][u] /= math.Sqrt(d[v] * d[u])
		}
	}
	return a
}

// TestGCNCoefficients compares the coefficients of blocks with the dense matrix:
// complete rows give Â's own; on sampled rows each sampled neighbour has
// Â·d(v)/|S(v)| times the sampler's weight, and the self-loop is not scaled.
func TestGCNCoefficients(t *testing.T) {
	for _, weighted := range []bool{false, true} {
		g := randomGraph(40, 3, weighted, 12)
		dense := denseGCN(g)
		m := mustModel(t, Spec{Model: "gcn", Layers: 1, InDim: 1, OutDim: 1}, g)
		c := newCore[float64](m, testExec(t, 2, cpu.Go), false)
		for _, fanout := range []int{-2, -1, 2} {
			for _, weights := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%d/%v", weighted, fanout, weights), func(t *testing.T) {
					b := graph.WholeGraph(g)
					if fanout != -2 {
						b = sampleBlocks(g, []uint32{33, 4, 0, 3, 10, 17, 12}, 1, fanout, 2)[0]
					}
					if weights {
						b.Weights = randomMatrix[float32](1, len(b.Indices), 3).Data
					}
					ctx := &c.ctx[0]
					ctx.Block = &b
					w, self := ctx.norm.of(ctx)
					for i := range b.NumDst {
						v := global(&b, uint32(i))
						if math.Abs(self[i]-dense[v][v]) > 1e-6 {
							t.Fatalf("self-loop of %d: %v, want %v", v, self[i], dense[v][v])
						}
						got, want := map[uint32]float64{}, map[uint32]float64{}
						scale := float64(g.Degree(v)) / float64(b.Indptr[i+1]-b.Indptr[i])
						counts := map[uint32]float64{}
						for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
							ew := 1.0
							if g.Weights != nil {
								ew = float64(g.Weights[e])
							}
							counts[g.Indices[e]] += ew
						}
						for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
							u := global(&b, b.Indices[e])
							got[u] += w[e]
							if u == v {
								continue
							}
							share := 1.0 // of the pair's coefficient that this edge has
							if g.Weights == nil {
								share /= counts[u]
							} else {
								id := e
								if b.EdgeIDs != nil {
									id = b.EdgeIDs[e]
								}
								share = float64(g.Weights[id]) / counts[u]
							}
							f := dense[v][u] * share * scale
							if b.Weights != nil {
								f *= float64(b.Weights[e])
							}
							want[u] += f
						}
						for u, x := range got {
							if math.Abs(x-want[u]) > 1e-6 {
								t.Fatalf("coefficient of %d for %d: %v, want %v", u, v, x, want[u])
							}
						}
					}
				})
			}
		}
	}
}

// TestGCNNormOfNonPositiveDegrees checks that a node whose weights do
// not sum to something positive gets coefficient 0, not NaN.
func TestGCNNormOfNonPositiveDegrees(t *testing.T) {
	g := &graph.Graph{Indptr: []int64{0, 1, 2}, Indices: []uint32{1, 0}, Weights: []float32{-1, -3}}
	norm := newGCNNorm(g)
	if norm.invSqrt[0] != 0 || norm.invSqrt[1] != 0 {
		t.Errorf("got %v, want zeros", norm.invSqrt)
	}
}

// TestGCNBlockCoefficients compares the coefficients from a block's own degrees
// with the dense matrix of the graph that has the block's entries alone.
func TestGCNBlockCoefficients(t *testing.T) {
	for _, weighted := range []bool{false, true} {
		g := randomGraph(40, 3, weighted, 12)
		b := sampleBlocks(g, []uint32{33, 4, 0, 3, 10, 17, 12}, 1, 2, 2)[0]
		own := &graph.Graph{Indptr: make([]int64, b.NumSrc+1), Indices: b.Indices}
		for i := range b.NumSrc {
			own.Indptr[i+1] = int64(len(b.Indices))
			if i < b.NumDst {
				own.Indptr[i+1] = b.Indptr[i+1]
			}
		}
		if weighted {
			for _, e := range b.EdgeIDs {
				own.Weights = append(own.Weights, g.Weights[e])
			}
		}
		dense := denseGCN(own)
		m := mustModel(t, Spec{Model: "gcn", Layers: 1, InDim: 1, OutDim: 1, GCNNorm: "block"}, g)
		ctx := &newCore[float64](m, testExec(t, 2, cpu.Go), false).ctx[0]
		ctx.Block = &b
		w, self := ctx.norm.of(ctx)
		for i := range b.NumDst {
			got := make([]float64, b.NumSrc)
			got[i] = self[i]
			for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
				got[b.Indices[e]] += w[e]
			}
			for u := range got {
				if math.Abs(got[u]-dense[i][u]) > 1e-6 {
					t.Fatalf("weights %v: coefficient of %d for %d is %v, want %v", weighted, u, i, got[u], dense[i][u])
				}
			}
		}
	}
}
