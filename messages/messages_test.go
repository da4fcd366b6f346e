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
	quickRandom := mathrand.New(mathrand.NewSource(1))
	for kind, empty := range kinds {
		t.Run(kind, func(t *testing.T) {
			if got := empty().Kind(); got != kind {
				t.Fatalf("the kind %q makes a %q", kind, got)
			}
			for range 200 {
				m := empty()
				switch s := m.(type) {
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
		got := roundTrip(t, &Facts{Loops: want}).(*Facts).Loops
		if (got == nil) != (want == nil) {
			t.Errorf("%#v came back as %#v", want, got)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	nodes, err := Marshal(&Nodes{Nodes: Uint32s{1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		kind string
		body []byte
		want string // part of the error
	}{
		"unknown kind":  {"mystery", nil, "unknown kind"},
		"empty body":    {"seeds", nil, "ends too early"},
		"truncated":     {"nodes", nodes[:len(nodes)-1], "ends too early"},
		"left over":     {"nodes", append(append([]byte{}, nodes...), 0), "left over"},
		"odd bulk":      {"nodes", []byte{0x81, 0xa1, 'n', 0xc4, 3, 1, 2, 3}, "not a multiple"},
		"unknown field": {"sampled", []byte{0x81, 0xa1, 'z', 1}, "unknown field"},
	} {
		if m, err := Unmarshal(c.kind, c.body); !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v; want an error that says %q", name, m, err, c.want)
		}
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
	for kind, empty := range kinds {
		m := empty()
		switch s := m.(type) {
		case *Sampled:
			s.Ticket = []byte{1, 2, 3}
		case *Seeds:
			s.Seeds = Uint32s{1, 2}
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
