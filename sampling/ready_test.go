package sampling

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func plan(order []uint32, size int) iter.Seq2[ID, []uint32] {
	return func(yield func(ID, []uint32) bool) {
		for i := range NumBatches(len(order), size) {
			if !yield(ID{Phase: "train", Batch: i}, Cut(order, size, 1, i, 0)) {
				return
			}
		}
	}
}

func TestReadyKeepsOrderAndBits(t *testing.T) {
	g := skewed(2000, 60, 1)
	order := Order(allNodes(g), 1, 0)
	for _, spec := range []Spec{{Name: "neighbor", Fanouts: []int{5, 5}}, subgraphSpecs[3]} {
		p := mustPrepare(t, spec, g)
		var want []Batch
		s := p.NewSampler()
		for id, seeds := range plan(order, 100) {
			b := Batch{ID: id}
			if err := s.Sample(&b, id.Key(9), seeds); err != nil {
				t.Fatal(err)
			}
			want = append(want, b.clone())
		}
		for _, c := range []struct{ samplers, depth int }{{0, 0}, {1, 4}, {3, 2}, {4, 9}} {
			var got []Batch
			for b, err := range p.Ready(context.Background(), 9, c.samplers, c.depth, plan(order, 100)) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, b.clone())
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %+v gives other batches than a loop", spec.Name, c)
			}
		}
	}
}

func TestReadyStops(t *testing.T) {
	g := skewed(2000, 60, 1)
	p := mustPrepare(t, Spec{Name: "neighbor", Fanouts: []int{5}}, g)
	order := Order(allNodes(g), 1, 0)
	n := 0
	for range p.Ready(context.Background(), 1, 2, 4, plan(order, 10)) {
		if n++; n == 3 {
			break // the rest of the test, and goleak, see that nothing is left running
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var last error
	n = 0
	for _, err := range p.Ready(ctx, 1, 2, 4, plan(order, 10)) {
		if n++; n == 3 {
			cancel()
		}
		last = err
	}
	if !errors.Is(last, context.Canceled) || n > 3+5 {
		t.Errorf("after cancelling, %d batches came, the last with %v", n-3, last)
	}
	bad := append(order[:20:20], order[12])
	n = 0
	for b, err := range p.Ready(context.Background(), 1, 2, 4, plan(bad, 21)) {
		n++
		if b != nil || err == nil || !strings.HasPrefix(err.Error(), "train/e0/b0: ") {
			t.Errorf("batch %v, error %v", b, err)
		}
	}
	if n != 1 {
		t.Errorf("%d results of a plan whose first batch is bad", n)
	}
}
