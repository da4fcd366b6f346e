package messages

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/sampling"
)

// sameFloats compares bits: a peer may send what is no number.
func sameFloats(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// sameBatch reports whether two batches are the same, memory apart.
func sameBatch(a, b *sampling.Batch) bool {
	return a.ID == b.ID && slices.Equal(a.Seeds, b.Seeds) && (a.Targets == nil) == (b.Targets == nil) && slices.Equal(a.Targets, b.Targets) &&
		(a.LossWeights == nil) == (b.LossWeights == nil) && sameFloats(a.LossWeights, b.LossWeights) &&
		(a.Positive == nil) == (b.Positive == nil) && slices.Equal(a.Positive, b.Positive) &&
		slices.EqualFunc(a.Blocks, b.Blocks, func(x, y graph.Block) bool {
			return x.NumDst == y.NumDst && x.NumSrc == y.NumSrc && slices.Equal(x.Indptr, y.Indptr) && slices.Equal(x.Indices, y.Indices) &&
				(len(x.Indices) == 0 || (x.Weights == nil) == (y.Weights == nil) && (x.EdgeIDs == nil) == (y.EdgeIDs == nil)) && sameFloats(x.Weights, y.Weights) &&
				slices.Equal(x.EdgeIDs, y.EdgeIDs) &&
				slices.Equal(x.SrcIDs, y.SrcIDs)
		})
}

// A batch comes back the same, into the memory of another, and nothing that is short of it does.
func TestPackedBatch(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	again := new(sampling.Batch)
	for i := range 500 {
		b := randomBatch(r)
		if i%3 == 0 && len(b.Seeds) > 1 { // as with samplers whose seeds are not the first nodes
			slices.Reverse(b.Seeds)
		}
		data := AppendBatch(nil, b)
		if err := ReadBatch(again, b.ID, data); err != nil {
			t.Fatal(err)
		}
		if !sameBatch(b, again) {
			t.Fatalf("came back as %+v, was %+v", again, b)
		}
		for n := range data {
			if err := ReadBatch(again, b.ID, data[:n]); !errors.Is(err, ErrMessage) {
				t.Fatalf("%d of %d bytes: %v", n, len(data), err)
			}
		}
		if err := ReadBatch(again, b.ID, append(data, 0)); !errors.Is(err, ErrMessage) {
			t.Fatalf("a byte more: %v", err)
		}
	}
}

// A batch whose blocks do not fit together is refused.
func TestPackedBatchRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for want, change := range map[string]func(*sampling.Batch){
		"is source 7 of 7": func(b *sampling.Batch) { b.Blocks[0].Indices[0] = 7 },
		"is row 99":        func(b *sampling.Batch) { b.Targets = make([]uint32, len(b.Seeds)); b.Targets[0] = 99 },
		"0 blocks":         func(b *sampling.Batch) { b.Blocks = nil },
		"1025 blocks":      func(b *sampling.Batch) { b.Blocks = slices.Repeat([]graph.Block{{Indptr: []int64{0}}}, maxBlocks+1) },
		"the block before has 77": func(b *sampling.Batch) {
			b.Blocks = append([]graph.Block{{NumDst: 77, NumSrc: 77, Indptr: make([]int64, 78)}}, b.Blocks...)
		},
		"1 destinations, 0 source": func(b *sampling.Batch) { b.Blocks = []graph.Block{{NumDst: 1, Indptr: []int64{0, 0}}} },
	} {
		b := randomBatch(r)
		for b.Blocks[0].NumEdges() == 0 || len(b.Seeds) == 0 || b.NumInputs() != 7 || b.Positive != nil {
			b = randomBatch(r)
		}
		b.Targets = nil
		change(b)
		if err := ReadBatch(new(sampling.Batch), b.ID, AppendBatch(nil, b)); !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want an error that says %q", err, want)
		}
	}
}

// Local ids take as many bytes as the block's sources need.
func TestPackedWidths(t *testing.T) {
	for _, n := range []int{1, 2, 256, 257, 1 << 16, 1<<16 + 1, 1<<24 + 1} {
		ids := []uint32{0, uint32(n - 1), uint32(n / 2)}
		b := &sampling.Batch{Blocks: []graph.Block{{NumDst: 1, NumSrc: n, Indptr: []int64{0, 3}, Indices: ids}}}
		again := new(sampling.Batch)
		if err := ReadBatch(again, b.ID, AppendBatch(nil, b)); err != nil || !slices.Equal(again.Blocks[0].Indices, ids) {
			t.Errorf("of %d sources: %v, %v", n, again.Blocks, err)
		}
	}
}

func FuzzReadBatch(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 20 {
		f.Add(AppendBatch(nil, randomBatch(r)))
	}
	odd := randomBatch(r)
	odd.LossWeights = make([]float32, len(odd.Seeds))
	for i := range odd.LossWeights {
		odd.LossWeights[i] = float32(math.NaN())
	}
	f.Add(AppendBatch(nil, odd))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, id := new(sampling.Batch), sampling.ID{Phase: "train", Of: 1}
		if err := ReadBatch(b, id, data); err != nil {
			if !errors.Is(err, ErrMessage) || len(b.Blocks) > 0 {
				t.Fatalf("%v, %d blocks", err, len(b.Blocks))
			}
			return
		}
		packed, again := AppendBatch(nil, b), new(sampling.Batch)
		if err := ReadBatch(again, id, packed); err != nil || !sameBatch(b, again) {
			t.Fatalf("%+v came back as %+v: %v", b, again, err)
		}
		if !bytes.Equal(packed, AppendBatch(nil, again)) {
			t.Fatal("it is not stable")
		}
	})
}

// A batch of 1,024 seeds with fan-outs 15,10,5 of a graph of 262,144 nodes and 8 million edges: how
// many bytes it has packed, and how long both ways take.
func BenchmarkBatchBytes(b *testing.B) {
	ds, err := generate.RMAT(b.Context(), generate.RMATOptions{Scale: 18, Edges: 8_000_000, FeatureDim: 1, Classes: 2, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	p, err := sampling.Prepare(b.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{15, 10, 5}}, ds, 1)
	if err != nil {
		b.Fatal(err)
	}
	id := sampling.ID{Phase: "train", Of: 1}
	batch, again := &sampling.Batch{ID: id}, new(sampling.Batch)
	if err := p.NewSampler().Sample(batch, id.Key(1), sampling.Cut(sampling.Order(ds.Train, 1, 0), 1024, 1, 0, 0)); err != nil {
		b.Fatal(err)
	}
	var data []byte
	for b.Loop() {
		data = AppendBatch(data[:0], batch)
		if err := ReadBatch(again, id, data); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(data)))
	b.ReportMetric(float64(len(data)), "bytes")
	b.ReportMetric(float64(len(data))/float64(batch.NumEdges()+batch.NumInputs()), "bytes/id")
}
