package compute

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/rng"
)

// eachOnce is an Exchange of whose rounds none comes twice.
type eachOnce struct {
	*MemoryExchange
	mu   sync.Mutex
	seen map[message]bool
}

func (o *eachOnce) Send(ctx context.Context, round string, from, to int, rows []float32) error {
	o.mu.Lock()
	again := o.seen[message{round, from, to}]
	o.seen[message{round, from, to}] = true
	o.mu.Unlock()
	if again {
		return fmt.Errorf("piece %d sends to piece %d in round %s twice", from, to, round)
	}
	return o.MemoryExchange.Send(ctx, round, from, to, rows)
}

// Gradients of batches that are computed at once, whose active nodes are searched for meanwhile, have the bits of those of one batch after another, and their
// rows do not meet: of what a backward pass turned round for one batch, the next one's is made by the search.
func TestPieceBatchesInFlight(t *testing.T) {
	ds := testDataset(200, 5, 37, false)
	const batches, inFlight = 6, 3
	for name, lie := range map[string]string{"gcn": "target", "sage": "grid", "gat": "source", "sage max": "target", "mixhop": "target"} {
		for _, again := range []bool{false, true} {
			spec := variants[name]
			spec.InputDropout = 0.2
			m := mustModel(t, sized(spec, 2, 37, 12, 5), ds.Graph)
			pieces := cutEdges(ds, lie, someBorders["3 uneven"]...)
			batch := func(i int) func(piece int) PieceBatch {
				targets, labels := []uint32{uint32(i), 8, uint32(100 + 7*i), 199}, []int32{1, 2, 3, 4}
				return dividedBatch(pieces, targets, labels)
			}
			var want [][]float32
			one := pieceTrainer(t, m, pieces, NewMemoryExchange())
			for i := range batches {
				use(t, one, batch(i))
				grads, _, err := one.Gradient(t.Context(), randomParams(m, uint64(i)), rng.New(uint64(i)))
				if err != nil {
					t.Fatal(err)
				}
				SumTree(grads)
				want = append(want, slices.Clone(grads[0]))
			}

			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			memory := NewMemoryExchange()
			once := &eachOnce{MemoryExchange: memory, seen: map[message]bool{}}
			execs := func() *cpu.Exec { return testExec(t, 2, detected(t)) }
			trainers := []*PieceTrainer{pieceTrainer(t, m, pieces, once)}
			if again {
				trainers[0].Recompute()
			}
			for len(trainers) < inFlight {
				beside := trainers[0].Beside(execs, "")
				t.Cleanup(beside.Close)
				trainers = append(trainers, beside)
			}
			sets := make(chan *ActiveSet)
			go func() {
				defer close(sets)
				for i := range batches {
					set, err := trainers[0].Search(ctx, batch(i))
					if err != nil {
						t.Error(err)
						return
					}
					sets <- set
				}
			}()
			var computed [batches]chan struct{}
			last := len(trainers[0].engines[0].core.layers) - 1
			made := 0
			for i := range batches {
				trainer := trainers[i%inFlight]
				if i >= inFlight {
					<-computed[i-inFlight]
				}
				set := <-sets
				if set == nil {
					t.FailNow()
				}
				for _, p := range set.pieces {
					if p.transposes[last] != nil {
						made++
					}
				}
				trainer.Take(set)
				done := make(chan struct{})
				computed[i] = done
				go func() {
					defer close(done)
					grads, stats, err := trainer.Gradient(ctx, randomParams(m, uint64(i)), rng.New(uint64(i)))
					if err != nil {
						stop()
						t.Errorf("%s, edges at %s: %v", name, lie, err)
						return
					}
					if sum, _, _, err := trainer.Sum(ctx, grads, stats, false); err != nil || !slices.Equal(sum, want[i]) {
						t.Errorf("%s, edges at %s: the gradient of batch %d is another one with others in flight: %v", name, lie, i, err)
					}
				}()
			}
			for _, done := range computed {
				<-done
			}
			allReceived(t, memory)
			steps := map[string]bool{} // whose activations are computed again
			for sent := range once.seen {
				if step, _, found := strings.Cut(sent.round, "-layer-"); found && strings.Contains(sent.round, "-again") {
					steps[strings.TrimPrefix(step, "back-")] = true
				}
			}
			if again && name == "gcn" && len(steps) != batches || !again && len(steps) > 0 {
				t.Errorf("%s, again=%v: activations are computed again in the steps %v", name, again, steps)
			}
			first := false // layer's rows cross
			for sent := range once.seen {
				first = first || strings.Contains(sent.round, "-layer-0-")
			}
			if first == (name == "sage max") {
				t.Errorf("%s: rows of layer 0 cross: %v, which trainers are to make of features that all keep", name, first)
			}
			if made == 0 {
				t.Errorf("%s, edges at %s: the search turned no block round", name, lie)
			}
		}
	}
}
