package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/parts"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/training"
)

// spread is a training.Spread that stays as it is.
type spread struct {
	*parts.Exchange
	open map[int]*store.Piece
	mine []int
}

func (s *spread) Mine() []int              { return s.mine }
func (s *spread) Piece(i int) *store.Piece { return s.open[i] }
func (s *spread) Better() bool             { return false }
func (s *spread) Keep([]byte)              {}
func (s *spread) Kept() []byte             { return nil }

// result is what one node has of a training, and of inference with what was learnt.
type result struct {
	losses  []float64
	params  string
	valid   runtime.Metrics
	outputs map[uint32][]float32
	sent    []int64
}

// computeSet trains on global batches and infers.
func computeSet(ctx context.Context, cfg runtime.Config, scratch string) (r result, err error) {
	d, err := runtime.OpenDivided(ctx, cfg)
	if err != nil {
		return r, err
	}
	defer d.Close()
	if err := d.Train(ctx, func(_ int, loss, _ float64) error { r.losses = append(r.losses, loss); return nil }); err != nil {
		return r, err
	}
	r.params, r.outputs = d.ParametersSHA256(), map[uint32][]float32{}
	o, err := d.Infer(ctx, scratch, nil)
	if err != nil {
		return r, err
	}
	r.sent = o.Sent
	if r.valid, err = o.Evaluate(ctx, 1); err != nil {
		return r, err
	}
	// Every node is somewhere, under its name, and none is called "nobody".
	if here, err := o.Find(ctx, []string{"5", " 7"}); err != nil || !d.Spreads() && !slices.Equal(here, []uint32{5, 7}) {
		return r, fmt.Errorf("5 and 7 are %v here: %w", here, err)
	}
	if _, err := o.Find(ctx, []string{"5", "nobody"}); !errors.Is(err, runtime.ErrNode) {
		return r, fmt.Errorf("nobody was found: %w", err)
	}
	if err := o.Rendezvous(ctx); err != nil {
		return r, err
	}
	return r, o.Pieces(func(_ int, ids []uint32, rows cpu.Matrix[float32]) error {
		for i, v := range ids {
			r.outputs[v] = slices.Clone(rows.Row(i))
		}
		return nil
	})
}

// spreadOver is computeSet of a set on nodes, which compute the pieces that placed names, and the bytes in frames that went between them.
func spreadOver(t *testing.T, cfg runtime.Config, placed []string, first func(p *dataplane.Plane, cfg *runtime.Config)) (results []result, framed int64, errs []error) {
	t.Helper()
	set, err := pieces.Open(cfg.Data.Path)
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Compact(slices.Sorted(slices.Values(placed)))
	var planes []*dataplane.Plane
	for _, name := range names {
		p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: name, Listen: "127.0.0.1:0", DialTimeout: time.Minute, PingTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		planes = append(planes, p)
	}
	results = make([]result, len(names))
	errs = make([]error, len(names))
	var all sync.WaitGroup
	servers := make([]*parts.Exchanges, len(planes))
	for i, p := range planes {
		servers[i] = parts.ServeExchanges(p)
	}
	for i, p := range planes {
		for _, q := range planes {
			if p != q {
				p.SetPeer(q.Node(), q.Address())
			}
		}
		e, err := servers[i].Open(parts.ExchangeOptions{Name: "test", Nodes: placed})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close(nil)
		s := &spread{Exchange: e, open: map[int]*store.Piece{}}
		for k, node := range placed {
			if node != p.Node() {
				continue
			}
			piece, err := set.OpenPiece(k)
			if err != nil {
				t.Fatal(err)
			}
			defer piece.Close()
			s.mine, s.open[k] = append(s.mine, k), piece
		}
		cfg := cfg
		cfg.Cluster.Spread = s
		scratch := ""
		if i%2 == 1 {
			scratch = t.TempDir()
		}
		all.Go(func() {
			if first != nil {
				first(p, &cfg)
			}
			if results[i], errs[i] = computeSet(t.Context(), cfg, scratch); errs[i] != nil {
				e.Close(errs[i])
			}
		})
	}
	all.Wait()
	for _, p := range planes {
		for _, s := range p.Traffic() {
			framed += s.Header + s.Bulk
		}
	}
	return results, framed, errs
}

