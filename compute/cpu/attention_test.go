package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
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
		ids := make([]uint32, b.NumSrc)
		for i := range ids {
			ids[i] = uint32(3*(b.NumSrc-i) + i%3)
		}
		c.a.Drop = &Dropped{Key: rng.New(1, 2), P: 0.4, IDs: ids}
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
			for k := range 12 { // with edges only if not dynamic
				if quick && (heads == 16 || cols > 8 || cols == 1 || raced && (heads == 2 || heads == 3 || cols == 8)) {
					continue
				}
				all = append(all, attentionShape{heads, cols, k >= 8, k%2 > 0, k >= 4 && k < 8, k%4 > 1})
			}
		}
	}
	return all
}

// attentionBlock has an empty row, entries of destinations to themselves, a row
// of over 1500 entries, and sources that nobody attends to.
func attentionBlock(r *rand.Rand) *graph.Block {
	b := randomBlock(r, 37, 60, 7)
	for e, u := range b.Indices {
		if u >= 55 {
			b.Indices[e] = u - 50
		}
	}
	i := 11 // the empty row
	gone := b.Indptr[i+1] - b.Indptr[i]
	b.Indices = slices.Delete(b.Indices, int(b.Indptr[i]), int(b.Indptr[i+1]))
	for ; i < 37; i++ {
		b.Indptr[i+1] -= gone
	}
	for i := range 37 {
		if e := b.Indptr[i]; i%5 == 0 && e < b.Indptr[i+1] {
			b.Indices[e] = uint32(i)
		}
	}
	return b
}

