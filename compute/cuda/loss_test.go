//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/rng"
)

// The same values are dropped as on the processor, NaN among them.
func TestDropout(t *testing.T) {
	b := newBench(t)
	for _, s := range shapes {
		for _, p := range []float64{0, 0.1, 0.5, 0.9999} {
			b.renew()
			x := b.random(s[0], s[1], 1)
			for i := range x.Data {
				if i%7 == 0 {
					x.Data[i] = float32(math.NaN())
				}
			}
			drop := cpu.Dropped{Key: rng.New(7, uint64(s[0])), P: p}
			for range 2 {
				dst := b.random(s[0], s[1], 3)
				d := b.device(dst)
				cpu.Dropout(b.x, d, b.device(x), drop)
				cpu.Dropout(b.host, dst, x, drop)
				b.same(fmt.Sprint("dropout ", s, p), d, dst, 0)
				in := b.device(x)
				cpu.Dropout(b.x, in, in, drop)
				want := clone(x)
				cpu.Dropout(b.host, want, want, drop)
				b.same(fmt.Sprint("dropout in place ", s, p), in, want, 0)
				drop.IDs = make([]uint32, s[0])
				for i := range drop.IDs {
					drop.IDs[i] = b.r.Uint32()
				}
			}
		}
	}
}

// near fails unless a is b but for the last bits.
func near(t *testing.T, what string, a, b float64) {
	t.Helper()
	if a != b && (a == a || b == b) && !(math.Abs(a-b) <= 1e-13*math.Abs(b)) {
		t.Fatalf("%s is %v, not %v", what, a, b)
	}
}

// logits returns logits of which some are equal, far apart, infinite or no numbers.
func (b *bench) logits(rows, cols int, odd bool) f32 {
	z := b.random(rows, cols, 1)
	for i := range z.Data {
		switch b.r.IntN(8) {
		case 0:
			z.Data[i] = 1.5
		case 1:
			z.Data[i] *= 400
		}
		if odd && b.r.IntN(50) == 0 {
			z.Data[i] = []float32{float32(math.NaN()), float32(math.Inf(-1)), float32(math.Inf(1))}[b.r.IntN(3)]
		}
	}
	return z
}

