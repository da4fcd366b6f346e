package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/rng"
)

// attentionCase is one attention and what goes into it.
type attentionCase[T Float] struct {
	a        Attention[T]
	dynamic  bool
	src, dst Matrix[T] // scores, or values and right
	v, dy    Matrix[T]
	att      []T
}

// attentionShape says which of the options a case has.
type attentionShape struct {
	heads, cols                int
	dynamic, loops, edge, drop bool
}

func newAttention(b *graph.Block, s attentionShape) attentionCase[float32] {
	r := source(70)
	c := attentionCase[float32]{dynamic: s.dynamic, v: random[float32](r, b.NumSrc, s.heads*s.cols, 1), dy: random[float32](r, b.NumDst, s.heads*s.cols, 2)}
	c.a = Attention[float32]{Block: b, Heads: s.heads, Slope: 0.2, Loops: s.loops}
	if s.dynamic {
		c.src, c.dst, c.att = c.v, random[float32](r, b.NumDst, s.heads*s.cols, 0), random[float32](r, 1, s.heads*s.cols, 0).Data
	} else {
		c.src, c.dst = random[float32](r, b.NumSrc, s.heads, 3), random[float32](r, b.NumDst, s.heads, 1)
	}
	if s.edge && !s.dynamic {
		c.a.Edge = random[float32](r, 1, len(b.Indices)*s.heads, 0).Data
	}
	if s.drop {
		c.a.Drop = &Dropped{Key: rng.New(1, 2), P: 0.4}
	}
	return c
}

func (c *attentionCase[T]) wide() attentionCase[float64] {
	a := c.a
	return attentionCase[float64]{dynamic: c.dynamic, src: widenMatrix(c.src), dst: widenMatrix(c.dst), v: widenMatrix(c.v), dy: widenMatrix(c.dy), att: widen(c.att),
		a: Attention[float64]{Block: a.Block, Heads: a.Heads, Slope: float64(a.Slope), Loops: a.Loops, Edge: widen(a.Edge), Drop: a.Drop}}
}

// run runs c forward and backward and returns all results by name.
func (c *attentionCase[T]) run(x *Exec, t *Transpose) map[string]Matrix[T] {
	a := c.a
	b := a.Block
	n, cols := len(b.Indices), c.v.Cols
	a.Alpha = make([]T, n*a.Heads)
	if a.Loops {
		a.Self = make([]T, b.NumDst*a.Heads)
	}
	out := map[string]Matrix[T]{"y": NewMatrix[T](b.NumDst, cols)}
	if c.dynamic {
		a.Dynamic(x, c.src, c.dst, c.att)
	} else {
		a.Additive(x, c.src, c.dst)
	}
	out["alpha"] = Dense(n, a.Heads, a.Alpha)
	a.Sum(x, out["y"], c.v)
	ds, dself := make([]T, len(a.Alpha)), make([]T, len(a.Self))
	dv := NewMatrix[T](b.NumSrc, cols)
	a.Backward(x, t, dv, c.dy, c.v, ds, dself)
	out["dv"] = dv
	dsrc, ddst := NewMatrix[T](c.src.Rows, c.src.Cols), NewMatrix[T](c.dst.Rows, c.dst.Cols)
	if c.dynamic {
		datt := NewMatrix[T](1, len(c.att))
		a.DynamicBackward(x, t, ds, dself, c.src, c.dst, c.att, dsrc, ddst, datt.Data)
		out["datt"] = datt
	} else {
		var dedge []T
		if a.Edge != nil {
			dedge = make([]T, n*a.Heads)
			out["dedge"] = Dense(n, a.Heads, dedge)
		}
		a.AdditiveBackward(x, t, ds, dself, c.src, c.dst, dsrc, ddst, dedge)
	}
	out["dsrc"], out["ddst"] = dsrc, ddst
	return out
}

