package sampling

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// fullBatch returns one in which every field that there is says something.
func fullBatch() *Batch {
	return &Batch{
		ID:    ID{Phase: "train", Epoch: 1, Batch: 2, Micro: 3, Of: 4},
		Seeds: []uint32{7, 9}, Targets: []uint32{1, 0}, LossWeights: []float32{1, 2}, Positive: []bool{true, false},
		Blocks: []graph.Block{
			{NumDst: 3, NumSrc: 4, Indptr: []int64{0, 1, 2, 3}, Indices: []uint32{1, 2, 3}, Weights: []float32{1, 2, 3}, EdgeIDs: []int64{5, 6, 7}, SrcIDs: []uint32{7, 9, 1, 2}},
			{NumDst: 2, NumSrc: 3, Indptr: []int64{0, 1, 2}, Indices: []uint32{1, 2}, Weights: []float32{1, 2}, EdgeIDs: []int64{5, 6}, SrcIDs: []uint32{7, 9, 1}},
		},
	}
}

// flips calls f once for every number, character and length that v holds, with that
// changed, and changes it back.
func flips(t *testing.T, name string, v reflect.Value, f func(name string)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Name != "There" { // a device's copy of Blocks
				flips(t, name+"."+v.Type().Field(i).Name, v.Field(i), f)
			}
		}
	case reflect.Slice:
		if v.Len() == 0 {
			t.Fatalf("%s is empty", name)
		}
		for i := range v.Len() {
			flips(t, fmt.Sprintf("%s[%d]", name, i), v.Index(i), f)
		}
		all := reflect.ValueOf(v.Interface())
		v.Set(all.Slice(0, v.Len()-1))
		f("the length of " + name)
		v.Set(all)
	default:
		old := reflect.ValueOf(v.Interface())
		switch v.Kind() {
		case reflect.Int, reflect.Int64:
			v.SetInt(v.Int() ^ 1<<40)
		case reflect.Uint32:
			v.SetUint(v.Uint() ^ 1<<20)
		case reflect.Float32:
			v.SetFloat(-v.Float())
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.String:
			v.SetString(v.String() + "x")
		default:
			t.Fatalf("%s is a %v: teach this test and the digest about it", name, v.Kind())
		}
		f(name)
		v.Set(old)
	}
}

// Whatever differs in two batches, their digests do.
func TestDigestCoversEverything(t *testing.T) {
	b := fullBatch()
	want := b.Digest()
	seen := map[Digest]string{want: "nothing"}
	flips(t, "batch", reflect.ValueOf(b).Elem(), func(name string) {
		d := b.Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s changes the digest to that of %s", name, other)
		}
		seen[d] = name
	})
	if len(seen) < 50 || b.Digest() != want {
		t.Errorf("%d changes were tried, and the digest in the end is %x, not %x", len(seen), b.Digest(), want)
	}
	b.Blocks[0].Weights, b.Blocks[0].EdgeIDs = nil, nil
	if _, ok := seen[b.Digest()]; ok {
		t.Error("a block without weights has the digest of one with them")
	}
	large := &Batch{Seeds: make([]uint32, 5000)}
	none := large.Digest()
	large.Seeds[4999] = 1
	if large.Digest() == none {
		t.Error("the digest does not reach the end of a large array")
	}
}

// The digest is one and the same on every machine and in every version that trains
// together.
func TestDigestIsStable(t *testing.T) {
	if d := fullBatch().Digest(); d != 0xa46c37370d28099 {
		t.Errorf("the digest is %#x", uint64(d))
	}
}
