package compute

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// rawSafetensors returns a file with the given header text and data.
func rawSafetensors(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func TestSafetensorsRoundTrip(t *testing.T) {
	want := []RawTensor{
		{Name: "wide", DType: "I64", Shape: []int{2}, Data: make([]byte, 16)},
		Float32Tensor("a.bias", []int{3}, []float32{1, -2.5, float32(math.Inf(1))}),
		Float32Tensor("b", []int{2, 0}, nil),
		Float32Tensor("scalar", []int{}, []float32{7}),
		{Name: "é\"", DType: "U8", Shape: []int{1, 3}, Data: []byte{1, 2, 3}},
	}
	meta := map[string]string{"run": "x", "": "empty"}
	shuffled := []RawTensor{want[3], want[4], want[1], want[0], want[2]}
	var first bytes.Buffer
	if err := WriteSafetensors(&first, shuffled, meta); err != nil {
		t.Fatal(err)
	}
	if n := binary.LittleEndian.Uint64(first.Bytes()); n%8 != 0 {
		t.Errorf("header of %d bytes does not align the data", n)
	}
	var second bytes.Buffer
	if err := WriteSafetensors(&second, want, meta); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("another order of tensors gives other bytes (%v)", err)
	}
	got, gotMeta, err := ReadSafetensors(&first)
	if err != nil {
		t.Fatal(err)
	}
	delete(gotMeta, ChecksumKey)
	if !maps.Equal(meta, gotMeta) || len(got) != len(want) {
		t.Fatalf("got %d tensors, metadata %v", len(got), gotMeta)
	}
	for i := range want {
		g, w := got[i], want[i]
		if g.Name != w.Name || g.DType != w.DType || !reflect.DeepEqual(g.Shape, w.Shape) || !bytes.Equal(g.Data, w.Data) {
			t.Errorf("tensor %d: got %+v, want %+v", i, g, w)
		}
	}
}

func TestSafetensorsConversions(t *testing.T) {
	data := map[string]string{"F64": "000000000000f8bf", "F32": "0000c0bf", "F16": "00be", "BF16": "c0bf"} // -1.5
	for dtype, h := range data {
		b, _ := hex.DecodeString(h)
		x := RawTensor{Name: "x", DType: dtype, Shape: []int{1}, Data: b}
		if v, err := x.Float32s(); err != nil || v[0] != -1.5 {
			t.Errorf("%s: %v, %v", dtype, v, err)
		}
	}
	x := RawTensor{Name: "x", DType: "I8", Shape: []int{1}, Data: []byte{1}}
	if _, err := x.Float32s(); err == nil {
		t.Error("I8 converts")
	}
}

