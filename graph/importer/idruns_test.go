package importer

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// However many runs ids are written in, the store is the same: small numbers, which are not mapped at first, then
// sparse ones, then texts; and ids that are two nodes as texts are refused.
func TestRunsOfIDs(t *testing.T) {
	for name, id := range map[string]func(at, v int) string{
		"sparse":              func(_, v int) string { return fmt.Sprint(int64(v)*1e15 - 7) },
		"texts":               func(_, v int) string { return fmt.Sprintf("node %d", v*v) },
		"numbers, then texts": func(at, v int) string { return strings.Repeat("x", at/2) + fmt.Sprint(int64(v)*1e14) },
		"small, sparse, texts": func(at, v int) string {
			return []string{fmt.Sprint(v), fmt.Sprint(int64(v) * 1e14), fmt.Sprintf("%05d", v)}[at]
		},
		"whole numbers and floats": func(at, v int) string { return fmt.Sprint(v) + []string{"", "-", ".0"}[at] },
	} {
		var b strings.Builder
		r := rand.New(rand.NewPCG(1, 7))
		for i := range 60000 {
			fmt.Fprintf(&b, "%s,%s\n", id(i/20000, r.IntN(3000)), id(i/20000, r.IntN(3000)))
		}
		path := filepath.Join(files{"e.csv": b.String()}.write(t), "e.csv")
		stores := [3]string{}
		errs := [3]string{}
		for k, size := range []int{0, 500, 10000} { // all in one map, many runs, and of texts one
			dst := filepath.Join(t.TempDir(), "store")
			if err := Import(t.Context(), path, dst, Options{Header: "no", runIDs: size}); err != nil {
				errs[k] = err.Error()
			} else {
				ds := opened(t, dst).Dataset()
				stores[k] = ds.Fingerprint + fmt.Sprint(ds.Names)
			}
		}
		if stores[0] != stores[1] || stores[0] != stores[2] || errs[0] != errs[1] || errs[0] != errs[2] || (stores[0] == "") != (name == "whole numbers and floats") {
			t.Errorf("%s: the stores differ, %q", name, errs)
		}
	}
}

func TestSortAll(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 8))
	for _, n := range []int{0, 1, 1 << 14, 50000} {
		x := make([]int, n)
		for i := range x {
			x[i] = i * 3
		}
		want := slices.Clone(x)
		r.Shuffle(n, func(i, j int) { x[i], x[j] = x[j], x[i] })
		if sortAll(x, 5, cmp.Compare[int]); !slices.Equal(x, want) {
			t.Errorf("%d numbers are not sorted", n)
		}
	}
}