// spreadConfig is a short run over the set in dir.
func spreadConfig(dir, model string) runtime.Config {
	c := runtime.DefaultConfig()
	c.Data.Path, c.Data.Verify, c.Model.Name, c.Model.Hidden = dir, false, model, 16
	c.Sampling.Sampler, c.Sampling.Fanouts, c.Training.Epochs, c.Execution.Threads = "full", nil, 2, 1
	if model == "gin" {
		c.Model.Norm = "batch"
	}
	return c
}

// dividedBlocks divides a block model, with edges at their targets.
func dividedBlocks(t *testing.T, whole string, method string, n int) string {
	t.Helper()
	return dividedInto(t, whole, pieces.Options{Method: method, Pieces: n})
}

func dividedInto(t *testing.T, whole string, o pieces.Options) string {
	t.Helper()
	set := filepath.Join(t.TempDir(), "set")
	err := store.View(whole, func(s *store.Store) error {
		_, err := pieces.Create(t.Context(), set, s, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func blocks(t *testing.T) string {
	t.Helper()
	return blocksOf(t, 9000)
}

func blocksOf(t *testing.T, nodes int) string {
	t.Helper()
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: nodes, Classes: 4, AvgDegree: 6, Homophily: 0.8, FeatureDim: 8, Signal: 0.5, TrainFraction: 0.1, ValidFraction: 0.05, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(t.TempDir(), "store")
	ds.Fingerprint = ""
	if err := store.Create(t.Context(), whole, ds); err != nil {
		t.Fatal(err)
	}
	return whole
}

// Global batches and such of whole neighbourhoods, exact inference and evaluation over 1, 2, 3, 4 and 8 pieces, wherever edges lie, on 1, 2 and 4 nodes, placed by chance, have the bits of one process
// on the same pieces: losses, parameters, metrics, and the outputs of every node, each at one node.
func TestSpread(t *testing.T) {
	t.Parallel()
	whole := blocks(t)
	r := rand.New(rand.NewPCG(7, 8))
	models := []string{"gcn", "sage", "gat", "gin"}
	for turn, cut := range []struct {
		n     int
		edges string
	}{{2, ""}, {3, ""}, {4, ""}, {8, ""}, {1, ""}, {8, pieces.EdgesOnGrid}, {4, pieces.EdgesOnGrid}, {3, pieces.EdgesAtSource}, {2, pieces.EdgesAtSource}, {1, pieces.EdgesOnGrid}} {
		n := cut.n
		set := dividedInto(t, whole, pieces.Options{Method: []string{"contiguous", "hash"}[turn%2], Pieces: n, Edges: cut.edges})
		for _, nodes := range []int{2, 4, 1} {
			if nodes > n || nodes == 1 && n > 1 {
				continue
			}
			model := models[0]
			models = append(models[1:], model)
			hybrid := (turn+nodes)%2 == 0 && model != "gin" // which has batch norm
			placed := make([]string, n)
			for k, i := range r.Perm(n) {
				if placed[k] = fmt.Sprint("n", r.IntN(nodes)); i < nodes {
					placed[k] = fmt.Sprint("n", i)
				}
			}
			t.Run(fmt.Sprintf("%s over %v %s hybrid=%v", model, placed, cut.edges, hybrid), func(t *testing.T) {
				cfg := spreadConfig(set, model)
				if hybrid {
					cfg.Sampling.Sampler, cfg.Sampling.Hybrid, cfg.Sampling.BatchSize = "khop", true, 300
					cfg.Training.Sync, cfg.Execution.Trainers = runtime.SSP(turn%3), 1 // as many batches in flight as may be late, or one
				}
				want, err := computeSet(t.Context(), cfg, "")
				if err != nil {
					t.Fatal(err)
				}
				cfg.Training.Recompute, cfg.Execution.Trainers = turn/2%2 == 1, 0 // which no bit depends on
				results, _, errs := spreadOver(t, cfg, placed, nil)
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				outputs := map[uint32]bool{}
				sent := make([]int64, len(want.sent))
				for i, got := range results {
					if !slices.Equal(got.losses, want.losses) || got.params != want.params || got.valid != want.valid {
						t.Errorf("node %d has losses %v, parameters %.8s and %+v; want %v, %.8s and %+v", i, got.losses, got.params, got.valid, want.losses, want.params, want.valid)
					}
					for v, row := range got.outputs {
						if outputs[v] || !slices.Equal(row, want.outputs[v]) {
							t.Fatalf("node %d: the outputs of %d differ, or are at two nodes", i, v)
						}
						outputs[v] = true
					}
					for l := range sent {
						sent[l] += got.sent[l]
					}
				}
				if len(outputs) != len(want.outputs) || !slices.Equal(sent, want.sent) {
					t.Errorf("%d outputs for %d, with %v bytes sent for %v", len(outputs), len(want.outputs), sent, want.sent)
				}
			})
		}
	}
}

// activePairs returns, of each of a model's layers, how many pairs there are of a node and a piece elsewhere that sums its row, or sums for it, for
// outputs of targets: found with what all pieces have in one place.
func activePairs(t *testing.T, set *pieces.Set, targets []uint32, layers int) (pairs []int64) {
	t.Helper()
	active := map[uint32]bool{}
	for _, v := range targets {
		active[v] = true
	}
	pairs = make([]int64, layers)
	for l := layers - 1; l >= 0; l-- {
		next := maps.Clone(active)
		for i := range set.Pieces() {
			p, err := set.OpenPiece(i)
			if err != nil {
				t.Fatal(err)
			}
			read := map[uint32]bool{}
			for row := range p.In.NumNodes() {
				v := uint32(p.Of.First) + uint32(row)
				if row >= p.Masters {
					v = p.Targets[row-p.Masters]
				}
				if !active[v] {
					continue
				}
				if row >= p.Masters {
					pairs[l]++
				}
				for _, u := range p.In.InNeighbors(uint32(row)) {
					if int(u) < p.Masters {
						next[uint32(p.Of.First)+u] = true
					} else {
						next[p.Sources[int(u)-p.Masters]], read[u] = true, true
					}
				}
			}
			pairs[l] += int64(len(read))
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		active = next
	}
	return pairs
}

// What goes between nodes is a row for each pair of a master and a piece elsewhere that reads it for outputs with loss, forward and its gradient backward,
// for each layer of each step, and 2 % beside it, with gradients of parameters and figures. Of features that are dropped anew in each step, but aggregated
// as they are, each row goes once.
//
// Where edges lie elsewhere, so does what is summed for a target elsewhere, and its gradient.
func TestSpreadBytes(t *testing.T) {
	whole := blocks(t)
	for _, edges := range []string{pieces.EdgesAtTarget, pieces.EdgesAtSource} {
		t.Run(edges, func(t *testing.T) { spreadBytes(t, whole, edges, false) })
	}
	t.Run("hybrid", func(t *testing.T) { spreadBytes(t, blocksOf(t, 27000), pieces.EdgesAtTarget, true) })
}

func spreadBytes(t *testing.T, whole, edges string, hybrid bool) {
	cfg := spreadConfig(dividedInto(t, whole, pieces.Options{Method: "hash", Pieces: 3, Edges: edges}), "gcn")
	cfg.Training.Epochs = 4
	if hybrid {
		cfg.Sampling.Sampler, cfg.Sampling.Hybrid, cfg.Sampling.BatchSize = "khop", true, 900
	}
	set, err := pieces.Open(cfg.Data.Path)
	if err != nil {
		t.Fatal(err)
	}
	pairs, told := int64(0), int64(0)
	for _, p := range set.Pieces() {
		if pairs += p.Sources; edges != pieces.EdgesAtTarget {
			pairs, told = pairs+p.Targets, told+2*(p.Sources+p.Targets)+2*4*p.Targets // ids, and degrees as two numbers of 8 bytes, twice
		}
	}
	_, framed, errs := spreadOver(t, cfg, []string{"n0", "n1", "n2"}, nil)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	train, err := set.Split(0)
	if err != nil {
		t.Fatal(err)
	}
	active := activePairs(t, set, train, 2)
	if 2*active[1] > pairs || active[1] > active[0] {
		t.Fatalf("%d of %d pairs are active", active, pairs)
	}
	// Layers send 8 features, whose gradient nobody needs and which cross once where edges lie with their targets, and 4 products; inference sends all rows, once; factors are a value, twice; the validation nodes' outputs and
	// labels go to two nodes.
	steps := int64(4)
	parameters := int64(8*16 + 16 + 16*4 + 4)
	valid, err := set.Split(1)
	if err != nil {
		t.Fatal(err)
	}
	if hybrid { // each step has other active pairs, which are told of by a bit for each pair and layer
		per := int64(sampling.NumBatches(len(train), cfg.Sampling.BatchSize))
		if per < 2 {
			t.Fatalf("%d training nodes are one batch", len(train))
		}
		sum := []int64{0, 0}
		for epoch := range steps {
			order := sampling.Order(train, cfg.Training.Seed, int(epoch))
			for batch := range per {
				for l, n := range activePairs(t, set, sampling.Cut(order, cfg.Sampling.BatchSize, 1, int(batch), 0), 2) {
					sum[l] += n
				}
			}
		}
		steps *= per
		told += steps * 2 * pairs / 32
		active[0], active[1] = sum[0]/steps, sum[1]/steps
	}
	features := 8 * pairs
	if edges != pieces.EdgesAtTarget {
		features = 8 * active[0] * steps
	}
	want := 4*features + 4*(4+4)*active[1]*steps + 4*pairs*(8+4) + 2*4*pairs + 4*told + steps*4*4*parameters + 2*4*5*int64(len(valid))
	if low, high := float64(want), 1.02*float64(want); float64(framed) < low || float64(framed) > high {
		t.Errorf("%d bytes went between nodes, %.4f of the %d expected", framed, float64(framed)/low, want)
	}
}

// A node that is gone ends the others at once, with an error that names it and its pieces, and so does one that has other parameters.
func TestSpreadLost(t *testing.T) {
	cfg := spreadConfig(dividedBlocks(t, blocks(t), "hash", 3), "gcn")
	_, _, errs := spreadOver(t, cfg, []string{"n0", "n1", "n0"}, func(p *dataplane.Plane, _ *runtime.Config) {
		if p.Node() == "n1" {
			p.Close()
		}
	})
	if !errors.Is(errs[0], parts.ErrLost) || !strings.Contains(errs[0].Error(), "node n1, which computes the pieces [1]") {
		t.Errorf("a node that is gone: %v", errs[0])
	}
	_, _, errs = spreadOver(t, cfg, []string{"n0", "n1", "n0"}, func(p *dataplane.Plane, cfg *runtime.Config) {
		if p.Node() == "n1" {
			cfg.Training.Seed++
		}
	})
	if !strings.Contains(errors.Join(errs...).Error(), "is computed with other parameters or settings than here") {
		t.Errorf("nodes with other parameters: %v", errs)
	}
}

// Nodes of a cluster agree on who computes which piece, by where pieces are, and anew when one fails; all end when all are done, those without
// any piece, too.
func TestSpreadAgreed(t *testing.T) {
	cfg := spreadConfig(dividedBlocks(t, blocks(t), "contiguous", 3), "gin")
	want, err := computeSet(t.Context(), cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	s := membership.NewMemStore()
	defer s.Close()
	dirs := deal(t, rand.New(rand.NewPCG(3, 4)), cfg.Data.Path, 4)
	var nodes []*node
	var held []*parts.Parts
	for i, dir := range dirs {
		nodes = append(nodes, enter(t, s, fmt.Sprint("n", i), 4, len(dirs)))
		held = append(held, nodes[i].holdParts(t, dir, commonOf(t, cfg.Data.Path), len(dirs)))
	}
	for _, x := range nodes {
		for _, y := range nodes {
			x.plane.SetPeer(y.plane.Node(), y.plane.Address())
		}
	}
	ctx, stop := context.WithCancel(t.Context()) // of all, when one fails
	defer stop()
	var all sync.WaitGroup
	computed := make([]int, len(nodes))
	for i, p := range held {
		all.Go(func() {
			for failed := false; ; {
				spread, err := p.Spread(ctx)
				if err != nil {
					t.Error(err)
					stop()
					return
				}
				if computed[i] = len(spread.Mine()); computed[i] > 0 {
					if !failed && slices.Contains(spread.Mine(), 1) {
						failed = true
						spread.Close(parts.ErrLost)
					}
					cfg := cfg
					cfg.Data.Path, cfg.Cluster.Spread = dirs[i], spread
					var got result
					if got, err = computeSet(ctx, cfg, ""); err == nil && (!slices.Equal(got.losses, want.losses) || got.params != want.params || got.valid != want.valid) {
						t.Errorf("node %d has losses %v, parameters %.8s and %+v; want %v, %.8s and %+v", i, got.losses, got.params, got.valid, want.losses, want.params, want.valid)
					}
				}
				if err == nil {
					err = spread.Done(ctx)
				}
				if spread.Close(err); err == nil {
					return
				}
				if !errors.Is(err, parts.ErrLost) && !errors.Is(err, training.ErrMoves) {
					t.Error(err)
					stop()
					return
				}
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range computed {
		sum += n
	}
	if sum != 3 {
		t.Errorf("nodes computed %v of 3 pieces", computed)
	}
	leaveParts(t, nodes, held)
}
