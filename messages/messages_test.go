package messages

import (
	"errors"
	mathrand "math/rand"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// randomBatch makes a batch whose blocks fit together; nil and empty slices
// both occur.
func randomBatch(r *rand.Rand) *sampling.Batch {
	layers := 1 + r.IntN(3)
	sizes := make([]int, layers+1) // sizes[i]: sources of block i
	sizes[layers] = r.IntN(5)
	for i := layers - 1; i >= 0; i-- {
		sizes[i] = sizes[i+1] + r.IntN(7)
	}
	nodes := make([]uint32, sizes[0])
	for i := range nodes {
		nodes[i] = r.Uint32()
	}
	b := &sampling.Batch{ID: sampling.ID{Phase: "train", Epoch: r.IntN(9), Batch: r.IntN(99), Micro: 1, Of: 4}}
	named, weighted, edges := r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
	for i := range layers {
		k := graph.Block{NumDst: sizes[i+1], NumSrc: sizes[i], Indptr: []int64{0}, Indices: []uint32{}}
		for range k.NumDst {
			for range r.IntN(4) {
				k.Indices = append(k.Indices, uint32(r.IntN(k.NumSrc)))
			}
			k.Indptr = append(k.Indptr, int64(len(k.Indices)))
		}
		if weighted {
			k.Weights = make([]float32, len(k.Indices))
			for j := range k.Weights {
				k.Weights[j] = r.Float32()
			}
		}
		if edges {
			k.EdgeIDs = make([]int64, len(k.Indices))
			for j := range k.EdgeIDs {
				k.EdgeIDs[j] = r.Int64()
			}
		}
		if named {
			k.SrcIDs = nodes[:k.NumSrc:k.NumSrc]
		}
		b.Blocks = append(b.Blocks, k)
	}
	b.Seeds = append([]uint32{}, nodes[:sizes[layers]]...)
	links := len(b.Seeds)%2 == 0 && r.IntN(3) == 0
	if links || r.IntN(2) == 0 {
		b.Targets = make([]uint32, len(b.Seeds))
		for i := range b.Targets {
			b.Targets[i] = uint32(r.IntN(max(sizes[layers], 1)))
		}
	}
	if r.IntN(2) == 0 {
		b.LossWeights = make([]float32, len(b.Seeds))
	}
	if links {
		b.Positive = make([]bool, len(b.Seeds))
		for i := range r.IntN(len(b.Seeds)/2 + 1) {
			b.Positive[2*i], b.Positive[2*i+1] = true, true
		}
	}
	return b
}

// randomSlots makes n numbers; none is nil, as the decoder has it.
func randomSlots(r *rand.Rand, n int) Uint32s {
	if n == 0 {
		return nil
	}
	x := make(Uint32s, n)
	for i := range x {
		x[i] = r.Uint32()
	}
	return x
}

func roundTrip(t *testing.T, m Message) Message {
	t.Helper()
	body, err := Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Unmarshal(m.Kind(), body)
	if err != nil {
		t.Fatalf("%s: %v", m.Kind(), err)
	}
	return back
}

// fill gives every field that travels a random value.
func fill(t *testing.T, m Message, r *mathrand.Rand) {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("msgpack") == "-" {
			continue
		}
		x, ok := quick.Value(v.Field(i).Type(), r)
		if !ok {
			t.Fatalf("%s: no random %s", m.Kind(), v.Type().Field(i).Name)
		}
		v.Field(i).Set(x)
	}
}

// Every kind of message, with random content, comes back equal.
func TestRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	quickRandom := mathrand.New(mathrand.NewSource(1))
	for kind, empty := range kinds {
		t.Run(kind, func(t *testing.T) {
			if got := empty().Kind(); got != kind {
				t.Fatalf("the kind %q makes a %q", kind, got)
			}
			for range 200 {
				m := empty()
				switch s := m.(type) {
				case *Sampled:
					s.Step, s.From = random.Int64(), random.IntN(9)
					if random.IntN(2) == 0 {
						s.Ticket = []byte{1, byte(random.IntN(9))}
					} else {
						s.Batch = randomBatch(random)
					}
				case *Matched:
					b := randomBatch(random)
					*s = Matched{random.Int64(), random.IntN(9), b, randomSlots(random, b.NumInputs()), randomSlots(random, 3), randomSlots(random, 3)}
				case *Loaded:
					b := randomBatch(random)
					*s = Loaded{random.Int64(), random.IntN(9), b, nil, nil}
					switch random.IntN(3) {
					case 0:
						s.Slots = randomSlots(random, b.NumInputs())
					case 1:
						for range 3 * b.NumInputs() {
							s.X = append(s.X, random.Float32())
						}
					}
				case *Inputs:
					fill(t, m, quickRandom)
					for _, p := range s.Parts {
						slices.Sort(p.Nodes)
					}
				default:
					fill(t, m, quickRandom)
				}
				if back := roundTrip(t, m); !reflect.DeepEqual(back, m) {
					t.Fatalf("came back as %+v, was %+v", back, m)
				}
			}
		})
	}
}