// TestAttentionSets compares every set in float32 with the portable path in
// float64, which finite differences check: every value within 2e-5 times the
// tensor's largest.
func TestAttentionSets(t *testing.T) {
	b := attentionBlock(source(71))
	wanted := map[attentionShape]map[string]Matrix[float64]{} // the same for every Exec
	eachExec(t, func(t *testing.T, x *Exec) {
		var tr Transpose
		tr.Build(x, b)
		for _, s := range attentionShapes(false) {
			c := newAttention(b, s)
			if wanted[s] == nil {
				w := c.wide()
				wanted[s] = w.run(newExec(t, Go, 1), &tr)
			}
			want := wanted[s]
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

// TestAttentionDropIDs checks that dropout is a function of the global ids of
// destination and source and of the head: two blocks with the same nodes in
// another order drop the same weights. Global id u has the value 2^u, every weight
// is 1 and what is kept is doubled, so that a sum says which entries it has.
func TestAttentionDropIDs(t *testing.T) {
	blocks := [][]uint32{{9, 5, 1, 2, 7, 12}, {5, 9, 12, 7, 2, 1, 3}} // destinations first
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, heads := range []int{1, 3, 4, 8} {
			for _, loops := range []bool{false, true} {
				kept := make([]map[string]float32, 2)
				for k, ids := range blocks {
					b := &graph.Block{NumDst: 2, NumSrc: len(ids), Indptr: []int64{0, 4, 8}}
					v := NewMatrix[float32](len(ids), heads)
					for i, u := range ids {
						for h := range heads {
							v.Row(i)[h] = float32(int(1) << u)
						}
					}
					for range 2 {
						for _, u := range []uint32{1, 2, 7, 12} {
							b.Indices = append(b.Indices, uint32(slices.Index(ids, u)))
						}
					}
					a := Attention[float32]{Block: b, Heads: heads, Loops: loops, Drop: &Dropped{Key: rng.New(3), P: 0.5, IDs: ids}}
					a.Alpha, a.Self = slices.Repeat([]float32{1}, 8*heads), slices.Repeat([]float32{1}, 2*heads)
					y := NewMatrix[float32](2, heads)
					a.Sum(x, y, v)
					var tr Transpose
					tr.Build(x, b)
					dy, dv := NewMatrix[float32](2, heads), NewMatrix[float32](len(ids), heads)
					for i := range dy.Data {
						dy.Data[i] = 1 + float32(ids[i/heads])
					}
					a.Backward(x, &tr, dv, dy, v, make([]float32, 8*heads), make([]float32, 2*heads))
					dropped := 0
					for i, u := range ids {
						for h := range heads {
							sum := float32(0)
							for d := range 2 {
								drawn := int(y.Row(d)[h])
								if drawn%2 != 0 || drawn/2&^(1<<1|1<<2|1<<7|1<<12|1<<ids[d]) != 0 {
									t.Fatalf("%d heads, loops %v: node %d has the sum %d, not of its sources twice", heads, loops, ids[d], drawn)
								}
								if drawn/2>>u&1 > 0 {
									sum += 2 * dy.Row(d)[h]
								} else if i >= 2 && u != 3 {
									dropped++
								}
							}
							if g := dv.Row(i)[h]; g != sum {
								t.Errorf("%d heads, loops %v: node %d's gradient is %v, and %v by what the sums have", heads, loops, u, g, sum)
							}
						}
					}
					if heads > 1 && (dropped == 0 || dropped == 8*heads) {
						t.Errorf("%d heads, loops %v: %d of %d weights are dropped", heads, loops, dropped, 8*heads)
					}
					kept[k] = map[string]float32{}
					for i, u := range ids[:6] {
						for h := range heads {
							if i < 2 {
								kept[k][fmt.Sprintf("y of node %d, head %d", u, h)] = y.Row(i)[h]
							}
							if u != 3 {
								kept[k][fmt.Sprintf("dv of node %d, head %d", u, h)] = dv.Row(i)[h]
							}
						}
					}
				}
				kinds := map[float32]bool{}
				for name, v := range kept[0] {
					if w, ok := kept[1][name]; ok && v != w {
						t.Errorf("%d heads, loops %v: %s is %v in one block, %v in the other", heads, loops, name, v, w)
					}
					kinds[v] = true
				}
				if len(kinds) < 3 {
					t.Errorf("%d heads: nothing is drawn: %v", heads, kept[0])
				}
			}
		}
	})
}

// TestAttentionLoopEdge checks that a loop's score has the mean of the edges' scores of its destination, without
// those of entries that are loops themselves, and zero where there are none.
func TestAttentionLoopEdge(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, heads := range []int{1, 2, 8} {
			b := &graph.Block{NumDst: 3, NumSrc: 5, Indptr: []int64{0, 4, 5, 5}, Indices: []uint32{3, 0, 4, 2, 1}}
			a := Attention[float32]{Block: b, Heads: heads, Slope: 0.5, Loops: true, Alpha: make([]float32, 5*heads), Self: make([]float32, 3*heads)}
			for i := range 5 * heads {
				a.Edge = append(a.Edge, float32(i%7)-2)
			}
			a.Additive(x, NewMatrix[float32](5, heads), NewMatrix[float32](3, heads))
			for h := range heads {
				score := func(e int) float64 { return float64(leaky(a.Edge[e*heads+h], 0.5)) }
				mean := (a.Edge[h] + a.Edge[2*heads+h] + a.Edge[3*heads+h]) / 3
				loop := math.Exp(float64(leaky(mean, 0.5)))
				want := []float64{loop / (loop + math.Exp(score(0)) + math.Exp(score(2)) + math.Exp(score(3))), 1, 1}
				for i, w := range want {
					if g := float64(a.Self[i*heads+h]); math.Abs(g-w) > 1e-6 {
						t.Errorf("%d heads: the loop of destination %d has weight %v, want %v", heads, i, g, w)
					}
				}
			}
		}
	})
}

// TestAttentionSlopeAtZero checks that LeakyReLU's slope at both zeros is the one
// below them, as PyTorch has it and ActivateBackward.
func TestAttentionSlopeAtZero(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		b := &graph.Block{NumDst: 1, NumSrc: 2, Indptr: []int64{0, 2}, Indices: []uint32{0, 1}}
		var tr Transpose
		tr.Build(x, b)
		for _, zero := range []float32{0, float32(math.Copysign(0, -1))} {
			for _, heads := range []int{1, 4, 8} {
				for _, loops := range []bool{false, true} {
					fill := func(n int, v float32) []float32 { return slices.Repeat([]float32{v}, n) }
					a := Attention[float32]{Block: b, Heads: heads, Slope: 0.2, Loops: loops, Alpha: make([]float32, 2*heads), Self: make([]float32, heads)}
					src, dst := Dense(2, heads, fill(2*heads, zero)), Dense(1, heads, fill(heads, zero))
					ds, dself := fill(2*heads, 1), fill(heads, 1)
					a.AdditiveBackward(x, &tr, ds, dself, src, dst, NewMatrix[float32](2, heads), NewMatrix[float32](1, heads), nil)
					for _, v := range ds {
						if v != 0.2 || loops && dself[0] != 0.2 {
							t.Fatalf("slope at %v, %d heads: %v, loops %v", zero, heads, ds, dself)
						}
					}
					for _, c := range []int{3, 8, 17} {
						n := heads * c
						dl, dr := NewMatrix[float32](2, n), NewMatrix[float32](1, n)
						a.DynamicBackward(x, &tr, fill(2*heads, 1), fill(heads, 0), Dense(2, n, fill(2*n, zero)), Dense(1, n, fill(n, zero)), fill(n, 1), dl, dr, make([]float32, n))
						for j, v := range dr.Data {
							if v != 0.4 || dl.Data[j] != 0.2 {
								t.Fatalf("dynamic slope at %v, %d heads: %v, %v", zero, heads, dl.Data, dr.Data)
							}
						}
					}
				}
			}
		}
	})
}

