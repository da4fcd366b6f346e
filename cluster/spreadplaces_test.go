package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/parts"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
)

// Pieces move once all that belong on a node that comes are there, and not one after the other; nodes that agree again have begun.
func TestSpreadWaitsForAll(t *testing.T) {
	cfg := spreadConfig(dividedBlocks(t, blocks(t), "contiguous", 4), "gcn")
	s := membership.NewMemStore()
	defer s.Close()
	ctx := t.Context()
	a := enter(t, s, "a", 4, 1)
	held := []*parts.Parts{a.holdParts(t, cfg.Data.Path, commonOf(t, cfg.Data.Path), 1)}
	alone, err := held[0].Spread(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(alone.Mine()) != 4 || alone.Begun() {
		t.Fatalf("one node computes %v, and has begun: %v", alone.Mine(), alone.Begun())
	}

	dir := t.TempDir()
	copySet(t, cfg.Data.Path, dir)
	set, err := pieces.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := enter(t, s, "b", 4, 1)
	a.plane.SetPeer("b", b.plane.Address())
	b.plane.SetPeer("a", a.plane.Address())
	first, goOn := "", make(chan struct{})
	p, err := parts.Hold(ctx, parts.Options{
		Member: b.member, Plane: b.plane, Files: dataplane.ServeDirectories(b.plane), Set: set, Common: commonOf(t, cfg.Data.Path), Replicas: 1, MinNodes: 1,
		Copying: func(dir string, _ dataplane.Progress, _ bool) {
			if first == "" {
				first = dir
			}
			if dir != first {
				<-goOn
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	held = append(held, p)
	until := func(is func(v *membership.View) bool) {
		t.Helper()
		if _, err := a.member.Until(ctx, is); err != nil {
			t.Fatal(err)
		}
	}
	until(func(v *membership.View) bool { m, _ := v.Member("b"); return len(m.Shards) == 1 })
	if alone.Better() {
		t.Error("pieces are to move while more of them are on their way")
	}
	close(goOn)
	until(func(*membership.View) bool { return alone.Better() })
	alone.Close(nil)
	computed := 0
	for i, p := range held {
		if i == 1 { // it hears of what the first wrote down before it looks
			told, _ := a.member.View()
			if _, err := b.member.Until(ctx, func(v *membership.View) bool { return v.Revision >= told.Revision }); err != nil {
				t.Fatal(err)
			}
		}
		again, err := p.Spread(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !again.Begun() || len(again.Mine()) != 2 {
			t.Errorf("node %d computes %v, and has begun: %v", i, again.Mine(), again.Begun())
		}
		computed += len(again.Mine())
		defer again.Close(nil)
	}
	if computed != 4 {
		t.Errorf("%d of 4 pieces are computed", computed)
	}
	leaveParts(t, []*node{a, b}, held)
}

// A node that has nothing but a piece without masters computes nothing, and ends with the others, which come to the bits of one process.
func TestSpreadEmptyPiece(t *testing.T) {
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 8, Classes: 2, AvgDegree: 3, Homophily: 0.8, FeatureDim: 4, Signal: 0.5, TrainFraction: 0.5, ValidFraction: 0.3, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(t.TempDir(), "store")
	ds.Fingerprint = ""
	if err := store.Create(t.Context(), whole, ds); err != nil {
		t.Fatal(err)
	}
	cfg := spreadConfig(dividedInto(t, whole, pieces.Options{Method: "hash", Pieces: 3, Seed: 1}), "gcn")
	set, err := pieces.Open(cfg.Data.Path)
	if err != nil {
		t.Fatal(err)
	}
	empty := len(slices.DeleteFunc(slices.Clone(set.Pieces()), func(p pieces.PieceInfo) bool { return p.Masters > 0 }))
	if empty == 0 {
		t.Fatal("no piece is empty: the test shows nothing")
	}
	want, err := computeSet(t.Context(), cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	s := membership.NewMemStore()
	defer s.Close()
	var nodes []*node
	var held []*parts.Parts
	for i := range set.Pieces() {
		n := enter(t, s, fmt.Sprint("n", i), 4, len(set.Pieces()))
		for _, other := range nodes {
			other.plane.SetPeer(n.plane.Node(), n.plane.Address())
			n.plane.SetPeer(other.plane.Node(), other.plane.Address())
		}
		dir := t.TempDir()
		copySet(t, cfg.Data.Path, dir, i)
		nodes, held = append(nodes, n), append(held, n.holdParts(t, dir, commonOf(t, cfg.Data.Path), len(set.Pieces())))
	}
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	var all sync.WaitGroup
	var idle atomic.Int32
	for _, p := range held {
		all.Go(func() {
			spread, err := p.Spread(ctx)
			if err == nil && len(spread.Mine()) == 0 {
				idle.Add(1)
			} else if err == nil {
				cfg := cfg
				cfg.Data.Path, cfg.Cluster.Spread = p.Set().Dir(), spread
				err = train(ctx, cfg, want.params, func(int) {})
			}
			if err == nil {
				err = spread.Done(ctx)
			}
			if err != nil {
				stop(err)
			}
			if spread != nil {
				spread.Close(err)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Error(err)
	}
	if int(idle.Load()) != empty { // each node has a piece
		t.Errorf("%d nodes have nothing to compute; %d pieces of as many are empty", idle.Load(), empty)
	}
	leaveParts(t, nodes, held)
}

// copySet copies a set's description, and those of its pieces that are listed.
func copySet(t *testing.T, from, to string, has ...int) {
	t.Helper()
	for _, f := range pieces.Files() {
		b, err := os.ReadFile(filepath.Join(from, f))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range has {
		f := pieces.PieceName(k)
		if err := os.CopyFS(filepath.Join(to, f), os.DirFS(filepath.Join(from, f))); err != nil {
			t.Fatal(err)
		}
	}
}
