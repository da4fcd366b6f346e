package graph_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// someFeatures returns rows of different sizes, a row and a column of zeros, and
// values of every magnitude that float16 has.
func someFeatures(rows, cols int) *graph.Features {
	x := make([]float32, rows*cols)
	k := rng.New(3)
	for i := range x {
		if i/cols == 1 || i%cols == 2 {
			continue
		}
		x[i] = float32((k.Float64(uint64(i))*2 - 1) * math.Exp2(float64(k.Uintn(uint64(i)+1<<40, 30))-20))
	}
	return graph.NewFeatures(rows, cols, x)
}

// Every stored value is the nearest that the type has: the error is at most half
// a step there, and encoding what was read back changes nothing.
func TestEncodeRoundsToTheNearest(t *testing.T) {
	const rows, cols = 50, 17
	src := someFeatures(rows, cols)
	for _, name := range graph.Encodings() {
		e, err := graph.ParseEncoding(name)
		if err != nil || e.String() != name {
			t.Fatalf("ParseEncoding(%q) = %v, %v", name, e, err)
		}
		f, err := src.Encode(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if f.DType != e.DType || f.Rows != rows || f.Cols != cols || (f.RowScale != nil) != (name == "int8") || (f.ColScale != nil) != (name == "int8:column") {
			t.Fatalf("%s: a table of %d×%d %v, with %d row and %d column scales", name, f.Rows, f.Cols, f.DType, len(f.RowScale), len(f.ColScale))
		}
		want, got := make([]float32, cols), make([]float32, cols)
		for i := range rows {
			src.Row(want, i)
			f.Row(got, i)
			for j, v := range want {
				var half float64
				switch name {
				case "float16": // 11 bits, and steps of 2^-24 near 0
					half = max(math.Abs(float64(v))*0x1p-11, 0x1p-25)
				case "bfloat16":
					half = math.Abs(float64(v)) * 0x1p-8
				case "int8":
					half = float64(f.RowScale[i]) / 2 * (1 + 1e-5)
				case "int8:column":
					half = float64(f.ColScale[j]) / 2 * (1 + 1e-5)
				}
				if d := math.Abs(float64(got[j]) - float64(v)); d > half {
					t.Fatalf("%s: row %d, column %d is %v, read back as %v", name, i, j, v, got[j])
				}
			}
		}
		again, err := f.Encode(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			f.Row(want, i)
			again.Row(got, i)
			if e.DType != graph.Int8 && !slices.Equal(want, got) {
				t.Fatalf("%s: row %d changed when it was encoded again", name, i)
			}
		}
	}
}

func TestEncodeBFloat16Ties(t *testing.T) {
	one := math.Float32bits(1)
	for bits, want := range map[uint32]uint32{
		one:                one,
		one + 0x8000:       one,           // a tie, to even
		one + 0x8001:       one + 0x10000, // above it
		one + 0x18000:      one + 0x20000, // a tie, to even
		one + 0x17fff:      one + 0x10000, // below it
		1<<31 | one + 3<<7: 1<<31 | one,
	} {
		f, err := graph.NewFeatures(1, 1, []float32{math.Float32frombits(bits)}).Encode(t.Context(), graph.Encoding{DType: graph.BFloat16})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 1)
		f.Row(got, 0)
		if math.Float32bits(got[0]) != want {
			t.Errorf("%#x became %#x, want %#x", bits, math.Float32bits(got[0]), want)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, c := range []struct {
		v    float32
		name string
	}{
		{65520, "float16"}, {-1e30, "float16"}, {math.MaxFloat32, "bfloat16"},
		{float32(math.NaN()), "int8"}, {float32(math.NaN()), "int8:column"}, {float32(math.Inf(-1)), "int8"}, {float32(math.Inf(1)), "float32"},
	} {
		e, _ := graph.ParseEncoding(c.name)
		if _, err := graph.NewFeatures(1, 2, []float32{1, c.v}).Encode(t.Context(), e); !errors.Is(err, graph.ErrFormat) {
			t.Errorf("%v as %s: %v", c.v, c.name, err)
		}
	}
	if _, err := someFeatures(3, 3).Encode(t.Context(), graph.Encoding{DType: graph.Float16, PerColumn: true}); err == nil {
		t.Error("float16 with scales was taken")
	}
	if _, err := graph.ParseEncoding("int4"); err == nil {
		t.Error("int4 was taken")
	}
}
