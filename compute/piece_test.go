package compute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// cut divides ds into pieces of the nodes between borders, from 0 to their number, whose edges lie with their targets.
func cut(ds *graph.Dataset, borders ...int) []*Piece { return cutEdges(ds, "target", borders...) }

// edgesLie are the places of edges that are not in one piece with all of their targets'.
var edgesLie = []string{"source", "grid"}

// cutEdges is cut with edges at their target, their source, or in a grid of pieces (package pieces).
func cutEdges(ds *graph.Dataset, lie string, borders ...int) []*Piece {
	g, n := ds.Graph, len(borders)-1
	owner := func(v uint32) int { return sort.SearchInts(borders, int(v)+1) - 1 }
	columns := map[string]int{"target": n, "source": 1, "grid": max(1, n/2)}[lie]
	home := func(u, v uint32) int {
		p := owner(u)/columns*columns + owner(v)%columns
		if lie == "target" || borders[p] == borders[p+1] {
			return owner(v)
		}
		return p
	}
	var list []*Piece
	for i := range n {
		first, end := uint32(borders[i]), uint32(borders[i+1])
		p := &Piece{Index: i, First: first, Masters: int(end - first), In: &graph.Graph{Indptr: []int64{0}}}
		if lie == "target" {
			p.Sources.Sends = make([][]uint32, n)
		} else {
			p.Partial = &graph.Graph{Indptr: []int64{0}}
		}
		for _, b := range borders {
			p.Borders = append(p.Borders, uint32(b))
		}
		each := func(do func(u, v uint32, e int64)) {
			for v := range uint32(g.NumNodes()) {
				for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
					if home(g.Indices[e], v) == i {
						do(g.Indices[e], v, e)
					}
				}
			}
		}
		mirror := func(m *Mirrors, v uint32) {
			if v < first || v >= end {
				m.IDs = append(m.IDs, v)
			}
		}
		each(func(u, v uint32, _ int64) { mirror(&p.Sources, u); mirror(&p.Targets, v) })
		for _, m := range []*Mirrors{&p.Sources, &p.Targets} {
			slices.Sort(m.IDs)
			m.IDs = slices.Compact(m.IDs)
			for q := range borders {
				m.Reads = append(m.Reads, sort.Search(len(m.IDs), func(k int) bool { return int(m.IDs[k]) >= borders[q] }))
			}
		}
		rows := map[uint32][]int64{}
		each(func(_, v uint32, e int64) { rows[v] = append(rows[v], e) })
		row := func(into *graph.Graph, v uint32) {
			for _, e := range rows[v] {
				u := g.Indices[e]
				if k, found := slices.BinarySearch(p.Sources.IDs, u); found {
					into.Indices = append(into.Indices, uint32(p.Masters+k))
				} else {
					into.Indices = append(into.Indices, u-first)
				}
				if g.Weights != nil {
					into.Weights = append(into.Weights, g.Weights[e])
				}
			}
			into.Indptr = append(into.Indptr, int64(len(into.Indices)))
		}
		for v := first; v < end; v++ {
			row(p.In, v)
		}
		for _, v := range p.Targets.IDs {
			row(p.Partial, v)
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
		for _, u := range p.Sources.IDs {
			if q := list[owner(u)]; lie == "target" {
				q.Sources.Sends[p.Index] = append(q.Sources.Sends[p.Index], u-q.First)
			}
		}
	}
	return list
}

// pairsOf counts a row for each piece that mirrors a master: of sources, and of targets.
func pairsOf(pieces []*Piece) (sources, targets int) {
	for _, p := range pieces {
		sources, targets = sources+len(p.Sources.IDs), targets+len(p.Targets.IDs)
	}
	return sources, targets
}

// elsewhere is a model of a graph of g's size that lies in pieces.
func elsewhere(t *testing.T, m *Model) *Model {
	t.Helper()
	return mustModel(t, m.spec, graph.Elsewhere(m.nodes, int64(m.edges)))
}

var someBorders = map[string][]int{
	"1": {0, 200}, "2": {0, 90, 200}, "3 uneven": {0, 7, 150, 200}, "8 and empty ones": {0, 0, 30, 60, 60, 100, 120, 160, 200},
}

