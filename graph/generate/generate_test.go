package generate

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
)

// centroidAccuracy trains a nearest-mean classifier on the training nodes'
// rows of x and returns its accuracy on the test nodes.
func centroidAccuracy(ds *graph.Dataset, x []float32, dim int) float64 {
	classes := ds.Labels.NumClasses
	mean, count := make([]float64, classes*dim), make([]float64, classes)
	for _, v := range ds.Train {
		c := int(ds.Labels.Class[v])
		count[c]++
		for j := range dim {
			mean[c*dim+j] += float64(x[int(v)*dim+j])
		}
	}
	right := 0
	for _, v := range ds.Test {
		best, bestDist := -1, 0.0
		for c := range classes {
			dist := 0.0
			for j := range dim {
				d := float64(x[int(v)*dim+j]) - mean[c*dim+j]/max(count[c], 1)
				dist += d * d
			}
			if best < 0 || dist < bestDist {
				best, bestDist = c, dist
			}
		}
		if best == int(ds.Labels.Class[v]) {
			right++
		}
	}
	return float64(right) / float64(len(ds.Test))
}

// aggregate returns the mean of each node's row and its neighbours' rows.
func aggregate(g *graph.Graph, x []float32, dim int) []float32 {
	y := make([]float32, len(x))
	for v := range g.NumNodes() {
		row := y[v*dim : (v+1)*dim]
		copy(row, x[v*dim:(v+1)*dim])
		for _, u := range g.InNeighbors(uint32(v)) {
			for j := range row {
				row[j] += x[int(u)*dim+j]
			}
		}
		for j := range row {
			row[j] /= float32(g.Degree(uint32(v)) + 1)
		}
	}
	return y
}

func TestBuiltinNeedsItsGraph(t *testing.T) {
	ds := Builtin()
	if err := ds.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	x, dim, _ := ds.NodeFeatures.Float32s()
	alone := centroidAccuracy(ds, x, dim)
	once := centroidAccuracy(ds, aggregate(ds.Graph, x, dim), dim)
	twice := centroidAccuracy(ds, aggregate(ds.Graph, aggregate(ds.Graph, x, dim), dim), dim)
	t.Logf("accuracy: features %.3f, one hop %.3f, two hops %.3f", alone, once, twice)
	if alone < 0.5 || alone > 0.72 {
		t.Errorf("features alone reach %.3f, want 0.5 to 0.72", alone)
	}
	if once < alone+0.15 || twice < 0.92 {
		t.Errorf("the graph adds too little: features %.3f, one hop %.3f, two hops %.3f", alone, once, twice)
	}
	if again := Builtin(); again.Fingerprint != ds.Fingerprint || ds.Fingerprint != graphtest.Hash(t, ds) {
		t.Error("two calls give different data")
	}
}

// A generation that would take hours ends with its context, between two pieces.
func TestGeneratorsStop(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := RMAT(ctx, RMATOptions{Scale: 10, Edges: 1 << 40}); !errors.Is(err, why) {
		t.Errorf("rmat: %v", err)
	}
	if _, err := SBM(ctx, SBMOptions{Nodes: 1000, Classes: 2, AvgDegree: 1 << 20, Homophily: 0.5}); !errors.Is(err, why) {
		t.Errorf("sbm: %v", err)
	}
}

// What a generator says that it takes is what it allocates, but for what it draws
// edges with and the output's bookkeeping.
func TestGeneratedBytes(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int64
		make  func() (*graph.Dataset, error)
	}{
		"rmat": {RMATOptions{Scale: 16, Edges: 1 << 20, FeatureDim: 32}.Bytes(), func() (*graph.Dataset, error) {
			return RMAT(t.Context(), RMATOptions{Scale: 16, Edges: 1 << 20, FeatureDim: 32, Classes: 5})
		}},
		"sbm": {SBMOptions{Nodes: 1 << 16, AvgDegree: 32, FeatureDim: 32}.Bytes(), func() (*graph.Dataset, error) {
			return SBM(t.Context(), SBMOptions{Nodes: 1 << 16, Classes: 4, AvgDegree: 32, Homophily: 0.5, FeatureDim: 32, TrainFraction: 0.5})
		}},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := c.make(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		buffers := int64(8 * 4 * runtime.GOMAXPROCS(0) * generatedBlock * 2) // of two passes
		if took := int64(after.TotalAlloc-before.TotalAlloc) - buffers; took < c.bytes*8/10 || took > c.bytes*13/10 {
			t.Errorf("%s: %d bytes allocated, %d said", name, took, c.bytes)
		}
	}
}
