package cluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/store"
)

// A node without data copies the topology of one that has it, holds its part of
// the features, and reads those of the other.
func TestFilesAndShards(t *testing.T) {
	t.Parallel()
	s := serve(t)
	dir := filepath.Join(t.TempDir(), "data")
	ds := generate.Builtin()
	if err := store.Create(t.Context(), dir, ds); err != nil {
		t.Fatal(err)
	}
	whole, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	a, b := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir()))
	shards := Shards{Method: "hash", Parts: 4, Replicas: 1}
	part, sum, err := shards.Deal(t.Context(), whole.Dataset())
	if err != nil || len(part) != 4000 {
		t.Fatalf("%d nodes in shards, %v", len(part), err)
	}
	run, err := a.AgreeOnRun(within(t), &Run{Data: whole.Dataset().Fingerprint, Map: sum}, false, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Serve(within(t), dir, store.Topology|store.EdgeValues); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "copy")
	for range 2 { // the second time it is there
		if err := b.CopyData(within(t), run, to, store.Topology|store.EdgeValues, nil); err != nil {
			t.Fatal(err)
		}
	}
	// A copy that is damaged is not used: what is wrong with it is copied again.
	for _, name := range []string{"indices.bin", "labels.bin", "train.bin"} {
		path := filepath.Join(to, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(good)
		bad[len(bad)/2] ^= 1
		if err := os.WriteFile(path, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := b.Check(within(t), to, store.Topology|store.EdgeValues); !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), name) {
			t.Errorf("damaged %s: %v", name, err)
		}
		if err := b.CopyData(within(t), run, to, store.Topology|store.EdgeValues, nil); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, good) {
			t.Errorf("%s was not repaired: %v", name, err)
		}
	}
	if _, err := store.Open(to); err == nil {
		t.Error("the features were copied, too")
	}
	fa, err := a.HoldShards(within(t), run, dir, shards)
	if err != nil {
		t.Fatal(err)
	}
	fb, err := b.HoldShards(within(t), run, to, shards)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*Features{fa, fb} {
		if err := f.Ready(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	if fb.keeper.Held() == 0 || fa.keeper.Held()+fb.keeper.Held() < 4 {
		t.Errorf("a holds %d shards, b %d", fa.keeper.Held(), fb.keeper.Held())
	}
	want := ds.NodeFeatures
	layout := fb.Store().Layout()
	req := features.Request{Dst: layout.NewTable(200)}
	for v := range uint32(200) {
		req.IDs = append(req.IDs, 17*v)
	}
	if err := features.Read(within(t), fb.Store(), req); err != nil {
		t.Fatal(err)
	}
	n := want.Cols * want.DType.Size()
	for i, v := range req.IDs {
		if !bytes.Equal(req.Dst.Data[i*req.Dst.Stride:][:n], want.Data[int(v)*want.Stride:][:n]) {
			t.Fatalf("row %d is wrong", v)
		}
	}
	a.Member.Stand()
	b.Member.Stand()
	// What a alone held is lost with it, unless it comes back; and everybody says so.
	lost := func(c *Overview) (rows int) {
		for _, h := range c.Shards {
			if len(h.Nodes) == 0 {
				rows += h.Rows
			}
		}
		return rows
	}
	await(t, a, "all shards have places", func(*membership.View) bool { return len(a.Member.Places()) == 4 })
	if n := lost(b.gather(within(t))); n != 0 {
		t.Errorf("%d rows are lost while all are there", n)
	}
	holds, _ := b.Member.View()
	alone := 0
	for s := range 4 {
		if at, _ := holds.Member("b"); !slices.Contains(at.Shards, s) {
			rows, _ := fb.keeper.Size(s)
			alone += rows
		}
	}
	leave(t, a)
	await(t, b, "a is gone, and b leads", func(v *membership.View) bool {
		return len(v.Members) == 1 && len(b.Member.Places()) == fb.keeper.Held()
	})
	if n := lost(b.gather(within(t))); n != alone || n == 0 {
		t.Errorf("%d rows are lost, not %d", n, alone)
	}
	a = enter(t, options(s, "a", t.TempDir()))
	if err := a.takePart(within(t), run, a.Member.Epoch()); err != nil {
		t.Fatal(err)
	}
	if err := a.Serve(within(t), dir, store.Topology|store.EdgeValues); err != nil {
		t.Fatal(err)
	}
	if fa, err = a.HoldShards(within(t), run, dir, shards); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*Features{fa, fb} { // each by its own view
		if err := f.Ready(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	if n := lost(b.gather(within(t))); n != 0 {
		t.Errorf("%d rows are lost when the data is back", n)
	}
	// A run with another map, or other data, is not this node's.
	other := *run
	other.Map = "x"
	if _, err := b.HoldShards(within(t), &other, to, shards); err == nil {
		t.Error("shards of another map are shared")
	}
	shards.Method = "none"
	if _, _, err := shards.Deal(t.Context(), whole.Dataset()); err == nil {
		t.Error("nodes are dealt by a partition that is not there")
	}
	other = *run
	other.Data = "x"
	if err := b.CopyData(within(t), &other, filepath.Join(t.TempDir(), "other"), store.Topology|store.EdgeValues, nil); err == nil {
		t.Error("data of another fingerprint was kept")
	}
	kept, err := store.OpenPart(to, store.Topology|store.EdgeValues)
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.Close(); err != nil {
		t.Error(err)
	}
	// A node that drains trains on until the others have its shards.
	if err := b.Drain(within(t)); err != nil {
		t.Fatal(err)
	}
	await(t, a, "b drains", func(v *membership.View) bool {
		m, _ := v.Member("b")
		if m.Drain && len(m.Shards) > 0 {
			t.Errorf("b trains no more, and holds the shards %v", m.Shards)
		}
		return m.Drain
	})
	if fb.keeper.Held() != 0 || fa.keeper.Held() != 4 {
		t.Errorf("b drained, and a holds %d shards, b %d", fa.keeper.Held(), fb.keeper.Held())
	}
}
