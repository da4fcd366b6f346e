package generate

import (
	"runtime"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// The fingerprint of what ../../shared/tools/rmat writes for -scale 10 -edges
// 8000 (seed 1), imported as a NumPy directory.
const rmat10Fingerprint = "b62f37289d175771ac49e546ed9c43b9463393326daa49ac720165daa9bc257a"

func TestRMATIsTheGraphThatPeersWereMeasuredOn(t *testing.T) {
	ds, err := RMAT(t.Context(), RMATOptions{Scale: 10, Edges: 8000, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n, e := ds.Graph.NumNodes(), ds.Graph.NumEdges(); n != 1024 || e != 11828 {
		t.Errorf("%d nodes, %d edges, want 1024, 11828", n, e)
	}
	if ds.Fingerprint != rmat10Fingerprint {
		t.Errorf("fingerprint %s, want %s", ds.Fingerprint, rmat10Fingerprint)
	}
}

func TestRMATIsSymmetricAndSimple(t *testing.T) {
	ds, err := RMAT(t.Context(), RMATOptions{Scale: 12, Edges: 30000, Seed: 7, FeatureDim: 5, Classes: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := ds.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkSymmetric(t, ds.Graph)
	s := ds.Summary()
	if s.SelfLoops != 0 || s.ParallelEdges != 0 {
		t.Errorf("%d loops, %d parallel edges", s.SelfLoops, s.ParallelEdges)
	}
	if len(ds.Train) != 2458 || len(ds.Valid) != 819 || len(ds.Test) != 819 {
		t.Errorf("splits of %d, %d, %d nodes", len(ds.Train), len(ds.Valid), len(ds.Test))
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	again, err := RMAT(t.Context(), RMATOptions{Scale: 12, Edges: 30000, Seed: 7, FeatureDim: 5, Classes: 3})
	if err != nil || again.Fingerprint != ds.Fingerprint {
		t.Errorf("with one core the data are different (%v)", err)
	}
	other, err := RMAT(t.Context(), RMATOptions{Scale: 12, Edges: 30000, Seed: 8, FeatureDim: 5, Classes: 3})
	if err != nil || other.Fingerprint == ds.Fingerprint {
		t.Errorf("another seed gives the same data (%v)", err)
	}
}

func checkSymmetric(t *testing.T, g *graph.Graph) {
	t.Helper()
	has := map[[2]uint32]bool{}
	for v := range uint32(g.NumNodes()) {
		for _, u := range g.InNeighbors(v) {
			has[[2]uint32{u, v}] = true
		}
	}
	for e := range has {
		if !has[[2]uint32{e[1], e[0]}] {
			t.Fatalf("edge %v has no reverse", e)
		}
	}
}

func TestRMATRefusesBadOptions(t *testing.T) {
	for _, o := range []RMATOptions{{Scale: -1}, {Scale: 32}, {Scale: 4, Edges: -1}, {Scale: 4, FeatureDim: -1}, {Scale: 4, Classes: -2}, {Scale: 4, TrainFraction: 0.7, ValidFraction: 0.5}} {
		if _, err := RMAT(t.Context(), o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func BenchmarkRMAT(b *testing.B) {
	for b.Loop() {
		if _, err := RMAT(b.Context(), RMATOptions{Scale: 20, Edges: 8_000_000, Seed: 1}); err != nil {
			b.Fatal(err)
		}
	}
}
