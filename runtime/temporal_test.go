package runtime

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// timed returns small with times, its splits among nodes of time 5 or less, and
// the features of newer nodes multiplied by scale.
func timed(scale float32) *graph.Dataset {
	ds := *small()
	n := ds.Graph.NumNodes()
	ds.NodeTimes = make([]int64, n)
	x, stride, _ := ds.NodeFeatures.Float32s()
	x = slices.Clone(x)
	for v := range n {
		ds.NodeTimes[v] = int64(v*7%10 + 1)
		if ds.NodeTimes[v] > 5 {
			for j := range ds.NodeFeatures.Cols {
				x[v*stride+j] *= scale
			}
		}
	}
	ds.NodeFeatures = graph.NewFeatures(n, ds.NodeFeatures.Cols, x)
	newer := func(v uint32) bool { return ds.NodeTimes[v] > 5 }
	for _, split := range []*[]uint32{&ds.Train, &ds.Valid, &ds.Test} {
		*split = slices.DeleteFunc(slices.Clone(*split), newer)
	}
	ds.Fingerprint = ""
	return &ds
}

// With a temporal sampler nothing of the future reaches a parameter, an accuracy
// or a prediction: changing it changes none of them. Without, it does.
func TestTemporalSeesNoFuture(t *testing.T) {
	type result struct {
		Params      string
		Valid, Test float64
		Predicted   []Prediction
	}
	run := func(scale float32, temporal, sampler string) result {
		c := config()
		c.Data.Dataset, c.Sampling.Sampler = timed(scale), sampler
		c.Sampling.Options = map[string]string{"temporal": temporal}
		r := started(t, c)
		e := trained(t, r)
		ids := append(slices.Clone(c.Data.Dataset.Test), c.Data.Dataset.Test[0])
		p, err := r.Predict(context.Background(), ids)
		if err != nil {
			t.Fatal(err)
		}
		return result{sumOf(t, r), e.ValidAccuracy, e.TestAccuracy, p}
	}
	for _, sampler := range []string{"neighbor", "khop"} {
		if a, b := run(1, "true", sampler), run(-30, "true", sampler); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: another future, another result: accuracies %v %v and %v %v", sampler, a.Valid, a.Test, b.Valid, b.Test)
		}
		if a, b := run(1, "false", sampler), run(-30, "false", sampler); a.Params == b.Params {
			t.Errorf("%s: without the constraint the future is not seen either; the test proves nothing", sampler)
		}
	}
}

// Inference on whole neighbourhoods under a constraint that excludes nothing is
// exact inference.
func TestTemporalInferenceIsExact(t *testing.T) {
	ds := timed(1)
	for v := range ds.NodeTimes {
		ds.NodeTimes[v] = 1
	}
	var got [2]*Embedding
	for i, temporal := range []string{"true", "false"} {
		c := config()
		c.Data.Dataset, c.Sampling.Options = ds, map[string]string{"temporal": temporal}
		r := started(t, c)
		var err error
		if got[i], err = r.Embed(context.Background(), ds.Test); err != nil {
			t.Fatal(err)
		}
	}
	for i, x := range got[0].Data {
		if d := x - got[1].Data[i]; d > 1e-5 || d < -1e-5 {
			t.Fatalf("value %d is %v, exactly %v", i, x, got[1].Data[i])
		}
	}
}
