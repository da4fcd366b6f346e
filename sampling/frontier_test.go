package sampling

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/gnnactor/gnnactor/rng"
)

// fenwick is the frontier's queue as a tree of partial sums: the definition,
// with no rejection.
type fenwick struct {
	sums  []int // 1-based
	nodes []uint32
	free  []int
	size  int
}

func newFenwick(size int) *fenwick { return &fenwick{size: size} }

func (f *fenwick) reset() {
	f.sums, f.nodes, f.free = make([]int, f.size+1), make([]uint32, f.size+1), f.free[:0]
	for i := f.size; i >= 1; i-- {
		f.free = append(f.free, i)
	}
}

func (f *fenwick) add(i, delta int) {
	for ; i <= f.size; i += i & -i {
		f.sums[i] += delta
	}
}

func (f *fenwick) push(node uint32, weight int) {
	i := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.nodes[i] = node
	f.add(i, weight)
}

func (f *fenwick) prefix(i int) (sum int) {
	for ; i > 0; i -= i & -i {
		sum += f.sums[i]
	}
	return sum
}

func (f *fenwick) pop(key rng.Key) uint32 {
	x := int(key.Uintn(0, uint64(f.prefix(f.size))))
	i := 0
	for step := 1 << (bits.Len(uint(f.size)) - 1); step > 0; step /= 2 {
		if i+step <= f.size && f.sums[i+step] <= x {
			i += step
			x -= f.sums[i]
		}
	}
	i++
	f.add(i, -(f.prefix(i) - f.prefix(i-1)))
	f.free = append(f.free, i)
	return f.nodes[i]
}

// Two pops with a push in between have known probabilities; arrays that are too
// small for their pins are compacted, or grown, on the way. For other seeds each
// case would fail with probability 1e-4.
func TestQueuesPopInProportion(t *testing.T) {
	weights := []int{5, 3, 1, 7}
	const pushed = 4
	for _, c := range []struct {
		name  string
		queue weightedQueue
	}{{"fenwick", newFenwick(4)}, {"dashboard", newDashboard(1000)}, {"dashboard, full", newDashboard(16)}, {"dashboard, growing", newDashboard(1)}} {
		const draws = 50000
		counts := make([]int, 4*5)
		for i := range draws {
			key := rng.New(6, uint64(i))
			c.queue.reset()
			for u, w := range weights {
				c.queue.push(uint32(u), w)
			}
			first := c.queue.pop(key.With(1))
			c.queue.push(4, pushed)
			counts[first*5+c.queue.pop(key.With(2))]++
		}
		var seen []int
		var expected []float64
		for i, w := range weights {
			for j, x := range append(weights, pushed) {
				if i == j {
					if counts[i*5+j] != 0 {
						t.Errorf("%s: item %d was popped twice", c.name, i)
					}
					continue
				}
				seen = append(seen, counts[i*5+j])
				expected = append(expected, draws*float64(w)/16*float64(x)/float64(16-w+pushed))
			}
		}
		if p := pValue(seen, expected, len(seen)-1); p < 1e-4 {
			t.Errorf("%s: p = %g", c.name, p)
		}
	}
}

