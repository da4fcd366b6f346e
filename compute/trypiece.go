package compute

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// PieceSizes are the sizes of a piece that its part in a gradient depends on.
type PieceSizes struct {
	Masters, Others int // nodes: its own, and those of other pieces that its edges come from
	Entries         int // edges
	Sent            int // rows that other pieces read, counted once for each
	Targets         int // masters that carry loss
	Mean            int // masters of a mean piece of the set that this one stands for, by which pieces choose how rows cross

	// Degrees of the whole graph's nodes, as nodes with many edges stay in caches; nil: all are alike.
	In, Out []graph.DegreeClass
}

// PieceTrial is what a gradient took of a piece that is not the first.
type PieceTrial struct {
	Bytes             int64         // that the piece's engine holds from one step to the next, messages not counted
	Shared            int64         // of these, what trainers beside hold no other of
	Spills            int64         // of these, what lies in files where there is a directory for them
	slack             int64         // of these, and of Spills, what arenas allocated beside what was asked of them
	Forward, Backward time.Duration // without waiting for other pieces
	Rows              []SentRows    // in the order in which they are sent
	Inputs            int           // values of rows of features that cross each border before the first step
	Told              int           // values that it says to each other piece besides, in a step: of batch norms
}

// SentRows are rows of values that cross each border in a step.
type SentRows struct {
	Layer int
	Back  bool // gradients, from who reads a row to its master; else from the master to each that reads it
	Width int  // values of a row
}

// TryPieces computes gradients of random pieces of the given sizes by themselves, whose other nodes' values are zeros, with a
// random table of m's width whose values are not zero in the share nonZero, each steps times after one that is not measured: the
// least time counts. again: with PieceTrainer.Recompute. m is bound to graph.Elsewhere, of a whole graph's size, which decides in which order products are made. It holds no more than one piece at a time.
func (m *Model) TryPieces(ctx context.Context, x func() *cpu.Exec, nonZero float64, again bool, steps int, sizes ...PieceSizes) (trials []PieceTrial, err error) {
	for _, s := range sizes {
		t, err := m.tryPiece(ctx, x, nonZero, again, steps, s)
		if err != nil {
			return nil, fmt.Errorf("compute: trying a piece of %d nodes, %d others and %d edges: %w", s.Masters, s.Others, s.Entries, err)
		}
		trials = append(trials, t)
	}
	return trials, nil
}

// PieceBytes returns the bytes of a PieceTrial of size s, of Recompute if again, within a twentieth for all but small ones: two smaller pieces of its
// proportions are tried, as bytes are linear in sizes.
func (m *Model) PieceBytes(ctx context.Context, x func() *cpu.Exec, nonZero float64, again bool, s PieceSizes) (of PieceTrial, err error) {
	parts := m.parts(int64(s.Masters + s.Others + s.Entries))
	small := func(times int64) PieceSizes {
		share := func(n int) int { return int((int64(n)*times + parts - 1) / parts) }
		return PieceSizes{Masters: share(s.Masters), Others: share(s.Others), Entries: share(s.Entries), Sent: share(s.Sent), Targets: share(s.Targets), Mean: s.Mean, In: s.In, Out: s.Out}
	}
	trials, err := m.TryPieces(ctx, x, nonZero, again, 0, small(1), small(2))
	if err != nil {
		return of, err
	}
	one, two := &trials[0], &trials[1]
	whole := func(one, two int64) int64 { return one + (two-one)*(parts-1) }
	return PieceTrial{
		Bytes: whole(one.Bytes-one.slack, two.Bytes-two.slack), Shared: whole(one.Shared, two.Shared), Spills: whole(one.Spills-one.slack, two.Spills-two.slack),
	}, nil
}

func (m *Model) tryPiece(ctx context.Context, x func() *cpu.Exec, nonZero float64, again bool, steps int, s PieceSizes) (trial PieceTrial, err error) {
	if s.Masters < 1 || s.Others < 0 || s.Entries < 0 || s.Sent < 0 || s.Targets < 0 || s.Targets > s.Masters {
		return trial, errors.New("a piece needs a node, and no more targets than nodes")
	}
	p := randomPiece(s, float64(m.nodes)/float64(max(s.Mean, 1)), m.spec.InDim, nonZero)
	alone := &alone{sent: map[string]int{}}
	t, err := newPieceTrainer(ctx, m.onGraphs, x, []*Piece{p}, alone, "")
	if err != nil {
		return trial, err
	}
	defer t.Close()
	e := t.engines[0]
	e.halo.mean = max(s.Mean, 1)
	if maySparse(m.nodes, m.spec.InDim) && nonZero*sparseShare <= 1 { // by the share, as of all pieces: this one's values alone are few in a large graph
		e.core.model.sparse = cpu.NewSparse(p.Features)
	}
	if again {
		t.Recompute()
	}
	batch := PieceBatch{Targets: make([]uint32, s.Targets), Labels: make([]int32, s.Targets)}
	for i := range batch.Targets {
		batch.Targets[i], batch.Labels[i] = uint32(i), int32(i%m.spec.OutDim)
	}
	if err := t.Use(ctx, func(int) PieceBatch { return batch }); err != nil {
		return trial, err
	}
	params := m.Init(1)
	for i := range steps + 1 {
		clear(alone.sent)
		alone.order = alone.order[:0]
		if _, _, err := t.Gradient(ctx, params, rng.New(uint64(i))); err != nil {
			return trial, err
		}
		if i == 0 || i == 1 || e.forward < trial.Forward {
			trial.Forward = e.forward
		}
		if i == 0 || i == 1 || e.backward < trial.Backward {
			trial.Backward = e.backward
		}
	}
	trial.Bytes, trial.Shared = t.Bytes(), t.Shared()
	mem := &e.core.tape.mem
	trial.Spills, trial.slack = trial.Shared+4*int64(mem.Cap()), 4*int64(mem.Cap()-mem.asked)
	if e.halo.knows {
		trial.Inputs = m.spec.InDim
	}
	for _, round := range alone.order {
		var step, l, k int
		name, back := strings.CutPrefix(round, "back-")
		if _, err := fmt.Sscanf(name, "step-%d-layer-%d-%d", &step, &l, &k); err != nil {
			trial.Told += alone.sent[round]
			continue
		}
		reads, rows := e.halo.active[l].sources.pairs()
		if back {
			rows = reads
		}
		trial.Rows = append(trial.Rows, SentRows{Layer: l, Back: back, Width: alone.sent[round] / rows})
	}
	return trial, nil
}

