package runtime

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// Balanced weights are scikit-learn's compute_class_weight("balanced"), and of labels (negatives/positives), with classes that no training
// node has, or all.
func TestBalancedWeights(t *testing.T) {
	single := &graph.Labels{NumClasses: 4, Class: []int32{0, 0, 0, 2, 3, graph.Unlabeled, 1}}
	if got, want := balanced(single, []uint32{0, 1, 2, 3, 4, 5}), []float64{5. / 9, 1, 5. / 3, 5. / 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	multi := &graph.Labels{NumClasses: 3, Multi: []uint8{1, 0, 1 /**/, 0, 0, 1 /**/, 0, 0, 1 /**/, 0, 1, 1}}
	if got, want := balanced(multi, []uint32{0, 1, 2}), []float64{2, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("several labels: got %v, want %v", got, want)
	}
}

func TestParseClassWeights(t *testing.T) {
	recipe := []byte(`{"version":1,"label":{"column":"kind","classes":["ham","a=b","spam"]}}`)
	for text, want := range map[string][]float64{
		"1, 2.5,0": {1, 2.5, 0}, "spam=5": {1, 1, 5}, "a=b=3,ham=0.5": {0.5, 3, 1},
	} {
		if got, err := parseClassWeights(text, recipe, 3); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	if got, err := parseClassWeights("2=5", nil, 3); err != nil || !slices.Equal(got, []float64{1, 1, 5}) {
		t.Errorf("by number: %v, %v", got, err)
	}
	for text, says := range map[string]string{
		"1,2": "2 numbers for 3 classes, ham, a=b, spam", "eggs=2": `no class "eggs"; they are ham`, "spam=x": `of class "spam" is "x"`,
		"spam=-1": "0 or a positive number", "spam=NaN": "0 or a positive", "spam=1,spam=2": "two weights", "spam=1,2": `"2" is no pair`, "0,0,0": "nothing would be learnt",
	} {
		if _, err := parseClassWeights(text, recipe, 3); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// What training reports is the loss that was asked for, and the parameters follow it.
func TestLossesTrain(t *testing.T) {
	t.Parallel()
	c := config()
	c.Training.Epochs, c.Training.LR, c.Training.WeightDecay, c.Model.Dropout = 1, 1e-9, 0, 0
	c.Sampling.Sampler, c.Sampling.Fanouts, c.Sampling.BatchSize = "full", nil, 1<<20
	train := func(change func(*Config)) float64 {
		v := c
		change(&v)
		return trained(t, started(t, v)).Loss
	}
	plain := train(func(*Config) {})
	l := c.Data.Dataset.Labels
	only := slices.Repeat([]string{"0"}, l.NumClasses)
	only[1] = "3"
	r := started(t, c)
	e, err := r.Embed(context.Background(), c.Data.Dataset.Train)
	if err != nil {
		t.Fatal(err)
	}
	var want, focal, smooth, n float64
	for i, v := range c.Data.Dataset.Train {
		row, class := e.Data[i*e.Cols:(i+1)*e.Cols], int(l.Class[v])
		ce := crossEntropy(row, class)
		focal += math.Pow(1-math.Exp(-ce), 1.5) * ce / float64(e.Rows)
		for j := range row {
			smooth += 0.3 * crossEntropy(row, j) / float64(e.Cols*e.Rows)
		}
		smooth += 0.7 * ce / float64(e.Rows)
		if class == 1 {
			want, n = want+ce, n+1
		}
	}
	for what, x := range map[string][2]float64{
		"weights": {want / n, train(func(c *Config) { c.Training.ClassWeights = strings.Join(only, ",") })},
		"focal":   {focal, train(func(c *Config) { c.Training.Loss, c.Training.FocalGamma = "focal", 1.5 })},
		"smooth":  {smooth, train(func(c *Config) { c.Training.LabelSmoothing = 0.3 })},
	} {
		if math.Abs(x[0]-x[1]) > 1e-5 || math.Abs(x[1]-plain) < 1e-4 {
			t.Errorf("%s: loss %v, want %v; the cross-entropy is %v", what, x[1], x[0], plain)
		}
	}
}

// A loss that does not suit the task, the data or where it is computed is refused by name.
func TestLossesAreRefused(t *testing.T) {
	for says, change := range map[string]func(*Config){
		`loss: "hinge" is not one of cross-entropy, focal`:     func(c *Config) { c.Training.Loss = "hinge" },
		"focal-gamma: is of the focal loss":                    func(c *Config) { c.Training.FocalGamma = 1 },
		"focal-gamma: -1 must be":                              func(c *Config) { c.Training.Loss, c.Training.FocalGamma = "focal", -1 },
		"label-smoothing: 1 is not in":                         func(c *Config) { c.Training.LabelSmoothing = 1 },
		"label-smoothing: smooths":                             func(c *Config) { c.Training.Loss, c.Training.LabelSmoothing = "focal", 0.1 },
		"class-weights: is of nodes with classes, and task is": func(c *Config) { c.Model.Task, c.Training.ClassWeights = "link", "balanced" },
		"class-weights: 2 numbers for":                         func(c *Config) { c.Training.ClassWeights = "1,2" },
	} {
		c := config()
		change(&c)
		if _, err := Start(context.Background(), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
