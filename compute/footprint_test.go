package compute

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
)

// What a trial on a part of a batch says that an engine holds is what it holds of the batch, for all models, and so is what inference takes.
func TestFootprints(t *testing.T) {
	workers := pool.New(1)
	defer workers.Close()
	x := cpu.NewExec(workers, detected(t))
	for _, spec := range []Spec{
		{Model: "sage", Layers: 2}, {Model: "gcn", Layers: 2}, {Model: "gin", Layers: 2, Norm: "batch"}, {Model: "gat", Layers: 2, Heads: 4}, {Model: "gatv2", Layers: 2, Heads: 2}, {Model: "mixhop", Layers: 1, Hops: 2},
		{Model: "sage", Layers: 2, JumpingKnowledge: "cat"}, {Model: "gat", Layers: 2, Heads: 2, EdgeDim: 3},
	} {
		spec.InDim, spec.Hidden, spec.OutDim, spec.Dropout = 128, 256, 16, 0.5
		for _, square := range []bool{false, true} {
			blocks := []BlockSize{{2000, 5000, 9000}, {256, 2000, 2600}}
			if square {
				blocks = []BlockSize{{3000, 3000, 30000}, {3000, 3000, 30000}}
			}
			t.Run(fmt.Sprintf("%s %s %d square=%t", spec.Model, spec.JumpingKnowledge, spec.EdgeDim, square), func(t *testing.T) {
				random := rand.New(rand.NewPCG(2, 2))
				m, err := newModel(spec, &graph.Graph{Indptr: make([]int64, 2)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				ds := m.trialData(random, blocks[0].Src, blocks[0].Entries)
				if m, err = newModel(spec, ds.Graph, nil); err != nil {
					t.Fatal(err)
				}
				in := &Input{Key: rng.New(3), Features: ds.NodeFeatures, Edges: ds.EdgeFeatures, Labels: make([]int32, 200)}
				for _, b := range blocks {
					if square && in.Blocks != nil {
						in.Blocks = append(in.Blocks, in.Blocks[0])
						continue
					}
					in.Blocks = append(in.Blocks, randomBlock(random, b, spec.EdgeDim > 0, ds.EdgeFeatures))
				}
				size, err := m.GradientBytes(x, blocks, 200, square)
				if err != nil {
					t.Fatal(err)
				}
				if m.parts(blocks[0].Src+blocks[0].Entries) < 2 {
					t.Fatal("the trial has the whole size")
				}
				e := m.NewEngine(x)
				e.Reserve(size.Values + size.Values/16)
				params := m.Init(1)
				grad := make([]float32, len(params))
				for range 2 {
					if _, err := e.Gradient(grad, params, in); err != nil {
						t.Fatal(err)
					}
				}
				held := e.core.tape.held() + e.core.trimmer.held() - int64(4*(size.Values/16))
				if r := float64(size.Bytes) / float64(held); r < 0.95 || r > 1.1 {
					t.Errorf("a trial says %d bytes, and %d are held: %.2f", size.Bytes, held, r)
				}
				if !square {
					return
				}
				sizes, err := m.InferenceBytes(t.Context(), x)
				if err != nil {
					t.Fatal(err)
				}
				all := make([]uint32, m.nodes)
				for i := range all {
					all[i] = uint32(i)
				}
				r := inference{core: newCore[float32](m, x, false), ctx: t.Context(), params: params, chunk: 500, edges: ds.EdgeFeatures, values: ds.NodeFeatures, global: true}
				defer r.close()
				sends := spec.JumpingKnowledge != "" // its second layer is no narrower than what it reads
				r.sized = func(l int, took InferenceSize) {
					lies := 4 * int64(len(r.out.Data))
					if l == len(r.layers)-1 && !spec.head() {
						lies *= 2 // in the order of all, too
					}
					for _, kept := range r.kept {
						lies += 4 * int64(len(kept.Data))
					}
					if !r.global {
						lies += int64(len(r.values.Data))
					}
					for i, bytes := range took.Sent {
						lies, sends = lies+bytes, true
						if r := float64(sizes[l].Sent[i]) / float64(bytes); r < 0.95 || r > 1.05 {
							t.Errorf("layer %d: a trial says that %d bytes are sent, and %d are", l, sizes[l].Sent[i], bytes)
						}
					}
					if took.Whole < lies {
						t.Errorf("layer %d: %d bytes, and matrices of %d lie there", l, took.Whole, lies)
					}
					n := float64(m.nodes)
					asked := r.tape.asked(1, 0)
					got := float64(took.Whole) + took.Row*n - float64(asked+asked/settleRoom) + float64(r.tape.held())
					says := float64(sizes[l].Whole) + sizes[l].Row*500 + sizes[l].Entry*5000
					if r := says / got; r < 0.95 || r > 1.15 {
						t.Errorf("layer %d: a trial says %.0f bytes, and %.0f were taken: %.2f", l, says, got, r)
					}
				}
				if _, err := r.run(ds, all, nil); err != nil {
					t.Fatal(err)
				}
				if !sends {
					t.Error("no layer says what it sends")
				}
			})
		}
	}
}

// What transforming a layer's sources leaves behind is collected before the layer is computed, and what a layer leaves before the next, where
// it is large.
func TestInferenceCollects(t *testing.T) {
	workers := pool.New(1)
	defer workers.Close()
	x := cpu.NewExec(workers, detected(t))
	random := rand.New(rand.NewPCG(1, 3))
	for nodes, want := range map[int64]uint32{100: 0, 40000: 3} {
		spec := Spec{Model: "sage", Layers: 2, InDim: 64, Hidden: 32, OutDim: 4}
		m, err := newModel(spec, &graph.Graph{Indptr: make([]int64, 2)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ds := m.trialData(random, nodes, 20*nodes)
		if m, err = newModel(spec, ds.Graph, nil); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := m.Infer(t.Context(), x, m.Init(1), ds, nil, int(nodes)); err != nil {
			t.Fatal(err)
		}
		if runtime.ReadMemStats(&after); after.NumForcedGC-before.NumForcedGC != want {
			t.Errorf("%d nodes: collected %d times, want %d", nodes, after.NumForcedGC-before.NumForcedGC, want)
		}
	}
}

// TestTapeHeld counts what a tape holds: nothing at first, and then the transposes, coefficients and sums of blocks.
func TestTapeHeld(t *testing.T) {
	workers := pool.New(1)
	defer workers.Close()
	m, err := newModel(Spec{Model: "sage", Layers: 1, InDim: 2, OutDim: 2}, &graph.Graph{Indptr: make([]int64, 2)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tape := newCore[float32](m, cpu.NewExec(workers, detected(t)), true).tape
	before := tape.held()
	one := derived[float32]{transpose: new(cpu.Transpose), weights: make([]float32, 3), self: make([]float32, 2),
		sums: map[sumOf[float32]]cpu.Matrix[float32]{{}: cpu.NewMatrix[float32](5, 2)}}
	one.transpose.Build(tape.x, &graph.Block{NumDst: 1, NumSrc: 3, Indptr: []int64{0, 2}, Indices: []uint32{0, 2}})
	bytes := one.transpose.Bytes() + 4*(3+2+10)
	for n := range int64(3) {
		if got := tape.held() - before; got != n*bytes || bytes <= 4*15 {
			t.Errorf("of %d blocks %d bytes are held, want %d", n, got, n*bytes)
		}
		tape.ofWhole = one
		if n > 0 {
			tape.ofLasting = append(tape.ofLasting, one)
		}
	}
}

// TestTrialIsAsSparse checks that trials of a model that is bound to sparse features are of features that are as sparse.
func TestTrialIsAsSparse(t *testing.T) {
	const nodes, cols, every = 50, 200, 20
	x := make([]float32, nodes*cols)
	for i := 0; i < len(x); i += every {
		x[i] = 1
	}
	m, err := newModel(Spec{Model: "sage", Layers: 1, InDim: cols, OutDim: 2}, &graph.Graph{Indptr: make([]int64, nodes+1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.BindFeatures(graph.NewFeatures(nodes, cols, x))
	if m.sparse == nil {
		t.Fatal("the features are not sparse")
	}
	ds := m.trialData(rand.New(rand.NewPCG(1, 1)), 30, 60)
	if got := len(cpu.NewSparse(ds.NodeFeatures).Values); got != 30*cols/every {
		t.Errorf("a trial has %d values that are not zero, want %d", got, 30*cols/every)
	}
}
