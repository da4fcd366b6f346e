package runtime

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// priced is small with a number of each node, far from 0 and 1, that its class and one of its features make; one in ten is not known.
func priced() *graph.Dataset {
	ds := *small()
	ds.Fingerprint, ds.Labels = "", &graph.Labels{NumClasses: 1}
	row := make([]float32, ds.NodeFeatures.Cols)
	for v, class := range small().Labels.Class {
		ds.NodeFeatures.Row(row, v)
		ds.Labels.Values = append(ds.Labels.Values, 5000+1000*float32(class)+300*row[0])
	}
	known := func(split []uint32) []uint32 {
		return slices.DeleteFunc(slices.Clone(split), func(v uint32) bool {
			if v%10 == 3 {
				ds.Labels.Values[v] = float32(math.NaN())
			}
			return v%10 == 3
		})
	}
	ds.Train, ds.Valid, ds.Test = known(ds.Train), known(ds.Valid), known(ds.Test)
	return &ds
}

func priceConfig() Config {
	c := config()
	c.Data.Dataset, c.Training.Epochs, c.Model.Dropout, c.Training.LR = priced(), 12, 0, 0.02
	return c
}

// Numbers are learnt in the data's units, whatever they are; the best is what has the smallest error, and a saved model predicts the same of
// data without labels.
func TestRegressionLearns(t *testing.T) {
	t.Parallel()
	c := priceConfig()
	c.Training.Patience, c.Training.EvalEvery = 12, 1
	r := started(t, c)
	best, figure := 0, math.Inf(1)
	for e, err := range r.Train(context.Background()) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Kind == EventEpoch && e.ValidAccuracy < figure:
			best, figure = e.Epoch+1, e.ValidAccuracy
		}
		if e.Kind == EventEpoch && (e.Best != best || e.TrainAccuracy == e.TrainAccuracy) || e.Kind == EventDone && (e.ValidAccuracy != figure || e.Best != best) {
			t.Errorf("%+v; the smallest error is epoch %d's, %v", e, best, figure)
		}
	}
	m, err := r.Evaluate(context.Background(), r.Dataset().Test)
	if err != nil || !r.Regression() || m.R2 < 0.35 || m.RMSE < m.MAE || m.MAE < 1 || m.Count != len(r.Dataset().Test) || m.Accuracy == m.Accuracy {
		t.Errorf("measured %+v, %v", m, err)
	}
	nodes := []uint32{5, 0, 599}
	want, err := r.PredictValues(context.Background(), nodes)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "model.safetensors")
	if err := r.Save(context.Background(), file); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*graph.Labels{"unlabelled": nil, "of other numbers": {NumClasses: 1, Values: make([]float32, len(c.Data.Dataset.Labels.Values))}} {
		saved, err := OpenModel(context.Background(), file)
		if err != nil {
			t.Fatal(err)
		}
		other, err := saved.Config()
		if err != nil {
			t.Fatal(err)
		}
		ds := *c.Data.Dataset
		ds.Labels, ds.Fingerprint = l, ""
		other.Data.Dataset = &ds
		if got, err := started(t, other).PredictValues(context.Background(), nodes); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
	if _, err := r.Predict(context.Background(), nodes); !errors.Is(err, ErrTask) || !strings.Contains(err.Error(), "PredictValues") {
		t.Errorf("classes of numbers: %v", err)
	}
	plain := config()
	plain.Model.Params = file
	if _, err := Start(context.Background(), plain); err == nil || !strings.Contains(err.Error(), "its labels are classes, and the model predicts numbers") {
		t.Errorf("a model of numbers on classes: %v", err)
	}
}

// The losses of numbers are of what is learnt, which has mean 0 and deviation 1, and part of a run's identity.
func TestRegressionLosses(t *testing.T) {
	t.Parallel()
	c := priceConfig()
	c.Training.Epochs, c.Training.LR, c.Training.WeightDecay = 1, 1e-9, 0
	c.Sampling.Sampler, c.Sampling.Fanouts, c.Sampling.BatchSize = "full", nil, 1<<20
	r := started(t, c)
	train := c.Data.Dataset.Train
	e, err := r.Embed(context.Background(), train)
	if err != nil {
		t.Fatal(err)
	}
	var mean, deviation, n float64
	for _, v := range train {
		mean += float64(c.Data.Dataset.Labels.Values[v]) / float64(len(train))
	}
	for _, v := range train {
		deviation += math.Pow(float64(c.Data.Dataset.Labels.Values[v])-mean, 2) / float64(len(train))
	}
	var want [3]float64
	n = float64(len(train))
	for i, v := range train {
		d := math.Abs(float64(e.Data[i]) - (float64(c.Data.Dataset.Labels.Values[v])-mean)/math.Sqrt(deviation))
		huber := d - 0.5
		if d < 1 {
			huber = d * d / 2
		}
		for k, x := range []float64{d * d, d, huber} {
			want[k] += x / n
		}
	}
	for i, name := range []string{"mse", "l1", "huber"} {
		c.Training.Loss = name
		r := started(t, c)
		if got := trained(t, r).Loss; math.Abs(got-want[i]) > 1e-5 {
			t.Errorf("%s: %v, want %v", name, got, want[i])
		}
		if id := r.identity; id.Task != "regression" || id.Recipe.Loss != map[string]string{"l1": "l1", "huber": "huber"}[name] {
			t.Errorf("%s: identity %+v", name, id)
		}
	}
}

// What does not go with numbers, or with classes, is refused by name.
func TestRegressionIsRefused(t *testing.T) {
	for says, change := range map[string]func(*Config){
		"loss: focal is of classes, and task is regression": func(c *Config) { c.Model.Task, c.Training.Loss = "regression", "focal" },
		"class-weights: is of classes":                      func(c *Config) { c.Model.Task, c.Training.ClassWeights = "regression", "balanced" },
		"label-smoothing: is of classes":                    func(c *Config) { c.Training.LabelSmoothing = 0.1 },
		"loss: l1 is of numbers, and task is node":          func(c *Config) { c.Model.Task, c.Training.Loss = "node", "l1" },
		"task: the labels are numbers":                      func(c *Config) { c.Model.Task = "node" },
		"task: the labels are classes":                      func(c *Config) { c.Model.Task, c.Data.Dataset = "regression", small() },
		"l1 is of numbers, and the labels are classes":      func(c *Config) { c.Training.Loss, c.Data.Dataset = "l1", small() },
	} {
		c := priceConfig()
		change(&c)
		if _, err := Start(context.Background(), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