func TestSafetensorsErrors(t *testing.T) {
	f32 := func(name string, n, begin, end int) string {
		return fmt.Sprintf(`"%s":{"dtype":"F32","shape":[%d],"data_offsets":[%d,%d]}`, name, n, begin, end)
	}
	huge := binary.LittleEndian.AppendUint64(nil, math.MaxUint64)
	for want, data := range map[string][]byte{
		"shorter than the 8 bytes":  {1, 2, 3},
		"header of 1844674":         append(huge, '{'),
		"header ends early":         rawSafetensors(`{}`, nil)[:9],
		"not a JSON object":         rawSafetensors(`[]`, nil),
		"occurs twice":              rawSafetensors("{"+f32("a", 1, 0, 4)+","+f32("a", 1, 4, 8)+"}", make([]byte, 8)),
		"neither overlap":           rawSafetensors("{"+f32("a", 2, 0, 8)+","+f32("b", 1, 4, 8)+"}", make([]byte, 8)),
		"nor leave gaps":            rawSafetensors("{"+f32("a", 1, 4, 8)+"}", make([]byte, 8)),
		"needs 8 bytes":             rawSafetensors("{"+f32("a", 2, 0, 4)+"}", make([]byte, 4)),
		"needs 4 bytes":             rawSafetensors("{"+f32("a", 1, 4, 0)+"}", make([]byte, 4)),
		"unknown type":              rawSafetensors(`{"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}`, make([]byte, 4)),
		"impossible shape [-1]":     rawSafetensors(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, make([]byte, 4)),
		"impossible shape [4611686": rawSafetensors(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, nil),
		"data ends early":           rawSafetensors("{"+f32("a", 1<<40, 0, 1<<42)+"}", make([]byte, 4)),
		"more data":                 rawSafetensors("{"+f32("a", 1, 0, 4)+"}", make([]byte, 5)),
		"more text":                 rawSafetensors("{"+f32("a", 1, 0, 4)+"} {}", make([]byte, 4)),
		"__metadata__":              rawSafetensors(`{"__metadata__":{"a":1}}`, nil),
		`"a" occurs twice`:          rawSafetensors(`{"__metadata__":{"a":"1","a":"2"}}`, nil),
		"more than 1024 keys":       rawSafetensors(`{"__metadata__":{`+manyKeys(1025)+`}}`, nil),
		"17 dimensions":             rawSafetensors(`{"a":{"dtype":"F32","shape":[1`+strings.Repeat(",1", 16)+`],"data_offsets":[0,4]}}`, make([]byte, 4)),
		"header of 16777217 bytes":  rawSafetensors("{}"+strings.Repeat(" ", 16<<20-1), nil),
	} {
		_, _, err := ReadSafetensors(bytes.NewReader(data))
		if !errors.Is(err, ErrSafetensors) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	bad := []RawTensor{{Name: "x", DType: "F32", Shape: []int{2}, Data: make([]byte, 4)}}
	if err := WriteSafetensors(io.Discard, bad, nil); err == nil {
		t.Error("a tensor of another size than its shape is written")
	}
	x := Float32Tensor("x", []int{1}, []float32{1})
	if err := WriteSafetensors(io.Discard, []RawTensor{x, x}, nil); err == nil {
		t.Error("two tensors of one name are written")
	}
	failing := WriteSafetensors(brokenWriter{}, []RawTensor{x}, nil)
	if !errors.Is(failing, errBroken) {
		t.Errorf("a failing writer gives %v", failing)
	}
}

// manyKeys returns n pairs of a JSON object.
func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%x":""`, i)
	}
	return b.String()[1:]
}

