//go:build unix

package cpu_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/pool"
)

// A store whose file is shortened while kernels read it from the mapping,
// assembly included, is an error that names file and offset, on the caller's
// goroutine as on a worker's; and the program, the pool and the Exec go on.
func TestShortenedFileUnderKernels(t *testing.T) { shortened(t, 4096, 64, 1) }

// The same where rows are read often enough, and are too many for the second-level
// cache of most processors, to be packed in parts of columns first.
func TestShortenedFileInParts(t *testing.T) { shortened(t, 1700, 320, 17) }

func shortened(t *testing.T, n, cols, degree int) {
	whole := os.Getpagesize() // of the file that stays
	for _, set := range []cpu.Set{cpu.Go, cpu.AVX2, cpu.AVX512} {
		if !set.Supported() {
			continue
		}
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%v/%d", set, workers), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "store")
				r := rand.New(rand.NewPCG(1, 2))
				x := make([]float32, n*cols)
				for i := range x {
					x[i] = r.Float32()
				}
				g := &graph.Graph{Indptr: make([]int64, n+1)}
				for v := range n {
					for d := range degree {
						g.Indices = append(g.Indices, uint32((n-1-v+d)%n))
					}
					g.Indptr[v+1] = int64(len(g.Indices))
				}
				if err := store.Create(t.Context(), dir, &graph.Dataset{Name: "t", Graph: g, NodeFeatures: graph.NewFeatures(n, cols, x)}); err != nil {
					t.Fatal(err)
				}
				s, err := store.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				path, _, _ := s.NodeFeaturesFile()

				p := pool.New(workers)
				defer p.Close()
				exec := cpu.NewExec(p, set)
				dst := cpu.NewMatrix[float32](n, cols)
				b := graph.WholeGraph(g)
				aggregate := func(f *graph.Features) error {
					return graph.Guard(func() error {
						cpu.Aggregate(exec, dst, &b, cpu.Source[float32]{Table: f}, cpu.AggregateOptions[float32]{})
						return nil
					})
				}
				f := s.Dataset().NodeFeatures
				if err := aggregate(f); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(path, int64(whole)); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					var bad *fault.Error
					if err := aggregate(f); !errors.As(err, &bad) || bad.Path != path || bad.Offset < int64(whole) {
						t.Fatalf("aggregation over a shortened file: %v, want an error that names %s and an offset from %d", err, path, whole)
					}
				}
				gather := graph.Guard(func() error {
					cpu.Gather(exec, dst, cpu.Source[float32]{Table: f})
					return nil
				})
				if gather == nil {
					t.Error("a gather over a shortened file succeeded")
				}
				if err := aggregate(graph.NewFeatures(n, cols, x)); err != nil {
					t.Errorf("after the fault: %v", err)
				}
			})
		}
	}
}
