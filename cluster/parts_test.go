package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/parts"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/sampling"
)

// partsConfig is a short run.
func partsConfig(model, sampler string) runtime.Config {
	c := clusterConfig()
	c.Model.Name, c.Model.Hidden, c.Sampling.Sampler, c.Sampling.Fanouts = model, 8, sampler, []int{4, 4}
	c.Sampling.MicroBatches, c.Training.EvalEvery, c.Data.Verify = 4, 0, false
	if model == "gat" {
		c.Model.Heads = 2
	}
	return c
}

// deal copies a partition set to directories of so many nodes, each piece to one or two of them, by chance, and its description to all.
func deal(t *testing.T, r *rand.Rand, from string, nodes int) (dirs []string) {
	t.Helper()
	set, err := pieces.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	for range nodes {
		dir := t.TempDir()
		dirs = append(dirs, dir)
		for _, f := range pieces.Files() {
			b, err := os.ReadFile(filepath.Join(from, f))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, f), b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range set.Pieces() {
		for range 1 + r.IntN(2) {
			to := filepath.Join(dirs[r.IntN(nodes)], filepath.Base(set.PieceDir(i)))
			if _, err := os.Stat(to); err == nil {
				continue
			}
			if err := os.CopyFS(to, os.DirFS(set.PieceDir(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dirs
}

// commonOf says what is alike of a set's pieces.
func commonOf(t *testing.T, dir string) pieces.Common {
	t.Helper()
	set, err := pieces.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := set.OpenPiece(0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	common, err := pieces.CommonOf(p)
	if err != nil {
		t.Fatal(err)
	}
	return common
}

// holdParts makes a node hold its share of the set in dir.
func (n *node) holdParts(t *testing.T, dir string, common pieces.Common, least int) *parts.Parts {
	t.Helper()
	set, err := pieces.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parts.Hold(t.Context(), parts.Options{
		Member: n.member, Plane: n.plane, Files: dataplane.ServeDirectories(n.plane), Set: set, Common: common, Replicas: 1, MinNodes: least,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// partsKinds are runs by models and samplers.
func partsKinds() (all []runtime.Config) {
	for _, k := range []struct {
		model, sampler string
		fanouts        []int
		options        map[string]string
	}{
		{"gcn", "neighbor", []int{4, 4}, nil},
		{"sage", "khop", nil, nil},
		{"gat", "labor", []int{4, 4}, nil},
		{"gin", "neighbor", []int{4, 4}, map[string]string{"replace": "true"}},
		{"sage", "neighbor", []int{4, 3}, map[string]string{"temporal": "true"}},
		{"gcn", "walk", nil, map[string]string{"roots": "30", "walk-length": "3"}},
		{"sage", "pinsage", []int{4, 4}, map[string]string{"walks": "4"}},
		{"gcn", "fastgcn", []int{200, 200}, nil},
		{"gat", "gns", []int{4, 4}, map[string]string{"cache-fraction": "0.1"}},
		{"gcn", "cluster", nil, map[string]string{"clusters": "24", "partition-by": "contiguous", "boundary": "true"}},
	} {
		c := partsConfig(k.model, k.sampler)
		c.Sampling.Fanouts, c.Sampling.Options = k.fanouts, k.options
		all = append(all, c)
	}
	return all
}

// A run on a partition set comes to the bits of one process on the store that the set was made of, for any number of pieces on any
// nodes: a node that lacks a piece that it is to hold copies it, none opens more than those, and questions go to who holds the rows, one for
// each hop and node. Which sampler is tried on which pieces is drawn; each is on several nodes at least once.
func TestParts(t *testing.T) {
	t.Parallel()
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 5000, Classes: 4, AvgDegree: 6, Homophily: 0.8, FeatureDim: 8, Signal: 0.5, TrainFraction: 0.024, ValidFraction: 0.01, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(t.TempDir(), "store")
	for v := range ds.Graph.NumNodes() {
		ds.NodeTimes = append(ds.NodeTimes, int64(v*37%100))
	}
	ds.Fingerprint = ""
	if err := store.Create(t.Context(), whole, ds); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	kinds := partsKinds()
	want := make([]string, len(kinds))
	for k, c := range kinds {
		c.Data.Path = whole
		if want[k], err = trainOn(t.Context(), c, nil); err != nil {
			t.Fatal(err)
		}
	}
	turns := r.Perm(len(kinds))
	for _, n := range []int{1, 2, 3, 4, 8} {
		set := filepath.Join(t.TempDir(), "set")
		err := store.View(whole, func(s *store.Store) error {
			_, err := pieces.Create(t.Context(), set, s, pieces.Options{Method: "contiguous", Pieces: n})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, nodes := range []int{1, 2, 4} {
			var k int
			if nodes == 1 || len(turns) == 0 {
				k = r.IntN(len(kinds))
			} else {
				k, turns = turns[0], turns[1:]
			}
			c := kinds[k]
			t.Run(fmt.Sprintf("%d pieces on %d nodes, %s by %s %v", n, nodes, c.Model.Name, c.Sampling.Sampler, c.Sampling.Options), func(t *testing.T) {
				trainOnParts(t, deal(t, r, set, nodes), commonOf(t, set), c, want[k])
			})
		}
	}
}

func trainOnParts(t *testing.T, dirs []string, common pieces.Common, c runtime.Config, want string) {
	t.Helper()
	s := membership.NewMemStore()
	defer s.Close()
	var nodes []*node
	for i := range dirs {
		nodes = append(nodes, enter(t, s, fmt.Sprint("n", i), 4, len(dirs)))
	}
	var wg sync.WaitGroup
	held := make([]*parts.Parts, len(dirs))
	for i, x := range nodes {
		held[i] = x.holdParts(t, dirs[i], common, len(dirs))
	}
	for i, x := range nodes {
		wg.Go(func() {
			if err := held[i].Ready(t.Context()); err != nil {
				t.Error(err)
				return
			}
			c := c
			c.Cluster.Peers, c.Cluster.Parts, c.Data.Path = x.team, held[i], dirs[i]
			got, err := trainOn(t.Context(), c, nil)
			if err != nil || got != want {
				t.Errorf("node %d: the parameters differ, or %v", i, err)
			}
		})
	}
	wg.Wait()
	open := 0
	for _, p := range held {
		open += len(p.Stores())
	}
	if n := len(held[0].Set().Pieces()); open != n {
		t.Errorf("%d pieces are open, and there are %d", open, n)
	}
	leaveParts(t, nodes, held)
}

// leaveParts has nodes leave with what they hold of a partition set.
func leaveParts(t *testing.T, nodes []*node, held []*parts.Parts) {
	t.Helper()
	for _, p := range held {
		p.Interrupt()
		if err := p.Keeper().Close(); err != nil {
			t.Error(err)
		}
	}
	for i, x := range nodes {
		x.exit(t)
		if err := held[i].Close(); err != nil {
			t.Error(err)
		}
	}
}

// holdAll makes a set of so many pieces of a block model, and deals it to so many nodes, which hold their shares.
func holdAll(t *testing.T, n, nodes int, evaluated bool) ([]*node, []*parts.Parts) {
	t.Helper()
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 5000, Classes: 4, AvgDegree: 6, Homophily: 0.8, FeatureDim: 8, Signal: 0.5, TrainFraction: 0.03, ValidFraction: 0.01, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	whole, set := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "set")
	if ds.Fingerprint = ""; !evaluated {
		ds.Valid, ds.Test = nil, nil
	}
	if err := store.Create(t.Context(), whole, ds); err != nil {
		t.Fatal(err)
	}
	err = store.View(whole, func(s *store.Store) error {
		_, err := pieces.Create(t.Context(), set, s, pieces.Options{Method: "contiguous", Pieces: n})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := membership.NewMemStore()
	t.Cleanup(s.Close)
	dirs, common := deal(t, rand.New(rand.NewPCG(7, 8)), set, nodes), commonOf(t, set)
	var all []*node
	var held []*parts.Parts
	for i := range dirs {
		x := enter(t, s, fmt.Sprint("n", i), 4, nodes)
		all, held = append(all, x), append(held, x.holdParts(t, dirs[i], common, nodes))
	}
	for _, p := range held {
		if err := p.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for i, x := range all {
			held[i].Interrupt()
			if err := held[i].Keeper().Close(); err != nil {
				t.Error(err)
			}
			x.exit(t)
			if err := held[i].Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return all, held
}

// bulk returns how many messages of a type a plane sent, and what they carried.
func bulk(p *dataplane.Plane, what string) (count, bytes int64) {
	for _, s := range p.Traffic() {
		if s.Type == what {
			return s.Count, s.Bulk
		}
	}
	return 0, 0
}

// A hop, and a step of walks, is one request to each node that holds rows of it: a hop's is of 2 bytes for each row that lies there and a few beside; the
// rows of features of a batch are one, of 4 bytes each, and come as they are.
func TestPartsBytes(t *testing.T) {
	nodes, held := holdAll(t, 5, 3, true)
	spec := sampling.Spec{Name: "neighbor", Fanouts: []int{4, 3}}
	var o sampling.Owners
	for i := range nodes {
		x, err := held[i].Owners(t.Context(), spec, 1)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			o = x
		}
	}
	n := held[0].Set().NumNodes()
	p, err := sampling.PrepareDivided(t.Context(), spec, &graph.Dataset{Graph: graph.Elsewhere(n, 1<<30)}, false, o)
	if err != nil {
		t.Fatal(err)
	}
	b := sampling.Batch{ID: sampling.ID{Phase: "train"}}
	seeds := make([]uint32, 100)
	for i := range seeds {
		seeds[i] = uint32(i * 49)
	}
	if err := p.NewSampler().Sample(&b, b.ID.Key(1), seeds); err != nil {
		t.Fatal(err)
	}
	drawn, drawnBytes := bulk(nodes[0].plane, "rows of edges")
	walks := sampling.Spec{Name: "pinsage", Fanouts: []int{4, 3}, WalkLength: 5}
	of, err := sampling.PrepareDivided(t.Context(), walks, &graph.Dataset{Graph: graph.Elsewhere(n, 1<<30)}, false, o)
	if err != nil {
		t.Fatal(err)
	}
	var w sampling.Batch
	if err := of.NewSampler().Sample(&w, b.ID.Key(1), seeds); err != nil {
		t.Fatal(err)
	}
	if after, _ := bulk(nodes[0].plane, "rows of edges"); after-drawn != 2*5*2 {
		t.Errorf("%d requests for 10 steps of walks to 2 nodes", after-drawn)
	}
	table, away := o.Here().Borders().Table(), int64(0) // rows that were asked of others
	elsewhere := func(v uint32) bool { return held[0].Piece(int(table[v/pieces.Border])) == nil }
	for i := range b.Blocks {
		for _, v := range b.Blocks[i].SrcIDs[:b.Blocks[i].NumDst] {
			if elsewhere(v) {
				away++
			}
		}
	}
	asked, bytes := drawn, drawnBytes
	if most := int64(2 * 2); asked != most || bytes < 2*away || bytes > 2*away+asked*64 {
		t.Errorf("%d requests of %d bytes for %d rows in 2 hops; %d were to be", asked, bytes, away, most)
	}
	rows := held[0].Rows()
	l := rows.Layout()
	inputs, far := b.Blocks[0].SrcIDs, int64(0)
	for _, v := range inputs {
		if elsewhere(v) {
			far++
		}
	}
	if err := features.Read(t.Context(), rows, features.Request{IDs: inputs, Dst: l.NewTable(len(inputs))}); err != nil {
		t.Fatal(err)
	}
	came := int64(0)
	for _, x := range nodes[1:] {
		_, b := bulk(x.plane, "feature rows answered")
		came += b
	}
	if asked, bytes := bulk(nodes[0].plane, "feature rows"); asked != 2 || bytes != 4*far || came != far*int64(l.RowBytes()) {
		t.Errorf("%d requests of %d bytes for %d rows, which came as %d bytes", asked, bytes, far, came)
	}
}

// Who waits for a piece whose node is gone ends with its context, and when the node leaves.
func TestPartsAway(t *testing.T) {
	nodes, held := holdAll(t, 4, 2, true)
	spec := sampling.Spec{Name: "neighbor", Fanouts: []int{4}}
	o, err := held[0].Owners(t.Context(), spec, 1)
	if err != nil {
		t.Fatal(err)
	}
	nodes[1].plane.Handle(dataplane.MethodDraw, func(ctx context.Context, _ *dataplane.Request) (dataplane.Reply, error) {
		return dataplane.Reply{}, errors.New("not now")
	})
	var q sampling.Ask
	for i := range held[0].Set().Pieces() {
		if held[0].Piece(i) == nil {
			q = sampling.Ask{Owner: i, Nodes: []uint32{o.Here().Borders()[i]}}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Draw(ctx, []sampling.Ask{q}, make([]sampling.Answer, 1)) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	go func() { done <- o.Draw(t.Context(), []sampling.Ask{q}, make([]sampling.Answer, 1)) }()
	held[0].Interrupt()
	if err := <-done; !errors.Is(err, parts.ErrOver) {
		t.Errorf("left: %v", err)
	}
}

// A run that waits for rows of another node, while it starts and while it trains, ends when it is interrupted.
func TestPartsInterrupted(t *testing.T) {
	nodes, held := holdAll(t, 4, 2, true)
	c := partsConfig("sage", "neighbor")
	c.Cluster.Parts, c.Data.Path = held[0], held[0].Set().Dir()
	asked := make(chan struct{}, 1<<10)
	refuse := func(context.Context, *dataplane.Request) (dataplane.Reply, error) {
		asked <- struct{}{}
		return dataplane.Reply{}, errors.New("not now")
	}
	nodes[1].plane.Handle(dataplane.MethodDraw, refuse)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := runtime.Start(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted while it starts: %v", err)
	}
	nodes[1].plane.Handle(dataplane.MethodDraw, held[1].Draw)
	if _, err := held[1].Owners(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: c.Sampling.Fanouts, Layers: 2}, c.Training.Seed); err != nil {
		t.Fatal(err)
	}
	rt, err := runtime.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	nodes[1].plane.Handle(dataplane.MethodDraw, refuse)
	for len(asked) > 0 {
		<-asked
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	var last error
	for _, err := range rt.Train(ctx) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("interrupted while it trains: %v", last)
	}
	if err := rt.Stop(); err != nil {
		t.Error(err)
	}
}

// Where no node is to be evaluated the plan has no memory for inference, which is then refused by name; training is the same.
func TestPartsWithoutInference(t *testing.T) {
	for _, evaluated := range []bool{true, false} {
		_, held := holdAll(t, 2, 1, evaluated)
		c := partsConfig("sage", "neighbor")
		c.Cluster.Parts, c.Data.Path = held[0], held[0].Set().Dir()
		rt, err := runtime.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = rt.Embed(t.Context(), []uint32{1})
		if plan := rt.Plan(); evaluated != (plan.Inferences > 0 && plan.InferenceBytes > 0) || evaluated != (err == nil) || !evaluated && (!errors.Is(err, runtime.ErrConfig) || !strings.Contains(err.Error(), "no memory is kept for inference")) {
			t.Errorf("evaluated %v: %d calls may infer, %v", evaluated, plan.Inferences, err)
		}
		for _, err := range rt.Train(t.Context()) {
			if err != nil {
				t.Error(err)
			}
		}
		if err := rt.Stop(); err != nil {
			t.Error(err)
		}
	}
}
