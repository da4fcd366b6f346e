package overlap

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/rng"
)

// randomSet returns size distinct nodes below n, in a random order.
func randomSet(k rng.Key, n, size int) []uint32 {
	p := make([]uint32, n)
	k.Perm(p)
	return p[:size]
}

// whole returns batches that have one part each.
func whole(batches [][]uint32) (all [][]Part) {
	for _, in := range batches {
		all = append(all, []Part{{len(in), in}})
	}
	return all
}

// greedy is the definition: windows by index, each begun with the batch closest
// to the last one (the first window: with its first), ties to the lower index.
func greedy(windows [][][]uint32) [][]int {
	var last []uint32
	first := true
	var orders [][]int
	for _, w := range windows {
		left := make([]int, len(w))
		for i := range left {
			left[i] = i
		}
		var order []int
		for len(left) > 0 {
			best := 0
			if !first {
				for i := range left {
					if Degree(last, w[left[i]]) > Degree(last, w[left[best]]) {
						best = i
					}
				}
			}
			first = false
			last = w[left[best]]
			order = append(order, left[best])
			left = slices.Delete(left, best, best+1)
		}
		orders = append(orders, order)
	}
	return orders
}

// randomWindows returns windows of batches with close sizes and chance ties.
func randomWindows(k rng.Key, n int) [][][]uint32 {
	var windows [][][]uint32
	for w := range 1 + int(k.Uintn(0, 4)) {
		kw := k.With(uint64(w))
		var window [][]uint32
		for b := range 1 + int(kw.Uintn(0, 9)) {
			kb := kw.With(uint64(b))
			window = append(window, randomSet(kb, n, int(kb.Uintn(0, uint64(min(n, 40)+1)))))
		}
		windows = append(windows, window)
	}
	return windows
}

func TestOrderIsTheBruteForceGreedy(t *testing.T) {
	for _, n := range []int{1, 8, 64, 65, 3000, 100000} {
		for seed := range uint64(60) {
			windows := randomWindows(rng.New(seed, uint64(n)), n)
			for _, m := range []Method{Exact, Sketch} { // sketches of small sets are exact
				o, err := NewOrderer(n, m)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 { // an epoch does not depend on the one before
					o.Reset()
					var got [][]int
					for _, w := range windows {
						order, err := o.Order(nil, whole(w))
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, order)
					}
					if want := greedy(windows); !slices.EqualFunc(got, want, slices.Equal) {
						t.Fatalf("%v, %d nodes, seed %d: order %v, want %v", m, n, seed, got, want)
					}
				}
			}
		}
	}
}

func TestResumeGoesOn(t *testing.T) {
	const n = 200
	for seed := range uint64(40) {
		windows := randomWindows(rng.New(seed, 7), n)
		want := greedy(windows)
		o, _ := NewOrderer(n, Exact)
		for i := 1; i < len(windows); i++ {
			before, order := windows[i-1], want[i-1]
			if err := o.Resume(whole([][]uint32{before[order[len(order)-1]]})[0]); err != nil {
				t.Fatal(err)
			}
			got, err := o.Order(nil, whole(windows[i]))
			if err != nil || !slices.Equal(got, want[i]) {
				t.Fatalf("seed %d, window %d: order %v (%v), want %v", seed, i, got, err, want[i])
			}
		}
	}
}

// Batches that have several parts have the order of their unions, and no other order by what is told of
// each part elsewhere.
func TestPartsTellTheOrder(t *testing.T) {
	for _, n := range []int{100, 3000, 30000} {
		for seed := range uint64(10) {
			k := rng.New(seed, uint64(n), 1)
			var unions [][]uint32
			var batches, told [][]Part
			for _, m := range []Method{Exact, Sketch} {
				o, err := NewOrderer(n, m)
				if err != nil {
					t.Fatal(err)
				}
				unions, batches, told = nil, nil, nil
				for b := range 6 {
					kb := k.With(uint64(b))
					var union []uint32
					var parts, sent []Part
					for p := range 1 + int(kb.Uintn(0, 4)) {
						in := randomSet(kb.With(uint64(p)), n, int(kb.Uintn(uint64(p)+1, uint64(min(n, 9000)))))
						union = append(union, in...)
						parts, sent = append(parts, Part{len(in), in}), append(sent, o.Part(in))
						if s := sent[p]; !slices.IsSorted(s.Nodes) || s.Size != len(in) || len(s.Nodes) != len(in) && (m == Exact || len(s.Nodes) != SketchSize) {
							t.Fatalf("%v: %d of %d nodes are told of %d", m, len(s.Nodes), s.Size, len(in))
						}
					}
					slices.Sort(union)
					unions, batches, told = append(unions, slices.Compact(union)), append(batches, parts), append(told, sent)
				}
				want, err := o.Order(nil, batches)
				if err != nil {
					t.Fatal(err)
				}
				o.Reset()
				if got, err := o.Order(nil, told); err != nil || !slices.Equal(got, want) {
					t.Errorf("%v, %d nodes, seed %d: by what is told %v (%v), want %v", m, n, seed, got, err, want)
				}
				if m == Exact && !slices.Equal(want, greedy([][][]uint32{unions})[0]) {
					t.Errorf("%d nodes, seed %d: %v is not the order of the unions", n, seed, want)
				}
				for b, parts := range told {
					var s set
					s.fill(parts, n, m == Sketch)
					// The number is known with a standard error of 1/√SketchSize; five of them are
					// exceeded with probability 6e-7 per set.
					limit := 0.0
					if m == Sketch && len(parts) > 1 && slices.ContainsFunc(parts, func(p Part) bool { return p.Size > SketchSize }) {
						limit = 5 / math.Sqrt(SketchSize) * float64(len(unions[b]))
					}
					if off := math.Abs(float64(s.size - len(unions[b]))); off > limit {
						t.Errorf("%v, %d nodes, seed %d: batch %d of %d nodes is taken to have %d", m, n, seed, b, len(unions[b]), s.size)
					}
				}
			}
		}
	}
}

