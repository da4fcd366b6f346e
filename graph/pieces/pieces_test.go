package pieces

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// random returns a dataset of n nodes with skewed degrees, some of them 0.
func random(n, edges int, seed uint64, weighted bool) *graph.Dataset {
	r := rand.New(rand.NewPCG(seed, 0))
	in := make([][]uint32, n)
	for range edges {
		v, u := r.IntN(n), r.IntN(n)
		if r.IntN(3) == 0 {
			u = r.IntN(1 + n/100) // sources of many edges
		}
		if r.IntN(5) == 0 {
			v = 7 % n // a target of many
		}
		in[v] = append(in[v], uint32(u))
	}
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	for v, row := range in {
		slices.Sort(row)
		g.Indices = append(g.Indices, row...)
		g.Indptr[v+1] = int64(len(g.Indices))
	}
	ds := &graph.Dataset{Name: "random", Graph: g, Labels: &graph.Labels{NumClasses: 5, Class: make([]int32, n)}}
	x := make([]float32, n*3)
	for v := range n {
		ds.Labels.Class[v] = int32(r.IntN(5))
		x[3*v], x[3*v+1], x[3*v+2] = float32(v), r.Float32(), -1.5
		ds.NodeTimes = append(ds.NodeTimes, int64(v)*10)
	}
	ds.NodeFeatures = graph.NewFeatures(n, 3, x)
	if weighted {
		for range g.Indices {
			g.Weights = append(g.Weights, r.Float32())
		}
	}
	for i, v := range r.Perm(n)[:n/2] {
		switch i % 4 {
		case 0, 1:
			ds.Train = append(ds.Train, uint32(v))
		case 2:
			ds.Valid = append(ds.Valid, uint32(v))
		default:
			ds.Test = append(ds.Test, uint32(v))
		}
	}
	return ds
}

func create(t *testing.T, ds *graph.Dataset) *store.Store {
	t.Helper()
	return createIn(t, filepath.Join(t.TempDir(), "store"), ds)
}

func createIn(t *testing.T, dir string, ds *graph.Dataset) *store.Store {
	t.Helper()
	if err := store.Create(t.Context(), dir, ds); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// edge is one of a divided graph, by the ids that the user knows.
type edge struct {
	source, target uint32
	weight         float32
}

// whole puts a set together again: rows by target and by source, in the order of the pieces, and
// the node that each id is of.
func whole(t *testing.T, s *Set, ds *graph.Dataset) (in, out [][]edge, original []uint32) {
	t.Helper()
	n := s.NumNodes()
	in, out = make([][]edge, n), make([][]edge, n)
	var pieces []*store.Piece
	original = make([]uint32, n)
	for i := range s.Pieces() {
		p, err := s.OpenPiece(i)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		pieces = append(pieces, p)
		for v := range p.Masters {
			id := uint32(p.Of.First) + uint32(v)
			if original[id] = id; p.Originals != nil {
				original[id] = p.Originals[v]
			}
		}
	}
	x, y := make([]float32, 3), make([]float32, 3)
	for _, p := range pieces {
		name := func(local uint32, others []uint32) uint32 {
			if int(local) < p.Masters {
				return original[uint32(p.Of.First)+local]
			}
			return original[others[int(local)-p.Masters]]
		}
		for v := range p.Masters {
			o := name(uint32(v), nil)
			p.Dataset().NodeFeatures.Row(x, v)
			ds.NodeFeatures.Row(y, int(o))
			if !slices.Equal(x, y) || p.Dataset().Labels.Class[v] != ds.Labels.Class[o] || p.Dataset().NodeTimes[v] != ds.NodeTimes[o] {
				t.Fatalf("master %d, node %d: features %v, want %v, or another label or time", v, o, x, y)
			}
		}
		pieceOf := func(local uint32, others []uint32) int {
			id := uint32(p.Of.First) + local
			if int(local) >= p.Masters {
				id = others[int(local)-p.Masters]
			}
			return slices.IndexFunc(s.Pieces(), func(i PieceInfo) bool { return int64(id) >= i.First && int64(id) < i.First+i.Masters })
		}
		for row := range p.In.NumNodes() {
			for e := p.In.Indptr[row]; e < p.In.Indptr[row+1]; e++ {
				x := edge{source: name(p.In.Indices[e], p.Sources), target: name(uint32(row), p.Targets)}
				if want := lies(s, pieceOf(p.In.Indices[e], p.Sources), pieceOf(uint32(row), p.Targets)); int64(want) != p.Of.Index {
					t.Fatalf("edge %d to %d lies in piece %d, want %d", x.source, x.target, p.Of.Index, want)
				}
				if p.In.Weights != nil {
					x.weight = p.In.Weights[e]
				}
				in[x.target] = append(in[x.target], x)
			}
		}
		for row := range p.Out.NumNodes() {
			for e := p.Out.Indptr[row]; e < p.Out.Indptr[row+1]; e++ {
				x := edge{source: name(uint32(row), p.Sources), target: name(p.Out.Indices[e], p.Targets)}
				if p.Out.Weights != nil {
					x.weight = p.Out.Weights[e]
				}
				out[x.source] = append(out[x.source], x)
			}
		}
	}
	return in, out, original
}

// Whatever the method, the places of edges, the number of pieces and the memory, the pieces make
// the graph again, and say the same of every node.
func TestPiecesMakeTheGraph(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 0))
	for i, method := range Methods() {
		for j, place := range []string{EdgePlaces()[i%3], EdgePlaces()[(i+1)%3]} {
			n := 1 + r.IntN(9000)
			ds := random(n, r.IntN(6*n), r.Uint64(), r.IntN(2) == 0)
			src := create(t, ds)
			o := Options{Method: method, Edges: place, Pieces: 1 + r.IntN(min(n, 5)), Seed: r.Uint64(), limit: []int{40, 0, 3000}[(i+j)%3]}
			t.Run(fmt.Sprintf("%s %s %d nodes %d pieces limit %d", method, place, n, o.Pieces, o.limit), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "set")
				s, err := Create(t.Context(), dir, src, o)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Verify(t.Context()); err != nil {
					t.Fatal(err)
				}
				in, out, original := whole(t, s, ds)
				check(t, ds.Graph, in, out, place == EdgesAtTarget)
				train := int64(0)
				for _, p := range s.Pieces() {
					train += p.Train
				}
				if train != int64(len(ds.Train)) {
					t.Errorf("the pieces have %d training nodes, want %d", train, len(ds.Train))
				}
				for i, want := range [3][]uint32{ds.Train, ds.Valid, ds.Test} {
					checkSplit(t, s, i, original, want)
				}
				if list, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".*")); len(list) > 0 {
					t.Errorf("left behind: %v", list)
				}
			})
		}
	}
}

