package compute

import (
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// Balanced weights are scikit-learn's compute_class_weight("balanced"), and of labels (negatives/positives), with classes that no training
// node has, or all.
func TestBalancedWeights(t *testing.T) {
	single := &graph.Labels{NumClasses: 4, Class: []int32{0, 0, 0, 2, 3, graph.Unlabeled, 1}}
	if got, want := BalancedWeights(single, []uint32{0, 1, 2, 3, 4, 5}), []float64{5. / 9, 1, 5. / 3, 5. / 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	multi := &graph.Labels{NumClasses: 3, Multi: []uint8{1, 0, 1 /**/, 0, 0, 1 /**/, 0, 0, 1 /**/, 0, 1, 1}}
	if got, want := BalancedWeights(multi, []uint32{0, 1, 2}), []float64{2, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("several labels: got %v, want %v", got, want)
	}
}

func TestParseClassWeights(t *testing.T) {
	names := []string{"ham", "a=b", "spam"}
	for text, want := range map[string][]float64{
		"1, 2.5,0": {1, 2.5, 0}, "spam=5": {1, 1, 5}, "a=b=3,ham=0.5": {0.5, 3, 1},
	} {
		if got, err := ParseClassWeights(text, names); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	if got, err := ParseClassWeights("2=5", []string{"0", "1", "2"}); err != nil || !slices.Equal(got, []float64{1, 1, 5}) {
		t.Errorf("by number: %v, %v", got, err)
	}
	for text, says := range map[string]string{
		"1,2": "2 numbers for 3 classes, ham, a=b, spam", "eggs=2": `no class "eggs"; they are ham`, "spam=x": `of class "spam" is "x"`,
		"spam=-1": "0 or a positive number", "spam=NaN": "0 or a positive", "spam=1,spam=2": "two weights", "spam=1,2": `"2" is no pair`, "0,0,0": "nothing would be learnt",
	} {
		if _, err := ParseClassWeights(text, names); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
