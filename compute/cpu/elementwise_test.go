package cpu

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/rng"
)

// TestElementwise compares every element-wise kernel with its definition, on
// odd sizes, flat and with gaps between rows.
func TestElementwise(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, shape := range [][2]int{{1, 1}, {3, 7}, {5, 8}, {9, 47}, {130, 257}} {
			for _, gap := range []int{0, 2} {
				a, b := random[float32](source(1), shape[0], shape[1], gap), random[float32](source(2), shape[0], shape[1], gap)
				a.Data[0], b.Data[len(b.Data)-1-gap] = float32(math.NaN()), 0
				for op, c := range map[string]struct {
					run func(d Matrix[float32])
					f   func(d, a, b float32) float32
				}{
					"Add":      {func(d Matrix[float32]) { Add(x, d, a, b) }, func(_, a, b float32) float32 { return a + b }},
					"Multiply": {func(d Matrix[float32]) { Multiply(x, d, a, b) }, func(_, a, b float32) float32 { return a * b }},
					"Axpy":     {func(d Matrix[float32]) { Axpy(x, d, 0.7, a) }, func(d, a, _ float32) float32 { return d + float32(0.7*a) }},
					"Scale":    {func(d Matrix[float32]) { Scale(x, d, 0.7, a) }, func(_, a, _ float32) float32 { return 0.7 * a }},
					"Copy":     {func(d Matrix[float32]) { Copy(x, d, a) }, func(_, a, _ float32) float32 { return a }},
					"Fill":     {func(d Matrix[float32]) { Fill(x, d, 0.7) }, func(_, _, _ float32) float32 { return 0.7 }},
					"Activate": {func(d Matrix[float32]) { Activate(x, ReLU, d, a) }, func(_, a, _ float32) float32 {
						if a < 0 {
							return 0
						}
						return a
					}},
					"ReLUBackward": {func(d Matrix[float32]) { ReLUBackward(x, d, a, b) }, func(_, a, b float32) float32 {
						if b <= 0 {
							return 0
						}
						return a
					}},
				} {
					d := random[float32](source(3), shape[0], shape[1], gap)
					want := NewMatrix[float32](shape[0], shape[1])
					for i := range d.Rows {
						for j, v := range d.Row(i) {
							want.Row(i)[j] = c.f(v, a.Row(i)[j], b.Row(i)[j])
						}
					}
					c.run(d)
					for i := range d.Rows {
						for j, v := range d.Row(i) {
							if w := want.Row(i)[j]; v != w && !(v != v && w != w) {
								t.Fatalf("%s, %v, gap %d: (%d, %d) = %v, want %v", op, shape, gap, i, j, v, w)
							}
						}
					}
				}
			}
		}
	})
}

func TestColumnSums(t *testing.T) {
	var bitsOf [AVX512 + 1][]uint64
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, shape := range [][2]int{{0, 3}, {1, 1}, {255, 47}, {256, 8}, {1000, 70}} {
			a := random[float32](source(4), shape[0], shape[1], 1)
			for _, accumulate := range []bool{false, true} {
				d := random[float32](source(5), 1, shape[1], 0)
				want, size := NewMatrix[float64](1, shape[1]), NewMatrix[float64](1, shape[1])
				for j := range want.Data {
					if accumulate {
						want.Data[j] = float64(d.Data[j])
						size.Data[j] = 1
					}
					for i := range a.Rows {
						want.Data[j] += float64(a.Row(i)[j])
						size.Data[j] += math.Abs(float64(a.Row(i)[j]))
					}
				}
				ColumnSums(x, d.Data, a, accumulate)
				near(t, fmt.Sprint(shape), widenMatrix(d), want, size, 1e-5)
				if shape[0] == 1000 && !accumulate {
					if bitsOf[x.Set()] == nil {
						bitsOf[x.Set()] = bits(d)
					}
					sameBits(t, "workers", d, Dense(1, shape[1], narrow(bitsOf[x.Set()])))
				}
			}
		}
	})
}

// ActivateBackwardSums has the bits of its two halves, on matrices that lie within
// others, too.
func TestActivateBackwardSums(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, act := range []Activation{Linear, ReLU, LeakyReLU, ELU} {
			for _, shape := range [][2]int{{0, 3}, {1, 1}, {255, 47}, {256, 8}, {1000, 70}} {
				rows, cols := shape[0], shape[1]
				wide, y := random[float32](source(6), rows, cols+5, 1), random[float32](source(7), rows, cols, 0)
				for _, dy := range []Matrix[float32]{wide.View(0, rows, 2, 2+cols), Dense(rows, cols, wide.Data[:rows*cols])} {
					accumulate := dy.Stride == cols
					want, wantSums := NewMatrix[float32](rows, cols), random[float32](source(8), 1, cols, 0)
					got, sums := NewMatrix[float32](rows, cols), random[float32](source(8), 1, cols, 0)
					ActivateBackward(x, act, want, dy, y)
					ColumnSums(x, wantSums.Data, want, accumulate)
					ActivateBackwardSums(x, act, got, dy, y, sums.Data, accumulate)
					sameBits(t, fmt.Sprint(act, shape), got, want)
					sameBits(t, fmt.Sprint(act, shape, " sums"), sums, wantSums)
				}
			}
		}
	})
}

