package compute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// cut divides ds into pieces of the nodes between borders, from 0 to their number.
func cut(ds *graph.Dataset, borders ...int) []*Piece {
	g := ds.Graph
	owner := func(v uint32) int { return sort.SearchInts(borders, int(v)+1) - 1 }
	var list []*Piece
	for i := range len(borders) - 1 {
		first, end := uint32(borders[i]), uint32(borders[i+1])
		p := &Piece{Index: i, First: first, Masters: int(end - first), In: &graph.Graph{Indptr: []int64{0}}, Sends: make([][]uint32, len(borders)-1)}
		for _, b := range borders {
			p.Borders = append(p.Borders, uint32(b))
		}
		for v := first; v < end; v++ {
			for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
				if u := g.Indices[e]; u < first || u >= end {
					p.Others = append(p.Others, u)
				}
			}
		}
		slices.Sort(p.Others)
		p.Others = slices.Compact(p.Others)
		for q := range borders {
			p.Reads = append(p.Reads, sort.Search(len(p.Others), func(k int) bool { return int(p.Others[k]) >= borders[q] }))
		}
		for v := first; v < end; v++ {
			for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
				u := g.Indices[e]
				if k, found := slices.BinarySearch(p.Others, u); found {
					p.In.Indices = append(p.In.Indices, uint32(p.Masters+k))
				} else {
					p.In.Indices = append(p.In.Indices, u-first)
				}
				if g.Weights != nil {
					p.In.Weights = append(p.In.Weights, g.Weights[e])
				}
			}
			p.In.Indptr = append(p.In.Indptr, int64(len(p.In.Indices)))
		}
		if f := ds.NodeFeatures; f != nil {
			x := make([]float32, p.Masters*f.Cols)
			for v := range p.Masters {
				f.Row(x[v*f.Cols:], int(first)+v)
			}
			p.Features = graph.NewFeatures(p.Masters, f.Cols, x)
		}
		list = append(list, p)
	}
	for _, p := range list {
		for _, u := range p.Others {
			q := list[owner(u)]
			q.Sends[p.Index] = append(q.Sends[p.Index], u-q.First)
		}
	}
	return list
}

// elsewhere is a model of a graph of g's size that lies in pieces.
func elsewhere(t *testing.T, m *Model) *Model {
	t.Helper()
	return mustModel(t, m.spec, graph.Elsewhere(m.nodes, int64(m.edges)))
}

var someBorders = map[string][]int{
	"1": {0, 200}, "2": {0, 90, 200}, "3 uneven": {0, 7, 150, 200}, "8 and empty ones": {0, 0, 30, 60, 60, 100, 120, 160, 200},
}

// sameRows fails unless the outputs of pieces are want's rows, bit for bit.
func sameRows(t *testing.T, shelf Shelf, pieces []*Piece, want cpu.Matrix[float32]) {
	t.Helper()
	for _, p := range pieces {
		if p.Masters == 0 {
			continue
		}
		got, err := shelf.Get(PieceOutputs, p.Index)
		if err != nil {
			t.Fatal(err)
		}
		for v := range p.Masters {
			if !slices.Equal(got.Row(v), want.Row(int(p.First)+v)) {
				t.Fatalf("node %d in piece %d: got %v, want %v", int(p.First)+v, p.Index, got.Row(v), want.Row(int(p.First)+v))
			}
		}
	}
}

// Every model gives the bits of the whole graph over any pieces, and sends each row once to each
// piece that reads it.
func TestInferPieces(t *testing.T) {
	for name, spec := range variants {
		if spec.EdgeDim > 0 {
			continue
		}
		for _, dims := range [][3]int{{37, 15, 5}, {7, 21, 40}} {
			ds := testDataset(200, 5, dims[0], dims[0] > dims[1])
			m := mustModel(t, sized(spec, 2, dims[0], dims[1], dims[2]), ds.Graph)
			params := randomParams(m, 5)
			x := testExec(t, 2, detected(t))
			want, err := m.Infer(context.Background(), x, params, ds, nil, 200)
			if err != nil {
				t.Fatal(err)
			}
			for cutting, borders := range someBorders {
				t.Run(fmt.Sprintf("%s/%v/%s", name, dims, cutting), func(t *testing.T) {
					pieces := cut(ds, borders...)
					memory := NewMemory()
					counted := NewCounted(memory)
					err := elsewhere(t, m).InferPieces(t.Context(), x, params, PieceInference{Pieces: pieces, Exchange: counted, Shelf: memory, Chunk: 33})
					if err != nil {
						t.Fatal(err)
					}
					sameRows(t, memory, pieces, want)
					pairs := 0
					for _, p := range pieces {
						pairs += len(p.Others)
					}
					for l := range m.Blocks() {
						if got, want := counted.Bytes(fmt.Sprintf("layer-%d", l)), int64(4*pairs*sentWidth(m, l)); got != want {
							t.Errorf("layer %d sent %d bytes, want %d", l, got, want)
						}
					}
					if len(memory.rows) > 0 {
						t.Errorf("%d messages were not received", len(memory.rows))
					}
				})
			}
		}
	}
}

