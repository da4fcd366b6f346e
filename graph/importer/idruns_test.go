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
	t.Parallel()
	for name, id := range map[string]func(at, v int) string{
		"sparse":              func(_, v int) string { return fmt.Sprint(int64(v)*1e15 - 7) },
		"texts":               func(_, v int) string { return fmt.Sprintf("node %d", v*v) },
		"numbers, then texts": func(at, v int) string { return strings.Repeat("x", at/2) + fmt.Sprint(int64(v)*1e14) },
		"small, sparse, texts": func(at, v int) string {
			return []string{fmt.Sprint(v), fmt.Sprint(int64(v) * 1e14), fmt.Sprintf("%05d", v)}[at]
		},
		"UUIDs": func(_, v int) string { return uuid(v) },
		"UUIDs, then others": func(at, v int) string {
			return []string{uuid(v), strings.ToUpper(uuid(v)), uuid(v)[:8] + fmt.Sprint(v)}[at]
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

// However many runs the ids of a table of nodes are written in, and those of edges to them, the store is the same, and so is what is refused.
func TestRunsOfNodes(t *testing.T) {
	t.Parallel()
	const n = 3000
	pad := strings.Repeat("w", 400) // so that there are several batches of rows
	numbers := func(_, v int) string { return fmt.Sprint(int64(v)*1e15 - 7) }
	small := func(_, v int) string { return fmt.Sprint(v) }
	texts := func(at, v int) string {
		return []string{fmt.Sprint(v), uuid(v), fmt.Sprintf("node %d", v*v)}[(v+at)%3]
	}
	same := func(_, v int) string { return texts(0, v) }
	for name, c := range map[string]struct {
		nodes, edges func(at, v int) string // at: the row, or the third of the rows
		refused      string
		last         string // edge
	}{
		"sparse": {numbers, numbers, "", ""}, "small": {small, small, "", ""}, "texts": {same, same, "", ""}, "UUIDs": {func(_, v int) string { return uuid(v) }, func(_, v int) string { return uuid(v) }, "", ""},
		"numbers, then texts": {func(_, v int) string { return strings.Repeat("x", v/2000) + fmt.Sprint(v) }, func(_, v int) string { return fmt.Sprint(v % 2000) }, "", ""},
		"twice":               {func(at, v int) string { return fmt.Sprint(int64(v%2500) * 1e15) }, small, "nodes.csv line", ""},
		"twice, far apart":    {func(at, _ int) string { return fmt.Sprint(int64(at-at/2900*2897) * 1e15) }, small, "nodes.csv line 2902", ""},
		"twice, texts":        {func(at, v int) string { return fmt.Sprint("n", v%2500) }, small, "nodes.csv line", ""},
		"floats, too":         {func(_, v int) string { return fmt.Sprint(v/2) + strings.Repeat(".0", v%2) }, small, "both occur", ""},
		"decimals, too":       {func(_, v int) string { return fmt.Sprint(v/2) + strings.Repeat(".00", v%2) }, small, "both occur", ""},
		"nobody":              {numbers, func(at, v int) string { return numbers(0, v+1) }, "edges.csv line", ""},
		"nobody, a text":      {numbers, func(at, v int) string { return numbers(0, v) + strings.Repeat("x", v/2995) }, "edges.csv line", ""},
		"nobody, and a text": {numbers, func(at, v int) string {
			return numbers(0, v+v/2990) + strings.Repeat("x", at/2)
		}, "edges.csv line", ""},
		"a text at the end": {numbers, numbers, "no node \"x\"", "-7,x,1\n"},
		"nobody, texts":     {same, func(at, v int) string { return same(0, v) + strings.Repeat("x", at/2) }, "edges.csv line", ""},
	} {
		r := rand.New(rand.NewPCG(1, 7))
		var edges, nodes strings.Builder
		for i := range 30000 {
			fmt.Fprintf(&edges, "%s,%s,%d\n", c.edges(i/10000, r.IntN(n)), c.edges(i/10000, r.IntN(n)), i)
		}
		for i, v := range r.Perm(n) {
			fmt.Fprintf(&nodes, "%s,%d,%d,%s,%s\n", c.nodes(i, v), v, v%3, []string{"train", "valid", "test"}[v%3], pad)
		}
		dir := files{"edges.csv": "src,dst,weight\n" + edges.String() + c.last, "nodes.csv": "id,x,label,split,note\n" + nodes.String()}.write(t)
		var stores, errs [3]string
		for k, size := range []int{0, 250, 1000} { // all in one map, and many runs
			dst := filepath.Join(t.TempDir(), "store")
			if err := Import(t.Context(), dir, dst, Options{Name: "same", runIDs: size}); err != nil {
				errs[k] = err.Error()
			} else {
				ds := opened(t, dst).Dataset()
				x, _, _ := ds.NodeFeatures.Float32s()
				stores[k] = ds.Fingerprint + fmt.Sprint(ds.Names, x, ds.Labels, ds.Train, ds.Graph.Weights)
			}
		}
		if stores[0] != stores[1] || stores[0] != stores[2] || errs[0] != errs[1] || errs[0] != errs[2] || (stores[0] == "") != (c.refused != "") || !strings.Contains(errs[0], c.refused) {
			t.Errorf("%s: the stores differ (%t, %t), %q", name, stores[0] == stores[1], stores[0] == stores[2], errs)
		}
	}
}

// Texts of ids that are not few are never sorted in memory, where they would lie twice, be they of edges alone or of a table of nodes.
func TestSortedTexts(t *testing.T) {
	var edges, nodes strings.Builder
	for v := range 300 {
		fmt.Fprintf(&nodes, "node-called-%d\n", v)
		fmt.Fprintf(&edges, "node-called-%d,node-called-%d\n", v, (v+7)%300)
	}
	alone := files{"edges.csv": "src,dst\n" + edges.String()}.write(t)
	both := files{"edges.csv": "src,dst\n" + edges.String(), "nodes.csv": "id\n" + nodes.String()}.write(t)
	for name, dir := range map[string]string{"edges": alone, "nodes": both} {
		for runIDs, most := range map[int]int{1 << 20: nodes.Len(), 1000: 16 * 1000 / merged} { // neither ends a run
			peak := -1
			imported(t, dir, Options{runIDs: runIDs, sorted: func(bytes int) { peak = max(peak, bytes) }})
			if peak > most || runIDs > 1000 && peak < nodes.Len()/2 {
				t.Errorf("%s: %d bytes of texts are sorted in memory, want at most %d", name, peak, most)
			}
		}
	}
}

// uuid returns one for each number, of which many begin alike.
func uuid(v int) string {
	x := fmt.Sprintf("%08x%024x", v/50, scattered(uint64(v)))
	return strings.Join([]string{x[:8], x[8:12], x[12:16], x[16:20], x[20:]}, "-")
}

// What is kept of an id says what it is, and how it compares with another.
func TestKeptIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	draw := func() string {
		id := []byte(uuid(r.IntN(200)))
		switch r.IntN(4) {
		case 0:
			id[r.IntN(len(id))] = "0af-gG A"[r.IntN(8)]
		case 1:
			id = id[:r.IntN(len(id))+1]
		}
		return string(id)
	}
	short := 0
	for range 20000 {
		a, b := draw(), draw()
		keptA, keptB := appendKept(nil, []byte(a)), appendKept(nil, []byte(b))
		if got := string(appendID(nil, keptA)); got != a {
			t.Fatalf("%q is read back as %q", a, got)
		}
		if got := compareIDs(keptA, keptB); got != strings.Compare(a, b) {
			t.Fatalf("%q compares with %q as %d", a, b, got)
		}
		if isUUID(keptA) {
			short++
		}
	}
	if short < 5000 {
		t.Errorf("%d ids are UUIDs", short)
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
