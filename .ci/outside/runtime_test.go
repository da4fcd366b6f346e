package outside

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/runtime"
)

// scaled is a layer of this module's: the mean of the neighbours and the node's own
// row, each by a matrix, and added.
type scaled struct{ in, out int }

func (l scaled) Params() []compute.Param {
	return []compute.Param{
		{Name: "neighbors", Shape: []int{l.out, l.in}, Init: compute.Glorot},
		{Name: "self", Shape: []int{l.out, l.in}, Init: compute.Glorot},
		{Name: "bias", Shape: []int{l.out}},
	}
}

func (l scaled) Transform(_ *compute.Context[float32], x *compute.Value[float32]) []*compute.Value[float32] {
	return []*compute.Value[float32]{x}
}

func (l scaled) Gather(_ *compute.Context[float32], _ *compute.Value[float32], h []*compute.Value[float32]) compute.Message[float32] {
	return compute.Message[float32]{Value: h[0], Reduce: cpu.Mean}
}

func (l scaled) Apply(c *compute.Context[float32], x, a *compute.Value[float32], act cpu.Activation) *compute.Value[float32] {
	return c.LinearAdd(c.Linear(a, c.Param(0), nil, cpu.Linear), x, c.Param(1), c.Param(2), act)
}

// A program that trains its own layer and answers questions over HTTP.
func TestLayerInAServer(t *testing.T) {
	cfg := runtime.DefaultConfig()
	cfg.Data.Dataset = twoRings()
	cfg.Model.Name = "scaled"
	cfg.Model.Layer = func(_, in, out int) compute.Layer[float32] { return scaled{in, out} }
	cfg.Sampling.Fanouts, cfg.Sampling.BatchSize, cfg.Training.Epochs, cfg.Model.Hidden = []int{2, 2}, 10, 60, 16
	rt, err := runtime.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rt.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, err := range rt.Train(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseUint(r.FormValue("id"), 10, 32)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p, err := rt.Predict(r.Context(), []uint32{uint32(id)})
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(p[0].Class)
	}))
	defer server.Close()
	right := 0
	for v, want := range cfg.Data.Dataset.Labels.Class {
		res, err := http.Get(server.URL + "?id=" + strconv.Itoa(v))
		if err != nil {
			t.Fatal(err)
		}
		var class int
		if err := json.NewDecoder(res.Body).Decode(&class); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if int32(class) == want {
			right++
		}
	}
	if right < 38 {
		t.Errorf("%d of 40 answers are right", right)
	}
	res, err := http.Get(server.URL + "?id=40")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("a node that is not there: %s", res.Status)
	}
}