// lies is where an edge from one piece to another lies.
func lies(s *Set, source, target int) int {
	switch _, _, edges := s.Method(); edges {
	case EdgesAtTarget:
		return target
	case EdgesAtSource:
		return source
	}
	columns := map[int]int{1: 1, 2: 2, 3: 3, 4: 2, 5: 5}[len(s.Pieces())]
	return source/columns*columns + target%columns
}

// check compares rows with the graph's: in its order where each row lies in one piece.
func check(t *testing.T, g *graph.Graph, in, out [][]edge, ordered bool) {
	t.Helper()
	n := g.NumNodes()
	wantOut := make([][]edge, n)
	for v := range n {
		var want []edge
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			x := edge{source: g.Indices[e], target: uint32(v)}
			if g.Weights != nil {
				x.weight = g.Weights[e]
			}
			want = append(want, x)
			wantOut[x.source] = append(wantOut[x.source], x)
		}
		if !same(in[v], want, ordered) {
			t.Fatalf("edges into %d: %v, want %v", v, in[v], want)
		}
	}
	for u := range n {
		if !same(out[u], wantOut[u], ordered) {
			t.Fatalf("edges out of %d: %v, want %v", u, out[u], wantOut[u])
		}
	}
}

func same(got, want []edge, ordered bool) bool {
	if !ordered {
		less := func(a, b edge) int {
			if a.source != b.source {
				return int(int64(a.source) - int64(b.source))
			}
			if a.target != b.target {
				return int(int64(a.target) - int64(b.target))
			}
			if a.weight < b.weight {
				return -1
			}
			return 1
		}
		got, want = slices.Clone(got), slices.Clone(want)
		slices.SortFunc(got, less)
		slices.SortFunc(want, less)
	}
	return slices.Equal(got, want)
}

func checkSplit(t *testing.T, s *Set, i int, original, want []uint32) {
	t.Helper()
	got, err := s.Split(i)
	if err != nil {
		t.Fatal(err)
	}
	for k, id := range got {
		got[k] = original[id]
	}
	if !slices.Equal(got, want) {
		t.Fatalf("split %d is not the graph's", i)
	}
}

