package compute

import (
	"math"
	"testing"
)

// Ranks and losses by hand: a link before both of its negatives, one that shares the
// first place with one of them, one that is behind ten, and one without any.
func TestLinkMeasure(t *testing.T) {
	var m LinkMeasure
	if got := m.Metrics(); got.Count != 0 || !math.IsNaN(got.AUC) || !math.IsNaN(got.AveragePrecision) || !math.IsNaN(got.MRR) || !math.IsNaN(got.Hits10) || !math.IsNaN(got.Loss) {
		t.Errorf("of nothing: %+v", got)
	}
	m.Add([]float32{2, 1, 0})
	m.Add([]float32{1, 1, 0})
	m.Add([]float32{0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3})
	m.Add([]float32{5})
	got := m.Metrics()
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s %v, want %v", what, got, want)
		}
	}
	near("MRR", got.MRR, (1+1/1.5+1./11+1)/4)
	near("hits", got.Hits10, 3./4)
	// Positives 2, 1, 0, 5 against negatives 1, 1, 3: 2+1+0+3 of 12 pairs in order.
	near("AUC", got.AUC, (2+1+0+3)/12.)
	// As thresholds fall, links among all that score as high: 1 of 1, 2 of 3, 3 of 6, 4 of 7.
	near("average precision", got.AveragePrecision, (1+2./3+3./6+4./7)/4)
	loss := 0.0
	for _, x := range []float64{-2, -1, 0, -5, 1, 1, 3} { // a positive's score counts with its sign turned
		loss += math.Log1p(math.Exp(x))
	}
	near("loss", got.Loss, loss/7)
	if got.Count != 4 {
		t.Errorf("%d links", got.Count)
	}
}
