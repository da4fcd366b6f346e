package compute

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/rng"
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
	draws := rng.New(4)
	for i, want := uint64(0), 3*len(links); len(links) < want; i += 2 {
		l := Link{Src: uint32(draws.Uintn(i, 60)), Dst: uint32(draws.Uintn(i+1, 60))}
		if l.Src != l.Dst && !slices.Contains(ds.Graph.InNeighbors(l.Dst), l.Src) {
			links = append(links, l)
		}
	}
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

// TestLinkGradient checks the loss of links, with respect to every parameter,
// by differences in float64: links that share nodes, join a node with itself and
// end at isolated nodes; a single node; no link at all.
func TestLinkGradient(t *testing.T) {
	for i, n := range []int{1, 2, 13, 1, 2, 13} {
		g := randomGraph(n, 2, false, 8)
		m := mustModel(t, Spec{Model: "sage", Layers: 1, InDim: 3, OutDim: 5, LinkDecoder: []string{"dot", "mlp"}[i/3], Activation: "elu"}, g)
		c := newCore[float64](m, testExec(t, 2, cpu.Go), true)
		var links []Link
		for i := range 2 * n {
			links = append(links, Link{Src: uint32(i % n), Dst: uint32((i*i + 1) % n), Positive: i%3 == 0})
		}
		for _, links := range [][]Link{links, nil} {
			params := randomMatrix[float64](1, m.layout.Len(), 2).Data
			grad := make([]float64, len(params))
			loss := func(grad []float64) float64 {
				c.tape.Reset()
				c.bind(params, grad)
				x := c.tape.Leaf(randomMatrix[float64](n, 3, 1), false, cpu.Matrix[float64]{})
				s := c.linkLoss(c.forward(wholeBlocks(g, 1), x, 0), links)()
				if grad != nil {
					c.tape.Backward()
					c.collect(grad)
				}
				return s.Loss
			}
			if got := loss(grad); (got > 0) != (len(links) > 0) {
				t.Errorf("%d links have loss %v", len(links), got)
			}
			for i, v := range params {
				const h = 1e-6
				params[i] = v + h
				up := loss(nil)
				params[i] = v - h
				down := loss(nil)
				params[i] = v
				if want := (up - down) / (2 * h); !(math.Abs(grad[i]-want) <= 2e-7*max(1, math.Abs(want))) {
					t.Fatalf("%d nodes, %d links, parameter %d: gradient %v, by differences %v", n, len(links), i, grad[i], want)
				}
			}
		}
	}
}

// A gradient of links keeps its memory from one to the next, whatever their number.
func TestLinkGradientMemory(t *testing.T) {
	ds := testDataset(60, 2, 16, false)
	m := mustModel(t, Spec{Model: "sage", Layers: 1, InDim: 16, OutDim: 8}, ds.Graph)
	params := m.Init(1)
	grad := make([]float32, len(params))
	in := &Input{Blocks: wholeBlocks(ds.Graph, 1), Features: ds.NodeFeatures}
	links := make([]Link, 3*arenaPiece/2)
	for i := range links {
		links[i] = Link{Src: uint32(i % 60), Dst: uint32(i / 60 % 60), Positive: i%3 == 0}
	}
	e := m.NewEngine(testExec(t, 1, cpu.Go))
	var kept [2]int
	for round := range 6 {
		if _, err := e.LinkGradient(grad, params, in, links); err != nil {
			t.Fatal(err)
		}
		kept[round/3] = e.core.bits.Cap() + e.core.labels.Cap() + e.core.tape.ints.Cap()
	}
	if kept[1] != kept[0] {
		t.Errorf("memory for %d values after three gradients, for %d after six", kept[0], kept[1])
	}
}
