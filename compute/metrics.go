package compute

import (
	"cmp"
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
	auc, _ := ranking(scores, positive)
	return auc
}

// AveragePrecision returns Σ (R_n - R_n-1)·P_n over the falling thresholds, of precision P and recall R with equal scores taken together: the
// area under the curve of precision and recall, without interpolation, as scikit-learn's average_precision_score has it. It is NaN where AUC is.
func AveragePrecision(scores []float32, positive []bool) float64 {
	_, precision := ranking(scores, positive)
	return precision
}

// ranking returns AUC and AveragePrecision.
func ranking(scores []float32, positive []bool) (auc, precision float64) {
	order := make([]int, len(scores))
	positives := 0
	for i := range order {
		order[i] = i
		if math.IsNaN(float64(scores[i])) {
			return math.NaN(), math.NaN()
		}
		if positive[i] {
			positives++
		}
	}
	negatives := len(scores) - positives
	if positives == 0 || negatives == 0 {
		return math.NaN(), math.NaN()
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
	var ranks float64 // of the positives, 1-based, equal scores sharing their mean
	for i, above := 0, positives; i < len(order); {
		j, p := i, 0
		for ; j < len(order) && scores[order[j]] == scores[order[i]]; j++ {
			if positive[order[j]] {
				p++
			}
		}
		ranks += float64(p) * float64(i+j+1) / 2
		precision += float64(p) / float64(positives) * float64(above) / float64(len(order)-i) // of all that score as high
		above -= p
		i = j
	}
	return (ranks - float64(positives)*float64(positives+1)/2) / (float64(positives) * float64(negatives)), precision
}

// SingleLabelRanking returns the means, over the classes that some labelled rows have
// and others do not, of AUC and AveragePrecision with the class's softmax probability as the score
// (one class against the rest); with two classes both give the same. Rows with
// graph.Unlabeled do not count. They are NaN without such a class.
func SingleLabelRanking(logits cpu.Matrix[float32], labels []int32) (auc, precision float64) {
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
	return meanRanking(len(rows), logits.Cols, func(k, class int) (float32, bool) {
		return float32(float64(logits.Row(rows[k])[class]) - scale[k]), int(labels[rows[k]]) == class
	})
}

// MultiLabelRanking returns the means of AUC and AveragePrecision over the labels that some rows have and
// others do not; label j of row i is true if labels[i·cols+j] is not 0. They are
// NaN without such a label.
func MultiLabelRanking(logits cpu.Matrix[float32], labels []uint8) (auc, precision float64) {
	return meanRanking(logits.Rows, logits.Cols, func(i, j int) (float32, bool) {
		return logits.Row(i)[j], labels[i*logits.Cols+j] != 0
	})
}

func meanRanking(n, classes int, at func(i, class int) (score float32, positive bool)) (auc, precision float64) {
	scores, positive := make([]float32, n), make([]bool, n)
	seen := 0.0
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
		a, p := ranking(scores, positive)
		auc, precision, seen = auc+a, precision+p, seen+1
	}
	return auc / seen, precision / seen // 0/0 is NaN
}

// Confusion counts, in row i and column j, the labelled rows of logits of class i of which j is predicted, as Accuracy scores them.
func Confusion(logits cpu.Matrix[float32], labels []int32) [][]int {
	counts := make([][]int, logits.Cols)
	for i := range counts {
		counts[i] = make([]int, logits.Cols)
	}
	for i, y := range labels {
		if y != graph.Unlabeled {
			counts[y][ArgMax(logits.Row(i))]++
		}
	}
	return counts
}
