package machinelimits

import (
	"math"
	"testing"
)

func machine(t *testing.T) *Machine {
	t.Helper()
	m, err := New(1<<20, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func total(s [16]float32) (sum float64) {
	for _, v := range s {
		sum += float64(v)
	}
	return sum
}

// The loops do the work that they are counted for: sums and copies are those
// of the rows read. All sums here are exact in float32.
func TestLoops(t *testing.T) {
	m := machine(t)
	var got, want [16]float32
	readSum(&got, m.table[256:256+32*40])
	portableRead(&want, m.table[256:256+32*40])
	if total(got) != total(want) || total(got) == 0 {
		t.Errorf("read: sum %v, want %v", total(got), total(want))
	}
	const rows = 50
	ids := m.ids[1][:rows+ahead]
	got, want = [16]float32{}, [16]float32{}
	gatherSum(&got, m.table, ids)
	portableGather(&want, m.table, ids)
	if total(got) != total(want) || total(got) == 0 {
		t.Errorf("gather: sum %v, want %v", total(got), total(want))
	}
	dense := make([]float32, rows*RowLen)
	copyDense(dense, m.table, ids)
	for i, id := range ids[:rows] {
		for j := range RowLen {
			if dense[i*RowLen+j] != m.table[int(id)*RowLen+j] {
				t.Fatalf("row %d, column %d was not copied", i, j)
			}
		}
	}
}

func TestMeasure(t *testing.T) {
	m := machine(t)
	for _, l := range All() {
		for threads := 1; threads <= 2; threads++ {
			if v := m.Measure(l, threads); !(v > 0) || math.IsInf(v, 0) {
				t.Errorf("%s on %d threads: %v", l, threads, v)
			}
		}
	}
}

func TestNew(t *testing.T) {
	for _, c := range [][2]int{{1 << 15, 1}, {1<<20 + 1, 1}, {0, 1}, {1 << 20, 0}} {
		if _, err := New(c[0], c[1]); err == nil {
			t.Errorf("a table of %d bytes for %d threads was accepted", c[0], c[1])
		}
	}
}

func BenchmarkMeasure(b *testing.B) {
	m, err := New(1<<30, 2)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	for _, l := range All() {
		b.Run(string(l), func(b *testing.B) {
			best := 0.0
			for b.Loop() {
				best = max(best, m.Measure(l, 1))
			}
			unit, _ := l.Unit()
			b.ReportMetric(best, unit)
		})
	}
}
