package msgpackcheck

import (
	"bytes"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// all has values of every type, short and long.
func all(t testing.TB) [][]byte {
	t.Helper()
	many := make([]int, 70000)
	wide := map[int]bool{}
	for i := range many {
		many[i] = i - 300
		wide[i] = i%2 == 0
	}
	var encoded [][]byte
	for _, v := range []any{
		nil, true, false, 0, -1, -33, 127, 128, 300, -300, 1 << 20, math.MinInt64, uint64(math.MaxUint64), float32(1.5), 1.5,
		"", "a", strings.Repeat("b", 40), strings.Repeat("c", 300), strings.Repeat("d", 70000),
		[]byte{}, []byte{1}, make([]byte, 300), make([]byte, 70000), []int{}, []int{1, 2}, many[:20], many,
		map[string]int{}, map[string]int{"a": 1}, wide, time.Unix(5, 6), []any{map[string]any{"x": []string{"y"}}},
	} {
		b, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		encoded = append(encoded, b)
	}
	return append(encoded, []byte{0xd4, 1, 2}, []byte{0xd8, 1, 16: 0, 17: 0}, []byte{0xc7, 2, 9, 1, 2}, []byte{0xc8, 0, 1, 9, 7}, []byte{0xc9, 0, 0, 0, 1, 9, 7})
}

// What was encoded is let through, nothing that is cut off is.
func TestCheck(t *testing.T) {
	var together []byte
	for _, b := range all(t) {
		if err := Check(b); err != nil {
			t.Errorf("% x: %v", b[:min(len(b), 8)], err)
		}
		for _, n := range []int{1, 2, len(b) / 2, len(b) - 1} {
			if n > 0 && n < len(b) && Check(b[:n]) == nil {
				t.Errorf("% x is let through, %d of %d bytes", b[:min(n, 8)], n, len(b))
			}
		}
		together = append(together, b...)
	}
	if err := Check(together); err != nil {
		t.Error(err)
	}
	if err := Check(nil); err != nil {
		t.Error(err)
	}
	for name, b := range map[string][]byte{
		"4 billion elements": {0xdd, 0xff, 0xff, 0xff, 0xff}, "as many pairs": {0xdf, 0xff, 0xff, 0xff, 0xff},
		"as many bytes": {0xc6, 0xff, 0xff, 0xff, 0xff}, "a long extension": {0xc9, 0xff, 0xff, 0xff, 0xff, 1},
		"no type": {0xc1}, "a nest": bytes.Repeat([]byte{0x91}, 1<<20),
	} {
		if err := Check(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One value of known fields is decoded; what is cut off, what follows it and
// what says that it is long is refused, without room made for it.
func TestUnmarshal(t *testing.T) {
	type point struct {
		Name string
		Rest []byte
	}
	good, err := msgpack.Marshal(&point{"a", []byte{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	other, err := msgpack.Marshal(map[string]int{"Height": 1})
	if err != nil {
		t.Fatal(err)
	}
	var p point
	if err := Unmarshal(good, &p); err != nil || p.Name != "a" || !bytes.Equal(p.Rest, []byte{1, 2}) {
		t.Fatalf("%v, %v", p, err)
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "cut off": good[:len(good)-1], "more": append(slices.Clone(good), 0), "twice": append(slices.Clone(good), good...),
		"an unknown field": other, "another type": {0x91, 0xa1, 'x'},
	} {
		if err := Unmarshal(b, new(point)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The library makes room for a megabyte here before it finds that there is none.
	long := append([]byte{0x81, 0xa4}, "Name\xdb\xff\xff\xff\xff"...)
	const runs = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		if Unmarshal(long, &p) == nil {
			t.Fatal("4 GB of 11 bytes")
		}
	}
	runtime.ReadMemStats(&after)
	bytesPerRun := (after.TotalAlloc - before.TotalAlloc) / runs
	if bytesPerRun > 4096 {
		t.Errorf("%d bytes were allocated for a value of %d", bytesPerRun, len(long))
	}
}

// FuzzCheck: what is let through decodes into as many elements as there are
// bytes at most, and is all decoded.
func FuzzCheck(f *testing.F) {
	for _, b := range all(f) {
		if len(b) < 400 {
			f.Add(b)
		}
	}
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if Check(b) != nil {
			return
		}
		var x struct {
			Numbers []int
			Names   []string
		}
		if msgpack.Unmarshal(b, &x) == nil && len(x.Numbers)+len(x.Names) > len(b) {
			t.Fatalf("%d elements out of %d bytes", len(x.Numbers)+len(x.Names), len(b))
		}
		var numbers []int
		if msgpack.Unmarshal(b, &numbers) == nil && len(numbers) > len(b) {
			t.Fatalf("%d elements out of %d bytes", len(numbers), len(b))
		}
		for r, d := bytes.NewReader(b), (*msgpack.Decoder)(nil); ; {
			if d == nil {
				d = msgpack.NewDecoder(r)
			}
			if err := d.Skip(); err != nil {
				if r.Len() > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("it is cut off: %v", err)
				}
				break
			}
		}
	})
}