func TestSoftmaxCrossEntropy(t *testing.T) {
	b := newBench(t)
	for _, s := range append(shapes, [2]int{319, 47}) {
		for _, odd := range []bool{false, true} {
			b.renew()
			z, g := b.logits(s[0], s[1], odd), b.random(s[0], s[1], 2)
			labels := make([]int32, s[0])
			for i := range labels {
				labels[i] = int32(b.r.IntN(s[1]+1)) - 1
			}
			for _, weights := range [][]float32{nil, b.floats(s[0])} {
				what := fmt.Sprint(s, ", weights ", weights != nil)
				dz, dg := b.device(z), b.device(g)
				loss, correct := cpu.SoftmaxCrossEntropy(b.x, dz, labels, weights, dg)
				want, right := cpu.SoftmaxCrossEntropy(b.host, z, labels, weights, g)
				near(t, "loss "+what, loss, want)
				if correct != right {
					t.Fatalf("%s: %d rows are right, not %d", what, correct, right)
				}
				b.same("gradient "+what, dg, g, 1e-7)
				again, _ := cpu.SoftmaxCrossEntropy(b.x, dz, labels, weights, f32{})
				if again != loss && loss == loss {
					t.Fatalf("%s: the loss is %v without gradient, %v with it", what, again, loss)
				}
				cpu.SoftmaxCrossEntropy(b.x, dz, labels, weights, dz)
				b.same("gradient in place "+what, dz, func() f32 { h := clone(z); cpu.SoftmaxCrossEntropy(b.host, h, labels, weights, h); return h }(), 1e-7)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a label beyond the classes was taken")
		}
	}()
	cpu.SoftmaxCrossEntropy(b.x, b.device(b.random(2, 3, 0)), []int32{0, 3}, nil, f32{})
}

func TestSigmoidCrossEntropy(t *testing.T) {
	b := newBench(t)
	for _, s := range append(shapes, [2]int{300, 121}) {
		for _, odd := range []bool{false, true} {
			b.renew()
			z, g := b.logits(s[0], s[1], odd), b.random(s[0], s[1], 2)
			rows, labels := make([]int32, s[0]), make([]uint8, 5*s[1])
			for i := range rows {
				rows[i] = int32(b.r.IntN(6)) - 1
			}
			for i := range labels {
				labels[i] = uint8(b.r.IntN(2))
			}
			if s[0] > 1 { // a row with every label right
				rows[0] = 2
				for j := range s[1] {
					z.Row(0)[j] = 2*float32(labels[2*s[1]+j]) - 1
				}
			}
			for _, weights := range [][]float32{nil, b.floats(s[0])} {
				what := fmt.Sprint(s, ", weights ", weights != nil)
				dg := b.device(g)
				loss, d := cpu.SigmoidCrossEntropy(b.x, b.device(z), rows, labels, weights, dg)
				want, decisions := cpu.SigmoidCrossEntropy(b.host, z, rows, labels, weights, g)
				near(t, "loss "+what, loss, want)
				if d != decisions || s[0] > 1 && d.Exact == 0 {
					t.Fatalf("%s: %+v, not %+v", what, d, decisions)
				}
				b.same("gradient "+what, dg, g, 1e-7)
			}
		}
	}
}

// lossOptions are those that TestLossOptions tries, of so many classes.
func lossOptions(b *bench, classes int) map[string]cpu.LossOptions {
	weights := make([]float64, classes)
	for i := range weights {
		weights[i] = float64(b.r.IntN(4)) / 2
	}
	return map[string]cpu.LossOptions{
		"weights":               {ClassWeights: weights},
		"smoothing":             {Smoothing: 0.2},
		"weights and smoothing": {ClassWeights: weights, Smoothing: 0.3},
		"focal 2":               {Gamma: 2},
		"focal 0.5, weights":    {Gamma: 0.5, ClassWeights: weights},
	}
}

// Losses with options are the processor's, with their gradients: of one class and of many, of logits that are
// far apart, and, odd, infinite or no numbers; in place as well.
func TestLossOptions(t *testing.T) {
	optionsOfLosses(t, [][2]int{{1, 1}, {5, 3}, {17, 130}, {100, 47}})
}

func optionsOfLosses(t *testing.T, shapes [][2]int) {
	b := newBench(t)
	for _, s := range shapes {
		for name, o := range lossOptions(b, s[1]) {
			for _, odd := range []bool{false, true} {
				b.renew()
				z, g := b.logits(s[0], s[1], odd), b.random(s[0], s[1], 2)
				labels, multi := make([]int32, s[0]), make([]uint8, s[0]*s[1])
				for i := range labels {
					labels[i] = int32(b.r.IntN(min(s[0], s[1])+1)) - 1
				}
				for i := range multi {
					multi[i] = uint8(b.r.IntN(2))
				}
				for _, weights := range [][]float32{nil, b.floats(s[0])} {
					what := fmt.Sprint(s, ", ", name, ", odd ", odd, ", weights ", weights != nil)
					dz, dg := b.device(z), b.device(g)
					check := func(kind string, loss, want float64) {
						t.Helper()
						if loss != want && (loss == loss || want == want) && !(math.Abs(loss-want) <= 1e-12*(1+math.Abs(want))) {
							t.Fatalf("%s %s is %v, not %v", kind, what, loss, want)
						}
						b.same("gradient of "+kind+" "+what, dg, g, 1e-6)
					}
					loss, correct := cpu.SoftmaxLoss(b.x, dz, labels, weights, dg, o)
					want, right := cpu.SoftmaxLoss(b.host, z, labels, weights, g, o)
					if check("softmax", loss, want); correct != right {
						t.Fatalf("%s: %d rows are right, not %d", what, correct, right)
					}
					cpu.SoftmaxLoss(b.x, dz, labels, weights, dz, o)
					b.same("gradient in place "+what, dz, func() f32 { h := clone(z); cpu.SoftmaxLoss(b.host, h, labels, weights, h, o); return h }(), 1e-6)
					loss, d := cpu.SigmoidLoss(b.x, b.device(z), labels, multi, weights, dg, o)
					want, decisions := cpu.SigmoidLoss(b.host, z, labels, multi, weights, g, o)
					if check("sigmoid", loss, want); d != decisions {
						t.Fatalf("%s: %+v, not %+v", what, d, decisions)
					}
				}
			}
		}
	}
}

// Of rows whose class is nearly certain focal loss keeps its digits: what is left of 1-p is no difference of numbers near 1.
func TestLossOptionsOfCertainRows(t *testing.T) {
	b := newBench(t)
	z := cpu.NewMatrix[float32](3, 2)
	copy(z.Data, []float32{27, 0, 20, 0, 12, 0})
	for _, o := range []cpu.LossOptions{{Gamma: 0.5}, {Gamma: 1}} {
		g, weights := b.random(3, 2, 2), []float32{1e25, 1e20, 1e12}
		for i := range weights { // a row at a time
			w := make([]float32, 3)
			w[i] = weights[i]
			dg := b.device(g)
			loss, _ := cpu.SoftmaxLoss(b.x, b.device(z), make([]int32, 3), w, dg, o)
			want, _ := cpu.SoftmaxLoss(b.host, z, make([]int32, 3), w, g, o)
			if !(want > 1) || math.Abs(loss-want) > 1e-12*want {
				t.Errorf("row %d, gamma %v: %v, not %v", i, o.Gamma, loss, want)
			}
			b.same(fmt.Sprint("gradient of row ", i), dg, g, 1e-6)
		}
	}
}

// Losses of numbers and their gradients have the processor's bits: at the target, within 1 of it and beyond, and of what is no number.
func TestRegression(t *testing.T) { regressions(t, 1, 70, 64*256+100) }

func regressions(t *testing.T, sizes ...int) {
	b := newBench(t)
	for _, rows := range sizes {
		for l := cpu.SquaredError; l <= cpu.HuberError; l++ {
			b.renew()
			out, g := b.logits(rows, 1, false), b.random(rows, 1, 2)
			values, of := b.floats(40), make([]int32, rows)
			for i := range of {
				if of[i] = int32(b.r.IntN(41)) - 1; i%5 == 1 {
					values[i%40], of[i] = 1.5, int32(i%40)
				}
			}
			if rows == 70 {
				for i, v := range []float64{math.NaN(), math.Inf(-1), math.Inf(1)} {
					out.Row(i)[0], of[i] = float32(v), 0
				}
			}
			for _, weights := range [][]float32{nil, b.floats(rows)} {
				what := fmt.Sprint(rows, " rows, loss ", l, ", weights ", weights != nil)
				dg := b.device(g)
				loss := cpu.Regression(b.x, b.device(out), of, values, weights, dg, l)
				if want := cpu.Regression(b.host, out, of, values, weights, g, l); loss != want && (loss == loss || want == want) {
					t.Fatalf("%s: %v, not %v", what, loss, want)
				}
				b.same("gradient "+what, dg, g, 0)
			}
		}
	}
}

// A loss has the same bits whatever was in the rows' parts before, run after run; and is
// that of all rows where there are more than a thread block adds at a time.
func TestLossRepeats(t *testing.T) {
	b := newBench(t)
	many := b.logits(64*256+100, 1, false)
	rows, labels := make([]int32, many.Rows), []uint8{1, 0}
	for i := range rows {
		rows[i] = int32(i % 2)
	}
	loss, d := cpu.SigmoidCrossEntropy(b.x, b.device(many), rows, labels, nil, f32{})
	want, decisions := cpu.SigmoidCrossEntropy(b.host, many, rows, labels, nil, f32{})
	near(t, "the loss of many rows", loss, want)
	if d != decisions {
		t.Errorf("of many rows %+v, not %+v", d, decisions)
	}
	repeats(t, b)
}

func repeats(t *testing.T, b *bench) {
	z := b.device(b.logits(1000, 13, false))
	labels := make([]int32, 1000)
	for i := range labels {
		labels[i] = int32(i % 13)
	}
	var all []float64
	for range 3 {
		loss, _ := cpu.SoftmaxCrossEntropy(b.x, z, labels, nil, f32{})
		all = append(all, loss)
		cpu.SigmoidCrossEntropy(b.x, z, labels, make([]uint8, 13*13), nil, f32{})
	}
	if slices.Max(all) != slices.Min(all) {
		t.Errorf("losses are %v", all)
	}
}
