package compute

import (
	"math"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// TestSampledSumsAreUnbiased averages the aggregated input features of one layer
// over samples of fan-out 2 and compares with the whole graph: each mean is
// within 5 standard errors. With 12 nodes of 2 columns, the chance of a false
// alarm is about 1e-5 per model, and the seeds are fixed.
func TestSampledSumsAreUnbiased(t *testing.T) {
	g := randomGraph(60, 4, true, 9)
	x := randomMatrix[float64](60, 2, 3)
	seeds := []uint32{0, 1, 2, 3, 10, 16, 17, 24, 31, 38, 45, 52}
	for name, spec := range map[string]Spec{
		"gcn":  {Model: "gcn"},
		"sage": {Model: "sage"},
		"sum":  {Model: "sage", Aggregation: "sum", ScaleSums: true},
		"gin":  {Model: "gin", ScaleSums: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := mustModel(t, sized(spec, 1, 2, 1, 2), g)
			c := newCore[float64](m, testExec(t, 1, cpu.Go), false)
			aggregate := func(fanout int, seed uint64) cpu.Matrix[float64] {
				c.tape.Reset()
				b := sampleBlocks(g, seeds, 1, fanout, seed)[0]
				src := cpu.NewMatrix[float64](b.NumSrc, 2)
				for i, v := range b.SrcIDs {
					copy(src.Row(i), x.Row(int(v)))
				}
				ctx := &c.ctx[0]
				ctx.Block = &b
				v := c.tape.Leaf(src, false, cpu.Matrix[float64]{})
				return ctx.sum(c.layers[0].Gather(ctx, c.tape.Head(v, b.NumDst), []*Value[float64]{v})).Matrix()
			}
			exact := append([]float64(nil), aggregate(-1, 0).Data...)
			const runs = 800
			sum, squares := make([]float64, len(exact)), make([]float64, len(exact))
			for seed := range uint64(runs) {
				for i, v := range aggregate(2, seed+1).Data {
					sum[i] += v
					squares[i] += v * v
				}
			}
			varied := false
			for i, s := range sum {
				mean := s / runs
				se := math.Sqrt(max(squares[i]/runs-mean*mean, 0) / runs)
				varied = varied || se > 1e-6
				if math.Abs(mean-exact[i]) > 5*se+1e-9 {
					t.Errorf("element %d: mean %v ± %v, whole graph %v", i, mean, se, exact[i])
				}
			}
			if !varied {
				t.Error("samples do not differ")
			}
		})
	}
}

// TestWeightedAttention checks that an entry of weight k counts in the softmax
// as k entries do, and one of weight 0 not at all.
func TestWeightedAttention(t *testing.T) {
	g := randomGraph(30, 4, false, 5)
	b := sampleBlocks(g, []uint32{3, 9, 20, 28}, 1, 3, 2)[0]
	copies := graph.Block{NumDst: b.NumDst, NumSrc: b.NumSrc, Indptr: []int64{0}}
	weights := make([]float64, len(b.Indices))
	for i := range b.NumDst {
		for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
			weights[e] = float64(rng.New(7).Uintn(uint64(e), 4))
			for range int(weights[e]) {
				copies.Indices = append(copies.Indices, b.Indices[e])
			}
		}
		copies.Indptr = append(copies.Indptr, int64(len(copies.Indices)))
	}
	for _, loops := range []bool{true, false} {
		tape := NewTape[float64](testExec(t, 1, cpu.Go), false)
		leaf := func(rows, cols int, seed uint64) *Value[float64] {
			return tape.Leaf(randomMatrix[float64](rows, cols, seed), false, cpu.Matrix[float64]{})
		}
		v, src, dst := leaf(b.NumSrc, 6, 1), leaf(b.NumSrc, 2, 2), leaf(b.NumDst, 2, 3)
		o := Attention[float64]{Heads: 2, Slope: 0.2, Loops: loops, Src: src, Dst: dst}
		want := tape.Attend(&copies, v, o).Matrix()
		o.Weights = weights
		got := tape.Attend(&b, v, o).Matrix()
		closeTo(t, "weighted attention", got.Data, want.Data, 1e-12)
	}
}
