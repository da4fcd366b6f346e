package actors

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// The rows of the next generation are read while batches of the present one
// pass, and a generation that comes late stops nobody.
func TestGenerations(t *testing.T) {
	generation := func(g int) []uint32 {
		var in []uint32
		for u := range uint32(nodes) {
			if rng.New(3, uint64(g)).Float64(uint64(u)) < 0.2 {
				in = append(in, u)
			}
		}
		return in
	}
	plain := plainMemoryJob()
	plain.direct = true
	want, _, err := plain.run(t, t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late=", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gateway{Store: features.InMemory(featureTable()), gate: make(chan struct{})}
				isGeneration := func(r features.Request) bool {
					for k := range epochs {
						if in := generation(k); len(r.IDs) > 3 && slices.IsSorted(r.IDs) && len(r.IDs) <= len(in) && !slices.ContainsFunc(r.IDs, func(u uint32) bool { return !slices.Contains(in, u) }) {
							return true
						}
					}
					return false
				}
				g.hold = func(r features.Request) bool { return late && isGeneration(r) }
				j := plainMemoryJob()
				j.store, j.keep, j.generations = g, 1, &Generations{Period: 1, Nodes: func(_ context.Context, g int) ([]uint32, error) { return generation(g), nil }}
				if !late {
					// The first batch waits until its generation is there, for the next is
					// drawn after that: so that the batches that follow find rows of it
					// does not depend on the machine.
					begun, asked := make(chan struct{}), 0
					var computed atomic.Int64 // batches
					j.generations.Nodes = func(_ context.Context, g int) ([]uint32, error) {
						if asked++; g == 1 {
							close(begun)
						}
						if matched := int(computed.Load()) + j.ahead; g > 1+matched/(nodes/batchSize+1) {
							t.Errorf("generation %d is asked for when %d batches at the most were matched", g, matched)
						}
						if g != asked-1 || g >= epochs {
							t.Errorf("call %d is for generation %d of %d", asked, g, epochs)
						}
						return generation(g), nil
					}
					first := true
					j.hook = func(*features.Slab, *sampling.Batch) {
						<-begun
						computed.Add(1)
						if first {
							synctest.Wait()
							if first = false; asked != 2 {
								t.Errorf("%d generations were asked for when the first batch is computed, want it and the next", asked)
							}
						}
					}
				}
				got, stats, err := j.run(t, t.Context())
				if late {
					close(g.gate)
					g.wg.Wait()
				}
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("other bits, %v", err)
				}
				if late != (stats.Pinned == 0) {
					t.Errorf("%d of %d rows were pinned ones", stats.Pinned, stats.Rows)
				}
			})
		})
	}
}

// The next generation is drawn a share at a time, when batches are released: 64
// pieces over the eight of the eleven steps that are neither sampled ahead nor
// there for its rows.
func TestGenerationsAreDrawnInShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pieces, share = 64, 8
		plain := plainMemoryJob()
		plain.direct = true
		want, _, err := plain.run(t, t.Context())
		if err != nil {
			t.Fatal(err)
		}
		j := plainMemoryJob()
		j.keep, j.samplers, j.credits = 1, 1, 1
		var drawn, computed atomic.Int64 // pieces of generation 1, batches
		begun := make(chan struct{})     // a step's share of them was drawn
		j.generations = &Generations{
			Period: 1, Pieces: pieces,
			Nodes: func(_ context.Context, g int) ([]uint32, error) {
				if n := drawn.Load(); g == 1 && n < pieces && computed.Load() <= nodes/batchSize {
					t.Errorf("generation 1 is asked for after %d of its %d pieces", n, pieces)
				}
				return []uint32{uint32(g), 50}, nil
			},
			Advance: func(g int) bool {
				if g != 1 {
					return true
				}
				n, c := drawn.Add(1), computed.Load()
				if most := share * c; n > pieces || c <= nodes/batchSize && n > most {
					t.Errorf("piece %d of the next generation is drawn when %d batches had begun, want at most %d", n, c, most)
				}
				if n == share {
					close(begun)
				}
				return n == pieces
			},
		}
		j.hook = func(*features.Slab, *sampling.Batch) {
			if computed.Add(1) == 2 {
				<-begun
			}
		}
		got, _, err := j.run(t, t.Context())
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("other bits, %v", err)
		}
	})
}
