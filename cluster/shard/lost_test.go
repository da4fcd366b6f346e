package shard

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
)

// A node that is left by the only one that had a piece's files names the piece and the node, though fewer are there than were waited for at the
// beginning. Before all had come it says nothing: who has not come yet may have the files.
func TestTellLost(t *testing.T) {
	f := table(graph.Float32, 4)
	m, l := MapOf([]uint32{0, 512, rows}), features.LayoutOf(f)
	store := &witness{MemStore: membership.NewMemStore()}
	defer store.Close()
	var said bytes.Buffer
	come := func(name string, piece int) *keeperNode {
		p, member := join(t, store, name)
		k, err := Keep(within(t), Options{Member: member, Plane: p, Map: m, Layout: l, Replicas: 1, MinNodes: 2, Pieces: []int{piece},
			Bring: func(_ context.Context, i int, _ []string) (*graph.Features, error) {
				if i != piece {
					return nil, nil
				}
				return l.NewTable(m.Rows(i)), nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		return &keeperNode{p, member, k}
	}
	a := come("a", 0)
	defer a.exit(t)
	a.keeper.store.log = slog.New(slog.NewTextHandler(&said, nil))
	v, _ := a.member.View()
	if a.keeper.TellLost(v); said.Len() > 0 {
		t.Errorf("one of two nodes is there, and says %q", said.String())
	}
	b := come("b", 1)
	if store.early.Load() {
		t.Error("others hear of a node's files before it takes shards, and copy what it is to hold")
	}
	for {
		a.keeper.store.mu.Lock()
		had, changed := a.keeper.store.had[1], a.keeper.store.changed
		a.keeper.store.mu.Unlock()
		if had == "b" {
			break
		}
		select {
		case <-changed:
		case <-within(t).Done():
			t.Fatal("a does not hear that b holds piece 1")
		}
	}
	b.exit(t)
	v, err := a.member.Until(within(t), func(v *membership.View) bool { return len(v.Members) == 1 })
	if err != nil {
		t.Fatal(err)
	}
	if a.keeper.TellLost(v); !strings.Contains(said.String(), "pieces=[1] were-at=[b]") {
		t.Errorf("piece 1 was at b, and a says %q", said.String())
	}
}

// witness sees whether a node ever says that it has files and is none that holds shards.
type witness struct {
	*membership.MemStore
	early atomic.Bool
}

func (w *witness) Commit(ctx context.Context, ifs []membership.If, do []membership.Change) (bool, int64, error) {
	for _, c := range do {
		if s := string(c.Value); strings.Contains(s, `"pieces":`) && !strings.Contains(s, `"`+PartKind+`"`) {
			w.early.Store(true)
		}
	}
	return w.MemStore.Commit(ctx, ifs, do)
}
