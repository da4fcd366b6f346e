package compute

import (
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// The weight of a class is one of each of its targets, and counts in Stats.Weight; with smoothing it is in the kernel.
func TestClassWeights(t *testing.T) {
	ds := testDataset(60, 4, 5, false)
	m := mustModel(t, sized(Spec{Model: "sage"}, 2, 5, 9, 3), ds.Graph)
	e := m.NewEngine(testExec(t, 1, cpu.Go))
	params := m.Init(2)
	gradient := func(in Input) (grad []float32, s Stats) {
		t.Helper()
		in.Blocks, in.Features, in.Targets, in.Labels = wholeBlocks(ds.Graph, m.Blocks()), ds.NodeFeatures, []uint32{7, 3, 50}, []int32{0, 2, 1}
		grad = make([]float32, len(params))
		s, err := e.Gradient(grad, params, &in)
		if err != nil {
			t.Fatal(err)
		}
		return grad, s
	}
	classes := &Loss{ClassWeights: []float64{2, 0.5, 3}}
	want, as := gradient(Input{Weights: []float32{2, 6, 0.5}})
	got, s := gradient(Input{Weights: []float32{1, 2, 1}, Loss: classes})
	if !slices.Equal(got, want) || s != as || s.Weight != 8.5 {
		t.Errorf("with class weights %+v, with those of the targets %+v", s, as)
	}
	near := &Loss{ClassWeights: classes.ClassWeights, Smoothing: 1e-12}
	got, s = gradient(Input{Weights: []float32{1, 2, 1}, Loss: near})
	closeTo(t, "with hardly any smoothing", got, want, 1e-5)
	if s.Weight != 8.5 {
		t.Errorf("weight %v with smoothing", s.Weight)
	}
	for text, bad := range map[string]*Loss{"2 weights of classes": {ClassWeights: []float64{1, 2}}, "smoothing does not go": {Smoothing: 0.1, Gamma: 1}} {
		in := &Input{Blocks: wholeBlocks(ds.Graph, m.Blocks()), Features: ds.NodeFeatures, Labels: []int32{0}, Loss: bad}
		if _, err := e.Gradient(make([]float32, len(params)), params, in); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