// Whatever a header of the largest size is of, refusing it takes memory within a
// few times its length.
func TestHeaderMemory(t *testing.T) {
	tensor := `":{"dtype":"U8","data_offsets":[0,0],"shape":[0]},`
	var tensors strings.Builder
	for i := 0; tensors.Len() < maxHeader-100; i++ {
		fmt.Fprintf(&tensors, `"%x%s`, i, tensor)
	}
	for name, header := range map[string]string{
		"shape":    `{"a":{"dtype":"F32","data_offsets":[0,4],"shape":[` + strings.Repeat("1,", maxHeader/2-40) + `1]}}`,
		"tensors":  "{" + strings.TrimSuffix(tensors.String(), ",") + "}",
		"metadata": `{"__metadata__":{` + manyKeys(1_450_000) + `}}`,
		"depth":    strings.Repeat(`{"a":`, maxHeader/5-1),
		"name":     `{"` + strings.Repeat("a", maxHeader-8) + `":`,
	} {
		file := rawSafetensors(header, nil)
		if len(file) < 15<<20 {
			t.Fatalf("%s: a header of %d bytes only", name, len(file))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := ReadSafetensors(bytes.NewReader(file))
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrSafetensors) {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 16*maxHeader { // in all: what is held at once is less
			t.Errorf("%s: %d MiB allocated, for a header of 16", name, took>>20)
		}
	}
}

// Every flipped bit and every truncation of a file is an error, or changes
// nothing of what is read.
func TestSafetensorsDamage(t *testing.T) {
	var b bytes.Buffer
	tensors := []RawTensor{Float32Tensor("weight", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}), Float32Tensor("bias", []int{2}, []float32{0.5, -1}), {Name: "n", DType: "I64", Shape: []int{}, Data: make([]byte, 8)}}
	if err := WriteSafetensors(&b, tensors, map[string]string{"model": "sage", "k": "v"}); err != nil {
		t.Fatal(err)
	}
	good := b.Bytes()
	want, wantMeta, err := ReadSafetensors(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte, what string, at int) (whole bool) {
		got, meta, err := ReadSafetensors(bytes.NewReader(b))
		if err != nil {
			return false
		}
		_, checked := meta[ChecksumKey]
		if same := maps.Clone(wantMeta); !checked { // the flip was in the key
			delete(same, ChecksumKey)
			meta = maps.Clone(meta)
			maps.DeleteFunc(meta, func(k, v string) bool { return v == wantMeta[ChecksumKey] })
			if !maps.Equal(meta, same) {
				t.Errorf("%s %d: metadata %v", what, at, meta)
			}
		} else if meta["model"] != "sage" || meta["k"] != "v" || len(meta) != len(wantMeta) {
			t.Errorf("%s %d: metadata %v", what, at, meta)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s %d: other tensors", what, at)
		}
		return true
	}
	same := 0
	for i := range good {
		for bit := range 8 {
			good[i] ^= 1 << bit
			if read(good, "bit", 8*i+bit) {
				same++
			}
			good[i] ^= 1 << bit
		}
		if read(good[:i], "length", i) {
			t.Errorf("the first %d of %d bytes are read", i, len(good))
		}
	}
	// Of the checksums' key, white space, and hexadecimal digits' case.
	if same == 0 || same > 8*(len(ChecksumKey)+8*(1+len(tensors))) {
		t.Errorf("%d flips change nothing", same)
	}
	// The error says where.
	data := len(good) - 40
	for at, want := range map[int]string{bytes.Index(good, []byte("sage")): fmt.Sprintf("header, bytes 0 to %d of", data), data + 9: fmt.Sprintf(`"bias", bytes %d to %d`, data+8, data+16)} {
		good[at] ^= 1
		if _, _, err := ReadSafetensors(bytes.NewReader(good)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("byte %d: %v", at, err)
		}
		good[at] ^= 1
	}
}

var errBroken = errors.New("no space")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

// FuzzReadSafetensors checks that whatever is read without an error is written
// back to something that reads the same.
func FuzzReadSafetensors(f *testing.F) {
	var b bytes.Buffer
	if err := WriteSafetensors(&b, []RawTensor{Float32Tensor("a", []int{2}, []float32{1, 2}), {Name: "b", DType: "U8", Shape: []int{1}, Data: []byte{9}}}, map[string]string{"k": "v"}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(rawSafetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, make([]byte, 4)))
	f.Add(rawSafetensors(`{}        `, nil))
	f.Add(rawSafetensors(`{"__metadata__":{"k":"v"},"a":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]},"b":{"dtype":"I8","shape":[],"data_offsets":[4,5]}}`, make([]byte, 5)))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, meta, err := ReadSafetensors(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrSafetensors) {
				t.Fatalf("error is not ErrSafetensors: %v", err)
			}
			return
		}
		var out bytes.Buffer
		if err := WriteSafetensors(&out, tensors, meta); err != nil {
			t.Fatalf("read, but not written: %v", err)
		}
		again, _, err := ReadSafetensors(&out)
		if err != nil || len(again) != len(tensors) {
			t.Fatalf("%d tensors read, %d after writing: %v", len(tensors), len(again), err)
		}
		total := 0
		byName := map[string][]byte{}
		for _, x := range tensors {
			total += len(x.Data)
			byName[x.Name] = x.Data
		}
		if total > len(data) {
			t.Fatalf("%d bytes of tensors out of %d", total, len(data))
		}
		for _, x := range again {
			if !bytes.Equal(byName[x.Name], x.Data) {
				t.Fatalf("tensor %q changed", x.Name)
			}
		}
	})
}

