package compute

import "math"

// LinkMetrics say how well scores tell links from pairs that no edge joins.
type LinkMetrics struct {
	// AUC is the area under the ROC curve of the links and as many negatives, AveragePrecision
	// that under their curve of precision and recall; NaN without any link.
	AUC, AveragePrecision float64
	// MRR is the mean of 1/rank, and Hits10 the share of ranks up to 10, of each
	// link among the negatives that it was given with: 100 that share one end with
	// it, in a run's evaluation. Equal scores take the middle of the ranks that they
	// fill.
	MRR, Hits10 float64
	Loss        float64 // mean binary cross-entropy of the scores behind AUC
	Count       int     // links
}

// LinkMeasure takes the scores of links one by one. Its zero value is ready.
type LinkMeasure struct {
	sum      LinkMetrics
	scores   []float32 // of links and of one negative each: the curve
	positive []bool
}

// Add takes the scores of a link and, after it, of its negatives, of which there may
// be none. scores is not kept.
func (m *LinkMeasure) Add(scores []float32) {
	rank := 1.0
	for _, x := range scores[1:] {
		switch {
		case x > scores[0]:
			rank++
		case x == scores[0]:
			rank += 0.5
		}
	}
	m.sum.Count++
	m.sum.MRR += 1 / rank
	if rank <= 10 {
		m.sum.Hits10++
	}
	n := min(2, len(scores))
	m.scores = append(m.scores, scores[:n]...)
	m.positive = append(m.positive, []bool{true, false}[:n]...)
}

// Metrics returns what the scores so far come to; NaN without any.
func (m *LinkMeasure) Metrics() LinkMetrics {
	if m.sum.Count == 0 {
		return LinkMetrics{AUC: math.NaN(), AveragePrecision: math.NaN(), MRR: math.NaN(), Hits10: math.NaN(), Loss: math.NaN()}
	}
	out := m.sum
	out.MRR /= float64(out.Count)
	out.Hits10 /= float64(out.Count)
	out.AUC, out.AveragePrecision = ranking(m.scores, m.positive)
	for i, s := range m.scores {
		x := float64(s)
		if m.positive[i] {
			x = -x
		}
		out.Loss += math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))
	}
	out.Loss /= float64(len(m.scores))
	return out
}