// outputs returns a row for each node of pieces.
func outputs(t *testing.T, kept Activations, pieces []*Piece) cpu.Matrix[float32] {
	t.Helper()
	var all cpu.Matrix[float32]
	for _, p := range pieces {
		if p.Masters == 0 {
			continue
		}
		m, err := kept.Get(PieceOutputs, p.Index)
		if err != nil {
			t.Fatal(err)
		}
		if all.Data == nil {
			all = cpu.NewMatrix[float32](int(p.Borders[p.pieces()]), m.Cols)
		}
		for v := range p.Masters {
			copy(all.Row(int(p.First)+v), m.Row(v))
		}
	}
	return all
}

// nearRows fails unless the outputs of pieces are want's rows, in float32's error.
func nearRows(t *testing.T, kept Activations, pieces []*Piece, want cpu.Matrix[float32]) {
	t.Helper()
	scale := slices.Max(want.Data)
	scale = max(scale, -slices.Min(want.Data))
	compareOutputs(t, kept, pieces, want, func(x, y float32) bool { d := x - y; return d <= 1e-5*scale && d >= -1e-5*scale })
}

// sameRows fails unless the outputs of pieces are want's rows, bit for bit.
func sameRows(t *testing.T, kept Activations, pieces []*Piece, want cpu.Matrix[float32]) {
	t.Helper()
	compareOutputs(t, kept, pieces, want, func(x, y float32) bool { return x == y })
}

func compareOutputs(t *testing.T, kept Activations, pieces []*Piece, want cpu.Matrix[float32], same func(x, y float32) bool) {
	t.Helper()
	got := outputs(t, kept, pieces)
	for _, p := range pieces {
		for v := int(p.First); v < int(p.First)+p.Masters; v++ {
			if !slices.EqualFunc(got.Row(v), want.Row(v), same) {
				t.Fatalf("node %d in piece %d: got %v, want %v", v, p.Index, got.Row(v), want.Row(v))
			}
		}
	}
}

// allReceived fails if somebody did not take what was sent to it.
func allReceived(t *testing.T, memory *MemoryExchange) {
	t.Helper()
	if len(memory.rows) > 0 {
		t.Errorf("%d messages were not received", len(memory.rows))
	}
}

// Every model gives the bits of the whole graph over any pieces, and sends each row once to each
// piece that reads it.
func TestInferPieces(t *testing.T) {
	for shift, name := range slices.Sorted(maps.Keys(variants)) {
		spec := variants[name]
		if spec.EdgeDim > 0 {
			continue
		}
		for i, dims := range [][3]int{{37, 15, 5}, {7, 21, 40}} {
			ds := testDataset(200, 5, dims[0], dims[0] > dims[1])
			m := mustModel(t, sized(spec, 2, dims[0], dims[1], dims[2]), ds.Graph)
			params := randomParams(m, 5)
			x := testExec(t, 2, detected(t))
			want, err := m.Infer(context.Background(), x, params, ds, nil, 200)
			if err != nil {
				t.Fatal(err)
			}
			for k, cutting := range slices.Sorted(maps.Keys(someBorders)) {
				borders := someBorders[cutting]
				t.Run(fmt.Sprintf("%s/%v/%s", name, dims, cutting), func(t *testing.T) {
					pieces := cut(ds, borders...)
					memory := NewMemoryExchange()
					counted := NewCounted(memory)
					err := elsewhere(t, m).InferPieces(t.Context(), x, params, PieceInference{Pieces: pieces, Exchange: counted, Activations: memory, Chunk: 33})
					if err != nil {
						t.Fatal(err)
					}
					sameRows(t, memory, pieces, want)
					pairs, _ := pairsOf(pieces)
					for l := range m.Blocks() {
						if got, want := counted.Bytes(fmt.Sprintf("layer-%d", l)), int64(4*pairs*sentWidth(m, l)); got != want {
							t.Errorf("layer %d sent %d bytes, want %d", l, got, want)
						}
					}
					allReceived(t, memory)
				})
				for j, lie := range edgesLie {
					if (i+j+k+shift)%2 > 0 { // a model has all pairs
						continue
					}
					t.Run(fmt.Sprintf("%s/%v/%s/%s", name, dims, cutting, lie), func(t *testing.T) {
						pieces := cutEdges(ds, lie, borders...)
						memory := NewMemoryExchange()
						counted := NewCounted(memory)
						in := PieceInference{Pieces: pieces, Exchange: counted, Activations: memory, Chunk: 33}
						if err := elsewhere(t, m).InferPieces(t.Context(), x, params, in); err != nil {
							t.Fatal(err)
						}
						nearRows(t, memory, pieces, want)
						sources, targets := pairsOf(pieces)
						for l := range m.Blocks() {
							// A mirror of a target has its sum, with the softmax's of each head, and attention's part of it.
							sums, told := sentWidth(m, l), 0
							switch heads := headsAt(m, l); m.spec.Model {
							case "gat":
								told = heads
							case "gatv2":
								sums, told = sums+heads, sums
							}
							got := [3]int64{counted.Bytes(PieceRounds(l)[0]), counted.Bytes(PieceRounds(l)[1]), counted.Bytes(PieceRounds(l)[2])}
							if want := [3]int64{int64(4 * sources * sentWidth(m, l)), int64(4 * targets * told), int64(4 * targets * sums)}; got != want {
								t.Errorf("layer %d sent %d bytes, want %d", l, got, want)
							}
						}
						allReceived(t, memory)
						for l := range m.Blocks() {
							if memory.Has(partialName(l), pieces[len(pieces)-1].Index) {
								t.Errorf("layer %d's sums are left", l)
							}
						}
					})
				}
			}
		}
	}
}

