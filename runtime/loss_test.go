package runtime

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
)

// Classes have the names that the data's recipe has, or else their numbers.
func TestClassNames(t *testing.T) {
	for recipe, want := range map[string][]string{`{"version":1,"label":{"column":"kind","classes":["ham","a=b","spam"]}}`: {"ham", "a=b", "spam"}, "": {"0", "1", "2"}} {
		var b []byte
		if recipe != "" {
			b = []byte(recipe)
		}
		if got, err := classNames(b, 3); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", recipe, got, err)
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
		ce := compute.CrossEntropy(row, class)
		focal += math.Pow(1-math.Exp(-ce), 1.5) * ce / float64(e.Rows)
		for j := range row {
			smooth += 0.3 * compute.CrossEntropy(row, j) / float64(e.Cols*e.Rows)
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
