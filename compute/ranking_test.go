package compute

import (
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// What scikit-learn's roc_auc_score and average_precision_score say: the first is the example in its documentation, the others follow from the
// definitions, with equal scores on both sides.
func TestRanking(t *testing.T) {
	for name, c := range map[string]struct {
		scores   []float32
		positive []bool
		auc, ap  float64
	}{
		"example":       {[]float32{0.1, 0.4, 0.35, 0.8}, []bool{false, false, true, true}, 0.75, 0.5*1 + 0.5*2./3},
		"ties":          {[]float32{0.5, 0.5, 0.9, 0.1, 0.5}, []bool{true, false, true, false, true}, 5. / 6, 1./3 + 2./3*3./4},
		"all the same":  {[]float32{1, 1, 1, 1}, []bool{true, false, false, false}, 0.5, 0.25},
		"the worst":     {[]float32{3, 2, 1}, []bool{false, false, true}, 0, 1. / 3},
		"one kind":      {[]float32{3, 2}, []bool{true, true}, math.NaN(), math.NaN()},
		"no number":     {[]float32{3, float32(math.NaN())}, []bool{true, false}, math.NaN(), math.NaN()},
		"nothing":       {nil, nil, math.NaN(), math.NaN()},
		"infinite, too": {[]float32{float32(math.Inf(1)), 0, float32(math.Inf(-1))}, []bool{true, false, false}, 1, 1},
	} {
		auc, ap := AUC(c.scores, c.positive), AveragePrecision(c.scores, c.positive)
		same := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 || a != a && b != b }
		if !same(auc, c.auc) || !same(ap, c.ap) {
			t.Errorf("%s: AUC %v, average precision %v; want %v, %v", name, auc, ap, c.auc, c.ap)
		}
	}
}

// Classes that no node has, or all, count in no mean of rankings; macro-F1 is over those that are true or predicted, and rows without a
// label count nowhere, as scikit-learn's f1_score(average="macro"), without labels=, has it.
func TestAbsentClasses(t *testing.T) {
	logits := cpu.Dense(5, 4, []float32{
		2, 1, 0, -9,
		1, 2, 0, -9,
		2, 2, 0, -9, // a tie: the first
		0, 3, 1, -9,
		0, 0, 9, -9,
	})
	labels := []int32{0, 0, 1, 1, graph.Unlabeled}
	f := SingleLabelF1(logits, labels)
	if f.Micro != 0.5 || f.Macro != 0.5 { // classes 0 and 1, each 1 right of 2 true and 2 predicted
		t.Errorf("F1 %+v", f)
	}
	if counts := Confusion(logits, labels); !slices.EqualFunc(counts, [][]int{{1, 1, 0, 0}, {1, 1, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, slices.Equal[[]int]) {
		t.Errorf("confusion %v", counts)
	}
	if counts := Confusion(logits, []int32{0, 1, 2, 1, graph.Unlabeled}); counts[2][0] != 1 || counts[0][2] != 0 || counts[1][1] != 2 {
		t.Errorf("confusion of other classes %v", counts)
	}
	p := func(i, j int) float32 { // softmax
		sum := 0.0
		for _, v := range logits.Row(i) {
			sum += math.Exp(float64(v))
		}
		return float32(float64(logits.Row(i)[j]) - math.Log(sum))
	}
	var auc, ap float64
	for j := range 2 {
		scores, positive := []float32{p(0, j), p(1, j), p(2, j), p(3, j)}, []bool{j == 0, j == 0, j == 1, j == 1}
		auc, ap = auc+AUC(scores, positive)/2, ap+AveragePrecision(scores, positive)/2
	}
	a, b := SingleLabelRanking(logits, labels)
	if math.Abs(a-auc) > 1e-6 || math.Abs(b-ap) > 1e-6 {
		t.Errorf("AUC %v, average precision %v; want %v, %v", a, b, auc, ap)
	}
	a, b = MultiLabelRanking(logits, []uint8{1, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0})
	if want := AveragePrecision([]float32{2, 1, 2, 0, 0}, []bool{true, false, true, false, false}); a != 1 || b != want {
		t.Errorf("several labels, of which one tells nodes apart: AUC %v, average precision %v, want 1, %v", a, b, want)
	}
}

// A softmax is that of logits of any size, and so are rankings by it, whichever rows have no label.
func TestRankingOfLargeLogits(t *testing.T) {
	small := cpu.Dense(4, 2, []float32{1, 0, 5, 5, 0, 1, 0.5, 0})
	labels := []int32{0, graph.Unlabeled, 1, 1}
	large := cpu.Dense(4, 2, slices.Clone(small.Data))
	for i, by := range []float32{1000, -1000, 2000, -3000} {
		for j := range large.Row(i) {
			large.Row(i)[j] += by
		}
	}
	for name, logits := range map[string]cpu.Matrix[float32]{"small": small, "large": large} {
		// Of class 0 the scores fall from row 0 over 3 to 2, and rows 3 and 2 are of the other class.
		if auc, ap := SingleLabelRanking(logits, labels); auc != 1 || ap != 1 {
			t.Errorf("%s: AUC %v, average precision %v", name, auc, ap)
		}
	}
}
