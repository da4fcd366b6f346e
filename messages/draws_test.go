package messages

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

var drawBorders = pieces.Borders{0, 1024, 1024, 3072, 70 << 10}

func randomAsks(r *rand.Rand) (asks []sampling.Ask) {
	q := sampling.Ask{ID: sampling.ID{Phase: "train", Epoch: r.IntN(1000), Batch: r.IntN(1000), Micro: r.IntN(4), Of: 4}, Key: rng.Key(r.Uint64()), Hop: r.IntN(4), Want: sampling.Want(r.IntN(4))}
	if q.Want == sampling.WantAmong {
		q.Set = []uint32{}
		for u := uint32(r.IntN(9)); u < uint32(drawBorders.Nodes()); u += 1 + uint32(r.IntN(9000)) {
			q.Set = append(q.Set, u)
		}
	}
	beside := r.IntN(2) == 0
	for _, owner := range []int{0, 2, 3} {
		q.Owner, q.Nodes = owner, make([]uint32, r.IntN(50))
		for i := range q.Nodes {
			q.Nodes[i] = drawBorders[owner] + uint32(r.IntN(int(drawBorders[owner+1]-drawBorders[owner])))
		}
		q.Beside = nil
		for range q.Nodes {
			if beside {
				q.Beside = append(q.Beside, r.Uint64())
			}
		}
		asks = append(asks, q)
	}
	return asks
}

func randomAnswers(r *rand.Rand, asks []sampling.Ask) []sampling.Answer {
	answers := make([]sampling.Answer, len(asks))
	ids, weights := r.IntN(2) == 0, r.IntN(2) == 0
	for i := range answers {
		a := &answers[i]
		a.Counts, a.Sources, a.EdgeIDs, a.Degrees = []uint32{}, []uint32{}, []int64{}, []uint32{}
		a.Weights = []float32{}
		for range asks[i].Nodes {
			n := r.IntN(5)
			a.Counts = append(a.Counts, uint32(n))
			if asks[0].Want == sampling.WantAmong {
				a.Degrees = append(a.Degrees, uint32(r.IntN(1000)))
			}
			for range n {
				a.Sources = append(a.Sources, uint32(r.IntN(drawBorders.Nodes())))
				if weights {
					a.Weights = append(a.Weights, r.Float32())
				}
				if ids {
					a.EdgeIDs = append(a.EdgeIDs, r.Int64())
				}
			}
		}
	}
	return answers
}

// readAnswers reads answers to asks into new memory.
func readAnswers(data []byte, asks []sampling.Ask) ([]sampling.Answer, error) {
	got := make([]sampling.Answer, len(asks))
	to, rows := make([]*sampling.Answer, len(asks)), make([]int, len(asks))
	for i := range asks {
		got[i] = sampling.Answer{Counts: []uint32{}, Sources: []uint32{}, EdgeIDs: []int64{}, Degrees: []uint32{}, Weights: []float32{}}
		to[i], rows[i] = &got[i], len(asks[i].Nodes)
	}
	return got, ReadAnswers(data, to, rows, drawBorders.Nodes())
}

// Questions for rows and their answers come back the same, in few bytes, and nothing that is short of them does.
func TestDraws(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		asks := randomAsks(r)
		data := AppendAsks(nil, asks, drawBorders)
		got, err := ReadAsks(data, drawBorders)
		if err != nil || !reflect.DeepEqual(got, asks) {
			t.Fatalf("%+v came back as %+v, %v", asks, got, err)
		}
		if most := 40 + 2*len(asks[0].Nodes) + 2*len(asks[1].Nodes) + 3*len(asks[2].Nodes) + 8*len(slices.Concat(asks[0].Beside, asks[1].Beside, asks[2].Beside)) + 2*len(asks[0].Set); len(data) > most {
			t.Fatalf("%d bytes, not %d", len(data), most)
		}
		if _, err := ReadAsks(data[:r.IntN(len(data))], drawBorders); !errors.Is(err, ErrMessage) {
			t.Fatalf("a part of it: %v", err)
		}
		answers := randomAnswers(r, asks)
		data = AppendAnswers(nil, answers, drawBorders.Nodes())
		back, err := readAnswers(data, asks)
		if err != nil || !reflect.DeepEqual(back, answers) {
			t.Fatalf("%+v came back as %+v, %v", answers, back, err)
		}
		if _, err := readAnswers(data[:r.IntN(len(data))], asks); !errors.Is(err, ErrMessage) {
			t.Fatalf("a part of it: %v", err)
		}
	}
}

// What a peer says is read or refused, and what is read says the same again.
func FuzzReadAsks(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	f.Add(AppendAsks(nil, randomAsks(r), drawBorders))
	f.Fuzz(func(t *testing.T, data []byte) {
		asks, err := ReadAsks(data, drawBorders)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
			return
		}
		if len(asks) == 0 {
			return
		}
		packed := AppendAsks(nil, asks, drawBorders)
		again, err := ReadAsks(packed, drawBorders)
		if err != nil || !bytes.Equal(packed, AppendAsks(nil, again, drawBorders)) {
			t.Fatalf("%x is read as %x, %v", data, packed, err)
		}
	})
}

func FuzzReadAnswers(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	asks := randomAsks(r)
	f.Add(AppendAnswers(nil, randomAnswers(r, asks), drawBorders.Nodes()))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readAnswers(data, asks)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
			return
		}
		if again, err := readAnswers(AppendAnswers(nil, got, drawBorders.Nodes()), asks); err != nil || !reflect.DeepEqual(got, again) {
			t.Fatalf("%v", err)
		}
	})
}