func narrow(b []uint64) []float32 {
	out := make([]float32, len(b))
	for i, v := range b {
		out[i] = float32(math.Float64frombits(v))
	}
	return out
}

// TestDropout checks the decisions against Dropped.At and package rng, that
// they are the same in every set, and that the rate is right: of 200,000 values
// the share that is dropped is within 4.5 standard deviations (a fixed seed;
// for a random one the test would err once in 150,000).
func TestDropout(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, p := range []float64{0, 0.1, 0.5, 0.6, 0.999999} {
			for _, cols := range []int{1, 4, 7, 8, 100} {
				ids := []uint32{7, 1 << 31, 3}
				d := Dropped{Key: rng.New(1, 2, 3), P: p, IDs: ids}
				a := random[float32](source(6), 3, cols, 1)
				a.Data[0] = float32(math.NaN())
				out := NewMatrix[float32](3, cols)
				Dropout(x, out, a, d)
				for i, id := range ids {
					for j, v := range out.Row(i) {
						draw := d.Key.With(uint64(id)).Uint64(uint64(j / 4))
						dropped := uint32(draw>>(16*(j%4)))&0xffff < uint32(math.Min(math.Round(p*65536), 65535))
						want := a.Row(i)[j] * float32(d.Scale())
						if p == 0 {
							want = a.Row(i)[j]
						}
						if dropped {
							want = 0
						}
						if dropped != d.At(i, j) || v != want && !(v != v && want != want) {
							t.Fatalf("p = %v: (%d, %d) is %v, want %v", p, i, j, v, want)
						}
					}
				}
			}
		}
		const rows, cols, p = 1000, 200, 0.3
		a := NewMatrix[float32](rows, cols)
		Fill(x, a, 1)
		Dropout(x, a, a, Dropped{Key: rng.New(9), P: p})
		dropped := 0
		for _, v := range a.Data {
			if v == 0 {
				dropped++
			}
		}
		const n = rows * cols
		if d := math.Abs(float64(dropped) - p*n); d > 4.5*math.Sqrt(n*p*(1-p)) {
			t.Errorf("%d of %d values dropped, want about %v", dropped, n, p*n)
		}
	})
}

func testAdam[T Float](t *testing.T, x *Exec, o AdamOptions, tol float64) {
	const n = 21
	r := source(7)
	p, m, v, g := random[T](r, 1, n, 0), random[T](r, 1, n, 0), abs(random[T](r, 1, n, 0)), random[T](r, 1, n, 0)
	want, size := NewMatrix[float64](1, n), NewMatrix[float64](1, n)
	for i := range n {
		size.Data[i] = 1
		q, d := float64(p.Data[i]), float64(g.Data[i])*o.GradScale
		if o.Decoupled {
			q *= 1 - o.LearningRate*o.WeightDecay
		} else {
			d += o.WeightDecay * q
		}
		mm := o.Beta1*float64(m.Data[i]) + (1-o.Beta1)*d
		vv := o.Beta2*float64(v.Data[i]) + (1-o.Beta2)*d*d
		mm /= 1 - math.Pow(o.Beta1, float64(o.Step))
		vv /= 1 - math.Pow(o.Beta2, float64(o.Step))
		want.Data[i] = q - o.LearningRate*mm/(math.Sqrt(vv)+o.Epsilon)
	}
	AdamStep(x, p.Data, m.Data, v.Data, g.Data, o)
	near(t, fmt.Sprintf("%+v", o), widenMatrix(p), want, size, tol)
}

func TestAdam(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, o := range []AdamOptions{
			{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: 1, GradScale: 1},
			{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: 7, GradScale: 0.5, WeightDecay: 0.1},
			{LearningRate: 0.01, Beta1: 0.8, Beta2: 0.99, Epsilon: 1e-3, Step: 3, GradScale: 2, WeightDecay: 0.1, Decoupled: true},
		} {
			testAdam[float32](t, x, o, 1e-6)
			testAdam[float64](t, x, o, 1e-14)
		}
	})
}

