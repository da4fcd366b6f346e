package features

import (
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// topByDefinition is the k positions of largest count, ties to the lower.
func topByDefinition(count []uint32, k int) []uint32 {
	order := make([]uint32, len(count))
	for i := range order {
		order[i] = uint32(i)
	}
	sort.SliceStable(order, func(i, j int) bool { return count[order[i]] > count[order[j]] })
	order = order[:min(k, len(order))]
	slices.Sort(order)
	return order
}

func TestHotnessTop(t *testing.T) {
	for seed := range uint64(30) {
		k := rng.New(seed)
		n := int(k.Uintn(0, 300))
		h := NewHotness(n)
		for i := range h.count {
			switch seed % 3 {
			case 0:
				h.count[i] = uint32(k.Uintn(uint64(i+1), 5))
			case 1:
				h.count[i] = uint32(k.Uint64(uint64(i + 1)))
			default:
				h.count[i] = uint32(k.Uintn(uint64(i+1), 4)) << 16
			}
		}
		for _, top := range []int{0, 1, n / 3, n, n + 5} {
			if got, want := h.Top(top), topByDefinition(h.count, top); !slices.Equal(got, want) {
				t.Fatalf("seed %d: the top %d of %v: %v, want %v", seed, top, h.count, got, want)
			}
		}
	}
	h := NewHotness(5)
	for _, b := range [][]uint32{{1, 3}, {3, 4}, {3}} {
		if err := h.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.Top(2); !slices.Equal(got, []uint32{1, 3}) {
		t.Errorf("the two nodes needed most: %v, want 1 and 3", got)
	}
	if err := h.Add([]uint32{5}); err == nil {
		t.Error("a node out of range was counted")
	}
}

func TestByDegree(t *testing.T) {
	// 2 is a source three times, 0 twice, 3 twice, 1 never.
	g := &graph.Graph{Indptr: []int64{0, 2, 4, 5, 7}, Indices: []uint32{2, 3, 0, 2, 3, 0, 2}}
	for k, want := range [][]uint32{{}, {2}, {0, 2}, {0, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}} {
		if got := ByDegree(g, k); !slices.Equal(got, want) {
			t.Errorf("ByDegree %d: %v, want %v", k, got, want)
		}
	}
}

func TestParseCacheSpec(t *testing.T) {
	l := Layout{Rows: 1001, Cols: 100, DType: graph.Float32}
	for text, want := range map[string]struct {
		spec CacheSpec
		rows int
	}{
		"none":           {CacheSpec{}, 0},
		"gns:1%":         {CacheSpec{CacheGNS, 0.01, 0}, 11},
		"degree:100%":    {CacheSpec{CacheDegree, 1, 0}, 1001},
		"hot:4kB":        {CacheSpec{CacheHot, 0, 4000}, 10},
		"dynamic:256MiB": {CacheSpec{CacheDynamic, 0, 256 << 20}, 1001},
	} {
		got, err := ParseCacheSpec(text)
		if err != nil || got != want.spec || got.Rows(l) != want.rows {
			t.Errorf("ParseCacheSpec(%q) = %+v of %d rows, %v, want %+v of %d", text, got, got.Rows(l), err, want.spec, want.rows)
		}
		if again, err := ParseCacheSpec(got.String()); err != nil || again != want.spec {
			t.Errorf("%q became %q, which is %+v, %v", text, got, again, err)
		}
	}
	if c, err := ParseCacheSpec(""); err != nil || c != (CacheSpec{}) {
		t.Errorf("an empty spec is %+v, %v", c, err)
	}
	if rows := (CacheSpec{Kind: CacheDegree, Bytes: 10}).Rows(Layout{Rows: 1000, Cols: 1, DType: graph.Uint8}); rows != 10 {
		t.Errorf("10 bytes hold %d rows of a byte", rows)
	}
	for _, text := range []string{"gns", "gns:", "lru:5%", "degree:0%", "degree:101%", "hot:x%", "dynamic:0", "dynamic:many", "dynamic:-1MiB", "gns:NaN%"} {
		if c, err := ParseCacheSpec(text); err == nil {
			t.Errorf("ParseCacheSpec(%q) = %+v", text, c)
		} else if !strings.Contains(err.Error(), text) {
			t.Errorf("ParseCacheSpec(%q): the error %q does not quote it", text, err)
		}
	}
}

func FuzzParseCacheSpec(f *testing.F) {
	for _, s := range []string{"gns:1%", "dynamic:256MiB", "none", "hot:1e-5%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCacheSpec(text)
		if err != nil {
			return
		}
		if rows := c.Rows(Layout{Rows: 1000, Cols: 3, DType: graph.Int8}); rows < 0 || rows > 1000 {
			t.Errorf("%q caches %d of 1000 rows", text, rows)
		}
		again, err := ParseCacheSpec(c.String())
		if err != nil || again.Kind != c.Kind || again.Bytes != c.Bytes {
			t.Errorf("%q is %+v, its name %q is %+v (%v)", text, c, c, again, err)
		}
	})
}
