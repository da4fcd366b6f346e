package cpu

import (
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// TestAllocs checks that kernels allocate nothing once scratch has grown.
func TestAllocs(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		const cols = 20
		r := source(1)
		b := randomBlock(r, 100, 150, 5)
		src, dst, dx := random[float32](r, b.NumSrc, cols, 0), NewMatrix[float32](b.NumDst, cols), NewMatrix[float32](b.NumSrc, cols)
		w, self := random[float32](r, 1, len(b.Indices), 0).Data, random[float32](r, 1, b.NumDst, 0).Data
		arg := make([]uint32, b.NumDst*cols)
		table := tableOfType(graph.Int8, b.NumSrc, cols, 0)
		weight, long, product := random[float32](r, cols, cols, 0), random[float32](r, 9000, cols, 0), NewMatrix[float32](cols, cols)
		dst2, longWide, wide := NewMatrix[float32](b.NumDst, cols), random[float32](r, 9000, 32, 0), NewMatrix[float32](cols, 32)
		longDst := NewMatrix[float32](600, cols)
		often := randomBlock(r, 40, 150, 150)
		parts, partsDst := random[float32](r, often.NumSrc, 130, 0), NewMatrix[float32](often.NumDst, 130)
		withSecondLevel(t, 0)
		if len(often.Indices) < leastReuse*often.NumSrc {
			t.Fatal("too few entries for parts of columns")
		}
		labels := make([]int32, b.NumDst)
		sums, more := make([]float32, cols), make([]float32, cols)
		var tr Transpose
		square := &graph.Block{NumDst: 3, NumSrc: 3, Indptr: []int64{0, 1, 3, 4}, Indices: []uint32{1, 0, 2, 1}}
		kernels := map[string]func(){
			"Gemm": func() {
				Gemm(x, dst, src.View(0, b.NumDst, 0, cols), false, weight, true, Epilogue[float32]{Bias: sums})
			},
			"sum of products": func() {
				GemmAdd(x, dst, src.View(0, b.NumDst, 0, cols), weight, dst2, weight, Epilogue[float32]{Bias: sums})
			},
			"two products": func() { GemmBoth(x, wide, wide, long, longWide, longWide, false, true) },
			"own panels":   func() { Gemm(x, longDst, long.View(0, 600, 0, cols), false, weight, false, Epilogue[float32]{}) },
			"split":        func() { Gemm(x, product, long, true, long, false, Epilogue[float32]{}) },
			"Aggregate": func() {
				Aggregate(x, dst, b, Source[float32]{Dense: src}, AggregateOptions[float32]{Reduce: Mean, Weights: w, Self: self})
			},
			"max": func() {
				Aggregate(x, dst, b, Source[float32]{Dense: src}, AggregateOptions[float32]{Reduce: Max, Argmax: arg})
			},
			"table":     func() { Aggregate(x, dst, b, Source[float32]{Table: table}, AggregateOptions[float32]{}) },
			"Gather":    func() { Gather(x, dst, Source[float32]{Table: table}) },
			"Transpose": func() { tr.Build(x, b) },
			"parts of columns": func() {
				secondLevel = 45_000
				Aggregate(x, partsDst, often, Source[float32]{Dense: parts}, AggregateOptions[float32]{Reduce: Mean})
				secondLevel = 0
			},
			"backward": func() {
				tr.Build(x, b)
				AggregateBackward(x, dx, &tr, dst, AggregateOptions[float32]{Reduce: Mean, Weights: w, Self: self})
			},
			"symmetric":  func() { tr.BuildSymmetric(x, square) },
			"Dropout":    func() { Dropout(x, dst, dst, Dropped{Key: rng.New(1), P: 0.5}) },
			"ReLU":       func() { ReLUBackward(x, dst, dst, dst) },
			"ColumnSums": func() { ColumnSums(x, sums, dst, false) },
			"loss":       func() { SoftmaxCrossEntropy(x, dst, labels, nil, dst) },
			"ELU":        func() { Activate(x, ELU, dst, dst) },
			"Dot":        func() { Dot(x, dst, dst) },
			"LayerNorm": func() {
				LayerNorm(x, dst, dst, sums, more, 1, self, self)
				LayerNormBackward(x, dst, dst, dst, sums, self, self, dst)
			},
			"BatchNorm": func() {
				Moments(x, dst, sums, more)
				BatchNorm(x, dst, dst, sums, sums, 1, sums, more)
				BatchNormBackward(x, dst, dst, dst, sums, 1, sums, more, sums, sums)
			},
			"Adam": func() { AdamStep(x, w, w, w, w, AdamOptions{Step: 1, Beta1: 0.5, Beta2: 0.5}) },
		}
		for name, s := range map[string]attentionShape{
			"GAT":      {heads: 8, cols: 8, loops: true, edge: true, drop: true},
			"GAT of 3": {heads: 3, cols: 5},
			"GATv2":    {heads: 4, cols: 19, dynamic: true, loops: true, drop: true},
		} {
			c := newAttention(b, s)
			a, n := &c.a, len(b.Indices)*s.heads
			a.Alpha, a.Self = make([]float32, n), make([]float32, b.NumDst*s.heads)
			ds, dself, datt := make([]float32, n), make([]float32, len(a.Self)), make([]float32, len(c.att))
			y, dv := NewMatrix[float32](b.NumDst, c.v.Cols), NewMatrix[float32](b.NumSrc, c.v.Cols)
			dsrc, ddst := NewMatrix[float32](b.NumSrc, c.src.Cols), NewMatrix[float32](b.NumDst, c.dst.Cols)
			var tr Transpose
			tr.Build(x, b)
			kernels[name+" sum"] = func() { a.Sum(x, y, c.v) }
			kernels[name+" softmax backward"] = func() { a.Backward(x, &tr, dv, c.dy, c.v, ds, dself) }
			kernels[name+" scores"] = func() { a.Additive(x, c.src, c.dst) }
			kernels[name+" scores backward"] = func() { a.AdditiveBackward(x, &tr, ds, dself, c.src, c.dst, dsrc, ddst, nil) }
			if s.dynamic {
				kernels[name+" scores"] = func() { a.Dynamic(x, c.src, c.dst, c.att) }
				kernels[name+" scores backward"] = func() { a.DynamicBackward(x, &tr, ds, dself, c.src, c.dst, c.att, dsrc, ddst, datt) }
			}
		}
		for name, f := range kernels {
			f()
			// What a worker needs it makes at its first chunk, which on a busy machine may
			// come late, and under the race detector a sync.Pool forgets on purpose: a
			// kernel that allocates does so every time.
			n := testing.AllocsPerRun(20, f)
			for range 4 {
				if n >= 1 {
					n = testing.AllocsPerRun(20, f)
				}
			}
			if n >= 1 {
				t.Errorf("%s allocates %v times", name, n)
			}
		}
	})
}
