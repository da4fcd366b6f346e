package main

import (
	"bytes"
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/gnnactor/gnnactor/internal/leak"
	"github.com/gnnactor/gnnactor/runtime"
)

func TestMain(m *testing.M) { leak.Main(m) }

// The model learns, and more than features alone tell.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	accuracy, err := run(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := runtime.Start(t.Context(), runtime.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Stop()
	baseline, err := rt.BaselineAccuracy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if accuracy < baseline+0.1 {
		t.Errorf("accuracy %v, from features alone %v\n%s", accuracy, baseline, out.String())
	}
}

// A step goes down the gradient of the loss: compared with finite differences.
func TestStep(t *testing.T) {
	h := mat.NewDense(3, 2, []float64{1, 2, -1, 0.5, 0.3, -2})
	class := []int32{0, 2, 1}
	w := []float64{0.1, -0.2, 0.3, 0.4, 0.5, -0.6}
	lossAt := func(w []float64) float64 {
		m := &softmax{w: mat.NewDense(2, 3, append([]float64(nil), w...))}
		return m.step(h, class, 0)
	}
	m := &softmax{w: mat.NewDense(2, 3, append([]float64(nil), w...))}
	m.step(h, class, 1)
	for i := range w {
		const eps = 1e-6
		up, down := append([]float64(nil), w...), append([]float64(nil), w...)
		up[i] += eps
		down[i] -= eps
		want := (lossAt(up) - lossAt(down)) / (2 * eps) / float64(len(class))
		if got := w[i] - m.w.RawMatrix().Data[i]; math.Abs(got-want) > 1e-8 {
			t.Errorf("weight %d moved by %v, the gradient is %v", i, got, want)
		}
	}
}