// sentWidth is how many columns of values layer l sends along edges, by the formulas of the models.
func sentWidth(m *Model, l int) int {
	s := &m.spec
	wide := l / max(m.blocks/s.Layers, 1)
	in, out := s.InDim, s.Hidden
	if wide > 0 {
		in = s.Hidden * s.widening()
	}
	if wide == s.Layers-1 && !s.head() {
		out = s.OutDim
	}
	n, e := float64(m.nodes), 8*float64(m.edges)
	first := func(out, sent int) bool {
		return n*float64(in)*float64(out)+e*float64(sent) < e*float64(in)+n*float64(in)*float64(out)
	}
	switch s.Model {
	case "gat":
		h := cmp.Or(s.Heads, 1)
		if wide == s.Layers-1 && !s.head() {
			return h*out + h
		}
		return out + h
	case "gatv2":
		if wide == s.Layers-1 && !s.head() {
			return cmp.Or(s.Heads, 1) * out
		}
		return out
	case "mixhop":
		hop := l%s.hops() + 1
		if first(out, out*(s.hops()+1)/2) {
			return (s.hops() - hop + 1) * out
		}
		return in
	case "sage":
		if s.concatenates() {
			out /= 2
		}
		if s.Aggregation == "max" || !first(out, out) {
			return in
		}
		return out
	}
	if s.TrainEps || !first(out, out) {
		return in
	}
	return out
}

