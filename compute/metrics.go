package compute

import (
	"math"
	"slices"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// F1 holds the harmonic means of precision and recall: Micro over all decisions
// together, Macro the mean over classes.
type F1 struct{ Micro, Macro float64 }

// classCounts counts one class's decisions.
type classCounts struct{ truePositive, falsePositive, falseNegative int }

func (c classCounts) f1() float64 {
	if d := 2*c.truePositive + c.falsePositive + c.falseNegative; d > 0 {
		return 2 * float64(c.truePositive) / float64(d)
	}
	return 0
}

// f1 returns both means; the macro one over the classes that occur among labels
// or predictions, as scikit-learn does.
func f1(counts []classCounts) F1 {
	var all classCounts
	var sum float64
	seen := 0
	for _, c := range counts {
		all.truePositive += c.truePositive
		all.falsePositive += c.falsePositive
		all.falseNegative += c.falseNegative
		if c != (classCounts{}) {
			sum += c.f1()
			seen++
		}
	}
	return F1{all.f1(), sum / float64(max(seen, 1))}
}

// RegressionMetrics compare numbers with those that are predicted.
type RegressionMetrics struct {
	MAE  float64 // mean absolute error
	RMSE float64 // root of the mean squared error
	// R2 is 1 - Σ(y-p)²/Σ(y-mean y)², the coefficient of determination; where all y are the same, 1 if
	// all p are, too, and else 0; NaN of fewer than two.
	R2 float64
}

// MeasureRegression returns those of predictions of values; NaN without any. Values that are NaN do not count: n do.
func MeasureRegression(predicted, values []float32) (m RegressionMetrics, n int) {
	var absolute, squared, mean, around float64
	for i, y := range values {
		if y != y {
			continue
		}
		n++
		d := float64(y) - float64(predicted[i])
		absolute, squared, mean = absolute+math.Abs(d), squared+float64(d*d), mean+float64(y)
	}
	if n == 0 {
		return RegressionMetrics{math.NaN(), math.NaN(), math.NaN()}, 0
	}
	mean /= float64(n)
	for _, y := range values {
		if d := float64(y) - mean; y == y {
			around += float64(d * d)
		}
	}
	m = RegressionMetrics{absolute / float64(n), math.Sqrt(squared / float64(n)), math.NaN()}
	switch {
	case n < 2:
	case around > 0:
		m.R2 = 1 - squared/around
	case squared == 0:
		m.R2 = 1
	default:
		m.R2 = 0
	}
	return m, n
}

// ArgMax returns the column of row's largest value, the first of equals.
func ArgMax(row []float32) int {
	best := 0
	for j, v := range row {
		if v > row[best] {
			best = j
		}
	}
	return best
}

// Accuracy returns the share of rows of logits whose largest value is in the
// column of their label; rows with graph.Unlabeled do not count. Without any
// labelled row it is 0.
func Accuracy(logits cpu.Matrix[float32], labels []int32) float64 {
	right, n := 0, 0
	for i, y := range labels {
		if y == graph.Unlabeled {
			continue
		}
		n++
		if ArgMax(logits.Row(i)) == int(y) {
			right++
		}
	}
	return float64(right) / float64(max(n, 1))
}

// SingleLabelF1 returns F1 of the predictions that Accuracy scores. Its micro
// mean is the accuracy.
func SingleLabelF1(logits cpu.Matrix[float32], labels []int32) F1 {
	counts := make([]classCounts, logits.Cols)
	for i, y := range labels {
		if y == graph.Unlabeled {
			continue
		}
		if p := ArgMax(logits.Row(i)); p == int(y) {
			counts[p].truePositive++
		} else {
			counts[p].falsePositive++
			counts[y].falseNegative++
		}
	}
	return f1(counts)
}

// MultiLabelF1 returns F1 where label j of row i is predicted if logits[i][j] is
// positive, and true if labels[i·cols+j] is not 0.
func MultiLabelF1(logits cpu.Matrix[float32], labels []uint8) F1 {
	counts := make([]classCounts, logits.Cols)
	for i := range logits.Rows {
		for j, z := range logits.Row(i) {
			switch y := labels[i*logits.Cols+j] != 0; {
			case z > 0 && y:
				counts[j].truePositive++
			case z > 0:
				counts[j].falsePositive++
			case y:
				counts[j].falseNegative++
			}
		}
	}
	return f1(counts)
}

// AUC returns the area under the ROC curve: the chance that a random positive
// scores higher than a random negative, equal scores counting one half. It is
// NaN if either kind is missing or a score is NaN.
func AUC(scores []float32, positive []bool) float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
		if math.IsNaN(float64(scores[i])) {
			return math.NaN()
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case scores[a] < scores[b]:
			return -1
		case scores[a] > scores[b]:
			return 1
		}
		return 0
	})
	var ranks float64 // of the positives, 1-based, equal scores sharing their mean
	positives := 0
	for i := 0; i < len(order); {
		j, p := i, 0
		for ; j < len(order) && scores[order[j]] == scores[order[i]]; j++ {
			if positive[order[j]] {
				p++
			}
		}
		ranks += float64(p) * float64(i+j+1) / 2
		positives += p
		i = j
	}
	negatives := len(scores) - positives
	if positives == 0 || negatives == 0 {
		return math.NaN()
	}
	return (ranks - float64(positives)*float64(positives+1)/2) / (float64(positives) * float64(negatives))
}

// SingleLabelAUC returns the mean, over the classes that some labelled rows have
// and others do not, of AUC with the class's softmax probability as the score
// (one class against the rest); with two classes both give the same. Rows with
// graph.Unlabeled do not count. It is NaN without such a class.
func SingleLabelAUC(logits cpu.Matrix[float32], labels []int32) float64 {
	var rows []int
	var scale []float64 // log Σ exp
	for i, y := range labels {
		if y == graph.Unlabeled {
			continue
		}
		row := logits.Row(i)
		top, sum := float64(row[ArgMax(row)]), 0.0
		for _, v := range row {
			sum += math.Exp(float64(v) - top)
		}
		rows, scale = append(rows, i), append(scale, top+math.Log(sum))
	}
	return meanAUC(len(rows), logits.Cols, func(k, class int) (float32, bool) {
		return float32(float64(logits.Row(rows[k])[class]) - scale[k]), int(labels[rows[k]]) == class
	})
}

// MultiLabelAUC returns the mean of AUC over the labels that some rows have and
// others do not; label j of row i is true if labels[i·cols+j] is not 0. It is
// NaN without such a label.
func MultiLabelAUC(logits cpu.Matrix[float32], labels []uint8) float64 {
	return meanAUC(logits.Rows, logits.Cols, func(i, j int) (float32, bool) {
		return logits.Row(i)[j], labels[i*logits.Cols+j] != 0
	})
}

func meanAUC(n, classes int, at func(i, class int) (score float32, positive bool)) float64 {
	scores, positive := make([]float32, n), make([]bool, n)
	sum, seen := 0.0, 0
	for j := range classes {
		positives := 0
		for i := range n {
			if scores[i], positive[i] = at(i, j); positive[i] {
				positives++
			}
		}
		if positives == 0 || positives == n {
			continue
		}
		sum += AUC(scores, positive)
		seen++
	}
	if seen == 0 {
		return math.NaN()
	}
	return sum / float64(seen)
}