func attentionShapes(quick bool) []attentionShape {
	var all []attentionShape
	for _, heads := range []int{1, 2, 3, 4, 8, 16} {
		for _, cols := range []int{1, 7, 8, 19, 33} {
			for k := range 6 {
				if quick && (heads == 16 || cols > 8 || cols == 1) {
					continue
				}
				all = append(all, attentionShape{heads, cols, k%2 > 0, k%3 > 0, k%4 < 2, k > 3})
			}
		}
	}
	return all
}

// attentionBlock has an empty row, entries of destinations to themselves, a row
// of over 1500 entries, and sources that nobody attends to.
func attentionBlock(r *rand.Rand) *graph.Block {
	b := randomBlock(r, 37, 60, 7)
	for i := range 37 {
		if e := b.Indptr[i]; i%5 == 0 && e < b.Indptr[i+1] {
			b.Indices[e] = uint32(i)
		}
	}
	return b
}

// TestAttentionSets compares every set in float32 with the portable path in
// float64, which finite differences check: every value within 1e-5 of the
// tensor's largest, times the square root of the longest sum.
func TestAttentionSets(t *testing.T) {
	b := attentionBlock(source(71))
	eachExec(t, func(t *testing.T, x *Exec) {
		var tr Transpose
		tr.Build(x, b)
		for _, s := range attentionShapes(false) {
			c := newAttention(b, s)
			w := c.wide()
			want := w.run(newExec(t, Go, 1), &tr)
			for name, got := range c.run(x, &tr) {
				most := 0.0
				for _, v := range want[name].Data {
					most = max(most, math.Abs(v))
				}
				for i := range got.Rows {
					for j, v := range got.Row(i) {
						if d := math.Abs(float64(v) - want[name].Row(i)[j]); !(d <= 2e-5*most) {
							t.Fatalf("%+v: %s(%d, %d) = %v, want %v; the largest is %v", s, name, i, j, v, want[name].Row(i)[j], most)
						}
					}
				}
			}
		}
	})
}

// TestAttentionBits checks that the number of workers changes no bit.
func TestAttentionBits(t *testing.T) {
	b := randomBlock(source(72), 300, 500, 9)
	for _, set := range sets() {
		one, two := newExec(t, set, 1), newExec(t, set, 2)
		var tr Transpose
		tr.Build(one, b)
		for _, s := range attentionShapes(true) {
			c := newAttention(b, s)
			want := c.run(one, &tr)
			for name, got := range c.run(two, &tr) {
				sameBits(t, fmt.Sprintf("%v %+v %s", set, s, name), got, want[name])
			}
		}
	}
}

// TestAttentionSingle checks a graph of one node: with a loop its weight is 1,
// without it the sum is empty.
func TestAttentionSingle(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		b := &graph.Block{NumDst: 1, NumSrc: 1, Indptr: []int64{0, 0}}
		var tr Transpose
		tr.Build(x, b)
		for _, s := range []attentionShape{{heads: 8, cols: 8}, {heads: 8, cols: 8, loops: true}, {heads: 3, cols: 5, loops: true, dynamic: true}} {
			c := newAttention(b, s)
			y := c.run(x, &tr)["y"]
			for j, v := range y.Row(0) {
				want := float32(0)
				if s.loops {
					want = c.v.Row(0)[j]
				}
				if v != want {
					t.Fatalf("%+v: column %d is %v, want %v", s, j, v, want)
				}
			}
		}
	})
}