// A node with more edges than are sorted at once, behind nodes without any.
func TestStar(t *testing.T) {
	t.Parallel()
	const n = 2 * Border
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	for v := range n {
		if v == Border+5 {
			for u := range n {
				g.Indices = append(g.Indices, uint32(u))
			}
		}
		g.Indptr[v+1] = int64(len(g.Indices))
	}
	s, err := Create(t.Context(), filepath.Join(t.TempDir(), "set"), create(t, &graph.Dataset{Graph: g}), Options{Method: "contiguous", Pieces: 2, limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.OpenPiece(1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := p.In.InNeighbors(5); len(got) != n || p.In.NumEdges() != n || p.Out.NumEdges() != Border {
		t.Errorf("node 5 has %d of %d edges, the piece %d and %d", len(got), n, p.In.NumEdges(), p.Out.NumEdges())
	}
}

// What comes to be where the set is to be is not replaced, and a piece without values is no piece.
func TestFailures(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "set")
	o := Options{Method: "hash", Pieces: 3, Seed: 1, Progress: func(string, int64, int64) {
		if err := os.MkdirAll(filepath.Join(dir, "thesis"), 0o777); err != nil {
			t.Error(err)
		}
	}}
	from := filepath.Join(t.TempDir(), "store")
	src := createIn(t, from, random(6000, 20000, 2, false))
	if _, err := Create(t.Context(), dir, src, o); err == nil || !strings.Contains(err.Error(), "not a partition set") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "thesis")); err != nil {
		t.Error(err)
	}

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	o.Progress, o.Seed = nil, 2
	if err := os.Truncate(filepath.Join(from, "node-features.bin"), 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), dir, src, o); err == nil || !strings.Contains(err.Error(), "node-features.bin") {
		t.Error(err)
	}
	if list, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".set.unfinished", "piece-*", store.Manifest)); err != nil || len(list) > 0 {
		t.Error(list, err)
	}
}

// Features that do not fit their checksums are not copied, and the error says where they lie.
func TestFeaturesAreChecked(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	src := createIn(t, dir, random(200_000, 1000, 2, false)) // features of three blocks
	f, err := os.OpenFile(filepath.Join(dir, "node-features.bin"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{77}, 2_000_001); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Create(t.Context(), filepath.Join(t.TempDir(), "set"), src, Options{Method: "hash", Pieces: 2})
	if !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), "[1048576, 2097152)") {
		t.Error(err)
	}
}

// Splits that name nodes that there are not, or so many that no memory holds them, are refused.
func TestSplitsAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for want, ids := range map[string][]uint32{"node 2048 is out of range": {5, 2048}, "has 0 bytes": nil} {
		is, err := store.WriteIDs(filepath.Join(dir, splits[0]), ids)
		if err != nil {
			t.Fatal(err)
		}
		if ids == nil {
			is.Count = 1 << 62
		}
		m := manifest{Nodes: 2048, Pieces: []PieceInfo{{Masters: 2048}}, Splits: [3]IDs{is}}
		if err := os.WriteFile(filepath.Join(dir, Manifest), m.encode(), 0o666); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Split(0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	ds := random(2000, 5000, 1, false)
	src := create(t, ds)
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir  string
		o    Options
		want string
	}{
		{"a", Options{Method: "best", Pieces: 2}, "no method"},
		{"a", Options{Method: "hash", Edges: "here", Pieces: 2}, "cannot lie"},
		{"a", Options{Method: "hash"}, "1 to"},
		{"a", Options{Method: "hash", Pieces: 2001}, "as many as nodes"},
		{"a", Options{Method: "hash", Pieces: 2, Memory: 1 << 20}, "--memory"},
		{"full", Options{Method: "hash", Pieces: 2}, "not a partition set"},
	} {
		_, err := Create(t.Context(), filepath.Join(dir, c.dir), src, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	set := filepath.Join(dir, "set")
	for i, overwrite := range []bool{false, false, true} {
		_, err := Create(t.Context(), set, src, Options{Method: "hash", Pieces: 2 + i, Overwrite: overwrite})
		if wrong := i == 1; wrong != errors.Is(err, os.ErrExist) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if s, err := Open(set); err != nil || len(s.Pieces()) != 4 {
		t.Errorf("the set was not replaced: %v", err)
	}
	// A piece is no store, a store no piece.
	if _, err := store.Open(filepath.Join(set, pieceName(1))); err == nil || !strings.Contains(err.Error(), "piece 1 of 4") {
		t.Errorf("a piece opened as a whole graph: %v", err)
	}
}

// Damage anywhere is found, and nothing panics.
func TestDamage(t *testing.T) {
	t.Parallel()
	src := create(t, random(3000, 9000, 1, true))
	dir := filepath.Join(t.TempDir(), "set")
	if _, err := Create(t.Context(), dir, src, Options{Method: "hash", Edges: EdgesOnGrid, Pieces: 2, Seed: 3}); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 0))
	var files []string
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	for _, file := range files {
		was, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			b := slices.Clone(was)
			if r.IntN(3) == 0 {
				b = b[:r.IntN(len(b))]
			} else {
				b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			}
			if err := os.WriteFile(file, b, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := verify(t.Context(), dir); err == nil {
				t.Errorf("%s: damage is not found", file)
			}
		}
		if err := os.WriteFile(file, was, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := verify(t.Context(), dir); err != nil {
		t.Error(err)
	}
}

func verify(ctx context.Context, dir string) error {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	return s.Verify(ctx)
}

func FuzzManifest(f *testing.F) {
	m := manifest{Nodes: 2048, Pieces: []PieceInfo{{Masters: 1024}, {First: 1024, Masters: 1024}}}
	f.Add(m.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err == nil && m.Nodes > graph.MaxNodes {
			t.Errorf("%d nodes", m.Nodes)
		}
	})
}
