package importer

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// recordsOf is a batch of one column.
func recordsOf(texts []string) *records {
	r := &records{t: new(table), rows: len(texts), width: 1}
	for _, s := range texts {
		r.spans = append(r.spans, span{uint32(len(r.buf)), uint32(len(r.buf) + len(s))})
		r.buf = append(r.buf, s...)
	}
	return r
}

func addAll(m *idMap, r *records, out []uint32) (at int, err error) {
	var ids textIDs
	ids.take(r, 0)
	return m.addTexts(r, &ids, []int{0}, out)
}

// A map numbers ids as they come, then as they rise, in batches of any length, while it grows; numbers that
// become texts keep their numbers, and what a frozen map does not have is told of.
func TestIDMap(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 10))
		m, want := newIDMap(), map[int64]uint32{}
		pool := []int64{0, -1, math.MaxInt64, math.MinInt64}
		for range 9000 {
			pool = append(pool, r.Int64()>>r.IntN(60))
		}
		texts := seed%2 == 1
		check := func(ids []int64, number func(id int64) uint32) {
			t.Helper()
			out, at, err := make([]uint32, len(ids)), 0, error(nil)
			if m.texts {
				s := make([]string, len(ids))
				for i, id := range ids {
					s[i] = fmt.Sprint(id)
				}
				at, err = addAll(m, recordsOf(s), out)
			} else {
				at, err = m.addNumbers(ids, out)
			}
			if err != nil {
				t.Fatalf("seed %d: %d: %v", seed, ids[at], err)
			}
			for i, id := range ids {
				if out[i] != number(id) {
					t.Fatalf("seed %d: %d is number %d, want %d", seed, id, out[i], number(id))
				}
			}
		}
		for batch := range 300 {
			if texts && batch == 150 {
				m.toTexts()
			}
			ids := make([]int64, r.IntN(100))
			for i := range ids {
				ids[i] = pool[r.IntN(len(pool))]
			}
			check(ids, func(id int64) uint32 {
				if _, ok := want[id]; !ok {
					want[id] = uint32(len(want))
				}
				return want[id]
			})
		}
		if m.count != len(want) {
			t.Fatalf("seed %d: %d ids, want %d", seed, m.count, len(want))
		}
		ids := slices.Collect(maps.Keys(want))
		if slices.Sort(ids); texts {
			slices.SortFunc(ids, func(a, b int64) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		names, renumber := m.sorted()
		m.frozen = true
		for place, id := range ids {
			if got := names.Of(uint32(place)); got != fmt.Sprint(id) || renumber[want[id]] != uint32(place) {
				t.Fatalf("seed %d: number %d becomes %d, and %d is called %s, want %d", seed, want[id], renumber[want[id]], place, got, id)
			}
			want[id] = uint32(place)
		}
		check(ids, func(id int64) uint32 { return want[id] })
		at, err := 0, error(nil)
		if out := make([]uint32, 2); texts {
			at, err = addAll(m, recordsOf([]string{fmt.Sprint(ids[0]), "x"}), out)
		} else {
			at, err = m.addNumbers([]int64{ids[0], -12345}, out)
		}
		if !errors.Is(err, errNewID) || at != 1 {
			t.Errorf("seed %d: a frozen map says %v of id %d", seed, err, at)
		}
	}
}