// The frontier over the Dashboard is the same process as over the Fenwick tree:
// the subgraphs have the same mean size and degree. For other seeds it would
// fail with probability 1e-5 a comparison.
func TestFrontierDashboardAgainstFenwick(t *testing.T) {
	g := symmetric(skewed(3000, 60, 5))
	spec := Spec{Name: "frontier", Layers: 1, Frontier: 50, Budget: 400, DegreeCap: 30}
	measure := func(queue weightedQueue) (mean, sigma [2]float64) {
		s := mustPrepare(t, spec, g).factory().(*subgraphs)
		if queue != nil {
			s.drawer.(*frontier).queue = queue
		}
		const draws = 2000
		var sum, square [2]float64
		for i := range draws {
			s.nodes(ID{}, rng.New(2, uint64(i)))
			degrees := 0.0
			for _, u := range s.set.nodes {
				degrees += float64(g.Degree(u))
			}
			for j, x := range []float64{float64(len(s.set.nodes)), degrees / float64(len(s.set.nodes))} {
				sum[j] += x
				square[j] += x * x
			}
		}
		for j := range mean {
			mean[j] = sum[j] / draws
			sigma[j] = math.Sqrt((square[j]/draws - mean[j]*mean[j]) / draws)
		}
		return mean, sigma
	}
	a, sa := measure(nil)
	b, sb := measure(newFenwick(spec.Frontier))
	for j, name := range []string{"nodes", "degree"} {
		if z := (a[j] - b[j]) / math.Hypot(sa[j], sb[j]); math.Abs(z) > 4.4 {
			t.Errorf("mean %s is %.3f ± %.3f by the Dashboard, %.3f ± %.3f by the tree", name, a[j], sa[j], b[j], sb[j])
		}
	}
}

func TestFrontierBudget(t *testing.T) {
	g := symmetric(skewed(3000, 60, 5))
	for _, distinct := range []bool{false, true} {
		s := mustPrepare(t, Spec{Name: "frontier", Layers: 1, Frontier: 20, Budget: 200, Distinct: distinct}, g).NewSampler()
		var b Batch
		if err := s.Sample(&b, 4, nil); err != nil {
			t.Fatal(err)
		}
		if n := b.NumInputs(); n > 200 || distinct && n != 200 || !distinct && n < 100 {
			t.Errorf("distinct %v: %d nodes", distinct, n)
		}
	}
	// A component of two nodes has no third: the walk gives up.
	pair := fromRows([]uint32{1}, []uint32{0}, []uint32{3}, []uint32{2}, nil)
	s := mustPrepare(t, Spec{Name: "frontier", Layers: 1, Frontier: 1, Budget: 10, Distinct: true}, pair).NewSampler()
	var b Batch
	if err := s.Sample(&b, 4, nil); err != nil || b.NumInputs() != 2 {
		t.Errorf("%d nodes of a component of two, error %v", b.NumInputs(), err)
	}
}

// BenchmarkFrontierQueue draws frontier nodes from either queue, four for each
// place of the frontier or 8000, and says what inducing the subgraph adds.
func BenchmarkFrontierQueue(b *testing.B) {
	g := loadBenchGraph(b)
	for _, m := range []int{100, 1000, 10_000, 100_000} {
		budget := max(8000, 4*m)
		p := mustPrepare(b, Spec{Name: "frontier", Layers: 1, Frontier: m, Budget: budget}, g)
		for _, name := range []string{"dashboard", "dashboard without SIMD", "fenwick"} {
			b.Run(fmt.Sprintf("m=%d/%s", m, name), func(b *testing.B) {
				if name == "dashboard without SIMD" {
					if !simd {
						b.Skip("there is none")
					}
					setSIMD(false)
					defer setSIMD(true)
				}
				s := p.factory().(*subgraphs)
				if name == "fenwick" {
					s.drawer.(*frontier).queue = newFenwick(m)
				}
				for i := range b.N {
					s.set.clear()
					s.drawer.draw(s.set, ID{}, rng.New(1, uint64(i)))
				}
				b.ReportMetric(float64(b.N)*float64(budget)/b.Elapsed().Seconds()/1e6, "Mpops/s")
			})
		}
	}
	p := mustPrepare(b, Spec{Name: "frontier", Layers: 1, Frontier: 1000, Budget: 8000}, g)
	for _, size := range []string{"nodes only", "induced"} {
		b.Run(fmt.Sprintf("dashboard, %s", size), func(b *testing.B) {
			s := p.factory().(*subgraphs)
			var out block
			for i := range b.N {
				s.nodes(ID{}, rng.New(1, uint64(i)))
				if size == "induced" {
					s.inducer.induce(s.set, &out)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "subgraphs/s")
		})
	}
}
