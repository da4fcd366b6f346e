package compute

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
)

// TestTransposes checks that a block's transpose is the same for any number of
// workers, whether its pattern is symmetric, nearly so, or not square, and after
// transposes of other patterns.
func TestTransposes(t *testing.T) {
	symmetric := graphOf([][]uint32{{1, 2, 4}, {0, 1, 3, 3}, {0, 4}, {1, 1}, {0, 2}, {}})
	nearly := graphOf([][]uint32{{1, 2, 4}, {0, 1, 3, 3}, {0, 4}, {1, 1}, {0, 1}, {}})
	unsorted := graphOf([][]uint32{{1, 2, 4}, {0, 1, 3, 3}, {4, 0}, {1, 1}, {0, 2}, {}})
	blocks := []graph.Block{
		graph.WholeGraph(symmetric), graph.WholeGraph(nearly), graph.WholeGraph(unsorted),
		sampleBlocks(symmetric, []uint32{3, 0}, 1, -1, 1)[0], subgraphBlocks(symmetric, []uint32{0, 1, 3}, 1)[0],
		graph.WholeGraph(graphOf([][]uint32{{}})), graph.WholeGraph(symmetric),
	}
	var plain cpu.Transpose
	for _, workers := range []int{1, 2, 3} {
		tape := NewTape[float32](testExec(t, workers, cpu.Go), true)
		for round := range 2 {
			for i := range blocks {
				got := tape.transpose(&blocks[i])
				plain.Build(tape.x, &blocks[i])
				if !slices.Equal(got.Indptr, plain.Indptr) || !slices.Equal(got.Dst, plain.Dst) || !slices.Equal(got.Entry, plain.Entry) ||
					got.NumDst != plain.NumDst || got.NumSrc != plain.NumSrc {
					t.Errorf("%d workers, round %d, block %d: %v %v %v, want %v %v %v", workers, round, i, got.Indptr, got.Dst, got.Entry, plain.Indptr, plain.Dst, plain.Entry)
				}
			}
			if round == 0 {
				tape.Reset()
				slices.Reverse(blocks) // other memory for each
			}
		}
	}
}

// BenchmarkTranspose times the transposes of a symmetric pattern, as large as a
// frontier subgraph's.
func BenchmarkTranspose(b *testing.B) {
	ds, err := generate.RMAT(b.Context(), generate.RMATOptions{Scale: 13, Edges: 500_000, Classes: 2, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	blk := graph.WholeGraph(ds.Graph)
	for _, threads := range []int{1, 2} {
		x := testExec(b, threads, cpu.Go)
		var t cpu.Transpose
		for name, f := range map[string]func(){
			"any": func() { t.Build(x, &blk) },
			"symmetric": func() {
				if !t.BuildSymmetric(x, &blk) {
					b.Fatal("the pattern is not symmetric")
				}
			},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, threads), func(b *testing.B) {
				for b.Loop() {
					f()
				}
				b.ReportMetric(float64(len(blk.Indices))*float64(b.N)/b.Elapsed().Seconds()*1e-6, "Medges/s")
			})
		}
	}
}