// randomPiece is piece 0 of two, with random edges, of a graph that was cut into so many. Its masters are a sample of the graph's nodes; a node of other pieces is more likely
// to be read here the more edges it has.
func randomPiece(s PieceSizes, pieces float64, cols int, nonZero float64) *Piece {
	key := rng.New(uint64(s.Masters))
	p := &Piece{Masters: s.Masters, Borders: []uint32{0, uint32(s.Masters), uint32(s.Masters + max(s.Others, 1))}, Sources: Mirrors{Reads: []int{0, 0, s.Others}, Sends: make([][]uint32, 2)}}
	for i := range s.Others {
		p.Sources.IDs = append(p.Sources.IDs, uint32(s.Masters+i))
	}
	for i := range s.Sent {
		p.Sources.Sends[1] = append(p.Sources.Sends[1], uint32(i%s.Masters))
	}
	sample := func(float64) float64 { return 1 }
	read := func(degree float64) float64 { return -math.Expm1(-degree / pieces) }
	p.In = &graph.Graph{Indptr: divide(s.Entries, degrees(s.In, s.Masters, sample, key.With(2))), Indices: make([]uint32, s.Entries)}
	from := divide(s.Entries, slices.Concat(degrees(s.Out, s.Masters, sample, key.With(3)), degrees(s.Out, s.Others, read, key.With(4))))
	for v := range len(from) - 1 {
		for k := from[v]; k < from[v+1]; k++ {
			p.In.Indices[k] = uint32(v)
		}
	}
	key.With(5).Shuffle(p.In.Indices)
	of, value := key.With(0), key.With(1)
	x := make([]float32, s.Masters*cols)
	for i := range x {
		if of.Float64(uint64(i)) < nonZero {
			x[i] = float32(value.Float64(uint64(i))) - 0.5
		}
	}
	p.Features = graph.NewFeatures(s.Masters, cols, x)
	return p
}

// degrees draws those of n nodes in a piece: a node of the classes is one of them in the share kept of its degree, and then has the more edges for it, so that all
// such nodes together have theirs. They are ones where there are no classes.
func degrees(classes []graph.DegreeClass, n int, kept func(degree float64) float64, key rng.Key) []float64 {
	cumulative, of := make([]float64, len(classes)), make([]float64, len(classes))
	sum := 0.0
	for k, c := range classes {
		if c.Nodes > 0 {
			of[k] = float64(c.Edges) / float64(c.Nodes)
			sum += float64(c.Nodes) * kept(of[k])
		}
		cumulative[k] = sum
	}
	drawn := make([]float64, n)
	for i := range drawn {
		if drawn[i] = 1; sum > 0 {
			k := sort.SearchFloat64s(cumulative, sum*key.Open(uint64(i)))
			d := max(of[min(k, len(of)-1)], 1e-6) // weights have a sum
			drawn[i] = d / kept(d)
		}
	}
	return drawn
}

// divide returns where each one's part of n begins, in proportion to weights, and n.
func divide(n int, weights []float64) []int64 {
	sum, from := 0.0, make([]int64, len(weights)+1)
	for _, w := range weights {
		sum += w
	}
	at := 0.0
	for i, w := range weights {
		at += w
		from[i+1] = int64(float64(n) * (at / sum))
	}
	from[len(weights)] = int64(n)
	return from
}

// alone is an Exchange of a piece with nobody: what it sends is counted, what it receives are zeros. As large a share of its rows is active as it says
// of the others'.
type alone struct {
	mu    sync.Mutex
	order []string
	sent  map[string]int // values
	share float64        // of flags that were told last
}

func (a *alone) Send(_ context.Context, round string, _, _ int, rows []float32) error {
	round, _, _ = strings.Cut(round, ".") // all of its messages
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.sent[round]; !known {
		a.order = append(a.order, round)
	}
	a.sent[round] += len(rows)
	if set := 0; strings.HasPrefix(round, "active-") {
		for _, w := range rows {
			set += bits.OnesCount32(math.Float32bits(w))
		}
		a.share = float64(set) / float64(32*len(rows))
	}
	return nil
}

func (a *alone) Receive(_ context.Context, round string, _, _ int, rows []float32) error {
	if !strings.HasPrefix(round, "active-") {
		return nil
	}
	for i, left := 0, int(math.Ceil(32*float64(len(rows))*a.share)); i < len(rows); i, left = i+1, max(left-32, 0) { // as hear has them
		rows[i] = math.Float32frombits(uint32(1<<min(left, 32) - 1))
	}
	return nil
}
