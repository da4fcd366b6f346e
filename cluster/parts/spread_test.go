package parts

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
)

// Pieces are placed on nodes that hold them and stay: one that drains gets none, whether its pieces are elsewhere or not.
func TestPlaced(t *testing.T) {
	dir := t.TempDir()
	whole, divided := filepath.Join(dir, "store"), filepath.Join(dir, "set")
	if err := store.Create(t.Context(), whole, generate.Builtin()); err != nil {
		t.Fatal(err)
	}
	if err := store.View(whole, func(s *store.Store) error {
		_, err := pieces.Create(t.Context(), divided, s, pieces.Options{Method: "contiguous", Pieces: 3})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	set, err := pieces.Open(divided)
	if err != nil {
		t.Fatal(err)
	}
	p := &Parts{o: Options{Set: set}}
	stays := membership.Info{Node: "a", Epoch: 1, Shards: []int{0, 1, 2, 7}} // 7 is no piece
	for _, leaves := range []membership.Info{{Yield: true}, {Drain: true}} {
		leaves.Node, leaves.Epoch, leaves.Shards = "b", 2, []int{0, 1, 2}
		a, ok := p.placed(&membership.View{Members: []membership.Info{stays, leaves}})
		if !ok || a.Data != set.Fingerprint() || !slices.Equal(a.Nodes, []string{"a", "a", "a"}) || !maps.Equal(a.Epochs, map[string]int64{"a": 1}) {
			t.Errorf("%+v, %v; want all at the node that stays", a, ok)
		}
		if a, ok := p.placed(&membership.View{Members: []membership.Info{leaves}}); ok {
			t.Errorf("%+v, though the only node leaves", a)
		}
	}
	both := membership.Info{Node: "b", Epoch: 2, Shards: []int{2}}
	if a, ok := p.placed(&membership.View{Members: []membership.Info{stays, both}}); !ok || !slices.Equal(a.Nodes, []string{"a", "a", "b"}) {
		t.Errorf("%+v, %v; want the third piece at the other node", a, ok)
	}
}
