package compute

import (
	"math"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Metrics compare predictions with labels.
type Metrics struct {
	// Accuracy is the share of the labelled nodes whose class is predicted, or
	// the micro-F1 score where nodes have several labels; NaN without any node.
	Accuracy float64
	Loss     float64 // mean cross-entropy; summed over the labels of a node
	Count    int     // labelled nodes
	// F1 are the means of precision and recall; with one class per node the
	// micro one is the accuracy. 0 without any node.
	F1 F1
	// AUC is the area under the ROC curve, the mean over classes of one against
	// the rest, or over labels; NaN where no class tells nodes apart. It is
	// computed where it was asked for.
	AUC float64
	// AveragePrecision is the area under the curve of precision and recall, the mean over what AUC is the mean over, and
	// computed where that is.
	AveragePrecision float64

	RegressionMetrics // of task regression, in place of the others; Loss is the mean squared error
}

// NoMetrics are those of no node.
func NoMetrics() Metrics {
	none, nan := RegressionMetrics{math.NaN(), math.NaN(), math.NaN()}, math.NaN()
	return Metrics{Accuracy: nan, F1: F1{nan, nan}, Loss: nan, AUC: nan, AveragePrecision: nan, RegressionMetrics: none}
}

// MeasureClasses compares row i of out with class i, and leaves out those that are graph.Unlabeled; ranked: with AUC.
func MeasureClasses(out cpu.Matrix[float32], classes []int32, ranked bool) Metrics {
	m := Metrics{F1: SingleLabelF1(out, classes)}
	if ranked {
		m.AUC, m.AveragePrecision = SingleLabelRanking(out, classes)
	}
	correct := 0
	for i, class := range classes {
		if class == graph.Unlabeled {
			continue
		}
		row := out.Row(i)
		m.Count++
		m.Loss += CrossEntropy(row, int(class))
		if ArgMax(row) == int(class) {
			correct++
		}
	}
	m.Loss /= float64(m.Count)
	if m.Accuracy = float64(correct) / float64(m.Count); m.Count == 0 {
		m.F1 = F1{math.NaN(), math.NaN()}
	}
	return m
}

// MeasureLabels is MeasureClasses for several labels a row, labels being row-major.
func MeasureLabels(out cpu.Matrix[float32], labels []uint8, ranked bool) Metrics {
	m := Metrics{Count: out.Rows, Accuracy: math.NaN(), F1: F1{math.NaN(), math.NaN()}}
	if ranked {
		m.AUC, m.AveragePrecision = MultiLabelRanking(out, labels)
	}
	for i := range out.Rows {
		for j, z := range out.Row(i) {
			// −log σ(z) for a label that is set, −log(1 − σ(z)) for one that is not.
			x := float64(z)
			m.Loss += math.Max(x, 0) - x*float64(labels[i*out.Cols+j]) + math.Log1p(math.Exp(-math.Abs(x)))
		}
	}
	m.Loss /= float64(m.Count)
	if m.Count > 0 {
		m.F1 = MultiLabelF1(out, labels)
		m.Accuracy = m.F1.Micro
	}
	return m
}

// CrossEntropy is −log softmax(row)[class].
func CrossEntropy(row []float32, class int) float64 { return logSum(row) - float64(row[class]) }

// logSum is log Σ exp(row).
func logSum(row []float32) float64 {
	top := float64(row[ArgMax(row)])
	var sum float64
	for _, v := range row {
		sum += math.Exp(float64(v) - top)
	}
	return math.Log(sum) + top
}

// Probability returns what a row of outputs says of each class: softmax, or with multi the logistic function of each.
func Probability(row []float32, multi bool) func(j int) float32 {
	if multi {
		return func(j int) float32 { return float32(1 / (1 + math.Exp(-float64(row[j])))) }
	}
	if len(row) == 0 {
		return nil
	}
	all := logSum(row)
	return func(j int) float32 { return float32(math.Exp(-(all - float64(row[j])))) }
}
