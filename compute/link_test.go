package compute

import (
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/internal/rng"
)

// TestLinkTraining checks that the links of a graph become separable from
// others, and that gradients repeat for any number of threads.
func TestLinkTraining(t *testing.T) {
	ds := testDataset(60, 2, 16, false)
	m := mustModel(t, Spec{Model: "sage", Layers: 2, InDim: 16, Hidden: 32, OutDim: 16}, ds.Graph)
	var links []Link
	for v := range uint32(60) {
		for _, u := range ds.Graph.InNeighbors(v) {
			links = append(links, Link{Src: u, Dst: v, Positive: true})
		}
	}
	negatives := Negatives(ds.Graph, rng.New(4), links, 2)
	for _, l := range negatives {
		if l.Positive || l.Src == l.Dst || isEdge(ds.Graph, l.Src, l.Dst) {
			t.Fatalf("%+v is not a negative", l)
		}
	}
	if len(negatives) != 2*len(links) || !slices.Equal(negatives, Negatives(ds.Graph, rng.New(4), links, 2)) {
		t.Errorf("%d negatives for %d links, or other ones the second time", len(negatives), len(links))
	}
	links = append(links, negatives...)
	in := &Input{Blocks: wholeBlocks(ds.Graph, 2), Features: ds.NodeFeatures}
	params, state := m.Init(1), NewAdamState(m.layout.Len())
	grad, again := make([]float32, len(params)), make([]float32, len(params))
	x1, x2 := testExec(t, 1, cpu.Go), testExec(t, 2, cpu.Go)
	e1, e2 := m.NewEngine(x1), m.NewEngine(x2)
	var first, last Stats
	for step := range 200 {
		s, err := e1.LinkGradient(grad, params, in, links)
		if err != nil {
			t.Fatal(err)
		}
		if step == 0 {
			first = s
			if _, err := e2.LinkGradient(again, params, in, links); err != nil || !slices.Equal(grad, again) {
				t.Errorf("other bits with 2 threads (%v)", err)
			}
		}
		last = s
		for i := range grad {
			grad[i] /= float32(s.Count)
		}
		DefaultAdam(0.01).Step(params, grad, state, x1)
	}
	if last.Loss > first.Loss/2 || last.Correct < last.Count*85/100 {
		t.Errorf("loss went from %v to %v, %d of %d right", first.Loss, last.Loss, last.Correct, last.Count)
	}
	y, err := m.Infer(t.Context(), x1, params, ds, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	positive := make([]bool, len(links))
	for i, l := range links {
		positive[i] = l.Positive
	}
	if auc := AUC(LinkScores(y, links), positive); auc < 0.9 {
		t.Errorf("AUC %v after training", auc)
	}

	for want, f := range map[string]func() error{
		"joins output rows 60 and 1": func() error {
			_, err := e1.LinkGradient(grad, params, in, []Link{{Src: 60, Dst: 1}})
			return err
		},
		"takes no targets": func() error {
			_, err := e1.LinkGradient(grad, params, &Input{Labels: []int32{1}}, nil)
			return err
		},
		"the batch has 0 blocks": func() error {
			_, err := e1.LinkGradient(grad, params, &Input{}, []Link{{}})
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}
