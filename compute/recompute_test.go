package compute

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/rng"
)

// Gradients whose activations are computed again are those of activations that are kept, to the bit, of every model, with values dropped, wherever
// edges lie; and so are batch norms' statistics.
func TestRecomputedBits(t *testing.T) {
	ds := testDataset(200, 5, 37, true)
	targets, labels := []uint32{1, 8, 70, 71, 100, 199}, []int32{1, 2, 3, 4, 0, 1}
	for name, spec := range variants {
		if spec.EdgeDim > 0 || spec.GCNNorm == "block" {
			continue
		}
		spec.Dropout, spec.InputDropout = 0.4, 0.2
		if spec.Model == "gat" || spec.Model == "gatv2" {
			spec.AttentionDropout = 0.3
		}
		m := mustModel(t, sized(spec, 3, 37, 12, 5), ds.Graph)
		params := randomParams(m, 5)
		for _, lie := range append([]string{"target"}, edgesLie...) {
			pieces := cutEdges(ds, lie, someBorders["3 uneven"]...)
			var want [][]float32
			for _, again := range []bool{false, true} {
				memory := NewMemoryExchange()
				trainer := pieceTrainer(t, m, pieces, memory)
				if again {
					trainer.Recompute()
				}
				use(t, trainer, dividedBatch(pieces, targets, labels))
				var got [][]float32
				for step := range 3 { // with the memory of the first
					grads, _, err := trainer.Gradient(t.Context(), params, rng.New(uint64(step)))
					if err != nil {
						t.Fatal(err)
					}
					for _, g := range grads {
						got = append(got, slices.Clone(g)) // with statistics
					}
				}
				allReceived(t, memory)
				if want == nil {
					want = got
				}
				for i := range want {
					if !slices.Equal(got[i], want[i]) {
						t.Errorf("%s, edges at %s: gradient %d of %d differs where activations are computed again", name, lie, i, len(want))
						break
					}
				}
			}
		}
	}
}

// What is kept of a layer is its result: with activations computed again a deep model holds a row of each node for each, and beside them what one
// layer takes. Other pieces' rows are sent twice, but for those of the last layer.
func TestRecomputedMemory(t *testing.T) {
	const n, hidden, layers = 4000, 64, 8
	ds := testDataset(n, 5, 8, false)
	pieces := cut(ds, 0, n/2, n)
	for _, c := range []struct {
		spec      Spec
		rows      int // that one layer takes at most, its results' gradient and its input's among them
		perEntry  int
		leastLess int // rows of each layer but the last that are not kept
	}{{Spec{Model: "gcn", Dropout: 0.5}, 5, 24, 1}, {Spec{Model: "gin", Norm: "batch", Dropout: 0.5}, 10, 24, 5}, {Spec{Model: "gat", Heads: 4, Dropout: 0.5}, 13, 80, 1}, {Spec{Model: "sage", Aggregation: "max", Dropout: 0.5}, 9, 24, 2}} {
		m := mustModel(t, sized(c.spec, layers, 8, hidden, 5), ds.Graph)
		var held [2]int64
		var want []float32
		for i, again := range []bool{false, true} {
			counted := NewCounted(NewMemoryExchange())
			trainer := pieceTrainer(t, m, pieces, counted)
			stripes(trainer)
			if again {
				trainer.Recompute()
			}
			use(t, trainer, dividedBatch(pieces, []uint32{1, 100, n - 1}, []int32{1, 2, 3}))
			for step := range 3 {
				grads, _, err := trainer.Gradient(t.Context(), randomParams(m, 5), rng.New(7))
				if err != nil {
					t.Fatal(err)
				}
				if want == nil {
					want = slices.Clone(grads[0])
				}
				if !slices.Equal(grads[0], want) {
					t.Errorf("%+v, again %v: gradient %d differs", c.spec, again, step)
				}
				if n := trainer.Bytes(); step > 0 && n > held[i]+held[i]/100 {
					t.Errorf("%+v, again %v: %d bytes are held after step %d, %d before it", c.spec, again, n, step, held[i])
				}
				held[i] = trainer.Bytes()
			}
			for l := range layers {
				once, twice := counted.Bytes(fmt.Sprintf("step-3-layer-%d-0", l)), counted.Bytes(fmt.Sprintf("step-3-layer-%d-0-again", l))
				for k := range 8 { // stripes
					once, twice = once+counted.Bytes(fmt.Sprintf("step-3-layer-%d-0-%d", l, k)), twice+counted.Bytes(fmt.Sprintf("step-3-layer-%d-0-again-%d", l, k))
				}
				if again && l < layers-1 && twice != once || (!again || l == layers-1) && twice != 0 || once == 0 && (l > 0 || c.spec.Model == "gat") {
					t.Errorf("%+v, again %v, layer %d: %d bytes of rows are sent, and then %d", c.spec, again, l, once, twice)
				}
			}
		}
		most := int64(4 * n * hidden * (layers - 1 + c.rows))
		for _, p := range pieces {
			most += int64(4*16*p.in() + c.perEntry*len(p.In.Indices) + 60*p.in())
		}
		if least := int64(4 * n * hidden * (layers - 1) * c.leastLess); held[1] > most || held[0]-held[1] < least/2 {
			t.Errorf("%+v: %d bytes are held, %d without computing again; at most %d are wanted, and %d less", c.spec, held[1], held[0], most, least/2)
		}
	}
}

// An Arena gives what was handed out since Mark again, but for what is kept, and after Reset what it held is used from its beginning.
func TestArenaRecycles(t *testing.T) {
	a := new(Arena[float32])
	a.fixed = true
	for range 2 {
		below := a.Alloc(100)
		a.Mark()
		first, second := a.Alloc(50), a.Alloc(50)
		a.Free(second)
		a.Keep(first)
		a.Recycle()
		if again, other := a.Alloc(50), a.Alloc(50); &again[0] != &second[0] || &other[0] == &first[0] || &other[0] == &second[0] || &other[0] == &below[0] {
			t.Error("what is kept, or below the mark, is handed out again, or what is not is not")
		}
		a.Unkeep(first)
		a.Recycle()
		seen := map[*float32]bool{&below[0]: true}
		for range 4 {
			s := a.Alloc(50)
			if seen[&s[0]] {
				t.Error("memory is handed out twice")
			}
			seen[&s[0]] = true
		}
		if !seen[&first[0]] || !seen[&second[0]] {
			t.Error("what is not kept any more is not handed out again")
		}
		a.Reset()
	}
	if a.Cap() != arenaPiece {
		t.Errorf("%d elements are held", a.Cap())
	}
}