func TestOrderRefusesUnknownNodes(t *testing.T) {
	for _, m := range []Method{Exact, Sketch} {
		o, _ := NewOrderer(10, m)
		if _, err := o.Order(nil, whole([][]uint32{{1, 2}, {10}})); err == nil {
			t.Errorf("%v: node 10 of 10 was taken", m)
		}
		if err := o.Resume([]Part{{1, []uint32{11}}}); err == nil {
			t.Errorf("%v: node 11 of 10 was taken", m)
		}
	}
	for _, p := range []Part{{3, []uint32{1, 2}}, {1, []uint32{1, 2}}, {-1, nil}} {
		o, _ := NewOrderer(10, Exact)
		if _, err := o.Order(nil, [][]Part{{p}}); err == nil {
			t.Errorf("%v was taken", p)
		}
	}
	o, _ := NewOrderer(5000, Sketch)
	twice := Part{SketchSize + 1, make([]uint32, SketchSize)} // as another process may tell
	if _, err := o.Order(nil, [][]Part{{twice, twice}}); err != nil {
		t.Error(err)
	}
	if _, err := NewOrderer(10, Auto); err == nil {
		t.Error("an orderer by auto was made")
	}
}

func TestDegree(t *testing.T) {
	for _, c := range []struct {
		a, b []uint32
		want float64
	}{
		{nil, nil, 0},
		{[]uint32{1}, nil, 0},
		{[]uint32{1, 2, 3}, []uint32{3, 4}, 0.5},
		{[]uint32{7}, []uint32{9, 8, 7}, 1},
	} {
		if got := Degree(c.a, c.b); got != c.want {
			t.Errorf("Degree(%v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// The estimate of J has standard error √(J(1−J)/k); five of them are exceeded
// with probability 6e-7 per case.
func TestSketchEstimates(t *testing.T) {
	const n = 200000
	k := rng.New(3)
	all := randomSet(k, n, n)
	for _, sizes := range [][2]int{{50000, 50000}, {100000, 10000}, {100000, 1000}, {3000, 2500}} {
		for _, overlap := range []float64{0, 0.1, 0.5, 0.9, 1} {
			a := all[:sizes[0]]
			shared := int(overlap * float64(sizes[1]))
			b := append(slices.Clone(a[:shared]), all[sizes[0]:sizes[0]+sizes[1]-shared]...)
			var s, u set
			s.fill([]Part{{len(a), a}}, n, true)
			u.fill([]Part{{len(b), b}}, n, true)
			union := float64(len(a) + len(b) - shared)
			j := float64(shared) / union
			got := float64(estimate(&s, &u))
			gotJ := got / (float64(len(a)+len(b)) - got)
			if limit := 5*math.Sqrt(j*(1-j)/SketchSize) + 2/union; math.Abs(gotJ-j) > limit {
				t.Errorf("sets of %v with %d in common: estimated %v; J %.4f is %.4f off, more than %.4f", sizes, shared, got, j, gotJ-j, limit)
			}
			if other := estimate(&u, &s); other != uint64(got) {
				t.Errorf("sets of %v with %d in common: %v one way, %v the other", sizes, shared, got, other)
			}
		}
	}
}

func TestMethods(t *testing.T) {
	for _, m := range []Method{Auto, Exact, Sketch} {
		if got, err := ParseMethod(m.String()); err != nil || got != m {
			t.Errorf("ParseMethod(%q) = %v, %v", m.String(), got, err)
		}
	}
	if _, err := ParseMethod("fast"); err == nil {
		t.Error("an unknown method was taken")
	}
	if m, _ := ParseMethod(""); m.For(ExactWindow) != Exact || m.For(ExactWindow+1) != Sketch || Exact.For(1000) != Exact {
		t.Error("auto does not choose by the window's size")
	}
}

func TestOrderAllocatesNothing(t *testing.T) {
	k := rng.New(1)
	var window [][]uint32
	for b := range 6 {
		window = append(window, randomSet(k.With(uint64(b)), 5000, 4000))
	}
	for _, m := range []Method{Exact, Sketch} {
		o, _ := NewOrderer(5000, m)
		order := make([]int, 0, 6)
		batches := whole(window)
		run := func() { order, _ = o.Order(order[:0], batches) }
		run()
		run()
		if n := testing.AllocsPerRun(10, run); n != 0 {
			t.Errorf("%v: %v allocations per window", m, n)
		}
	}
}

// BenchmarkOrder orders windows of batches of 10⁵ inputs of a graph of 2 M
// nodes; the metric is the time per batch.
func BenchmarkOrder(b *testing.B) {
	const n, size = 2 << 20, 100000
	k := rng.New(5)
	all := make([][]uint32, 64)
	for i := range all {
		s := make([]uint32, 0, size)
		seen := make(map[uint32]bool, size)
		for j := uint64(0); len(s) < size; j++ {
			// about as skewed as the inputs of sampled batches
			f := k.With(uint64(i)).Float64(j)
			if u := uint32(f * f * n); !seen[u] {
				seen[u] = true
				s = append(s, u)
			}
		}
		all[i] = s
	}
	for _, m := range []Method{Exact, Sketch} {
		for _, w := range []int{8, 32, 64} {
			b.Run(fmt.Sprintf("%v/window=%d", m, w), func(b *testing.B) {
				o, _ := NewOrderer(n, m)
				var order []int
				batches := whole(all[:w])
				for b.Loop() {
					order, _ = o.Order(order[:0], batches)
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*w), "µs/batch")
			})
		}
	}
}
