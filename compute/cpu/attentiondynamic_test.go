package cpu

import (
	"math"
	"testing"
)

// TestDynamicGradient compares GATv2's backward step with the gradient of Σ ds·score,
// entry by entry in float64, where scores are att·LeakyReLU(l + r).
func TestDynamicGradient(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		for _, loops := range []bool{false, true} {
			testDynamicGradient[float32](t, x, loops, 1e-5)
			testDynamicGradient[float64](t, x, loops, 1e-13)
		}
	})
}

func testDynamicGradient[T Float](t *testing.T, x *Exec, loops bool, tol float64) {
	const heads, cols, slope = 3, 3 * 9, 0.2
	r := source(5)
	b := randomBlock(r, 2*rowsPerChunk+3, 3*rowsPerChunk, 4)
	var tr Transpose
	tr.Build(x, b)
	l, rr := random[T](r, b.NumSrc, cols, 1), random[T](r, b.NumDst, cols, 2)
	att, ds := random[T](r, 1, cols, 0).Data, random[T](r, len(b.Indices), heads, 0).Data
	a := &Attention[T]{Block: b, Heads: heads, Slope: slope, Loops: loops, Alpha: make([]T, len(ds))}
	var dself []T
	if loops {
		dself = random[T](r, b.NumDst, heads, 0).Data
		a.Self = make([]T, len(dself))
	}
	wantL, wantR, wantAtt := NewMatrix[float64](b.NumSrc, cols), NewMatrix[float64](b.NumDst, cols), NewMatrix[float64](1, cols)
	sizeL, sizeR, sizeAtt := filled(b.NumSrc, cols, 1.0), filled(b.NumDst, cols, 1.0), filled(1, cols, 1.0)
	add := func(i, u int, d []T) {
		for j := range cols {
			v, g := float64(l.Row(u)[j])+float64(rr.Row(i)[j]), float64(d[j/(cols/heads)])
			leak := 1.0
			if T(v) <= 0 {
				leak = slope
			}
			slope := g * float64(att[j]) * leak
			wantL.Row(u)[j], sizeL.Row(u)[j] = wantL.Row(u)[j]+slope, sizeL.Row(u)[j]+math.Abs(slope)
			wantR.Row(i)[j], sizeR.Row(i)[j] = wantR.Row(i)[j]+slope, sizeR.Row(i)[j]+math.Abs(slope)
			wantAtt.Data[j], sizeAtt.Data[j] = wantAtt.Data[j]+g*v*leak, sizeAtt.Data[j]+math.Abs(g*v)
		}
	}
	for i := range b.NumDst {
		for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
			if u := int(b.Indices[e]); loops && u == i {
				clear(ds[int(e)*heads:][:heads]) // left out: Backward says 0
			} else {
				add(i, u, ds[int(e)*heads:][:heads])
			}
		}
		if loops {
			add(i, i, dself[i*heads:][:heads])
		}
	}
	dl, dr, datt := NewMatrix[T](b.NumSrc, cols), filled(b.NumDst, cols, T(7)), filled(1, cols, T(7))
	a.DynamicBackward(x, &tr, ds, dself, l, rr, att, dl, dr, datt.Data)
	near(t, "l", widenMatrix(dl), wantL, sizeL, tol)
	near(t, "r", widenMatrix(dr), wantR, sizeR, tol)
	near(t, "att", widenMatrix(datt), wantAtt, sizeAtt, tol)
}
