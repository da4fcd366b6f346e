package runtime

import (
	"errors"
	"math"
	"reflect"
	"testing"
)

// Over all neighbours sampled inference is the exact one; over some it is repeatable, and a node's does not depend on what else is asked for.
func TestInferSampled(t *testing.T) {
	for _, model := range []string{"sage", "gcn", "gat"} {
		c := config()
		c.Model.Name = model
		r := started(t, c)
		ids := make([]uint32, 600)
		for i := range ids {
			ids[i] = uint32(len(ids) - 1 - i)
		}
		sampled := func(ids []uint32, fanouts ...int) *Embedding {
			e, err := r.EmbedSampled(t.Context(), ids, fanouts)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		apart := func(a, b []float32) (most float64) {
			for i := range a {
				most = max(most, math.Abs(float64(a[i]-b[i])))
			}
			return most
		}
		exact, err := r.Embed(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		if d := apart(exact.Data, sampled(ids, -1, -1).Data); d > 1e-5 {
			t.Errorf("%s: all neighbours are %v apart from exact inference", model, d)
		}
		some := sampled(ids, 2, 2)
		if d := apart(exact.Data, some.Data); d < 1e-3 {
			t.Errorf("%s: two neighbours are only %v apart from exact inference", model, d)
		}
		if !reflect.DeepEqual(some, sampled(ids, 2, 2)) {
			t.Errorf("%s: sampled inference is not repeatable", model)
		}
		one := sampled(ids[17:19], 2, 2)
		if d := apart(one.Data, some.Data[17*some.Cols:19*some.Cols]); d > 1e-5 {
			t.Errorf("%s: two nodes alone are %v apart from the same among others", model, d)
		}
		for _, bad := range [][]int{{2}, {2, 0}, nil} {
			if _, err := r.EmbedSampled(t.Context(), ids, bad); !errors.Is(err, ErrConfig) {
				t.Errorf("%s: fan-outs %v: %v", model, bad, err)
			}
		}
	}
}
