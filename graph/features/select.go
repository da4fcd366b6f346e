package features

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/gnnactor/gnnactor/graph"
)

// CacheKind says which rows a cache holds.
type CacheKind string

// The kinds of cache.
const (
	CacheGNS     CacheKind = "gns"     // a generation of GNS's cache, drawn anew every few epochs (docs/algorithms.md §4)
	CacheDegree  CacheKind = "degree"  // the nodes that most others may aggregate
	CacheHot     CacheKind = "hot"     // the nodes that batches sampled beforehand needed most
	CacheDynamic CacheKind = "dynamic" // what was needed lately, by S3-FIFO
)

// CacheSpec says what is cached and how much of it. The zero value is no cache.
type CacheSpec struct {
	Kind     CacheKind
	Fraction float64 // of the nodes; or
	Bytes    int64   // of rows
}

const cacheForms = "gns, degree, hot or dynamic with a size: a share of the nodes such as gns:1%, or bytes such as dynamic:256MiB"

// ParseCacheSpec reads "gns:1%", "degree:5%", "hot:64MiB" or "dynamic:256MiB".
// Empty and "none" are no cache.
func ParseCacheSpec(text string) (CacheSpec, error) {
	if text == "" || text == "none" {
		return CacheSpec{}, nil
	}
	name, size, ok := strings.Cut(text, ":")
	c := CacheSpec{Kind: CacheKind(name)}
	switch c.Kind {
	case CacheGNS, CacheDegree, CacheHot, CacheDynamic:
	default:
		return CacheSpec{}, fmt.Errorf("cache %q: want %s", text, cacheForms)
	}
	if !ok {
		return CacheSpec{}, fmt.Errorf("cache %q: the size is missing; want %s", text, cacheForms)
	}
	if number, ok := strings.CutSuffix(size, "%"); ok {
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || !(v > 0 && v <= 100) {
			return CacheSpec{}, fmt.Errorf("cache %q: %q is not a share above 0%% and at most 100%%", text, size)
		}
		c.Fraction = v / 100
		return c, nil
	}
	v, err := ParseBytes(size)
	if err != nil || v < 1 {
		return CacheSpec{}, fmt.Errorf("cache %q: %q is neither a share of the nodes such as 1%% nor a size such as 256MiB", text, size)
	}
	c.Bytes = int64(v)
	return c, nil
}

// String returns what ParseCacheSpec reads.
func (c CacheSpec) String() string {
	switch {
	case c.Kind == "":
		return "none"
	case c.Fraction > 0:
		return string(c.Kind) + ":" + strconv.FormatFloat(c.Fraction*100, 'f', -1, 64) + "%"
	}
	return string(c.Kind) + ":" + formatBytes(float64(c.Bytes))
}

// Rows returns how many rows of a store with layout l the cache holds.
func (c CacheSpec) Rows(l Layout) int {
	if c.Fraction > 0 {
		return min(l.Rows, int(math.Ceil(c.Fraction*float64(l.Rows))))
	}
	return int(min(int64(l.Rows), c.Bytes/int64(max(l.RowBytes(), 1))))
}

// ByDegree returns the k nodes with the largest out-degree, which is how many
// nodes may aggregate them, in increasing order; ties go to the lower id.
func ByDegree(g *graph.Graph, k int) []uint32 {
	count := make([]uint32, g.NumNodes())
	for _, u := range g.Indices {
		if count[u] != math.MaxUint32 {
			count[u]++
		}
	}
	return largest(count, k)
}

// Hotness counts how often batches need each node. Its methods may be called
// from any goroutine.
type Hotness struct{ count []uint32 }

// NewHotness returns counts of zero for n nodes.
func NewHotness(n int) *Hotness { return &Hotness{make([]uint32, n)} }

// Add counts a batch's input nodes.
func (h *Hotness) Add(inputs []uint32) error {
	for _, u := range inputs {
		if int(u) >= len(h.count) {
			return errors.New("features: a batch has a node that the graph has not")
		}
	}
	for _, u := range inputs {
		atomic.AddUint32(&h.count[u], 1)
	}
	return nil
}

// Top returns the k nodes that were needed most, in increasing order; ties go to
// the lower id. No Add may be under way.
func (h *Hotness) Top(k int) []uint32 { return largest(h.count, k) }

// largest returns the k positions with the largest counts, in increasing
// order; ties go to the lower position.
func largest(count []uint32, k int) []uint32 {
	k = max(0, min(k, len(count)))
	// threshold: the k-th largest count, found by counting its high and then
	// its low half.
	high := make([]int, 1<<16)
	for _, c := range count {
		high[c>>16]++
	}
	at := func(hist []int, left int) (int, int) {
		for v := len(hist) - 1; v > 0; v-- {
			if hist[v] >= left {
				return v, left
			}
			left -= hist[v]
		}
		return 0, left
	}
	h, left := at(high, k)
	low := make([]int, 1<<16)
	for _, c := range count {
		if int(c>>16) == h {
			low[c&0xffff]++
		}
	}
	l, left := at(low, left)
	threshold := uint32(h<<16 | l)
	out := make([]uint32, 0, k)
	for u, c := range count {
		if c > threshold || c == threshold && left > 0 {
			if c == threshold {
				left--
			}
			out = append(out, uint32(u))
		}
	}
	return slices.Clip(out)
}