// TestSGD compares with the definition in float64, over more values than a chunk has.
func TestSGD(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, o := range []SGDOptions{
			{LearningRate: 0.1},
			{LearningRate: 0.1, WeightDecay: 0.3},
			{LearningRate: 0.1, WeightDecay: 0.3, Momentum: 0.9},
			{LearningRate: 0.1, WeightDecay: 0.3, Momentum: 0.9, First: true},
			{LearningRate: 0.1, WeightDecay: 0.3, Momentum: 0.9, Nesterov: true},
			{LearningRate: 0.1, Momentum: 0.9, Nesterov: true, First: true},
		} {
			const n = elementsPerChunk + 21
			p, v, g := random[float32](source(1), 1, n, 0), random[float32](source(2), 1, n, 0), random[float32](source(3), 1, n, 0)
			wantP, wantV := widenMatrix(p), widenMatrix(v)
			for i := range n {
				q, d := wantP.Data[i], float64(g.Data[i])
				d += o.WeightDecay * q
				if o.Momentum != 0 {
					if wantV.Data[i] *= o.Momentum; o.First {
						wantV.Data[i] = 0
					}
					wantV.Data[i] += d
					if d += o.Momentum * wantV.Data[i]; !o.Nesterov {
						d = wantV.Data[i]
					}
				}
				wantP.Data[i] = q - o.LearningRate*d
			}
			if o.First {
				v = filled(1, n, float32(math.NaN()))
			}
			velocity := v.Data
			if o.Momentum == 0 {
				velocity = nil
			}
			SGDStep(x, p.Data, velocity, g.Data, o)
			near(t, fmt.Sprintf("%+v", o), widenMatrix(p), wantP, filled(1, n, 1.0), 1e-6)
			if o.Momentum != 0 {
				near(t, fmt.Sprintf("%+v: velocity", o), widenMatrix(v), wantV, filled(1, n, 1.0), 1e-6)
			}
		}
	})
}

// TestSoftmaxCrossEntropy compares with the definition in float64, and the
// gradient with finite differences of the loss.
func TestSoftmaxCrossEntropy(t *testing.T) {
	x := newExec(t, Go, 2)
	const rows, cols = 150, 7
	r := source(8)
	z := random[float64](r, rows, cols, 1)
	labels := make([]int32, rows)
	for i := range labels {
		labels[i] = int32(r.IntN(cols+1)) - 1
	}
	weights := random[float64](r, 1, rows, 0).Data
	d := random[float64](source(9), rows, cols, 0)
	loss, correct := SoftmaxCrossEntropy(x, z, labels, weights, d)
	want, right := 0.0, 0
	for i := range rows {
		if labels[i] < 0 {
			if row := d.Row(i); slices.Max(row) != 0 || slices.Min(row) != 0 {
				t.Errorf("row %d is skipped, and its gradient is %v", i, row)
			}
			continue
		}
		sum, best := 0.0, 0
		for j, v := range z.Row(i) {
			sum += math.Exp(v)
			if v > z.Row(i)[best] {
				best = j
			}
		}
		want -= weights[i] * (z.Row(i)[labels[i]] - math.Log(sum))
		if best == int(labels[i]) {
			right++
		}
	}
	if math.Abs(loss-want) > 1e-12*rows || correct != right {
		t.Errorf("loss %v, %d correct; want %v, %d", loss, correct, want, right)
	}
	const h = 1e-5
	for i := 0; i < rows; i += 11 {
		for j := range cols {
			p := &z.Row(i)[j]
			v := *p
			*p = v + h
			up, _ := SoftmaxCrossEntropy(x, z, labels, weights, Matrix[float64]{})
			*p = v - h
			down, _ := SoftmaxCrossEntropy(x, z, labels, weights, Matrix[float64]{})
			*p = v
			if got := d.Row(i)[j]; math.Abs(got-(up-down)/(2*h)) > 1e-8 {
				t.Fatalf("gradient (%d, %d) is %v, difference quotient %v", i, j, got, (up-down)/(2*h))
			}
		}
	}
	for i := range rows {
		weights[i] = 1
	}
	ones, same := NewMatrix[float64](rows, cols), NewMatrix[float64](rows, cols)
	all, _ := SoftmaxCrossEntropy(x, z, labels, weights, ones)
	if none, _ := SoftmaxCrossEntropy(x, z, labels, nil, same); none != all {
		t.Errorf("loss %v without weights, %v with ones", none, all)
	}
	sameBits(t, "without weights", same, ones)
	one, _ := SoftmaxCrossEntropy(newExec(t, Go, 1), z, labels, weights, Matrix[float64]{})
	if one != all {
		t.Errorf("loss %v with 1 worker, %v with 2", one, all)
	}
}
