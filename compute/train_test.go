package compute

import (
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// TestMultiLabelGradient checks the sigmoid loss against its formula and its
// gradient by differences, with skipped rows and weights.
func TestMultiLabelGradient(t *testing.T) {
	x := testExec(t, 2, cpu.Go)
	z := randomMatrix[float64](9, 5, 1)
	z.Data[3], z.Data[4] = 800, -800 // where exp overflows
	labels := make([]uint8, 4*5)
	for i := range labels {
		labels[i] = uint8(rng.New(3).Uintn(uint64(i), 2))
	}
	labels[3], labels[4] = 1, 1
	rows := []int32{0, -1, 3, -1, 2, -1, -1, -1, 1}
	weights := randomMatrix[float64](1, 9, 4).Data
	g := cpu.NewMatrix[float64](9, 5)
	loss, d := cpu.SigmoidCrossEntropy(x, z, rows, labels, weights, g)
	want, right, exact := 0.0, 0, 0
	for i, r := range rows {
		if r < 0 {
			if slices.ContainsFunc(g.Row(i), func(v float64) bool { return v != 0 }) {
				t.Errorf("skipped row %d has a gradient", i)
			}
			continue
		}
		all := true
		for j, v := range z.Row(i) {
			y := labels[int(r)*5+j]
			p := 1 / (1 + math.Exp(-v))
			if y == 0 {
				p = 1 / (1 + math.Exp(v))
			}
			if v == -800 {
				want += weights[i] / 5 * 800 // -log of what underflows
			} else {
				want -= weights[i] / 5 * math.Log(p)
			}
			if (v > 0) == (y != 0) {
				right++
			} else {
				all = false
			}
		}
		if all {
			exact++
		}
	}
	if math.Abs(loss-want) > 1e-9*math.Abs(want) {
		t.Errorf("loss %v, want %v", loss, want)
	}
	positives := 0
	for _, y := range labels {
		positives += int(y)
	}
	if d.TruePositive+d.FalseNegative != positives || 20-d.FalsePositive-d.FalseNegative != right || d.Exact != exact {
		t.Errorf("decisions %+v, want %d positives, %d right, %d rows right", d, positives, right, exact)
	}
	for i, v := range z.Data {
		if math.Abs(v) == 800 {
			continue
		}
		const h = 1e-6
		z.Data[i] = v + h
		up, _ := cpu.SigmoidCrossEntropy(x, z, rows, labels, weights, cpu.Matrix[float64]{})
		z.Data[i] = v - h
		down, _ := cpu.SigmoidCrossEntropy(x, z, rows, labels, weights, cpu.Matrix[float64]{})
		z.Data[i] = v
		if diff := (up - down) / (2 * h); math.Abs(diff-g.Data[i]) > 1e-6 {
			t.Errorf("element %d: gradient %v, by differences %v", i, g.Data[i], diff)
		}
	}
}

// TestMultiLabelTraining learns random label sets of a small graph.
func TestMultiLabelTraining(t *testing.T) {
	ds := testDataset(40, 2, 12, false)
	m := mustModel(t, Spec{Model: "sage", Layers: 2, InDim: 12, Hidden: 32, OutDim: 4}, ds.Graph)
	x := testExec(t, 1, cpu.Go)
	e, params, state := m.NewEngine(x), m.Init(1), NewAdamState(m.layout.Len())
	grad := make([]float32, len(params))
	in := &Input{Blocks: wholeBlocks(ds.Graph, 2), Features: ds.NodeFeatures, Multi: make([]uint8, 12*4)}
	for i := range in.Multi {
		in.Multi[i] = uint8(rng.New(1).Uintn(uint64(i), 2))
	}
	var s Stats
	var err error
	for range 300 {
		if s, err = e.Gradient(grad, params, in); err != nil {
			t.Fatal(err)
		}
		DefaultAdam(0.01).Step(params, grad, state, x)
	}
	if s.Count != 12 || s.Correct < 10 || s.FalsePositive+s.FalseNegative > 4 {
		t.Errorf("after training: %+v", s)
	}
}

func TestMetrics(t *testing.T) {
	// Predictions 0, 1, 1, 2, 0; classes 0, 1, 2, 2, 1; one unlabelled row.
	logits := cpu.Dense(6, 4, []float32{
		9, 0, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 0, 9, 0, 9, 0, 0, 0, 0, 0, 9, 9})
	labels := []int32{0, 1, 2, 2, 1, graph.Unlabeled}
	if a := Accuracy(logits, labels); a != 0.6 {
		t.Errorf("accuracy %v, want 0.6", a)
	}
	// Per class: 2/3, 1/2, 2/3; class 3 does not occur.
	f := SingleLabelF1(logits, labels)
	if math.Abs(f.Micro-0.6) > 1e-12 || math.Abs(f.Macro-(2.0/3+0.5+2.0/3)/3) > 1e-12 {
		t.Errorf("F1 %+v", f)
	}
	multi := cpu.Dense(3, 2, []float32{1, -1, 1, 1, -1, 0})
	f = MultiLabelF1(multi, []uint8{1, 0, 0, 1, 1, 0})
	// Class 0: 1 right, 1 false positive, 1 false negative; class 1: 1 right.
	if math.Abs(f.Micro-2.0/3) > 1e-12 || math.Abs(f.Macro-0.75) > 1e-12 {
		t.Errorf("multi-label F1 %+v", f)
	}
	if Accuracy(logits, labels[5:]) != 0 || SingleLabelF1(logits, nil) != (F1{}) {
		t.Error("without labels metrics are not 0")
	}
}

// TestAUC compares with the definition over all pairs, ties included.
func TestAUC(t *testing.T) {
	k := rng.New(8)
	for trial := range 20 {
		n := 2 + trial*3
		scores, positive := make([]float32, n), make([]bool, n)
		for i := range scores {
			scores[i] = float32(k.With(uint64(trial)).Uintn(uint64(i), 7))
			positive[i] = i%2 == 0 || k.Uintn(uint64(i), 3) == 0
		}
		positive[1] = false
		var wins, pairs float64
		for i := range n {
			for j := range n {
				if !positive[i] || positive[j] {
					continue
				}
				pairs++
				switch {
				case scores[i] > scores[j]:
					wins++
				case scores[i] == scores[j]:
					wins += 0.5
				}
			}
		}
		if got := AUC(scores, positive); math.Abs(got-wins/pairs) > 1e-12 {
			t.Fatalf("%d scores: %v, want %v", n, got, wins/pairs)
		}
	}
	if !math.IsNaN(AUC([]float32{1, 2}, []bool{true, true})) || !math.IsNaN(AUC([]float32{1, float32(math.NaN())}, []bool{true, false})) {
		t.Error("AUC of one kind, or of NaN, is a number")
	}
}

// TestMeanAUC compares with AUC of each class's column.
func TestMeanAUC(t *testing.T) {
	logits := randomMatrix[float32](30, 4, 5)
	labels, multi := make([]int32, 30), make([]uint8, 120)
	for i := range labels {
		labels[i] = int32(rng.New(2).Uintn(uint64(i), 3)) // class 3 does not occur
		for j := range 3 {
			multi[i*4+j] = uint8(rng.New(3, uint64(j)).Uintn(uint64(i), 2))
		}
	}
	labels[4] = graph.Unlabeled
	var single, several float64
	for j := range 3 {
		var p, z []float32
		var is, has []bool
		for i := range 30 {
			sum := 0.0
			for _, v := range logits.Row(i) {
				sum += math.Exp(float64(v))
			}
			if labels[i] != graph.Unlabeled {
				p, is = append(p, float32(math.Exp(float64(logits.Row(i)[j]))/sum)), append(is, int(labels[i]) == j)
			}
			z, has = append(z, logits.Row(i)[j]), append(has, multi[i*4+j] != 0)
		}
		single += AUC(p, is) / 3
		several += AUC(z, has) / 3
	}
	if got, _ := SingleLabelRanking(logits, labels); math.Abs(got-single) > 1e-12 {
		t.Errorf("one class each: %v, want %v", got, single)
	}
	if got, _ := MultiLabelRanking(logits, multi); math.Abs(got-several) > 1e-12 {
		t.Errorf("several labels: %v, want %v", got, several)
	}
	if got, _ := SingleLabelRanking(logits, make([]int32, 30)); !math.IsNaN(got) {
		t.Errorf("one class alone: %v", got)
	}
}

// TestSGD compares with PyTorch's formulas in float64.
func TestSGD(t *testing.T) {
	for _, o := range []SGD{{LR: 0.1}, {LR: 0.1, Momentum: 0.9, WeightDecay: 0.01}, {LR: 0.1, Momentum: 0.9, Nesterov: true}} {
		const n = 20000
		params := randomMatrix[float32](1, n, 1).Data
		want, v := make([]float64, n), make([]float64, n)
		for i, p := range params {
			want[i] = float64(p)
		}
		var state SGDState
		x := testExec(t, 2, cpu.Go)
		for step := range 4 {
			grad := randomMatrix[float32](1, n, uint64(10+step)).Data
			o.Step(params, grad, &state, x)
			for i := range want {
				d := float64(grad[i]) + o.WeightDecay*want[i]
				if o.Momentum != 0 {
					if step == 0 {
						v[i] = d
					} else {
						v[i] = o.Momentum*v[i] + d
					}
					if o.Nesterov {
						d += o.Momentum * v[i]
					} else {
						d = v[i]
					}
				}
				want[i] -= o.LR * d
			}
		}
		for i := range want {
			if math.Abs(float64(params[i])-want[i]) > 2e-6 {
				t.Fatalf("%+v: parameter %d is %v, want %v", o, i, params[i], want[i])
			}
		}
	}
}

func TestClipNorm(t *testing.T) {
	for _, n := range []int{1, 1023, 1024, 5000} {
		g := randomMatrix[float32](1, n, 3).Data
		want := 0.0
		for _, v := range g {
			want += float64(v) * float64(v)
		}
		want = math.Sqrt(want)
		before := slices.Clone(g)
		x := testExec(t, 2, cpu.Go)
		if got := ClipNorm(g, want*2, x); math.Abs(got-want) > 1e-9*want || !slices.Equal(g, before) {
			t.Errorf("%d values: norm %v, want %v, and nothing clipped", n, got, want)
		}
		ClipNorm(g, want/4, x)
		if got := ClipNorm(g, want, x); math.Abs(got-want/4) > 1e-5*want {
			t.Errorf("%d values: norm %v after clipping to %v", n, got, want/4)
		}
	}
}

func TestSchedules(t *testing.T) {
	step := StepDecay{Every: 10, Factor: 0.5}
	for epoch, want := range map[int]float64{0: 8, 9: 8, 10: 4, 25: 2} {
		if got := step.Rate(8, epoch); got != want {
			t.Errorf("step decay, epoch %d: %v, want %v", epoch, got, want)
		}
	}
	cosine := Cosine{Epochs: 12, Warmup: 2, Min: 1}
	for epoch, want := range map[int]float64{0: 3, 1: 6, 2: 9, 7: 5, 12: 1, 99: 1} {
		if got := cosine.Rate(9, epoch); math.Abs(got-want) > 1e-12 {
			t.Errorf("cosine, epoch %d: %v, want %v", epoch, got, want)
		}
	}
	p := Plateau{Factor: 0.1, Patience: 2, Min: 0.005}
	var got []float64
	for _, f := range []float64{0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.7} {
		got = append(got, p.Report(f, 1))
	}
	for i, want := range []float64{1, 1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01} {
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("plateau gives %v at report %d, want %v", got[i], i, want)
		}
	}
	var b Best
	for i, f := range []float64{math.NaN(), 0.3, 0.2, math.NaN()} {
		if better := b.Report(f); better != (i == 1) {
			t.Errorf("report %d: better is %v", i, better)
		}
	}
	if b.Epoch != 1 || b.Figure != 0.3 || b.Stop(3) || !b.Stop(2) || b.Stop(0) {
		t.Errorf("best is %+v", b)
	}
}
