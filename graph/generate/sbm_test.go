package generate

import (
	"math"
	"runtime"
	"testing"
)

func TestSBMHasTheSharesItWasAskedFor(t *testing.T) {
	o := SBMOptions{Nodes: 10_001, Classes: 5, AvgDegree: 12, Homophily: 0.6, FeatureDim: 8, Signal: 0.5, TrainFraction: 0.5, ValidFraction: 0.25, Seed: 4}
	ds, err := SBM(t.Context(), o)
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
	// Of 60,006 draws a share of about 1/n is lost to loops and 1e-3 to
	// duplicates.
	if s.DegreeMean < 11.9 || s.DegreeMean > 12 {
		t.Errorf("average degree %v, want a little below 12", s.DegreeMean)
	}
	same := 0
	for v := range uint32(o.Nodes) {
		for _, u := range ds.Graph.InNeighbors(v) {
			if ds.Labels.Class[u] == ds.Labels.Class[v] {
				same++
			}
		}
	}
	// Standard error 0.002; duplicates, a thousandth, are more often within a
	// class. Five of them: a fresh seed would fail once in 10^6.
	if share := float64(same) / float64(s.Edges); math.Abs(share-0.6) > 0.011 {
		t.Errorf("share of edges within a class %v, want 0.6", share)
	}
	size := make([]int, o.Classes)
	for _, c := range ds.Labels.Class {
		size[c]++
	}
	for c, k := range size {
		if k != 2000 && k != 2001 {
			t.Errorf("class %d has %d nodes", c, k)
		}
	}
	if len(ds.Train) != 5001 || len(ds.Valid) != 2500 || len(ds.Test) != 2500 {
		t.Errorf("splits of %d, %d, %d nodes", len(ds.Train), len(ds.Valid), len(ds.Test))
	}
	// Features: mean ±Signal by class, variance 1 + 0. 80,008 values: the
	// standard error of the mean square is 0.005.
	x, _, _ := ds.NodeFeatures.Float32s()
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	if ms := sum / float64(len(x)); math.Abs(ms-1.25) > 0.025 {
		t.Errorf("mean square of features %v, want 1.25", ms)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	again, err := SBM(t.Context(), o)
	if err != nil || again.Fingerprint != ds.Fingerprint {
		t.Errorf("with one core the data are different (%v)", err)
	}
}

func TestSBMRefusesBadOptions(t *testing.T) {
	good := SBMOptions{Nodes: 10, Classes: 2, AvgDegree: 2, Homophily: 0.5}
	if _, err := SBM(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	nan := math.NaN()
	for _, change := range []func(o *SBMOptions){
		func(o *SBMOptions) { o.Nodes = 0 }, func(o *SBMOptions) { o.Classes = 0 }, func(o *SBMOptions) { o.Classes = 11 },
		func(o *SBMOptions) { o.AvgDegree = -1 }, func(o *SBMOptions) { o.AvgDegree = nan }, func(o *SBMOptions) { o.Homophily = 1.1 },
		func(o *SBMOptions) { o.Homophily = nan }, func(o *SBMOptions) { o.Classes = 1 }, func(o *SBMOptions) { o.Signal = nan },
		func(o *SBMOptions) { o.TrainFraction = 2 }, func(o *SBMOptions) { o.ValidFraction = -0.1 }, func(o *SBMOptions) { o.FeatureDim = -1 },
	} {
		o := good
		change(&o)
		if _, err := SBM(t.Context(), o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
