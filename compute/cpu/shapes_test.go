package cpu

import (
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// TestShapesRefused calls every kernel with shapes that fit, and then with one
// operand at a time that does not: that is a panic with the message for it.
func TestShapesRefused(t *testing.T) {
	x := newExec(t, Go, 1)
	type (
		matrix = Matrix[float64]
		vector = []float64
	)
	const rows, cols = 6, 4
	block := &graph.Block{NumDst: 3, NumSrc: rows, Indptr: []int64{0, 2, 3, 5}, Indices: []uint32{0, 5, 1, 2, 4}}
	var tr Transpose
	tr.Build(x, block)
	newSparse := func(rows, cols, entries int) *Sparse[float64] {
		return &Sparse[float64]{Rows: rows, Cols: cols, Indptr: make([]int64, rows+1), Indices: make([]uint32, entries), Values: make(vector, entries)}
	}
	// What a kernel takes, made anew for every call.
	type operands struct {
		m       []matrix
		v       []vector
		labels  []int32
		block   graph.Block
		t       Transpose
		o       AggregateOptions[float64]
		d       *Sparse[float64]
		src     *Sparse[float32]
		ids     []uint32
		bias    vector
		dropped Dropped
		begin   int
	}
	wider := func(i int) func(*operands) {
		return func(p *operands) { p.m[i] = NewMatrix[float64](p.m[i].Rows, p.m[i].Cols+1) }
	}
	taller := func(i int) func(*operands) {
		return func(p *operands) { p.m[i] = NewMatrix[float64](p.m[i].Rows+1, p.m[i].Cols) }
	}
	cut := func(i int) func(*operands) {
		return func(p *operands) { p.m[i].Data = p.m[i].Data[:len(p.m[i].Data)-1] }
	}
	longer := func(i int) func(*operands) {
		return func(p *operands) { p.v[i] = make(vector, len(p.v[i])+1) }
	}
	all := func(spoil func(int) func(*operands), which ...int) (s []func(*operands)) {
		for _, i := range which {
			s = append(s, spoil(i))
		}
		return s
	}
	join := func(some ...[]func(*operands)) (s []func(*operands)) {
		for _, a := range some {
			s = append(s, a...)
		}
		return s
	}
	shaped := func(which ...int) []func(*operands) { return join(all(wider, which...), all(taller, which...)) }
	one := func(f func(*operands)) []func(*operands) { return []func(*operands){f} }
	type refused map[string][]func(*operands) // by message

	same := func(n int, vectors ...int) func() *operands { // matrices of one shape, vectors of these lengths
		return func() *operands {
			p := &operands{}
			for range n {
				p.m = append(p.m, NewMatrix[float64](rows, cols))
			}
			for _, n := range vectors {
				p.v = append(p.v, make(vector, n))
			}
			return p
		}
	}
	aggregate := func(o AggregateOptions[float64]) func() *operands {
		return func() *operands {
			return &operands{m: []matrix{NewMatrix[float64](block.NumDst, cols), NewMatrix[float64](rows, cols)}, block: *block, t: tr, o: o}
		}
	}
	weights := func() AggregateOptions[float64] {
		return AggregateOptions[float64]{Weights: make(vector, len(block.Indices)), Self: make(vector, block.NumDst)}
	}
	notMax := func(p *operands) { p.o.Reduce, p.o.Self = Max, nil } // with weights
	argmax := func(p *operands) {
		p.o = AggregateOptions[float64]{Reduce: Max, Argmax: make([]uint32, block.NumDst*cols+1)}
	}
	noArgmax := func(p *operands) { p.o = AggregateOptions[float64]{Reduce: Max} }
	product := func() *operands {
		p := &operands{bias: make(vector, 5)}
		for _, s := range [][2]int{{rows, 5}, {rows, cols}, {cols, 5}, {rows, 3}, {3, 5}} {
			p.m = append(p.m, NewMatrix[float64](s[0], s[1]))
		}
		return p
	}
	bias := one(func(p *operands) { p.bias = make(vector, 6) })
	transposed := func(of func() *operands, which ...int) func() *operands {
		return func() *operands {
			p := of()
			for _, i := range which {
				p.m[i] = NewMatrix[float64](p.m[i].Cols, p.m[i].Rows)
			}
			return p
		}
	}
	labelled := func(p *operands) *operands { p.labels = make([]int32, rows); return p }
	moreLabels := func(p *operands) { p.labels = make([]int32, rows+1) }
	noCols := func(p *operands) { p.m[0].Cols, p.m[1].Cols = 0, 0 }
	noGradient := func(f func(*operands)) func(*operands) {
		return func(p *operands) { p.m[1] = matrix{}; f(p) }
	}
	for name, c := range map[string]struct {
		fit  func() *operands
		run  func(p *operands)
		bads refused
	}{
		"Add": {same(3), func(p *operands) { Add(x, p.m[0], p.m[1], p.m[2]) },
			refused{badShapes: shaped(0, 1, 2), badMatrix: all(cut, 0, 1, 2)}},
		"ColumnSums": {same(1, cols), func(p *operands) { ColumnSums(x, p.v[0], p.m[0], false) },
			refused{badShapes: append(all(wider, 0), longer(0)), badMatrix: all(cut, 0)}},
		"ActivateBackwardSums": {same(3, cols), func(p *operands) { ActivateBackwardSums(x, ReLU, p.m[0], p.m[1], p.m[2], p.v[0], false) },
			refused{badShapes: append(shaped(0, 1, 2), longer(0)), badMatrix: all(cut, 0, 1, 2)}},
		"Dot": {same(2), func(p *operands) { Dot(x, p.m[0], p.m[1]) }, refused{badShapes: shaped(0, 1), badMatrix: all(cut, 0, 1)}},
		"Dropout": {same(2), func(p *operands) { Dropout(x, p.m[0], p.m[1], p.dropped) },
			refused{badShapes: append(shaped(0, 1), func(p *operands) { p.dropped.IDs = make([]uint32, rows-1) }), badMatrix: all(cut, 0, 1),
				badRate: {func(p *operands) { p.dropped.P = 1 }, func(p *operands) { p.dropped.P = -0.1 }}}},
		"AdamStep": {same(0, rows, rows, rows, rows), func(p *operands) {
			AdamStep(x, p.v[0], p.v[1], p.v[2], p.v[3], AdamOptions{Step: 1 + p.begin})
		}, refused{badShapes: append(all(longer, 0, 1, 2, 3), func(p *operands) { p.begin = -1 })}},
		"SGDStep": {same(0, rows, rows, rows), func(p *operands) { SGDStep(x, p.v[0], p.v[1], p.v[2], SGDOptions{Momentum: 0.5}) },
			refused{badShapes: all(longer, 0, 1, 2)}},
		"LayerNorm": {same(2, cols, cols, rows, rows), func(p *operands) { LayerNorm(x, p.m[0], p.m[1], p.v[0], p.v[1], 1, p.v[2], p.v[3]) },
			refused{badShapes: join(shaped(0, 1), all(longer, 0, 1, 2, 3), one(func(p *operands) { noCols(p); p.v[0], p.v[1] = nil, nil })), badMatrix: all(cut, 0, 1)}},
		"LayerNormBackward": {same(4, cols, rows, rows), func(p *operands) {
			LayerNormBackward(x, p.m[0], p.m[1], p.m[2], p.v[0], p.v[1], p.v[2], p.m[3])
		}, refused{badShapes: append(shaped(0, 1, 2), all(longer, 0, 1, 2)...), badMatrix: all(cut, 0, 1, 2)}},
		"Moments": {same(1, cols, cols), func(p *operands) { Moments(x, p.m[0], p.v[0], p.v[1]) },
			refused{badShapes: append(all(wider, 0), all(longer, 0, 1)...), badMatrix: all(cut, 0)}},
		"BatchNorm": {same(2, cols, cols, cols, cols), func(p *operands) { BatchNorm(x, p.m[0], p.m[1], p.v[0], p.v[1], 1, p.v[2], p.v[3]) },
			refused{badShapes: append(shaped(0, 1), all(longer, 0, 1, 2, 3)...), badMatrix: all(cut, 0, 1)}},
		"BatchNormBackward": {same(3, cols, cols, cols, cols, cols), func(p *operands) {
			BatchNormBackward(x, p.m[0], p.m[1], p.m[2], p.v[0], 1, p.v[1], p.v[2], p.v[3], p.v[4])
		}, refused{badShapes: append(shaped(0, 1, 2), all(longer, 0, 1, 2, 3, 4)...), badMatrix: all(cut, 0, 1, 2)}},
		"SoftmaxCrossEntropy": {func() *operands { return labelled(same(2, rows)()) }, func(p *operands) {
			SoftmaxCrossEntropy(x, p.m[0], p.labels, p.v[0], p.m[1])
		}, refused{badShapes: append(shaped(0, 1), longer(0), moreLabels, noGradient(longer(0)), noGradient(moreLabels), noCols), badMatrix: all(cut, 0, 1),
			badLabel: {func(p *operands) { p.labels[3] = cols }, noGradient(func(p *operands) { p.labels[3] = cols })}}},
		"SigmoidCrossEntropy": {func() *operands { return labelled(same(2, rows)()) }, func(p *operands) {
			SigmoidCrossEntropy(x, p.m[0], p.labels, make([]uint8, 2*cols), p.v[0], p.m[1])
		}, refused{badShapes: append(shaped(0, 1), longer(0), moreLabels, noGradient(longer(0)), noGradient(moreLabels), noCols), badMatrix: all(cut, 0)}},
		"Gemm": {product, func(p *operands) { Gemm(x, p.m[0], p.m[1], false, p.m[2], false, Epilogue[float64]{Bias: p.bias}) },
			refused{badGemm: shaped(0, 1, 2), badBias: bias, badMatrix: all(cut, 0, 1, 2)}},
		"Gemm, a transposed": {transposed(product, 1), func(p *operands) { Gemm(x, p.m[0], p.m[1], true, p.m[2], false, Epilogue[float64]{Bias: p.bias}) },
			refused{badGemm: shaped(0, 1, 2), badBias: bias}},
		"Gemm, b transposed": {transposed(product, 2), func(p *operands) { Gemm(x, p.m[0], p.m[1], false, p.m[2], true, Epilogue[float64]{Bias: p.bias}) },
			refused{badGemm: shaped(0, 1, 2), badBias: bias}},
		"GemmAdd": {transposed(product, 2, 4), func(p *operands) { GemmAdd(x, p.m[0], p.m[1], p.m[2], p.m[3], p.m[4], Epilogue[float64]{Bias: p.bias}) },
			refused{badGemm: shaped(0, 1, 2, 3, 4), badBias: bias, badMatrix: all(cut, 0, 1, 2, 3, 4)}},
		"GemmBoth": {func() *operands {
			p := &operands{}
			for _, s := range [][2]int{{cols, 32}, {cols, 7}, {3000, cols}, {3000, 32}, {3000, 7}} {
				p.m = append(p.m, NewMatrix[float64](s[0], s[1]))
			}
			return p
		}, func(p *operands) { GemmBoth(x, p.m[0], p.m[1], p.m[2], p.m[3], p.m[4], false, false) },
			refused{badGemm: shaped(0, 1, 2, 3, 4), badMatrix: all(cut, 0, 1, 2, 3, 4)}},
		"Gather": {same(2), func(p *operands) { Gather(x, p.m[0], Source[float64]{Dense: p.m[1]}) },
			refused{badGather: {wider(0), wider(1), taller(0)}, badMatrix: all(cut, 0)}},
		"Aggregate": {aggregate(weights()), func(p *operands) { Aggregate(x, p.m[0], &p.block, Source[float64]{Dense: p.m[1]}, p.o) },
			refused{badAggregate: append(shaped(0), wider(1), func(p *operands) { p.m[1] = NewMatrix[float64](rows-1, cols) },
				func(p *operands) { p.block.Indptr = p.block.Indptr[:3] }, func(p *operands) { p.block.Indices = p.block.Indices[:4] },
				func(p *operands) { p.block.Indptr = []int64{-1, 2, 3, 5} }),
				badWeights: {func(p *operands) { p.o.Weights = p.o.Weights[1:] }, func(p *operands) { p.o.Self = p.o.Self[1:] }},
				badForward: {func(p *operands) { p.o.Accumulate = true }},
				badMax:     {notMax}, badArgmax: {argmax}, badMatrix: all(cut, 0, 1)}},
		"Aggregate of fewer sources than destinations": {func() *operands {
			return &operands{m: []matrix{NewMatrix[float64](3, cols), NewMatrix[float64](2, cols)}, block: graph.Block{NumDst: 3, NumSrc: 2, Indptr: make([]int64, 4)}}
		}, func(p *operands) { Aggregate(x, p.m[0], &p.block, Source[float64]{Dense: p.m[1]}, p.o) },
			refused{badWeights: one(func(p *operands) { p.o.Self = make(vector, 3) })}},
		"AggregateBackward": {aggregate(weights()), func(p *operands) { AggregateBackward(x, p.m[1], &p.t, p.m[0], p.o) },
			refused{badBackward: shaped(0, 1), badMatrix: all(cut, 0, 1),
				badWeights: {func(p *operands) { p.o.Weights = p.o.Weights[1:] }, func(p *operands) { p.o.Self = p.o.Self[1:] }},
				badMax:     {notMax, noArgmax}, badArgmax: {argmax}}},
		"Build": {aggregate(weights()), func(p *operands) { new(Transpose).Build(x, &p.block) },
			refused{badAggregate: {func(p *operands) { p.block.NumDst = -1 },
				func(p *operands) { p.block.NumDst = 0 }, func(p *operands) { p.block.Indptr = []int64{1, 2, 3, 5} },
				func(p *operands) { p.block.Indptr = []int64{0, 2, 3, 4} }}}},
		"Build, of nothing": {func() *operands { return &operands{block: graph.Block{Indptr: []int64{0}}} }, func(p *operands) { new(Transpose).Build(x, &p.block) },
			refused{badAggregate: {func(p *operands) { p.block.NumSrc = -1 }, func(p *operands) { p.block.Indices = []uint32{0} }}}},
		"GatherSparse": {func() *operands {
			return &operands{d: newSparse(3, cols, 0), src: &Sparse[float32]{Rows: 3, Cols: cols, Indptr: make([]int64, 4)}, ids: make([]uint32, 3)}
		}, func(p *operands) {
			GatherSparse(x, p.d, p.src, p.ids, nil, func(n int) ([]uint32, vector) { return make([]uint32, n), make(vector, n) })
		},
			refused{badGather: {func(p *operands) { p.ids = p.ids[1:] }, func(p *operands) { p.ids, p.src.Rows = nil, 2 },
				func(p *operands) { p.d.Indptr = p.d.Indptr[1:] }, func(p *operands) { p.ids, p.d.Indptr = nil, make([]int64, 5) }}}},
		"TransposeSparse": {func() *operands { return &operands{d: newSparse(cols, 3, 2)} },
			func(p *operands) {
				TransposeSparse(p.d, &Sparse[float64]{Rows: 3, Cols: cols, Indptr: []int64{int64(p.begin), 1, 2, 2}, Indices: []uint32{0, 3}, Values: vector{1, 2}})
			}, refused{badShapes: {func(p *operands) { p.d.Indptr = p.d.Indptr[1:] }, func(p *operands) { p.begin = 1 },
				func(p *operands) { p.d.Indices = make([]uint32, 3) }, func(p *operands) { p.d.Values = make(vector, 3) }}}},
		"SparseProduct": {product, func(p *operands) {
			SparseProduct(x, p.m[0], newSparse(rows, cols, 0), p.m[2], Epilogue[float64]{Bias: p.bias})
		}, refused{badShapes: shaped(0, 2), badBias: bias, badMatrix: all(cut, 0, 2)}},
		"TransposeDense": {func() *operands { p := same(2)(); p.m[0] = NewMatrix[float64](cols, rows); return p },
			func(p *operands) { TransposeDense(x, p.m[0], p.m[1], false) }, refused{badShapes: shaped(0, 1), badMatrix: all(cut, 0, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			c.run(c.fit())
			for message, spoils := range c.bads {
				for i, spoil := range spoils {
					p := c.fit()
					spoil(p)
					func() {
						defer func() {
							if r := recover(); r != message {
								t.Errorf("%d: panic %v, want %q", i, r, message)
							}
						}()
						c.run(p)
					}()
				}
			}
		})
	}
	if v := NewMatrix[float64](rows, cols).View(rows, rows, 2, 2); v.Rows != 0 || v.Cols != 0 || v.Data != nil {
		t.Errorf("a view of nothing is %+v", v)
	}
	for _, r := range [][4]int{{-1, 2, 0, 1}, {2, 1, 0, 1}, {0, rows + 1, 0, 1}, {0, 1, -1, 1}, {0, 1, 2, 1}, {0, 1, 0, cols + 1}} {
		func() {
			defer func() {
				if p := recover(); p != badView {
					t.Errorf("View%v: panic %v", r, p)
				}
			}()
			NewMatrix[float64](rows, cols).View(r[0], r[1], r[2], r[3])
		}()
	}
	for _, m := range []matrix{{Rows: -1}, {Cols: -1}, {Cols: 2, Stride: 1}, {Rows: 2, Cols: 2, Stride: 3, Data: make(vector, 4)}} {
		func() {
			defer func() {
				if p := recover(); p != badMatrix {
					t.Errorf("%+v: panic %v", m, p)
				}
			}()
			m.check()
		}()
	}
}