// Pieces find together whether features are sparse, as the whole does.
func TestInferPiecesSparse(t *testing.T) {
	for _, every := range []int{3, 11} {
		ds := testDataset(200, 5, 80, false)
		values, _, _ := ds.NodeFeatures.Float32s()
		for i := range values {
			if i%every > 0 {
				values[i] = 0
			}
		}
		m := mustModel(t, sized(Spec{Model: "sage"}, 2, 80, 16, 3), ds.Graph)
		m.BindFeatures(ds.NodeFeatures)
		if m.SparseInput() != (every == 11) {
			t.Fatalf("of one value in %d: sparse is %v", every, m.SparseInput())
		}
		params := randomParams(m, 5)
		x := testExec(t, 2, detected(t))
		want, err := m.Infer(t.Context(), x, params, ds, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, borders := range someBorders {
			pieces, memory := cut(ds, borders...), NewMemory()
			models, err := elsewhere(t, m).onPieces(t.Context(), pieces, memory)
			if err != nil {
				t.Fatal(err)
			}
			for _, on := range models {
				if on.SparseInput() != m.SparseInput() {
					t.Fatalf("of one value in %d: sparse is %v in a piece", every, on.SparseInput())
				}
			}
			memory = NewMemory()
			if err := elsewhere(t, m).InferPieces(t.Context(), x, params, PieceInference{Pieces: pieces, Exchange: memory, Shelf: memory}); err != nil {
				t.Fatal(err)
			}
			sameRows(t, memory, pieces, want)
		}
	}
}

// breaking is a shelf that fails after so many calls of Put.
type breaking struct {
	Shelf
	puts, all int
}

var errDiskGone = errors.New("the disk is gone")

func (b *breaking) Put(name string, piece int, m cpu.Matrix[float32]) error {
	if b.all++; b.puts == 0 {
		return errDiskGone
	}
	b.puts--
	return b.Shelf.Put(name, piece, m)
}

// Wherever a call with a folder ends, the next goes on from the layer that it was in, and has the same bits.
func TestInferPiecesGoesOn(t *testing.T) {
	for _, name := range []string{"mixhop", "gcn jumping"} {
		ds := testDataset(200, 5, 37, true)
		m := mustModel(t, sized(variants[name], 2, 37, 15, 5), ds.Graph)
		params := randomParams(m, 5)
		x := testExec(t, 2, detected(t))
		want, err := m.Infer(t.Context(), x, params, ds, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		pieces := cut(ds, someBorders["2"]...)
		for puts, all := 0, 1; puts < all; puts++ {
			dir := t.TempDir()
			f, err := OpenFolder(dir, "this")
			if err != nil {
				t.Fatal(err)
			}
			b := &breaking{f, puts, 0}
			if err := elsewhere(t, m).InferPieces(t.Context(), x, params, PieceInference{Pieces: pieces, Exchange: f, Shelf: b}); !errors.Is(err, errDiskGone) {
				t.Fatalf("after %d of Put: %v", puts, err)
			}
			if _, err := OpenFolder(dir, "that"); err == nil {
				t.Fatal("a folder of something else was opened")
			}
			if f, err = OpenFolder(dir, "this"); err != nil {
				t.Fatal(err)
			}
			again := &breaking{f, 1000, 0}
			done := -1
			in := PieceInference{Pieces: pieces, Exchange: f, Shelf: again, Done: func(i, of int) {
				if done < 0 {
					done = i
				}
			}}
			if err := elsewhere(t, m).InferPieces(t.Context(), x, params, in); err != nil {
				t.Fatal(err)
			}
			sameRows(t, f, pieces, want)
			if puts == 0 {
				all = again.all
			} else if puts == all-1 && done < m.Blocks() {
				t.Errorf("%s: with all but one of %d kept, layer %d was computed again", name, all, done)
			}
		}
	}
}

// The same where two places compute pieces: wherever one of them ends, both go on from the layer that it was in.
func TestInferPiecesGoOnTogether(t *testing.T) {
	ds := testDataset(200, 5, 37, true)
	m := mustModel(t, sized(variants["mixhop"], 2, 37, 15, 5), ds.Graph)
	params := randomParams(m, 5)
	execs := []*cpu.Exec{testExec(t, 1, detected(t)), testExec(t, 1, detected(t))}
	want, err := m.Infer(t.Context(), execs[0], params, ds, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	pieces := cut(ds, someBorders["3 uneven"]...)
	own := [][]*Piece{pieces[:1], pieces[1:]}
	for puts, all := 0, 1; puts < all; puts++ {
		dirs := []string{t.TempDir(), t.TempDir()}
		infer := func(puts int) (layers, all int, err error) {
			memory := NewMemory()
			both, ctx := errgroup.WithContext(t.Context()) // who is waited for in vain ends the other, as an Exchange does
			for place, some := range own {
				f, err := OpenFolder(dirs[place], "this")
				if err != nil {
					t.Fatal(err)
				}
				b := &breaking{f, 1000, 0}
				in := PieceInference{Pieces: some, Exchange: memory, Shelf: b}
				if place == 1 {
					b.puts = puts
					in.Done = func(int, int) { layers++ }
				}
				both.Go(func() error {
					if place == 1 {
						defer func() { all = b.all }()
					}
					return elsewhere(t, m).InferPieces(ctx, execs[place], params, in)
				})
			}
			err = both.Wait()
			return layers, all, err
		}
		if _, _, err := infer(puts); !errors.Is(err, errDiskGone) {
			t.Fatalf("after %d of Put: %v", puts, err)
		}
		layers, puttings, err := infer(1000)
		if err != nil {
			t.Fatalf("after %d of Put: %v", puts, err)
		}
		for place, some := range own {
			f, err := OpenFolder(dirs[place], "this")
			if err != nil {
				t.Fatal(err)
			}
			sameRows(t, f, some, want)
		}
		if puts == 0 {
			all = puttings
		} else if puts == all-1 && layers > 1 {
			t.Errorf("with all but one of %d kept, %d layers were computed again", all, layers)
		}
	}
}

func detected(t *testing.T) cpu.Set {
	t.Helper()
	set, err := cpu.Detect()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// liveFolder is a Folder that finds how much memory is in use when rows come and layers end.
type liveFolder struct {
	*Folder
	before, most uint64
}

func (f *liveFolder) look() {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	f.most = max(f.most, s.HeapAlloc-min(f.before, s.HeapAlloc))
}

func (f *liveFolder) Receive(ctx context.Context, round string, from, to int, rows []float32) error {
	f.look()
	return f.Folder.Receive(ctx, round, from, to, rows)
}

func (f *liveFolder) Put(name string, piece int, m cpu.Matrix[float32]) error {
	f.look()
	return f.Folder.Put(name, piece, m)
}

// What is said of inference's memory with a folder is what it takes, and not twice that.
func TestInferPiecesMemory(t *testing.T) {
	const n = 10_000
	ds := testDataset(n, 5, 64, false)
	pieces := cut(ds, 0, 6000, n)
	for _, name := range []string{"gcn", "sage", "gat", "gcn jumping"} {
		m := elsewhere(t, mustModel(t, sized(variants[name], 3, 64, 64, 5), ds.Graph))
		f, err := OpenFolder(t.TempDir(), "this")
		if err != nil {
			t.Fatal(err)
		}
		live := &liveFolder{Folder: f}
		live.look()
		live.before, live.most = live.most, 0
		if err := m.InferPieces(t.Context(), testExec(t, 1, detected(t)), randomParams(m, 5), PieceInference{Pieces: pieces, Exchange: live, Shelf: live, Chunk: 128}); err != nil {
			t.Fatal(err)
		}
		const chunk = 1 << 19 // bytes of what is computed at once
		if peak, _ := m.PieceMemory(pieces); live.most > uint64(peak)+chunk || uint64(peak) > 2*live.most {
			t.Errorf("%s: %d bytes are said, and %d in use", name, peak, live.most)
		}
	}
}