// TestAttentionShapes gives every argument of the passes that is read or
// written by length in turn one row or value too few, and expects the panic that
// says so.
func TestAttentionShapes(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		b := attentionBlock(source(71))
		var tr Transpose
		tr.Build(x, b)
		const heads, cols = 8, 64
		n := len(b.Indices) * heads
		type arguments struct {
			t                                      *Transpose
			ds, dself, dEdge, att, datt            []float32
			v, dv, dy, s, ds2, d, dd, l, dl, r, dr Matrix[float32]
			weights                                []float32
			ids                                    []uint32
		}
		fresh := func() *arguments {
			m := NewMatrix[float32]
			return &arguments{&tr, make([]float32, n), make([]float32, b.NumDst*heads), make([]float32, n), make([]float32, cols), make([]float32, cols),
				m(b.NumSrc, cols), m(b.NumSrc, cols), m(b.NumDst, cols), m(b.NumSrc, heads), m(b.NumSrc, heads), m(b.NumDst, heads), m(b.NumDst, heads),
				m(b.NumSrc, cols), m(b.NumSrc, cols), m(b.NumDst, cols), m(b.NumDst, cols), nil, make([]uint32, b.NumSrc)}
		}
		attention := func(p *arguments) *Attention[float32] {
			return &Attention[float32]{Block: b, Heads: heads, Loops: true, Weights: p.weights, Alpha: make([]float32, n), Self: make([]float32, b.NumDst*heads), Drop: &Dropped{P: 0.5, IDs: p.ids}}
		}
		methods := map[string]func(p *arguments){
			"Backward": func(p *arguments) { attention(p).Backward(x, p.t, p.dv, p.dy, p.v, p.ds, p.dself) },
			"AdditiveBackward": func(p *arguments) {
				attention(p).AdditiveBackward(x, p.t, p.ds, p.dself, p.s, p.d, p.ds2, p.dd, p.dEdge)
			},
			"DynamicBackward": func(p *arguments) {
				attention(p).DynamicBackward(x, p.t, p.ds, p.dself, p.l, p.r, p.att, p.dl, p.dr, p.datt)
			},
			"Sum":      func(p *arguments) { attention(p).Sum(x, p.dy, p.v) },
			"Additive": func(p *arguments) { attention(p).Additive(x, p.s, p.d) },
			"Dynamic":  func(p *arguments) { attention(p).Dynamic(x, p.l, p.r, p.att) },
		}
		fewer := func(m *Matrix[float32]) { *m = NewMatrix[float32](m.Rows-1, m.Cols) }
		narrow := func(m *Matrix[float32]) { *m = m.View(0, m.Rows, 0, m.Cols-1) }
		short := func(s *[]float32) { *s = (*s)[:len(*s)-1] }
		both := []func(*Matrix[float32]){fewer, narrow}
		breaks := map[string][]func(p *arguments){}
		for _, f := range both {
			breaks["Backward"] = append(breaks["Backward"], func(p *arguments) { f(&p.dv) }, func(p *arguments) { f(&p.dy) }, func(p *arguments) { f(&p.v) })
			breaks["AdditiveBackward"] = append(breaks["AdditiveBackward"], func(p *arguments) { f(&p.s) }, func(p *arguments) { f(&p.d) }, func(p *arguments) { f(&p.ds2) }, func(p *arguments) { f(&p.dd) })
			breaks["DynamicBackward"] = append(breaks["DynamicBackward"], func(p *arguments) { f(&p.l) }, func(p *arguments) { f(&p.r) }, func(p *arguments) { f(&p.dl) }, func(p *arguments) { f(&p.dr) })
			breaks["Sum"] = append(breaks["Sum"], func(p *arguments) { f(&p.dy) }, func(p *arguments) { f(&p.v) })
			breaks["Additive"] = append(breaks["Additive"], func(p *arguments) { f(&p.s) }, func(p *arguments) { f(&p.d) })
			breaks["Dynamic"] = append(breaks["Dynamic"], func(p *arguments) { f(&p.l) }, func(p *arguments) { f(&p.r) })
		}
		for _, name := range []string{"Backward", "AdditiveBackward", "DynamicBackward"} {
			breaks[name] = append(breaks[name], func(p *arguments) { short(&p.ds) }, func(p *arguments) { short(&p.dself) }, func(p *arguments) { p.t = &Transpose{} })
		}
		breaks["Sum"] = append(breaks["Sum"], func(p *arguments) { p.ids = p.ids[1:] })
		breaks["Dynamic"] = append(breaks["Dynamic"], func(p *arguments) { short(&p.att) })
		breaks["Backward"] = append(breaks["Backward"], func(p *arguments) { p.ids = p.ids[1:] })
		breaks["AdditiveBackward"] = append(breaks["AdditiveBackward"], func(p *arguments) { short(&p.dEdge) })
		breaks["DynamicBackward"] = append(breaks["DynamicBackward"], func(p *arguments) { short(&p.att) }, func(p *arguments) { short(&p.datt) })
		for name, f := range methods {
			f(fresh())
			for k, spoil := range append(breaks[name], func(p *arguments) { p.weights = make([]float32, 3) }) {
				p := fresh()
				spoil(p)
				func() {
					defer func() {
						if r := recover(); r != badAttention {
							t.Errorf("%s, wrong argument %d: panic %v", name, k, r)
						}
					}()
					f(p)
				}()
			}
		}
	})
}

