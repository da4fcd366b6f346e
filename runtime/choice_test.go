package runtime

import (
	"math"
	"reflect"
	"testing"
)

// Classes are chosen by rank, by threshold or both; probabilities are of classes that exclude each other, or of each label by itself.
func TestChoice(t *testing.T) {
	e := &Embedding{Rows: 2, Cols: 3, Data: []float32{0, 2, 2, -1, -3, -2}}
	one, each := e.Probabilities(false), e.Probabilities(true)
	for i, want := range []float64{1, math.Exp(2), math.Exp(2), math.Exp(-1), math.Exp(-3), math.Exp(-2)} {
		sum := []float64{1 + 2*math.Exp(2), math.Exp(-1) + math.Exp(-3) + math.Exp(-2)}[i/3]
		if math.Abs(float64(one.Data[i])-want/sum) > 1e-7 || math.Abs(float64(each.Data[i])-want/(1+want)) > 1e-7 {
			t.Errorf("value %d: %v of one class, %v of a label; want %v and %v", i, one.Data[i], each.Data[i], want/sum, want/(1+want))
		}
	}
	for _, test := range []struct {
		multi bool
		c     Choice
		want  [2][]int
	}{
		{false, Choice{}, [2][]int{{1}, {0}}},
		{true, Choice{}, [2][]int{{1, 2, 0}, {}}}, // 0 is as probable as not
		{false, Choice{Top: 2}, [2][]int{{1, 2}, {0, 2}}},
		{true, Choice{Top: 5}, [2][]int{{1, 2, 0}, {0, 2, 1}}},
		{true, Choice{Threshold: 0.2}, [2][]int{{1, 2, 0}, {0}}},
		{false, Choice{Top: 1, Threshold: 0.6}, [2][]int{{}, {0}}},
	} {
		for i, found := range e.Predictions(test.multi, test.c) {
			classes := []int{}
			p := e.Probabilities(test.multi)
			for _, x := range found {
				classes = append(classes, x.Class)
				if x.Probability != p.Data[3*i+x.Class] {
					t.Errorf("class %d of row %d has probability %v, and %v", x.Class, i, x.Probability, p.Data[3*i+x.Class])
				}
			}
			if !reflect.DeepEqual(classes, test.want[i]) {
				t.Errorf("several %v, %+v: row %d is %v, want %v", test.multi, test.c, i, classes, test.want[i])
			}
		}
	}
}
