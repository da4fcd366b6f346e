package compute

import (
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// Statistics that travel apart leave the same bits as Observe, and bytes that do
// not fit the model are refused without harm.
func TestStatisticsTravel(t *testing.T) {
	m := mustModel(t, Spec{Model: "gin", Layers: 3, Hidden: 5, InDim: 4, OutDim: 3, Norm: "batch"}, randomGraph(12, 3, false, 1))
	want := m.Init(1)
	got := slices.Clone(want)
	for step := range 4 {
		grad := make([]float32, len(want))
		for i := range grad {
			grad[i] = float32(i%7+step) / 3
		}
		if step == 2 { // a micro-batch of one row saw nothing
			for _, s := range m.statistics {
				s.clear(grad)
			}
		}
		apart := slices.Clone(grad)
		m.Observe(want, grad, testExec(t, 1, cpu.Go))
		b := m.TakeStatistics([]byte("head"), apart)[4:]
		if !slices.Equal(apart, grad) {
			t.Fatalf("step %d: the gradients left behind differ", step)
		}
		before := slices.Clone(got)
		for _, bad := range [][]byte{nil, b[:len(b)-1], append(slices.Clone(b), 0), append([]byte{2}, b[1:]...)} {
			if err := m.ObserveStatistics(got, bad); err == nil || !slices.Equal(got, before) {
				t.Fatalf("step %d: %d of %d bytes: %v", step, len(bad), len(b), err)
			}
		}
		if err := m.ObserveStatistics(got, b); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("step %d: other statistics", step)
		}
	}
	if slices.Equal(got, m.Init(1)) {
		t.Fatal("nothing was observed")
	}
}

func FuzzObserveStatistics(f *testing.F) {
	m := mustModel(f, Spec{Model: "sage", Layers: 2, Hidden: 2, InDim: 4, OutDim: 3, Norm: "batch"}, randomGraph(5, 2, false, 1))
	f.Add(m.TakeStatistics(nil, m.Init(1)))
	f.Add([]byte{1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		params := m.Init(1)
		if err := m.ObserveStatistics(params, b); err != nil && !slices.Equal(params, m.Init(1)) {
			t.Fatal("refused bytes changed the parameters")
		}
	})
}