// TestAttentionNaN checks that a NaN among the scores reaches exactly the
// destinations that see it, in its head, and one among the values those that
// sum it, in its column.
func TestAttentionNaN(t *testing.T) {
	b := randomBlock(source(73), 20, 40, 5)
	sees := func(i int) bool {
		for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
			if b.Indices[e] == 33 {
				return true
			}
		}
		return false
	}
	eachExec(t, func(t *testing.T, x *Exec) {
		var tr Transpose
		tr.Build(x, b)
		for _, heads := range []int{1, 3, 4, 8} {
			c := newAttention(b, attentionShape{heads: heads, cols: 5})
			c.src.Row(33)[0] = float32(math.NaN())
			c.v.Row(33)[5*heads-1] = float32(math.NaN())
			y := c.run(x, &tr)["y"]
			for i := range y.Rows {
				for j, v := range y.Row(i) {
					if want := sees(i) && (j < 5 || j == 5*heads-1); (v != v) != want {
						t.Fatalf("%d heads: (%d, %d) = %v, NaN wanted: %v", heads, i, j, v, want)
					}
				}
			}
		}
	})
}

// TestExp compares the exponential with math.Exp: within 2 units in the last
// place where the result is a normal number, 0 below.
func TestExp(t *testing.T) {
	for i := range 1 << 20 {
		x := float32(i) / (1 << 20) * -90
		got, want := float64(exp(x)), math.Exp(float64(x))
		if x < expLow {
			want = 0
		}
		if math.Abs(got-want) > 2*0x1p-23*want {
			t.Fatalf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	if v := exp(float32(math.NaN())); v == v {
		t.Errorf("exp(NaN) = %v", v)
	}
	if v := exp(float32(math.Inf(-1))); v != 0 {
		t.Errorf("exp(-Inf) = %v", v)
	}
}

// BenchmarkAttention runs attention forward and backward over 20,000
// destinations of 15 entries, of 60,000 sources.
func BenchmarkAttention(b *testing.B) {
	const dst, src, degree = 20000, 60000, 15
	r := source(74)
	block := &graph.Block{NumDst: dst, NumSrc: src, Indptr: make([]int64, dst+1)}
	for i := range dst {
		for range degree {
			block.Indices = append(block.Indices, uint32(r.IntN(src)))
		}
		block.Indptr[i+1] = int64(len(block.Indices))
	}
	for _, set := range sets() {
		for _, workers := range []int{1, 2} {
			x := newExec(b, set, workers)
			var tr Transpose
			tr.Build(x, block)
			for _, s := range []attentionShape{{heads: 8, cols: 8}, {heads: 4, cols: 64}, {heads: 8, cols: 8, dynamic: true}, {heads: 4, cols: 64, dynamic: true}} {
				c := newAttention(block, s)
				a := &c.a
				a.Alpha = make([]float32, len(block.Indices)*a.Heads)
				y, ds := NewMatrix[float32](dst, c.v.Cols), make([]float32, len(a.Alpha))
				dv, datt := NewMatrix[float32](src, c.v.Cols), make([]float32, c.v.Cols)
				dsrc, ddst := NewMatrix[float32](src, c.src.Cols), NewMatrix[float32](dst, c.dst.Cols)
				name := "GAT"
				scores, back := func() { a.Additive(x, c.src, c.dst) }, func() { a.AdditiveBackward(x, &tr, ds, nil, c.src, c.dst, dsrc, ddst, nil) }
				if s.dynamic {
					name = "GATv2"
					scores, back = func() { a.Dynamic(x, c.src, c.dst, c.att) }, func() { a.DynamicBackward(x, &tr, ds, nil, c.src, c.dst, c.att, dsrc, ddst, datt) }
				}
				for step, f := range map[string]func(){
					"forward":  func() { scores(); a.Sum(x, y, c.v) },
					"backward": func() { a.Backward(x, &tr, dv, c.dy, c.v, ds, nil); back() },
				} {
					b.Run(fmt.Sprintf("%s/%s/%dx%d/%v/%d", name, step, s.heads, s.cols, set, workers), func(b *testing.B) {
						f()
						b.ReportAllocs()
						for b.Loop() {
							f()
						}
						b.ReportMetric(float64(len(block.Indices))*float64(b.N)/b.Elapsed().Seconds()*1e-6, "Medges/s")
					})
				}
			}
		}
	}
}