func TestNilAndEmptyStayApart(t *testing.T) {
	for _, want := range []Float32s{nil, {}} {
		got := roundTrip(t, &Version{Params: want}).(*Version).Params
		if (got == nil) != (want == nil) {
			t.Errorf("%#v came back as %#v", want, got)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	good := func(change func(*sampling.Batch)) []byte {
		b := randomBatch(r)
		for b.Blocks[0].NumEdges() == 0 || len(b.Seeds) == 0 {
			b = randomBatch(r)
		}
		b.Targets = nil
		change(b)
		body, err := Marshal(&Sampled{Batch: b})
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	version, err := Marshal(&Version{Params: Float32s{1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	last := func(b *sampling.Batch) *graph.Block { return &b.Blocks[len(b.Blocks)-1] }
	for name, c := range map[string]struct {
		kind string
		body []byte
		want string // part of the error
	}{
		"unknown kind":       {"mystery", nil, "unknown kind"},
		"empty body":         {"credit", nil, "ends too early"},
		"truncated":          {"version", version[:len(version)-1], "ends too early"},
		"left over":          {"version", append(append([]byte{}, version...), 0), "left over"},
		"odd bulk":           {"version", []byte{0x81, 0xa1, 'p', 0xc4, 3, 1, 2, 3}, "not a multiple"},
		"unknown field":      {"credit", []byte{0x81, 0xa1, 'z', 1}, "unknown field"},
		"nil batch":          {"sampled", []byte{0xc0}, "no batch"},
		"entry out of range": {"sampled", good(func(b *sampling.Batch) { b.Blocks[0].Indices[0] = uint32(b.Blocks[0].NumSrc) }), "entry 0 is source"},
		"first row pointer":  {"sampled", good(func(b *sampling.Batch) { b.Blocks[0].Indptr[0] = 1 }), "do not span"},
		"falling row pointers": {"sampled", good(func(b *sampling.Batch) {
			b.Blocks = b.Blocks[:1]
			b.Blocks[0] = graph.Block{NumDst: 2, NumSrc: 2, Indptr: []int64{0, 2, 1}, Indices: []uint32{0}}
			b.Seeds, b.LossWeights = nil, nil
		}), "pointer 2 decreases"},
		"few weights":      {"sampled", good(func(b *sampling.Batch) { b.Blocks[0].Weights = []float32{} }), "0 weights"},
		"few edge ids":     {"sampled", good(func(b *sampling.Batch) { b.Blocks[0].EdgeIDs = []int64{} }), "0 edge ids"},
		"target":           {"sampled", good(func(b *sampling.Batch) { b.Targets = make([]uint32, len(b.Seeds)); b.Targets[0] = 99 }), "is row 99"},
		"few targets":      {"sampled", good(func(b *sampling.Batch) { b.Targets = []uint32{} }), "0 targets"},
		"many seeds":       {"sampled", good(func(b *sampling.Batch) { b.Seeds, b.LossWeights = make([]uint32, 99), nil }), "99 seeds but"},
		"few loss weights": {"sampled", good(func(b *sampling.Batch) { b.LossWeights = []float32{} }), "0 loss weights"},
		"no blocks":        {"sampled", good(func(b *sampling.Batch) { b.Blocks = nil }), "has no block"},
		"many blocks": {"sampled", good(func(b *sampling.Batch) {
			b.Blocks = slices.Repeat([]graph.Block{{Indptr: []int64{0}}}, maxBlocks+1)
		}), "blocks is not in"},
		"blocks apart": {"sampled", good(func(b *sampling.Batch) {
			b.Blocks = append([]graph.Block{{NumDst: 77, NumSrc: 77, Indptr: make([]int64, 78)}}, b.Blocks...)
		}), "the block before has 77"},
		"fewer sources": {"sampled", good(func(b *sampling.Batch) { last(b).NumSrc, last(b).SrcIDs = -1, nil }), "-1 sources"},
	} {
		if m, err := Unmarshal(c.kind, c.body); !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v; want an error that says %q", name, m, err, c.want)
		}
	}

	// What was found out about a batch must fit it.
	b := randomBatch(r)
	for b.NumInputs() == 0 {
		b = randomBatch(r)
	}
	for want, w := range map[string]struct {
		kind string
		m    Message
	}{
		"slots for":     {"matched", &Matched{Batch: b, Slots: make(Uint32s, b.NumInputs()+1)}},
		"slots for ":    {"loaded", &Loaded{Batch: b, Slots: make(Uint32s, b.NumInputs()+1)}},
		"rows to read":  {"matched", &Matched{Batch: b, Slots: make(Uint32s, b.NumInputs()), Rows: Uint32s{1}}},
		"is loaded":     {"loaded", &Matched{Batch: b, Rows: Uint32s{1}, To: Uint32s{1}}},
		"was not match": {"sampled", &Loaded{Batch: b, Slots: make(Uint32s, b.NumInputs())}},
		"not matched":   {"sampled", &Loaded{Batch: b, X: make(Float32s, b.NumInputs())}},
		"is not loaded": {"matched", &Loaded{Batch: b, X: make(Float32s, b.NumInputs())}},
		"rows of":       {"loaded", &Loaded{Batch: b, X: make(Float32s, b.NumInputs()*2+1)}},
		"values and":    {"loaded", &Loaded{Batch: b, X: make(Float32s, b.NumInputs()), Slots: make(Uint32s, b.NumInputs())}},
	} {
		body, err := Marshal(w.m)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := Unmarshal(w.kind, body); !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v; want an error that says %q", w.kind, m, err, want)
		}
	}
	// More sources are named than there are nodes, which Marshal cannot make.
	body, err := msgpack.Marshal(&wireSampled{Nodes: Uint32s{1}, Blocks: wireBlocks{{NumSrc: 2, Indptr: Int64s{0}, Named: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Unmarshal("sampled", body); !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), "2 sources but 1 nodes") {
		t.Errorf("unnamed sources: %v", err)
	}
}

// Ids that rise beyond what there are are refused, and so are those that do not rise.
func TestRising(t *testing.T) {
	for _, b := range [][]byte{{0x80}, {0xff, 0xff, 0xff, 0xff, 0x10}, {0xff, 0xff, 0xff, 0xff, 0x0f, 1}} {
		raw, err := msgpack.Marshal(map[string]any{"p": []any{map[string]any{"v": b}}})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := Unmarshal("inputs", raw); !errors.Is(err, ErrMessage) {
			t.Errorf("%x: %v, %v", b, m, err)
		}
	}
	if _, err := Marshal(&Inputs{Parts: []InputPart{{Nodes: Rising{2, 1}}}}); err == nil {
		t.Error("ids that fall were sent")
	}
}

func FuzzUnmarshal(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for kind, empty := range kinds {
		m := empty()
		switch s := m.(type) {
		case *Sampled:
			s.Batch = randomBatch(r)
		case *Matched:
			s.Batch = randomBatch(r)
			s.Slots, s.Rows, s.To = make(Uint32s, s.Batch.NumInputs()), Uint32s{1, 2}, Uint32s{3, 4}
		case *Loaded:
			s.Batch = randomBatch(r)
			s.X = make(Float32s, 2*s.Batch.NumInputs())
		case *Inputs:
			s.Parts = []InputPart{{Step: 3, Micro: 1, Size: 3, Nodes: Rising{1, 1, 1 << 31}}}
		}
		body, err := Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(kind, body)
	}
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		m, err := Unmarshal(kind, body)
		if err != nil {
			return
		}
		// What decodes encodes again, and to something that decodes the same.
		again := roundTrip(t, m)
		a, _ := Marshal(m)
		b, _ := Marshal(again)
		if string(a) != string(b) {
			t.Errorf("%s is not stable: %x, then %x", kind, a, b)
		}
	})
}

func BenchmarkMarshalSampled(b *testing.B) {
	key := rng.New(1)
	nodes := make([]uint32, 100_000)
	key.Perm(nodes)
	batch := &sampling.Batch{Seeds: nodes[:1000], Blocks: []graph.Block{{NumDst: 1000, NumSrc: len(nodes), Indptr: make([]int64, 1001), SrcIDs: nodes, Indices: nodes}}}
	for i := range batch.Blocks[0].Indptr {
		batch.Blocks[0].Indptr[i] = int64(i * 100)
	}
	m := &Sampled{Batch: batch}
	body, _ := Marshal(m)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		body, _ := Marshal(m)
		if _, err := Unmarshal("sampled", body); err != nil {
			b.Fatal(err)
		}
	}
}