func TestSaveAndLoad(t *testing.T) {
	ds := testDataset(10, 2, 5, false)
	m := mustModel(t, Spec{Model: "sage", Layers: 2, InDim: 5, Hidden: 4, OutDim: 3}, ds.Graph)
	params := m.Init(3)
	dir := t.TempDir()
	path := filepath.Join(dir, "model.safetensors")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Save(path, params, map[string]string{"epoch": "4"}); err != nil {
		t.Fatal(err)
	}
	got, meta, err := m.Load(context.Background(), path)
	if err != nil || meta["epoch"] != "4" || m.layout.SHA256(got) != m.layout.SHA256(params) {
		t.Fatalf("loaded other parameters or metadata %v, %v", meta, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("saving leaves %d files", len(left))
	}

	wider := mustModel(t, Spec{Model: "sage", Layers: 3, InDim: 5, Hidden: 6, OutDim: 3}, ds.Graph)
	_, _, err = wider.Load(context.Background(), path)
	for _, want := range []string{path, `"convs.0.lin_l.weight" has shape [4 5]; this model needs [6 5]`, `"convs.2.lin_l.bias" is missing`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("loading a smaller model gives %v, want %q in it", err, want)
		}
	}
	gcn := mustModel(t, Spec{Model: "gcn", Layers: 2, InDim: 5, Hidden: 4, OutDim: 3}, ds.Graph)
	for x, want := range map[float64]string{math.NaN(): `tensor "convs.0.lin_l.weight" is NaN at index [3 4]`, math.Inf(-1): "-Inf at index"} {
		p := slices.Clone(params)
		w, _ := m.layout.Lookup("convs.0.lin_l.weight")
		p[w.Offset+w.Len-1] = float32(x)
		if err := m.Save(filepath.Join(dir, "x"), p, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.Load(context.Background(), filepath.Join(dir, "x")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("loading %v gives %v", x, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "x")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Load(context.Background(), dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("loading a directory gives %v", err)
	}
	if _, _, err = gcn.Load(context.Background(), path); err == nil || !strings.Contains(err.Error(), "is not a parameter of this model") {
		t.Errorf("loading another model gives %v", err)
	}
	if _, _, err := m.Load(context.Background(), filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("loading what is not there gives %v", err)
	}
	if err := m.Save(filepath.Join(dir, "no", "dir"), params, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("saving into a directory that is not there gives %v", err)
	}
	if err := m.Save(path, params[1:], nil); err == nil {
		t.Error("too few parameters are saved")
	}
}

// TestPackWithPrefix checks that parameters and moments share one file.
func TestPackWithPrefix(t *testing.T) {
	ds := testDataset(10, 2, 5, false)
	l := mustModel(t, Spec{Model: "gcn", Layers: 2, InDim: 5, Hidden: 4, OutDim: 3}, ds.Graph).Layout()
	params, moments := l.Init(1), l.Init(2)
	tensors := append(l.Pack("model.", params), l.Pack("adam.m.", moments)...)
	got, err := l.Unpack("adam.m.", tensors)
	if err != nil {
		t.Fatal(err)
	}
	closeTo(t, "moments", got, moments, 0)
	if _, err := l.Unpack("adam.v.", tensors); err == nil || !strings.Contains(err.Error(), `"adam.v.convs.0.bias" is missing`) {
		t.Errorf("unpacking what is not there gives %v", err)
	}
}

// A number without dimensions has an empty shape, not none.
func TestScalarHasAShape(t *testing.T) {
	var out bytes.Buffer
	if err := WriteSafetensors(&out, []RawTensor{{Name: "x", DType: "F32", Data: make([]byte, 4)}}, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"shape":[]`) {
		t.Errorf("the header is %q", out.String())
	}
}