// TestAttentionWeights compares weighted attention with the definition in
// float64: e^score·weight over their sum, where an entry of weight 0 neither
// takes part nor decides what is subtracted from the scores, however large its
// own is.
func TestAttentionWeights(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		b := &graph.Block{NumDst: 3, NumSrc: 5, Indptr: []int64{0, 4, 6, 8}, Indices: []uint32{3, 4, 1, 2, 3, 4, 0, 3}}
		weights := []float32{0, 1, 2, 0.5, 0, 0, 3, 0}
		for _, heads := range []int{1, 3, 8} {
			for _, loops := range []bool{false, true} {
				r := source(3)
				src, dst := random[float32](r, 5, heads, 0), random[float32](r, 3, heads, 0)
				for h := range heads {
					src.Row(3)[h] = 500 // alone it would leave 0 to the others
				}
				a := Attention[float32]{Block: b, Heads: heads, Slope: 0.2, Loops: loops, Weights: weights, Alpha: make([]float32, 8*heads), Self: make([]float32, 3*heads)}
				a.Additive(x, src, dst)
				for i := range 3 {
					for h := range heads {
						score := func(u int) float64 { return math.Exp(leaky(float64(src.Row(u)[h])+float64(dst.Row(i)[h]), 0.2)) }
						sum := 0.0
						if loops {
							sum = score(i)
						}
						part := func(e int64) float64 {
							u := int(b.Indices[e])
							if w := float64(weights[e]); w > 0 && !(loops && u == i) {
								return w * score(u)
							}
							return 0
						}
						for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
							sum += part(e)
						}
						for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
							want := 0.0
							if sum > 0 {
								want = part(e) / sum
							}
							if got := float64(a.Alpha[int(e)*heads+h]); !(math.Abs(got-want) <= 1e-6) {
								t.Fatalf("%d heads, loops %v: weight of entry %d is %v, want %v", heads, loops, e, got, want)
							}
						}
						if got := float64(a.Self[i*heads+h]); loops && !(math.Abs(got-score(i)/sum) <= 1e-6) {
							t.Fatalf("%d heads: weight of loop %d is %v, want %v", heads, i, got, score(i)/sum)
						}
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
		last := float64(math.Nextafter32(float32(want), 2)) - float64(float32(want))
		if math.Abs(got-want) > 2*last && got != want {
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