// headsAt is how many heads attention has in layer l.
func headsAt(m *Model, l int) int { return m.spec.headsOf(l == m.spec.Layers-1 && !m.spec.head()) }

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
			pieces, memory := cut(ds, borders...), NewMemoryExchange()
			models, err := elsewhere(t, m).onPieces(t.Context(), pieces, memory)
			if err != nil {
				t.Fatal(err)
			}
			for _, on := range models {
				if on.SparseInput() != m.SparseInput() {
					t.Fatalf("of one value in %d: sparse is %v in a piece", every, on.SparseInput())
				}
			}
			memory = NewMemoryExchange()
			if err := elsewhere(t, m).InferPieces(t.Context(), x, params, PieceInference{Pieces: pieces, Exchange: memory, Activations: memory}); err != nil {
				t.Fatal(err)
			}
			sameRows(t, memory, pieces, want)
		}
	}
}

// breaking is Activations that fail after so many calls of Put.
type breaking struct {
	Activations
	puts, all int
}

var errDiskGone = errors.New("the disk is gone")

func (b *breaking) Put(name string, piece int, m cpu.Matrix[float32]) error {
	if b.all++; b.puts == 0 {
		return errDiskGone
	}
	b.puts--
	return b.Activations.Put(name, piece, m)
}

// Wherever a call with a folder ends, the next goes on from the layer that it was in, and has the same bits.
func TestInferPiecesGoesOn(t *testing.T) {
	for name, lie := range map[string]string{"mixhop": "target", "gcn jumping": "target", "gat": "grid", "sage max": "source"} {
		ds := testDataset(200, 5, 37, true)
		m := mustModel(t, sized(variants[name], 2, 37, 15, 5), ds.Graph)
		params := randomParams(m, 5)
		x := testExec(t, 2, detected(t))
		pieces := cutEdges(ds, lie, someBorders["2"]...)
		want := inferredOver(t, m, x, params, ds, pieces)
		for puts, all := 0, 1; puts < all; puts++ {
			dir := t.TempDir()
			f, err := OpenFileExchange(dir, "this")
			if err != nil {
				t.Fatal(err)
			}
			b := &breaking{f, puts, 0}
			if err := elsewhere(t, m).InferPieces(t.Context(), x, params, PieceInference{Pieces: pieces, Exchange: f, Activations: b}); !errors.Is(err, errDiskGone) {
				t.Fatalf("after %d of Put: %v", puts, err)
			}
			if _, err := OpenFileExchange(dir, "that"); err == nil {
				t.Fatal("a folder of something else was opened")
			}
			if f, err = OpenFileExchange(dir, "this"); err != nil {
				t.Fatal(err)
			}
			again := &breaking{f, 1000, 0}
			done := -1
			in := PieceInference{Pieces: pieces, Exchange: f, Activations: again, Done: func(i, of int) {
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

// inferredOver returns what Infer has or, where edges lie elsewhere than at their targets, inference over pieces that was not interrupted.
func inferredOver(t *testing.T, m *Model, x *cpu.Exec, params []float32, ds *graph.Dataset, pieces []*Piece) cpu.Matrix[float32] {
	t.Helper()
	want, err := m.Infer(t.Context(), x, params, ds, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if pieces[0].Partial == nil {
		return want
	}
	memory := NewMemoryExchange()
	if err := elsewhere(t, m).InferPieces(t.Context(), x, params, PieceInference{Pieces: pieces, Exchange: memory, Activations: memory}); err != nil {
		t.Fatal(err)
	}
	nearRows(t, memory, pieces, want)
	return outputs(t, memory, pieces)
}

// The same where two places compute pieces: wherever one of them ends, both go on from the layer that it was in.
func TestInferPiecesGoOnTogether(t *testing.T) {
	for name, lie := range map[string]string{"mixhop": "target", "gatv2": "grid"} {
		t.Run(name, func(t *testing.T) { inferPiecesGoOnTogether(t, name, lie) })
	}
}

func inferPiecesGoOnTogether(t *testing.T, name, lie string) {
	ds := testDataset(200, 5, 37, true)
	m := mustModel(t, sized(variants[name], 2, 37, 15, 5), ds.Graph)
	params := randomParams(m, 5)
	execs := []*cpu.Exec{testExec(t, 1, detected(t)), testExec(t, 1, detected(t))}
	pieces := cutEdges(ds, lie, someBorders["3 uneven"]...)
	want := inferredOver(t, m, execs[0], params, ds, pieces)
	own := [][]*Piece{pieces[:1], pieces[1:]}
	for puts, all := 0, 1; puts < all; puts++ {
		dirs := []string{t.TempDir(), t.TempDir()}
		infer := func(puts int) (layers, all int, err error) {
			memory := NewMemoryExchange()
			both, ctx := errgroup.WithContext(t.Context()) // who is waited for in vain ends the other, as an Exchange does
			for place, some := range own {
				f, err := OpenFileExchange(dirs[place], "this")
				if err != nil {
					t.Fatal(err)
				}
				b := &breaking{f, 1000, 0}
				in := PieceInference{Pieces: some, Exchange: memory, Activations: b}
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
			f, err := OpenFileExchange(dirs[place], "this")
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

// liveFileExchange is a FileExchange that finds how much memory is in use when rows come and layers end.
type liveFileExchange struct {
	*FileExchange
	before, most uint64
	uncollected  bool // what nobody uses any more counts, too
}

func (f *liveFileExchange) look() {
	var s runtime.MemStats
	if !f.uncollected {
		runtime.GC()
	}
	runtime.ReadMemStats(&s)
	f.most = max(f.most, s.HeapAlloc-min(f.before, s.HeapAlloc))
}

func (f *liveFileExchange) Receive(ctx context.Context, round string, from, to int, rows []float32) error {
	f.look()
	return f.FileExchange.Receive(ctx, round, from, to, rows)
}

func (f *liveFileExchange) Put(name string, piece int, m cpu.Matrix[float32]) error {
	f.look()
	return f.FileExchange.Put(name, piece, m)
}

// What is said of inference's memory with a folder is what it takes, and not twice that.
func TestInferPiecesMemory(t *testing.T) {
	const n = 10_000
	ds := testDataset(n, 5, 64, false)
	for _, c := range [][2]string{{"gcn", "target"}, {"sage", "target"}, {"gat", "target"}, {"gcn jumping", "target"}, {"gcn", "source"}, {"sage max", "grid"}, {"gat", "source"}} {
		name, pieces := c[0], cutEdges(ds, c[1], 0, 6000, n)
		m := elsewhere(t, mustModel(t, sized(variants[name], 3, 64, 64, 5), ds.Graph))
		f, err := OpenFileExchange(t.TempDir(), "this")
		if err != nil {
			t.Fatal(err)
		}
		live := &liveFileExchange{FileExchange: f}
		live.look()
		live.before, live.most = live.most, 0
		if err := m.InferPieces(t.Context(), testExec(t, 1, detected(t)), randomParams(m, 5), PieceInference{Pieces: pieces, Exchange: live, Activations: live, Chunk: 128}); err != nil {
			t.Fatal(err)
		}
		chunk := uint64(1 << 19) // bytes of what is computed at once
		if strings.HasPrefix(name, "gat") {
			chunk = 1 << 20
		}
		if peak := m.PieceMemory(pieces).Peak; live.most > uint64(peak)+chunk || uint64(peak) > 2*live.most {
			t.Errorf("%s: %d bytes are said, and %d in use", c, peak, live.most)
		}
	}
}

// between is an Exchange that adds up what the first so many pieces and the others send each other in a round.
type between struct {
	Exchange
	here           int
	mu             sync.Mutex
	sent, received map[string]int64
}

func (b *between) Send(ctx context.Context, round string, from, to int, rows []float32) error {
	b.mu.Lock()
	if from < b.here && to >= b.here {
		b.sent[round] += 4 * int64(len(rows))
	} else if from >= b.here && to < b.here {
		b.received[round] += 4 * int64(len(rows))
	}
	b.mu.Unlock()
	return b.Exchange.Send(ctx, round, from, to, rows)
}

// What is said of a round between a place's pieces and others is the most that a round has.
func TestInferPiecesBetween(t *testing.T) {
	const n = 3000
	ds := testDataset(n, 5, 64, false)
	for _, name := range []string{"gcn", "sage", "gat"} {
		pieces := cut(ds, 0, 500, 1800, n)
		m := elsewhere(t, mustModel(t, sized(variants[name], 3, 64, 64, 5), ds.Graph))
		keep := NewMemoryExchange()
		b := &between{Exchange: keep, here: 2, sent: map[string]int64{}, received: map[string]int64{}}
		if err := m.InferPieces(t.Context(), testExec(t, 1, detected(t)), randomParams(m, 5), PieceInference{Pieces: pieces, Exchange: b, Activations: keep}); err != nil {
			t.Fatal(err)
		}
		said := m.PieceMemory(pieces[:2])
		for _, c := range []struct {
			said   int64
			rounds map[string]int64
		}{{said.Sent, b.sent}, {said.Received, b.received}} {
			if most := slices.Max(slices.Collect(maps.Values(c.rounds))); c.said < most || c.said > most*17/16 {
				t.Errorf("%s: %d bytes are said, and %d were sent", name, c.said, most)
			}
		}
	}
}

// What a piece leaves behind is collected before the next is computed, and before a layer's results are made, however late Go's collector comes.
func TestInferPiecesCollects(t *testing.T) {
	const n = 60_000
	ds := testDataset(n, 5, 64, false)
	m := elsewhere(t, mustModel(t, sized(variants["gcn"], 3, 64, 64, 5), ds.Graph))
	pieces := cutEdges(ds, "target", 0, 30_720, n)
	f, err := OpenFileExchange(t.TempDir(), "this")
	if err != nil {
		t.Fatal(err)
	}
	live := &liveFileExchange{FileExchange: f}
	live.look()
	live.before, live.most, live.uncollected = live.most, 0, true
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if err := m.InferPieces(t.Context(), testExec(t, 1, detected(t)), randomParams(m, 5), PieceInference{Pieces: pieces, Exchange: live, Activations: live}); err != nil {
		t.Fatal(err)
	}
	const beside = 8 << 20 // chunks, and values that a file is read to before they are compared
	peak := m.PieceMemory(pieces).Peak
	t.Logf("%.1f MB are said, and %.1f were allocated", float64(peak)/1e6, float64(live.most)/1e6)
	if live.most > uint64(peak)+beside {
		t.Errorf("%d bytes are said, and %d were allocated", peak, live.most)
	}
}
